"""The computer around the accelerator."""

import os
import platform
import shutil
import socket

import psutil

from autoamp.probes.facts import Host


def host(driver_version: str | None, driver_cuda_version: str | None, absent: str | None) -> Host:
    """What is known of the host; driver facts come from NVML, ``absent`` says why they do not."""
    memory = psutil.virtual_memory()
    missing: dict[str, str] = {}
    if driver_version is None:
        missing["driver_version"] = absent or "NVML did not say"
    cpu_model = _cpu_model()
    if cpu_model is None:
        missing["cpu_model"] = "/proc/cpuinfo names no model"
    shm = _shm_free()
    if shm is None:
        missing["shm_free_bytes"] = "there is no /dev/shm"
    return Host(
        hostname=socket.gethostname(),
        os=f"{platform.system()} {platform.release()}",
        cpu_model=cpu_model,
        cpu_count=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1,
        memory_total_bytes=int(memory.total),
        memory_available_bytes=int(memory.available),
        shm_free_bytes=shm,
        driver_version=driver_version,
        driver_cuda_version=driver_cuda_version,
        absent=missing,
    )


def _cpu_model() -> str | None:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
            for line in f:
                if line.startswith(("model name", "Model\t")):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or None


def _shm_free() -> int | None:
    try:
        return shutil.disk_usage("/dev/shm").free
    except OSError:
        return None
