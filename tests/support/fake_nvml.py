"""A stand-in for ``pynvml`` made from a file of tests/machines; tests/machines/README.md says how.

A field that the file does not have is answered with NVML_ERROR_NOT_SUPPORTED, as NVML does;
``{"error": "GPU_IS_LOST"}`` in its place is answered with that error.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

MACHINES = Path(__file__).resolve().parent.parent / "machines"
MIB = 2**20

# nvml.h, nvmlReturn_t: number and the text that nvmlErrorString gives.
ERRORS = {
    "UNINITIALIZED": (1, "Uninitialized"),
    "INVALID_ARGUMENT": (2, "Invalid Argument"),
    "NOT_SUPPORTED": (3, "Not Supported"),
    "NO_PERMISSION": (4, "Insufficient Permissions"),
    "NOT_FOUND": (6, "Not Found"),
    "DRIVER_NOT_LOADED": (9, "Driver Not Loaded"),
    "TIMEOUT": (10, "Timeout"),
    "LIBRARY_NOT_FOUND": (12, "NVML Shared Library Not Found"),
    "FUNCTION_NOT_FOUND": (13, "Function Not Found"),
    "GPU_IS_LOST": (15, "GPU is lost"),
    "RESET_REQUIRED": (16, "GPU requires restart"),
    "OPERATING_SYSTEM": (17, "The operating system has blocked the request."),
    "LIB_RM_VERSION_MISMATCH": (18, "RM has detected an NVML/RM version mismatch."),
    "NO_DATA": (21, "No data"),
    "UNKNOWN": (999, "Unknown Error"),
}


class NVMLError(Exception):
    """As nvidia-ml-py's: ``value`` is the number, the text comes from NVML."""

    def __init__(self, name: str) -> None:
        self.value, text = ERRORS[name]
        super().__init__(text)


def names() -> list[str]:
    """Every machine, by the name of its file."""
    return sorted(p.stem for p in MACHINES.glob("*.json"))


def load(name: str) -> dict[str, Any]:
    """The machine of that name."""
    machine: dict[str, Any] = json.loads((MACHINES / f"{name}.json").read_text(encoding="utf-8"))
    return machine


def install(monkeypatch: pytest.MonkeyPatch, machine: dict[str, Any]) -> types.ModuleType | None:
    """Make ``import pynvml`` give this machine, or fail as its file says."""
    package = machine.get("package", "nvidia-ml-py")
    if package in ("missing", "broken"):
        finder = _Refuse(package)
        monkeypatch.delitem(sys.modules, "pynvml", raising=False)
        monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
        return None
    module = build(machine)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


class _Refuse:
    """An import of pynvml that fails: not there, or raising from within."""

    def __init__(self, how: str) -> None:
        self._how = how

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name != "pynvml":
            return
        if self._how == "missing":
            raise ModuleNotFoundError("No module named 'pynvml'", name="pynvml")
        raise SyntaxError("invalid syntax (pynvml.py, line 1)")


def shown_instances(gpu: dict[str, Any]) -> list[dict[str, Any]]:
    """A GPU's MIG instances, without empty slots and those that NVML does not show."""
    found = gpu.get("mig_instances") or ()
    return [] if isinstance(found, dict) else [i for i in found if i and "handle_error" not in i]


def build(machine: dict[str, Any]) -> types.ModuleType:
    """The module; it reads ``machine`` at every call, so a test may change it between calls."""
    module = types.ModuleType("pynvml")
    package = machine.get("package", "nvidia-ml-py")
    module.__file__ = f"/usr/lib/python3/dist-packages/{package}/pynvml.py"
    if package == "stranger":
        module.__dict__["hello"] = lambda: "not NVIDIA's"
        return module
    old = package == "nvidia-ml-py3"
    module.__dict__.update(_functions(machine, text=_as_bytes if old else str))
    if old:
        for name in _UNKNOWN_TO_OLD:
            del module.__dict__[name]
    module.__dict__["NVMLError"] = NVMLError
    for name, (number, _) in ERRORS.items():
        module.__dict__[f"NVML_ERROR_{name}"] = number
    return module


# Queries younger than nvidia-ml-py3 7.352, the last of that name.
_UNKNOWN_TO_OLD = (
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlSystemGetCudaDriverVersion",
)


def _as_bytes(text: str) -> bytes:
    return text.encode()


def _value(place: dict[str, Any], field: str) -> Any:
    value = place.get(field)
    if value is None:
        raise NVMLError("NOT_SUPPORTED")
    if isinstance(value, dict) and "error" in value:
        raise NVMLError(value["error"])
    return value


def _milli(field: str) -> Callable[[dict[str, Any]], int]:
    return lambda handle: round(_value(handle, field) * 1000)


def _plain(field: str) -> Callable[[dict[str, Any]], Any]:
    return lambda handle: _value(handle, field)


