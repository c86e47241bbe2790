"""Single queries of a GPU where drivers of different ages answer differently."""

from types import SimpleNamespace
from typing import Any

import fake_nvml
import pytest

from autoamp.probes import nvml


def old_driver(monkeypatch: pytest.MonkeyPatch, **functions: Any) -> None:
    """A T4 whose driver lacks the newer entry points, or has others."""
    module = fake_nvml.install(monkeypatch, fake_nvml.load("t4"))
    for name, function in functions.items():
        monkeypatch.setattr(module, name, function, raising=False)


def missing(*_: Any) -> Any:
    raise fake_nvml.NVMLError("FUNCTION_NOT_FOUND")


def test_processes_of_a_driver_before_510(monkeypatch: pytest.MonkeyPatch) -> None:
    old_driver(
        monkeypatch,
        nvmlDeviceGetComputeRunningProcesses=missing,
        nvmlDeviceGetComputeRunningProcesses_v2=lambda handle: [
            SimpleNamespace(pid=2**22 + 7, usedGpuMemory=None)
        ],
    )
    (gpu,) = nvml.read().gpus
    assert gpu.processes is not None
    # No such process here: it belongs to someone else's view, and has no name.
    assert [(p.pid, p.memory_bytes, p.name) for p in gpu.processes] == [(2**22 + 7, None, None)]


def test_another_failure_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(handle: Any) -> Any:
        raise fake_nvml.NVMLError("NO_PERMISSION")

    old_driver(
        monkeypatch,
        nvmlDeviceGetComputeRunningProcesses=refused,
        nvmlDeviceGetComputeRunningProcesses_v2=lambda handle: pytest.fail("asked again"),
    )
    (gpu,) = nvml.read().gpus
    assert gpu.processes is None
    assert "Insufficient Permissions" in gpu.absent["processes"]


def test_zero_bytes_are_no_size(monkeypatch: pytest.MonkeyPatch) -> None:
    old_driver(
        monkeypatch,
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=0, free=0, used=0),
    )
    (gpu,) = nvml.read().gpus
    assert gpu.memory_total_bytes is None and gpu.memory_free_bytes is None
    assert "0 bytes" in gpu.absent["memory_total_bytes"]
