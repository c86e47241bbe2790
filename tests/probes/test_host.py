"""The host, read from a /proc and /sys of the test's own making."""

from pathlib import Path

import pytest

from autoamp.probes.host import host
from autoamp.probes.nvml import NvmlReading

GIB = 2**30


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_this_machine_has_no_unexplained_gap() -> None:
    found = host(NvmlReading(driver_version="550.1", driver_cuda_version="12.4"))
    assert found.cpu_count >= 1
    assert 0 < found.memory_available_bytes <= found.memory_total_bytes
    for field in ("cpu_model", "shm_free_bytes", "nvidia_on_pci"):
        assert getattr(found, field) is not None or found.absent[field]
    assert found.driver_version == "550.1" and "driver_version" not in found.absent


def test_an_empty_root_is_survived_and_explained(tmp_path: Path) -> None:
    found = host(NvmlReading(problem="no NVIDIA driver"), tmp_path)
    assert found.shm_free_bytes is None and found.absent["shm_free_bytes"]
    assert found.nvidia_on_pci is None and found.absent["nvidia_on_pci"]
    assert found.absent["driver_version"] == "no NVIDIA driver"
    assert found.wsl is False and found.jetson is None


@pytest.mark.parametrize(
    ("version", "wsl"),
    [
        ("Linux version 5.15.153.1-microsoft-standard-WSL2 (root@941d) #1 SMP", True),
        ("Linux version 4.4.0-19041-Microsoft (Microsoft@Microsoft.com)", True),
        ("Linux version 6.8.0-45-generic (buildd@lcy02) #45-Ubuntu", False),
    ],
)
def test_wsl(version: str, wsl: bool, tmp_path: Path) -> None:
    assert host(NvmlReading(), write(tmp_path, proc__version=version)).wsl is wsl


def test_jetson(tmp_path: Path) -> None:
    board = "NVIDIA Jetson AGX Orin Developer Kit"
    root = write(tmp_path, **{"proc__device-tree__model": board + "\0"})
    assert host(NvmlReading(), root).jetson == board


def test_a_board_without_a_device_tree(tmp_path: Path) -> None:
    root = write(tmp_path, etc__nv_tegra_release="# R36 (release), REVISION: 3.0")
    assert host(NvmlReading(), root).jetson


@pytest.mark.parametrize(
    ("quota", "at_most"),
    [("100000 100000", 1), ("50000 100000", 1), ("max 100000", None), ("junk", None)],
)
def test_a_containers_share_of_the_processors(
    quota: str, at_most: int | None, tmp_path: Path
) -> None:
    root = write(tmp_path, **{"sys__fs__cgroup__cpu.max": quota})
    free = host(NvmlReading(), tmp_path / "nothing").cpu_count
    assert host(NvmlReading(), root).cpu_count == (free if at_most is None else at_most)


def test_a_containers_memory(tmp_path: Path) -> None:
    root = write(tmp_path, **{"sys__fs__cgroup__memory.max": str(GIB // 2)})
    found = host(NvmlReading(), root)
    assert found.memory_total_bytes == GIB // 2
    assert found.memory_available_bytes <= GIB // 2
    free = host(NvmlReading(), write(tmp_path, **{"sys__fs__cgroup__memory.max": "max\n"}))
    assert free.memory_total_bytes > GIB // 2


def test_nvidia_on_the_bus_is_seen_without_a_driver(tmp_path: Path) -> None:
    devices = {
        "0000:01:00.0": ("0x10de\n", "0x030000\n"),  # VGA
        "0000:02:00.0": ("0x10de\n", "0x030200\n"),  # 3D: a data-centre GPU
        "0000:01:00.1": ("0x10de\n", "0x040300\n"),  # its sound
        "0000:03:00.0": ("0x8086\n", "0x030000\n"),  # Intel's graphics
    }
    for name, (vendor, kind) in devices.items():
        folder = tmp_path / "sys/bus/pci/devices" / name
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(vendor)
        (folder / "class").write_text(kind)
    assert host(NvmlReading(), tmp_path).nvidia_on_pci == 2
