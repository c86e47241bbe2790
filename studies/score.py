"""Which measurement may win, how it is scored, and which of two equals is the safer."""

import math
from dataclasses import dataclass
from itertools import pairwise

from autoamp.measurement import Label, LossScale, Measurement, Outcome
from autoamp.settings import Dtype, Level, Setting

SCALE_COLLAPSED_BELOW = 1.0
"""A loss scale below 1 shrinks gradients instead of lifting them: float16 gains nothing."""

LATE_SCALE_DROPS = 2
"""One drop in a run's second half may be a hard batch; a second one is a falling scale."""

ZERO_GRADIENT_SHARE = 0.9
"""With nine in ten gradients zero, where FP32 has fewer than half, the loss stands still
without a single NaN: the sign of a loss scale that is too small."""

NUMERIC_OUTCOMES = (Outcome.not_finite, Outcome.scale_collapsed, Outcome.diverged)
"""Ends that speak about the numbers and not about the script or the machine."""

BUSY = 0.5
"""A device that computes less than this share of the time waits for the host."""

PRECISION_RISK = {
    (Level.O0, Dtype.float32): 0,
    (Level.O1, Dtype.bfloat16): 2,
    (Level.O1, Dtype.float16): 3,
    (Level.OD, Dtype.bfloat16): 4,
    (Level.OD, Dtype.float16): 5,
    (Level.O2, Dtype.bfloat16): 6,
    (Level.O2, Dtype.float16): 7,
}
TF32_RISK = 1
"""The safer first. FP32 changes nothing. TF32 has float32's range and storage, and 10 bits of
mantissa in the inputs of products alone; bfloat16 has 7 bits, and FP32's range, so no scale can
collapse; float16 may overflow. O1 keeps float32 weights and the black list in float32; OD runs
only the white list low; O2 also casts the weights."""

