"""From a catalogue row to what the virtual accelerator plays."""

import pytest

from autoamp.probes import catalogue
from autoamp.probes.facts import GpuModel
from autoamp.probes.peaks import peaks
from autoamp.probes.virtual import virtual_device


@pytest.mark.parametrize("model", catalogue.models(), ids=lambda m: m.alias)
def test_every_row_can_be_played(model: GpuModel) -> None:
    played = virtual_device(model, model.memory_bytes, numerics=True)
    assert played.alias == model.alias and played.memory_bytes == model.memory_bytes
    assert played.compute_capability == model.compute_capability
    assert played.bandwidth_bytes_per_s == model.bandwidth_gb_per_s * 1e9
    assert played.flops_per_s["float32"] == model.fp32_tflops * 1e12
    assert all(rate > 0 for rate in played.flops_per_s.values())
    # A rate is claimed only where the hardware has the dtype, and a sourced one comes first.
    wanted = {k: p.tflops * 1e12 for k, p in peaks(model).items()}
    if model.tensor_core_generation:
        assert played.flops_per_s == wanted
    else:
        # Float16 arithmetic without Tensor Cores is out of AMP's reach: it must not look faster.
        assert played.flops_per_s["float16"] <= played.flops_per_s["float32"]
        assert played.flops_per_s.keys() == wanted.keys()
    ampere = model.compute_capability >= (8, 0)
    assert ("tf32" in played.flops_per_s) <= ampere
    assert ("bfloat16" in played.flops_per_s) <= ampere
    if model.tf32_tflops is not None:
        assert played.flops_per_s["tf32"] == model.tf32_tflops * 1e12


def test_tensor_rates_come_before_plain_ones() -> None:
    assert virtual_device(catalogue.find("v100-16gb"), 1, True).flops_per_s["float16"] == 125e12
    pascal = virtual_device(catalogue.find("gtx1080"), 1, True).flops_per_s
    # Products accumulate in float32, and are multiplied in it too.
    assert pascal["float16"] == pascal["float32"]


def test_memory_and_numerics_are_the_callers() -> None:
    played = virtual_device(catalogue.find("t4"), 123, numerics=False)
    assert (played.memory_bytes, played.numerics) == (123, False)
