"""The computer around the accelerator."""

import os
import platform
import shutil
import socket
from pathlib import Path

from autoamp.probes.facts import Host
from autoamp.probes.nvml import NvmlReading

NVIDIA_VENDOR = "0x10de"
# PCI classes of VGA and 3D controllers: data-centre GPUs are the latter.
DISPLAY_CLASSES = ("0x0300", "0x0302")


def host(reading: NvmlReading, root: Path = Path("/")) -> Host:
    """What is known of the host; ``root`` is where /proc, /sys and /dev lie."""
    total, available = _memory(root)
    limit = _number(root / "sys/fs/cgroup/memory.max")
    if limit is None:
        limit = _number(root / "sys/fs/cgroup/memory/memory.limit_in_bytes")
    total = total if limit is None else min(total, limit)
    missing: dict[str, str] = {}
    silence = reading.problem or "NVML did not say"
    if reading.driver_version is None:
        missing["driver_version"] = reading.absent.get("driver_version", silence)
    if reading.driver_cuda_version is None:
        missing["driver_cuda_version"] = reading.absent.get("driver_cuda_version", silence)
    cpu_model = _cpu_model(root)
    if cpu_model is None:
        missing["cpu_model"] = "/proc/cpuinfo names no model"
    shm = _shm_free(root)
    if shm is None:
        missing["shm_free_bytes"] = "there is no /dev/shm"
    on_pci = _nvidia_on_pci(root)
    if on_pci is None:
        missing["nvidia_on_pci"] = "/sys/bus/pci is not there"
    board = _jetson(root)
    if board is None:
        missing["jetson"] = "it is no Jetson"
    return Host(
        hostname=socket.gethostname(),
        os=f"{platform.system()} {platform.release()}",
        cpu_model=cpu_model,
        cpu_count=_processors(root),
        memory_total_bytes=total,
        memory_available_bytes=min(available, total),
        shm_free_bytes=shm,
        driver_version=reading.driver_version,
        driver_cuda_version=reading.driver_cuda_version,
        wsl=_is_wsl(root),
        jetson=board,
        nvidia_on_pci=on_pci,
        absent=missing,
    )


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _number(path: Path) -> int | None:
    text = (_read(path) or "").strip()
    return int(text) if text.isdigit() else None


def _memory(root: Path) -> tuple[int, int]:
    """Total and available bytes. Not psutil: its import takes as long as the whole probe."""
    found: dict[str, int] = {}
    for line in (_read(root / "proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        number = value.split()[:1]
        if number and number[0].isdigit():
            found[name] = int(number[0]) * 1024
    total = found.get("MemTotal")
    if total is None:
        # A sandbox without /proc.
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return total, found.get("MemAvailable", total)


def _processors(root: Path) -> int:
    """Processors this process may use: its affinity, and the container's share of time."""
    count = len(os.sched_getaffinity(0))
    quota, _, period = (_read(root / "sys/fs/cgroup/cpu.max") or "").strip().partition(" ")
    if not quota:
        old = root / "sys/fs/cgroup/cpu"
        quota = (_read(old / "cpu.cfs_quota_us") or "").strip()
        period = (_read(old / "cpu.cfs_period_us") or "").strip()
    # "max" and -1 are no limit.
    if quota.isdigit() and period.isdigit() and int(period):
        count = min(count, max(1, int(quota) // int(period)))
    return count


def _cpu_model(root: Path) -> str | None:
    for line in (_read(root / "proc/cpuinfo") or "").splitlines():
        if line.startswith(("model name", "Model\t")):
            return line.partition(":")[2].strip()
    return platform.processor() or None


def _shm_free(root: Path) -> int | None:
    try:
        return shutil.disk_usage(root / "dev/shm").free
    except OSError:
        return None


def _is_wsl(root: Path) -> bool:
    return "microsoft" in (_read(root / "proc/version") or "").lower()


def _jetson(root: Path) -> str | None:
    """The board's name from the device tree, which ends in a zero byte."""
    model = (_read(root / "proc/device-tree/model") or "").rstrip("\0").strip()
    if "jetson" in model.lower() or (root / "etc/nv_tegra_release").exists():
        return model or "NVIDIA Jetson"
    return None


def _nvidia_on_pci(root: Path) -> int | None:
    folder = root / "sys/bus/pci/devices"
    if not folder.is_dir():
        return None
    found = 0
    for device in folder.iterdir():
        vendor = (_read(device / "vendor") or "").strip()
        kind = (_read(device / "class") or "").strip()
        found += vendor == NVIDIA_VENDOR and kind.startswith(DISPLAY_CLASSES)
    return found