AS_WRITTEN_RISK = -1
"""What the script's author wrote and ran is the safest of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """May this measurement win? ``reason`` says why not."""

    can_win: bool
    reason: str | None = None


def peak_memory_bytes(measurement: Measurement) -> int | None:
    """What counts against the device's capacity, in bytes.

    The driver's own count where it was sampled (it includes the context and other processes),
    otherwise what Paddle reserved. On a virtual device what is estimated beside the counted peak
    (context, workspaces) is added: it takes room on the GPU that is played.
    """
    peak = shown_peak_bytes(measurement)
    return None if peak is None else peak + measurement.memory_estimated_bytes


def shown_peak_bytes(measurement: Measurement) -> int | None:
    """The peak as measured or counted, without estimates."""
    seen = [
        x
        for x in (
            measurement.utilisation.memory_used_peak_bytes,
            measurement.memory_reserved_peak_bytes,
        )
        if x is not None
    ]
    return max(seen) if seen else measurement.memory_allocated_peak_bytes


def standing(measurement: Measurement, *, memory_limit_bytes: float | None) -> Standing:
    """Whether the measurement may win: ran well, took effect, finite, under the headroom."""
    if not measurement.ok:
        return Standing(
            can_win=False,
            reason=f"{measurement.outcome}: {measurement.reason or 'no reason recorded'}",
        )
    for effect in measurement.effects:
        if not effect.effective:
            return Standing(
                can_win=False,
                reason=f"{effect.knob} had no effect: wanted {effect.wanted}, saw {effect.seen}",
            )
    throughput = measurement.throughput_samples_per_s
    if throughput is None or not math.isfinite(throughput) or throughput <= 0:
        return Standing(can_win=False, reason="no throughput was measured")
    unstable = instability(measurement)
    if unstable is not None:
        return Standing(can_win=False, reason=unstable)
    peak = peak_memory_bytes(measurement)
    if memory_limit_bytes is not None and peak is not None and peak > memory_limit_bytes:
        return Standing(
            can_win=False,
            reason=(
                f"peak memory {peak / 2**30:.2f} GiB{_of_it_estimated(measurement)} leaves less "
                f"than the headroom (limit {memory_limit_bytes / 2**30:.2f} GiB)"
            ),
        )
    return Standing(can_win=True)


def _of_it_estimated(measurement: Measurement) -> str:
    extra = measurement.memory_estimated_bytes
    return f" ({extra / 2**30:.2f} of it estimated for context and workspaces)" if extra else ""


def instability(measurement: Measurement) -> str | None:
    """Why the numbers of this run cannot be trusted to train; None if they can, or if they
    were never computed (planning mode)."""
    if measurement.numerics_label is Label.not_computed:
        return None
    if any(not math.isfinite(loss) for loss in measurement.losses):
        return "the loss was not finite"
    final = measurement.final_loss_scale
    if final is not None and final < SCALE_COLLAPSED_BELOW:
        return f"the loss scale fell to {final:g}"
    if late_scale_drops(measurement.loss_scales, measurement.steps_done) >= LATE_SCALE_DROPS:
        return "the loss scale was still falling in the second half of the run"
    return None


def late_scale_drops(scales: tuple[LossScale, ...], steps_done: int) -> int:
    """How often the loss scale fell in the second half of the run."""
    drops = 0
    for before, after in pairwise(scales):
        if after.value < before.value and after.step > steps_done / 2:
            drops += 1
    return drops


def gradients_vanished(measurement: Measurement, fp32: Measurement | None) -> str | None:
    """Why a finite loss may still hide that nothing is learned; None if nothing points there."""
    share = measurement.zero_gradient_share
    fp32_share = None if fp32 is None else fp32.zero_gradient_share
    if share is None or share < ZERO_GRADIENT_SHARE:
        return None
    if fp32_share is None or fp32_share >= 0.5:
        return None
    return (
        f"{share:.0%} of the gradients are zero (FP32: {fp32_share:.0%}): the loss scale is too "
        "small"
    )


def busy_share(measurement: Measurement) -> float | None:
    """How much of a step the device computes, waiting for data left out where that is known."""
    percent, modelled = measurement.utilisation.gpu_percent, measurement.modelled_busy_share
    if percent is not None:
        return percent / 100
    if modelled is None:
        return None
    step = 1 - (measurement.data_wait_share or 0.0)
    return min(1.0, modelled / step) if step > 0 else None


def is_host_bound(measurement: Measurement) -> bool:
    """True where the device is known to wait for the host most of the time."""
    share = busy_share(measurement)
    return share is not None and share < BUSY


@dataclass(frozen=True, slots=True, order=True)
class Risk:
    """Sort key: the smaller, the safer."""

    precision: int
    extras: int
    batch_distance: float
    batch: int


def risk(setting: Setting, own_batch: int | None) -> Risk:
    """How far the setting is from plain FP32 at the script's own batch size.

    Precision first (it changes every step's arithmetic), then knobs that leave Paddle's
    defaults, then the distance to the batch size that the learning rate was chosen for.
    """
    if setting.is_as_written:
        return Risk(AS_WRITTEN_RISK, 0, 0.0, own_batch or 0)
    plain = setting.canonical()
    level = plain.amp_level or Level.O0
    dtype = plain.dtype or (Dtype.float32 if level is Level.O0 else Dtype.float16)
    extras = (
        2 * (plain.use_promote is False)
        + (plain.master_grad is True)
        + len(plain.custom_white_list)
        + (plain.dynamic_loss_scaling is False)
        + (plain.is_mixed and plain.tf32 is True)
    )
    precision = PRECISION_RISK.get((level, dtype), len(PRECISION_RISK) + 1)
    if plain.tf32 and not plain.is_mixed:
        precision = TF32_RISK
    distance = 0.0
    if own_batch and plain.batch_size:
        distance = abs(math.log2(plain.batch_size / own_batch))
    return Risk(
        precision,
        extras,
        distance,
        plain.batch_size or 0,
    )
