"""Why mixed precision brings little here, from what the runs showed."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from autoamp.measurement import Label, Measurement, OpCalls
from autoamp.settings import Setting
from autoamp.studies.confirm import is_gain
from autoamp.studies.prior import limits
from autoamp.studies.proposal import Choice
from autoamp.studies.score import BUSY, busy_share

if TYPE_CHECKING:
    from autoamp.studies.session import Session

DATA_WAIT_SHARE = 0.3
"""From here on waiting for data is named as the cause: no precision makes data arrive faster."""

LAUNCH_BOUND_GROWTH = 1.7
"""Twice the batch gives this much throughput: the step takes hardly longer, so the device idles
between kernels."""

FEW_LOW_CALLS = 0.2


def evidence(s: Session, mixed: Choice) -> list[str]:
    """Why mixed precision brings little, from what the runs showed."""
    out: list[str] = []
    ratio = mixed.against_fp32
    assert ratio is not None and s.fp32 is not None
    if is_gain(ratio, min_gain=s.options.min_gain):
        out.append(
            f"it gains over FP32 with batch {s.batch_of(s.fp32_setting or Setting())}, and "
            "so does FP32 with another batch"
        )
    elif ratio.ratio >= 1 + s.options.min_gain:
        out.append("the gain is inside its own interval, so it may be none")
    elif ratio.ratio >= 1:
        out.append(f"the gain is below the least asked for ({s.options.min_gain:.0%}, --min-gain)")
    wait = s.fp32.data_wait_share
    # A virtual device's throughput leaves the loader out, so it cannot be the loader's doing.
    measured = s.fp32.time_label is Label.measured
    if wait is not None and wait >= DATA_WAIT_SHARE and measured:
        out.append(f"data wait is {wait:.0%} of each step; try a larger num_workers")
    device = s.machine.device
    if device.tensor_core_generation == 0:
        out.append(f"{device.name} has no Tensor Cores")
    if launch_bound(s):
        out.append(
            "twice the batch takes hardly more time: the step is bound by kernel launches, not "
            "by arithmetic"
        )
    out += limits(s.prior, s.fp32, mixed.setting)
    out += host_bound(s, mixed.first, mixed.setting.precision())
    if not mixed.setting.is_mixed:
        return out or ["too little of a step is float32 products for TF32 to shorten it"]
    share = low_precision_share(mixed.first.op_calls)
    if share is not None and share < FEW_LOW_CALLS:
        out.append(f"only {share:.0%} of the operator calls ran in {mixed.setting.dtype}")
    if not out:
        out.append(
            "no single cause was seen: casts between float32 and the 16-bit type cost what the "
            "faster operators save"
            if share is None
            else f"{share:.0%} of the operator calls ran in {mixed.setting.dtype}, and casts cost "
            "what they save"
        )
    return out


def slower_in_fp32(s: Session) -> bool:
    """True unless FP32 ran at least as fast as the script's own AMP."""
    ours = None if s.as_written is None else s.as_written.throughput_samples_per_s
    theirs = None if s.fp32 is None else s.fp32.throughput_samples_per_s
    return theirs is None or ours is None or theirs < ours


def host_bound(s: Session, amp: Measurement, name: str) -> list[str]:
    """That the device waits for the host, which a precision does not shorten."""
    assert s.fp32 is not None
    low, full = busy_share(amp), busy_share(s.fp32)
    word = " (modelled)" if s.virtual else ""
    if full is not None and full < BUSY:
        return [f"the GPU is busy only {_percent(full)} of the time in FP32{word}"]
    waits = not s.virtual and (amp.data_wait_share or 0.0) >= DATA_WAIT_SHARE
    if low is None or full is None or low >= BUSY or low >= full or waits:
        return []
    more = "; a larger batch gives each kernel more work" if s.space.batch_settable else ""
    return [
        f"the GPU is busy {_percent(low)} of the time in {name} and {_percent(full)} in "
        f"FP32{word}: kernels end sooner than the host launches the next, and casts are launches "
        f"too{more}"
    ]


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def launch_bound(s: Session) -> bool:
    """True if doubling FP32's batch nearly doubled its throughput at the script's batch."""
    if s.fp32_setting is None:
        return False
    fitting = s.curve(s.fp32_setting).fitting
    for low, high in pairwise(fitting):
        if low.batch == s.batch_of(s.fp32_setting) and low.throughput and high.throughput:
            growth = high.throughput / low.throughput
            return growth >= LAUNCH_BOUND_GROWTH * (high.batch / low.batch) / 2
    return False


def low_precision_share(calls: tuple[OpCalls, ...]) -> float | None:
    """Share of operator calls that ran in a 16-bit type; None without statistics."""
    low = sum(c.float16 + c.bfloat16 for c in calls)
    total = low + sum(c.float32 for c in calls)
    return low / total if total else None
