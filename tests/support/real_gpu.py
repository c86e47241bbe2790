"""Tests on a real GPU: they skip with the reason, and fail instead if one was promised."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from autoamp.probes import nvml
from autoamp.probes.paddle_install import paddle_install


def _absent(reason: str) -> None:
    if os.environ.get("AUTOAMP_REQUIRE_GPU") == "1":
        pytest.fail(f"AUTOAMP_REQUIRE_GPU=1, but {reason}")
    pytest.skip(reason)


def require_nvml() -> nvml.NvmlReading:
    """What NVML says of the real GPUs here."""
    reading = nvml.read()
    if reading.problem is not None:
        _absent(reading.problem)
    if not reading.gpus:
        _absent("NVML shows no GPU")
    return reading


def require_nvidia_smi() -> str:
    """The path of nvidia-smi, the second witness."""
    path = shutil.which("nvidia-smi")
    if path is None:
        _absent("nvidia-smi is not installed")
    return path or ""


def require_gpu_paddle() -> str:
    """An interpreter whose Paddle computes on the GPU: ``$AUTOAMP_GPU_PYTHON`` or this one."""
    require_nvml()
    python = os.environ.get("AUTOAMP_GPU_PYTHON", sys.executable)
    found = paddle_install(python)
    if not found.gpu_build:
        _absent(f"{python} has no GPU build of Paddle ({found.version or 'none'})")
    return python


def run_python(python: str, code: str, *arguments: str) -> str:
    """What a program printed; autoamp is importable in it."""
    import autoamp

    root = os.path.dirname(os.path.dirname(os.path.abspath(autoamp.__file__)))
    done = subprocess.run(
        [python, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": root, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        capture_output=True,
        text=True,
        timeout=300,
        cwd="/",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