def _functions(machine: dict[str, Any], text: Callable[[str], Any]) -> dict[str, Any]:
    open_count = [0]

    def need_init() -> None:
        if not open_count[0]:
            raise NVMLError("UNINITIALIZED")

    def init() -> None:
        if machine.get("init_error"):
            raise NVMLError(machine["init_error"])
        open_count[0] += 1

    def shutdown() -> None:
        need_init()
        open_count[0] -= 1

    def count() -> int:
        need_init()
        if machine.get("count_error"):
            raise NVMLError(machine["count_error"])
        return len(machine["gpus"])

    def by_index(index: int) -> dict[str, Any]:
        need_init()
        if not 0 <= index < len(machine["gpus"]):
            raise NVMLError("INVALID_ARGUMENT")
        gpu: dict[str, Any] = machine["gpus"][index]
        if gpu.get("handle_error"):
            raise NVMLError(gpu["handle_error"])
        return gpu

    def by_uuid(uuid: str | bytes) -> dict[str, Any]:
        need_init()
        wanted = uuid.decode() if isinstance(uuid, bytes) else uuid
        for gpu in machine["gpus"]:
            for device in (gpu, *shown_instances(gpu)):
                if device.get("uuid") == wanted:
                    found: dict[str, Any] = device
                    return found
        raise NVMLError("NOT_FOUND")

    def memory(handle: dict[str, Any]) -> SimpleNamespace:
        size = _value(handle, "memory_mib")
        total, used = size["total"] * MIB, size["used"] * MIB
        return SimpleNamespace(total=total, used=used, free=total - used)

    def processes(handle: dict[str, Any]) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(
                pid=p["pid"], usedGpuMemory=None if p.get("mib") is None else p["mib"] * MIB
            )
            for p in _value(handle, "processes")
        ]

    def instance(handle: dict[str, Any], number: int) -> dict[str, Any]:
        instances = _value(handle, "mig_instances")
        if number >= len(instances) or instances[number] is None:
            raise NVMLError("NOT_FOUND")
        found: dict[str, Any] = instances[number]
        if found.get("handle_error"):
            raise NVMLError(found["handle_error"])
        return found

    def parent(handle: dict[str, Any]) -> dict[str, Any]:
        for gpu in machine["gpus"]:
            if any(i is handle for i in shown_instances(gpu)):
                found: dict[str, Any] = gpu
                return found
        raise NVMLError("INVALID_ARGUMENT")

    def capability(handle: dict[str, Any]) -> tuple[int, int]:
        major, minor = _value(handle, "compute_capability")
        return int(major), int(minor)

    def clock(current: str, memory_clock: str) -> Callable[[dict[str, Any], int], Any]:
        fields = {0: current, 1: current, 2: memory_clock}
        return lambda handle, kind: _value(handle, fields.get(kind, "no such clock"))

    return {
        "nvmlInit": init,
        "nvmlShutdown": shutdown,
        "nvmlSystemGetDriverVersion": lambda: text(_value(machine, "driver_version")),
        "nvmlSystemGetCudaDriverVersion": lambda: _value(machine, "cuda_driver_version"),
        "nvmlDeviceGetCount": count,
        "nvmlDeviceGetHandleByIndex": by_index,
        "nvmlDeviceGetHandleByUUID": by_uuid,
        "nvmlDeviceGetName": lambda h: text(_value(h, "name")),
        "nvmlDeviceGetUUID": lambda h: text(_value(h, "uuid")),
        "nvmlDeviceGetPciInfo": lambda h: SimpleNamespace(busId=text(_value(h, "bus_id"))),
        "nvmlDeviceGetArchitecture": _plain("architecture"),
        "nvmlDeviceGetCudaComputeCapability": capability,
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetEccMode": lambda h: [_value(h, "ecc"), _value(h, "ecc")],
        "nvmlDeviceGetMigMode": lambda h: [_value(h, "mig_mode"), _value(h, "mig_mode")],
        "nvmlDeviceGetMaxMigDeviceCount": _plain("max_mig_instances"),
        "nvmlDeviceGetMigDeviceHandleByIndex": instance,
        "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": parent,
        "nvmlDeviceGetPowerUsage": _milli("power_w"),
        "nvmlDeviceGetEnforcedPowerLimit": _milli("power_limit_w"),
        "nvmlDeviceGetPowerManagementLimit": _milli("power_limit_w"),
        "nvmlDeviceGetPowerManagementDefaultLimit": _milli("power_limit_default_w"),
        "nvmlDeviceGetTotalEnergyConsumption": _milli("energy_j"),
        "nvmlDeviceGetTemperature": lambda h, sensor: _value(h, "temperature_c"),
        "nvmlDeviceGetClockInfo": clock("sm_clock_mhz", "memory_clock_mhz"),
        "nvmlDeviceGetMaxClockInfo": clock("sm_clock_max_mhz", "memory_clock_max_mhz"),
        "nvmlDeviceGetCurrentClocksEventReasons": _plain("throttle_bits"),
        "nvmlDeviceGetCurrentClocksThrottleReasons": _plain("throttle_bits"),
        "nvmlDeviceGetCurrPcieLinkGeneration": _plain("pcie_generation"),
        "nvmlDeviceGetMaxPcieLinkGeneration": _plain("pcie_generation_max"),
        "nvmlDeviceGetCurrPcieLinkWidth": _plain("pcie_width"),
        "nvmlDeviceGetMaxPcieLinkWidth": _plain("pcie_width_max"),
        "nvmlDeviceGetPersistenceMode": _plain("persistence"),
        "nvmlDeviceGetComputeMode": _plain("compute_mode"),
        "nvmlDeviceGetUtilizationRates": lambda h: SimpleNamespace(
            gpu=_value(h, "gpu_percent"), memory=0
        ),
        "nvmlDeviceGetComputeRunningProcesses": processes,
    }
