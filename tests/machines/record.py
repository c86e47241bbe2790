"""Records the machine it runs on in the format of this folder: ``python record.py > NAME.json``.

Needs nvidia-ml-py (or nothing at all: "no driver" is worth recording too), not autoamp. UUIDs
and bus numbers are kept; cut them by hand if they should not be public.
"""

import json
import os
import platform
import shutil
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

MIB = 2**20


def ask(query: Callable[[], Any]) -> Any:
    """The value, or ``{"error": NAME}`` as fake_nvml reads it."""
    try:
        value = query()
    except Exception as error:
        return {"error": error_name(error)}
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def error_name(error: Exception) -> str:
    """``NOT_SUPPORTED`` of NVML's error 3; for anything else the exception's own words."""
    number = getattr(error, "value", None)
    pynvml = sys.modules.get("pynvml")
    for name in dir(pynvml):
        if name.startswith("NVML_ERROR_") and getattr(pynvml, name) == number:
            return name.removeprefix("NVML_ERROR_")
    return f"{type(error).__name__}: {error}"


def memory(nv: Any, handle: Any) -> Any:
    def query() -> dict[str, int]:
        found = nv.nvmlDeviceGetMemoryInfo(handle)
        return {"total": found.total // MIB, "used": found.used // MIB}

    return ask(query)


def processes(nv: Any, handle: Any) -> Any:
    def query() -> list[dict[str, int | None]]:
        return [
            {"pid": p.pid, "mib": None if p.usedGpuMemory is None else p.usedGpuMemory // MIB}
            for p in nv.nvmlDeviceGetComputeRunningProcesses(handle)
        ]

    return ask(query)


def instances(nv: Any, handle: Any, most: Any) -> list[dict[str, Any] | None]:
    found: list[dict[str, Any] | None] = []
    for number in range(most if isinstance(most, int) else 0):
        try:
            instance = nv.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except Exception as error:
            # An empty slot is none; one that is not shown keeps its error.
            name = error_name(error)
            found.append(None if name == "NOT_FOUND" else {"handle_error": name})
            continue
        found.append(
            {
                "name": ask(partial(nv.nvmlDeviceGetName, instance)),
                "uuid": ask(partial(nv.nvmlDeviceGetUUID, instance)),
                "memory_mib": memory(nv, instance),
                "processes": processes(nv, instance),
            }
        )
    while found and found[-1] is None:
        found.pop()
    return found


def gpu(nv: Any, index: int) -> dict[str, Any]:
    """Everything that autoamp asks of one GPU."""
    try:
        handle = nv.nvmlDeviceGetHandleByIndex(index)
    except Exception as error:
        return {"handle_error": error_name(error)}
    most = ask(lambda: nv.nvmlDeviceGetMaxMigDeviceCount(handle))
    found = {
        "name": ask(lambda: nv.nvmlDeviceGetName(handle)),
        "uuid": ask(lambda: nv.nvmlDeviceGetUUID(handle)),
        "bus_id": ask(lambda: nv.nvmlDeviceGetPciInfo(handle).busId),
        "architecture": ask(lambda: nv.nvmlDeviceGetArchitecture(handle)),
        "compute_capability": ask(lambda: list(nv.nvmlDeviceGetCudaComputeCapability(handle))),
        "memory_mib": memory(nv, handle),
        "ecc": ask(lambda: nv.nvmlDeviceGetEccMode(handle)[0]),
        "mig_mode": ask(lambda: nv.nvmlDeviceGetMigMode(handle)[0]),
        "power_w": ask(lambda: nv.nvmlDeviceGetPowerUsage(handle) / 1000),
        "power_limit_w": ask(lambda: nv.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000),
        "power_limit_default_w": ask(
            lambda: nv.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1000
        ),
        "energy_j": ask(lambda: nv.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000),
        "temperature_c": ask(lambda: nv.nvmlDeviceGetTemperature(handle, 0)),
        "sm_clock_mhz": ask(lambda: nv.nvmlDeviceGetClockInfo(handle, 1)),
        "sm_clock_max_mhz": ask(lambda: nv.nvmlDeviceGetMaxClockInfo(handle, 1)),
        "memory_clock_mhz": ask(lambda: nv.nvmlDeviceGetClockInfo(handle, 2)),
        "memory_clock_max_mhz": ask(lambda: nv.nvmlDeviceGetMaxClockInfo(handle, 2)),
        "throttle_bits": ask(lambda: nv.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
        "pcie_generation": ask(lambda: nv.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
        "pcie_generation_max": ask(lambda: nv.nvmlDeviceGetMaxPcieLinkGeneration(handle)),
        "pcie_width": ask(lambda: nv.nvmlDeviceGetCurrPcieLinkWidth(handle)),
        "pcie_width_max": ask(lambda: nv.nvmlDeviceGetMaxPcieLinkWidth(handle)),
        "persistence": ask(lambda: nv.nvmlDeviceGetPersistenceMode(handle)),
        "compute_mode": ask(lambda: nv.nvmlDeviceGetComputeMode(handle)),
        "gpu_percent": ask(lambda: nv.nvmlDeviceGetUtilizationRates(handle).gpu),
        "processes": processes(nv, handle),
        "max_mig_instances": most,
    }
    if found["mig_mode"] == 1:
        found["mig_instances"] = instances(nv, handle, most)
    # NVML's usual answer needs no line: it is what the fake gives for a missing field.
    return {k: v for k, v in found.items() if v != {"error": "NOT_SUPPORTED"}}


def host() -> dict[str, Any]:
    with open("/proc/meminfo", encoding="ascii") as f:
        total = next(line for line in f if line.startswith("MemTotal"))
    with open("/proc/version", encoding="utf-8") as f:
        wsl = "microsoft" in f.read().lower()
    return {
        "cpu_count": len(os.sched_getaffinity(0)),
        "memory_total_mib": int(total.split()[1]) // 1024,
        "shm_free_mib": shutil.disk_usage("/dev/shm").free // MIB,
        "wsl": wsl,
    }


def record() -> dict[str, Any]:
    """The machine as this folder's files describe one, less Paddle and expectations."""
    machine: dict[str, Any] = {
        "origin": {
            "kind": "recorded",
            "note": f"record.py under Python {platform.python_version()}",
        },
        "package": "nvidia-ml-py",
        "gpus": [],
        "host": host(),
    }
    try:
        import pynvml as nv
    except ImportError:
        return {**machine, "package": "missing"}
    try:
        nv.nvmlInit()
    except Exception as error:
        return {**machine, "init_error": error_name(error)}
    try:
        machine["driver_version"] = ask(nv.nvmlSystemGetDriverVersion)
        machine["cuda_driver_version"] = ask(nv.nvmlSystemGetCudaDriverVersion)
        machine["gpus"] = [gpu(nv, index) for index in range(nv.nvmlDeviceGetCount())]
    finally:
        nv.nvmlShutdown()
    return machine


if __name__ == "__main__":
    json.dump(record(), sys.stdout, indent=1)
    print()
