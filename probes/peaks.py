"""Peak rates by dtype: the catalogue's where a source gives them, else worked out and said so."""

from dataclasses import dataclass

from autoamp.probes.facts import GpuModel

# Multiply-adds in float16 with float32 accumulation, per SM and clock, by compute capability:
# NVIDIA's architecture whitepapers (Volta, Turing, GA100, GA102, AD102, GH100, Blackwell).
# GeForce boards accumulate in float32 at half rate, hence their own column. A10G is taken for one
# of them: sources agree that its tensor compute is below the A10's, and none has its own figure.
FMA_PER_SM = {
    (7, 0): (512, 512),
    (7, 2): (512, 512),
    (7, 5): (512, 256),
    (8, 0): (1024, 1024),
    (8, 6): (512, 256),
    (8, 7): (1024, 1024),
    (8, 9): (512, 256),
    (12, 0): (512, 256),
}
"""(data-centre and workstation boards, GeForce); Hopper's and B200's rates are all sourced."""

HALF_RATE = ("GeForce", "A10G")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """A dense peak; ``derived`` tells how it was worked out, None if a source gives it."""

    tflops: float
    derived: str | None = None


def float16(model: GpuModel) -> Peak | None:
    """Tensor Cores where there are any, else plain arithmetic; None if nothing is known."""
    if not model.tensor_core_generation:
        return None if model.fp16_plain_tflops is None else Peak(tflops=model.fp16_plain_tflops)
    if model.fp16_tensor_tflops is not None:
        return Peak(tflops=model.fp16_tensor_tflops)
    if model.bf16_tensor_tflops is not None:
        return Peak(tflops=model.bf16_tensor_tflops, derived="equal to BF16's, as on its kin")
    rates = FMA_PER_SM.get(model.compute_capability)
    if rates is None or model.sm_count is None or model.boost_clock_mhz is None:
        return None
    fma = rates[int(any(word in model.name for word in HALF_RATE))]
    return Peak(
        tflops=2 * fma * model.sm_count * model.boost_clock_mhz * 1e6 / 1e12,
        derived=f"2 x {fma} multiply-adds x {model.sm_count} SMs x boost clock",
    )


def bfloat16(model: GpuModel) -> Peak | None:
    """None below compute capability 8.0."""
    if model.compute_capability < (8, 0):
        return None
    if model.bf16_tensor_tflops is not None:
        return Peak(tflops=model.bf16_tensor_tflops)
    half = float16(model)
    return None if half is None else Peak(tflops=half.tflops, derived="equal to FP16's")


def tf32(model: GpuModel) -> Peak | None:
    """None below compute capability 8.0; half of FP16's rate on every generation since."""
    if model.compute_capability < (8, 0):
        return None
    if model.tf32_tflops is not None:
        return Peak(tflops=model.tf32_tflops)
    half = float16(model)
    return None if half is None else Peak(tflops=half.tflops / 2, derived="half of FP16's")


def products(model: GpuModel) -> dict[str, Peak]:
    """What matrix products of each dtype can reach through Paddle: ``peaks``, but for float16
    without Tensor Cores. Paddle's products accumulate in float32, which cuBLAS then multiplies in
    as well: neither Pascal's 1/64 nor the double rate of P100 and GTX 16xx is theirs."""
    found = peaks(model)
    if not model.tensor_core_generation and "float16" in found:
        found["float16"] = Peak(tflops=model.fp32_tflops, derived="multiplied in float32")
    return found


def peaks(model: GpuModel) -> dict[str, Peak]:
    """By dtype (``float32``, ``tf32``, ``float16``, ``bfloat16``); absent: cannot or unknown."""
    found = {
        "float32": Peak(tflops=model.fp32_tflops),
        "tf32": tf32(model),
        "float16": float16(model),
        "bfloat16": bfloat16(model),
    }
    return {name: peak for name, peak in found.items() if peak is not None}
