"""Paddle as installed for an interpreter, from metadata: paddle itself is never imported."""

import json
import os
import re
import sys
from pathlib import Path

from autoamp.errors import MachineError
from autoamp.probes import paddle_metadata
from autoamp.probes.facts import INSTALLED_TWICE, PaddleInstall
from autoamp.probes.paddle_metadata import DISTRIBUTIONS

REMEDY = "give --python a Python 3 interpreter that runs"


def paddle_install(python: str | None = None) -> PaddleInstall:
    """What ``python`` (default: this interpreter) would import as paddle.

    Raises MachineError ``interpreter-broken`` if the interpreter does not answer.
    """
    python = python or sys.executable
    if os.path.abspath(python) == os.path.abspath(sys.executable):
        # Asking itself saves the start of an interpreter.
        return read_answer(python, paddle_metadata.answer())
    # Imported where it is needed: this interpreter's own answer is the usual case.
    from autoamp.process import run_quick

    text = Path(paddle_metadata.__file__).read_text(encoding="utf-8")
    try:
        # Not `-I`: it would hide a paddle that was installed with --user.
        done = run_quick([python, "-c", text], timeout_s=60, cwd="/")
    except (OSError, TimeoutError) as error:
        raise MachineError(
            f"{python} does not answer: {error}", slug="interpreter-broken", remedy=REMEDY
        ) from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        tail = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no output"]
        raise MachineError(
            f"{python} is no Python 3 that autoamp can use: {tail[0]}",
            slug="interpreter-broken",
            remedy=REMEDY,
        ) from None
    return read_answer(python, answer)


def read_answer(python: str, answer: dict[str, object]) -> PaddleInstall:
    """The facts in the interpreter's answer; pure."""
    installed = answer.get("installed")
    installed = installed if isinstance(installed, dict) else {}
    found = [name for name in DISTRIBUTIONS if name in installed]
    absent: dict[str, str] = {}
    if answer.get("unreadable"):
        absent["build"] = f"paddle's version file cannot be read: {answer['unreadable']}"
    version = _text(answer.get("full_version")) if answer.get("found") else None
    if version is None and found:
        version = _text(installed.get(found[0]))
        if not answer.get("found"):
            absent["build"] = f"{found[0]} is registered, but its paddle folder is gone"
    if version is None:
        absent["version"] = "no paddlepaddle and no paddlepaddle-gpu is installed"
    if len(found) > 1:
        absent["distribution"] = " and ".join(found) + f" {INSTALLED_TWICE}"
    elif not found:
        absent["distribution"] = "neither paddlepaddle nor paddlepaddle-gpu is registered there"
    cuda = _version(answer.get("cuda_version"))
    build = None
    if version is not None and "build" not in absent:
        build = "cpu"
        if cuda is not None:
            build = "cuda"
        elif _version(answer.get("hip_version")):
            build = "rocm"
        elif _version(answer.get("xpu_version")) or _version(answer.get("xpu_xre_version")):
            build = "xpu"
    if cuda is None and version is not None:
        absent["cuda_version"] = absent.get("build") or f"this is a {_BUILD_TEXT[build or 'cpu']}"
        absent["cudnn_version"] = absent["cuda_version"]
    elif cuda is not None and _version(answer.get("cudnn_version")) is None:
        absent["cudnn_version"] = "this build does not say"
    if build is None:
        absent.setdefault("build", absent.get("version", "unknown"))
        absent["gpu_build"] = absent["build"]
    if version is None:
        absent["cuda_version"] = absent["cudnn_version"] = absent["version"]
    if not answer.get("python_version"):
        absent["python_version"] = "the interpreter did not say"
    if "numpy" not in installed:
        absent["numpy_version"] = "numpy is not installed there"
    plugins = answer.get("plugins")
    return PaddleInstall(
        python=python,
        version=version,
        distribution=found[0] if len(found) == 1 else None,
        gpu_build=None if build is None else build in ("cuda", "rocm"),
        cuda_version=cuda,
        cudnn_version=_version(answer.get("cudnn_version")),
        cuda_archs=_archs(answer.get("compiled_cuda_archs")),
        build=build,
        plugins=tuple(_plugin(str(p)) for p in plugins) if isinstance(plugins, list) else (),
        numpy_version=_text(installed.get("numpy")),
        python_version=_text(answer.get("python_version")),
        absent=absent,
    )


_BUILD_TEXT = {
    "cpu": "CPU build of Paddle",
    "rocm": "ROCm build of Paddle",
    "xpu": "XPU build of Paddle",
}


def _text(value: object) -> str | None:
    return str(value) if value else None


def _version(value: object) -> str | None:
    """A version, or None for what a build without that part writes there."""
    text = _text(value)
    return text if text and re.match(r"\d", text) and text not in ("0", "0.0") else None


def _archs(value: object) -> tuple[int, ...]:
    """``[70, 75, 80]`` (also written ``7.5``, ``sm_90a``) as ``(70, 75, 80)``."""
    found = re.findall(r"(\d+)(?:\.(\d))?", str(value or ""))
    return tuple(int(whole + part) for whole, part in found)


def _plugin(file: str) -> str:
    """``npu`` of ``libpaddle-custom-npu.so``, the name that PaddleCustomDevice gives its files."""
    match = re.fullmatch(r"libpaddle-custom-(.+)\.so", file)
    return match.group(1) if match else file
