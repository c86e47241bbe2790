"""Peaks that no source gives are worked out; where a source does, both agree."""

from dataclasses import replace

import pytest

from autoamp.probes import peaks
from autoamp.probes.catalogue import find, models
from autoamp.probes.facts import GpuModel

WITH_TENSOR_CORES = [
    m
    for m in models()
    if m.fp16_tensor_tflops is not None
    and m.compute_capability in peaks.FMA_PER_SM
    # Where sources contradict each other the row says so, and keeps one of them.
    and "CONFLICT" not in m.notes
]


@pytest.mark.parametrize("model", WITH_TENSOR_CORES, ids=lambda m: m.alias)
def test_the_formula_gives_what_the_sources_say(model: GpuModel) -> None:
    """Within 10 %: data sheets round, and quote some boards at another clock than boost."""
    blank = replace(model, fp16_tensor_tflops=None, bf16_tensor_tflops=None)
    worked_out = peaks.float16(blank)
    assert worked_out is not None and worked_out.derived
    assert worked_out.tflops == pytest.approx(model.fp16_tensor_tflops, rel=0.1)


@pytest.mark.parametrize(
    "model", [m for m in WITH_TENSOR_CORES if m.tf32_tflops is not None], ids=lambda m: m.alias
)
def test_tf32_runs_at_half_of_float16(model: GpuModel) -> None:
    worked_out = peaks.tf32(replace(model, tf32_tflops=None))
    assert worked_out is not None and worked_out.derived
    assert worked_out.tflops == pytest.approx(model.tf32_tflops, rel=0.03)


@pytest.mark.parametrize("model", models(), ids=lambda m: m.alias)
def test_a_dtype_that_the_gpu_cannot_do_has_no_peak(model: GpuModel) -> None:
    found = peaks.peaks(model)
    assert found["float32"].tflops == model.fp32_tflops
    modern = model.compute_capability >= (8, 0)
    assert modern or not {"tf32", "bfloat16"} & set(found)
    if model.tensor_core_generation:
        # The point of Tensor Cores; plain float16 would be a wrong answer here.
        assert "float16" in found and found["float16"].tflops > 1.5 * model.fp32_tflops
    sourced = {
        "float16": model.fp16_tensor_tflops if model.tensor_core_generation else None,
        "bfloat16": model.bf16_tensor_tflops,
        "tf32": model.tf32_tflops,
    }
    for dtype, value in sourced.items():
        if value is not None:
            assert found[dtype] == peaks.Peak(tflops=value)


def test_pascal_has_its_plain_rate() -> None:
    assert peaks.float16(find("gtx1080")) == peaks.Peak(tflops=0.1386)


@pytest.mark.parametrize("model", models(), ids=lambda m: m.alias)
def test_products_without_tensor_cores_run_at_float32s_rate(model: GpuModel) -> None:
    found, plain = peaks.products(model), peaks.peaks(model)
    assert found.keys() == plain.keys()
    if model.tensor_core_generation:
        assert found == plain
    elif "float16" in found:
        assert found["float16"].tflops == model.fp32_tflops and found["float16"].derived


def test_an_unknown_clock_gives_no_invented_peak() -> None:
    model = replace(
        find("rtx3090"), fp16_tensor_tflops=None, bf16_tensor_tflops=None, sm_count=None
    )
    assert peaks.float16(model) is None
    assert "bfloat16" not in peaks.peaks(replace(model, tf32_tflops=None))
