"""Paddle as installed for an interpreter, from metadata: paddle itself is never imported."""

import json
import sys

from autoamp.errors import MachineError
from autoamp.probes.facts import PaddleInstall
from autoamp.process import run_quick

DISTRIBUTIONS = ("paddlepaddle-gpu", "paddlepaddle")

# Runs in the interpreter that is asked about; paddle/version/__init__.py of a wheel is a list of
# plain assignments, which is read, not imported.
ASK = r"""
import importlib.util, json, os, re, sys
from importlib import metadata
out = {"python_version": sys.version.split()[0], "installed": {}}
for name in ("paddlepaddle-gpu", "paddlepaddle", "numpy"):
    try:
        out["installed"][name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
spec = importlib.util.find_spec("paddle")
if spec is not None and spec.origin:
    try:
        with open(os.path.join(os.path.dirname(spec.origin), "version", "__init__.py")) as f:
            text = f.read()
        for key in ("full_version", "cuda_version", "cudnn_version", "with_pip_cuda_libraries"):
            match = re.search(r"^%s\s*=\s*'([^']*)'" % key, text, re.M)
            if match:
                out[key] = match.group(1)
    except OSError as error:
        out["unreadable"] = str(error)
out["found"] = spec is not None
print(json.dumps(out))
"""


def paddle_install(python: str | None = None) -> PaddleInstall:
    """What ``python`` (default: this interpreter) would import as paddle.

    Raises MachineError ``interpreter-broken`` if the interpreter does not answer.
    """
    python = python or sys.executable
    try:
        # From the root folder: `-c` puts the working directory first on the path, and `-I` would
        # hide a paddle that was installed with --user.
        done = run_quick([python, "-c", ASK], timeout_s=60, cwd="/")
    except (OSError, TimeoutError) as error:
        raise MachineError(
            f"{python} does not answer: {error}",
            slug="interpreter-broken",
            remedy="give --python a Python 3 interpreter that runs",
        ) from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        tail = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no output"]
        raise MachineError(
            f"{python} is no Python 3 that autoamp can use: {tail[0]}",
            slug="interpreter-broken",
            remedy="give --python a Python 3 interpreter that runs",
        ) from None
    return read_answer(python, answer)


def read_answer(python: str, answer: dict[str, object]) -> PaddleInstall:
    """The facts in the interpreter's answer; pure."""
    installed = answer.get("installed")
    installed = installed if isinstance(installed, dict) else {}
    found = [name for name in DISTRIBUTIONS if name in installed]
    absent: dict[str, str] = {}
    version = installed.get(found[0]) if found else None
    if version is None and answer.get("found"):
        version = _text(answer.get("full_version"))
    if version is None:
        absent["version"] = "neither paddlepaddle-gpu nor paddlepaddle is installed"
    if len(found) == 2:
        absent["distribution"] = "both paddlepaddle-gpu and paddlepaddle are installed"
    cuda = _version(answer.get("cuda_version"))
    gpu_build = None if version is None else cuda is not None
    if cuda is None and version is not None:
        absent["cuda_version"] = "this is a CPU build of Paddle"
    return PaddleInstall(
        python=python,
        version=None if version is None else str(version),
        distribution=found[0] if len(found) == 1 else None,
        gpu_build=gpu_build,
        cuda_version=cuda,
        cudnn_version=_version(answer.get("cudnn_version")),
        numpy_version=_text(installed.get("numpy")),
        python_version=_text(answer.get("python_version")),
        absent=absent,
    )


def _text(value: object) -> str | None:
    return str(value) if value else None


def _version(value: object) -> str | None:
    """A version, or None for what a CPU build writes there."""
    text = _text(value)
    return text if text and text not in ("False", "None", "0.0", "0") else None
