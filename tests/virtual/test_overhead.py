"""What is estimated of a virtual GPU's memory before the first tensor."""

from dataclasses import replace

import pytest

from autoamp import wire
from autoamp.probes import catalogue
from autoamp.probes.virtual import virtual_device
from autoamp.virtual.overhead import context_bytes, driver_bytes, memory_data, with_overhead

MIB = 2**20


def played(alias: str, own_size: bool = False) -> wire.VirtualDevice:
    model = catalogue.find(alias)
    return with_overhead(virtual_device(model, model.memory_bytes, True), own_size=own_size)


@pytest.mark.parametrize("model", catalogue.models(), ids=lambda m: m.alias)
def test_every_gpu_keeps_most_of_its_memory_for_tensors(model: catalogue.GpuModel) -> None:
    device = played(model.alias)
    assert device.overhead_bytes == device.driver_bytes + device.context_bytes
    assert device.usable_bytes + device.overhead_bytes == device.memory_bytes
    assert 0.7 * device.memory_bytes < device.usable_bytes < device.memory_bytes


@pytest.mark.parametrize(
    ("alias", "seen_mib"),
    [("v100-16gb", 16160), ("v100-32gb", 32510), ("t4", 15360), ("l4", 23034), ("a10g", 23028),
     ("p40", 22912), ("a100-80gb", 81050), ("h100", 81559), ("gtx1080", 8119)],
)  # fmt: skip
def test_what_the_driver_leaves_is_what_it_reports(alias: str, seen_mib: int) -> None:
    """nvidia-smi's and CUDA's totals, as published."""
    if alias == "h100":
        alias = next(m.alias for m in catalogue.models() if m.nvml_name == "NVIDIA H100 80GB HBM3")
    device = played(alias)
    left = device.memory_bytes - device.driver_bytes
    assert left == pytest.approx(seen_mib * MIB, rel=0.015)


def test_a_size_asked_for_loses_the_context_alone() -> None:
    device = with_overhead(virtual_device(catalogue.find("t4"), 4 * 2**30, True), own_size=True)
    assert device.driver_bytes == 0
    assert device.usable_bytes == 4 * 2**30 - context_bytes((7, 5))


def test_no_memory_is_left_below_the_context() -> None:
    device = replace(played("t4", own_size=True), memory_bytes=MIB)
    assert device.usable_bytes == 0
    assert device.overhead_bytes == MIB


def test_hopper_has_larger_workspaces_for_products() -> None:
    assert context_bytes((9, 0)) - context_bytes((8, 6)) == 3 * (32 - 4) * MIB


def test_every_estimate_has_a_source_and_its_gpus_exist() -> None:
    data = memory_data()
    for entry in (data["driver_share"], data["ecc_share"], data["cublas"]):
        assert entry["source"]
    assert all(x["source"] for x in data["context_bytes_by_capability"].values())
    known = {m.alias for m in catalogue.models()}
    for alias in data["ecc_share"]["aliases"]:
        assert alias in known
        assert driver_bytes(alias, 1000) > driver_bytes("v100-16gb", 1000)
