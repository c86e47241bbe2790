"""What a reader must know before trusting a recommendation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autoamp.measurement import Measurement
from autoamp.probes.facts import slowed_by
from autoamp.settings import Dtype, Level
from autoamp.studies.ceilings import NOT_CLIMBED, OUT_OF_TRIALS
from autoamp.studies.proposal import Choice, recipe
from autoamp.studies.score import BUSY, busy_share, standing

if TYPE_CHECKING:
    from autoamp.studies.session import Session

TRUST_PROBLEMS = ("gpu-busy", "gpu-throttled", "gpu-low-memory")
"""Problems of the machine that the numbers themselves may have suffered from."""


def caveats(s: Session, best: Choice, stopped: str | None) -> list[str]:
    """What a reader must know before trusting the recommendation."""
    out: list[str] = []
    today = s.runs_today(best.setting)
    if not best.confirmed and not today:
        out.append("not confirmed: the recommended setting rests on a single run")
    if stopped is not None:
        out.append(f"the search did not run to its end: {stopped}")
    if s.cut_short is not None:
        out.append(f"fewer trials than asked for: {s.cut_short}")
    climbed = s.ceilings.get(recipe(best.setting).key())
    if (
        climbed is not None
        and climbed.why in (OUT_OF_TRIALS, NOT_CLIMBED)
        and climbed.smallest_failing is None
        and best.setting.batch_size == climbed.largest_fitting
        and best.setting.batch_size != s.space.largest_batch
    ):
        out.append(
            f"batch {best.setting.batch_size} is the largest that was tried in this precision, "
            "not the largest that fits: more --trials may find a faster one"
        )
    stand = standing(best.first, memory_limit_bytes=s.space.memory_limit_bytes)
    if not stand.can_win:
        out.append(
            f"kept although {stand.reason}: it is what runs today"
            if today
            else f"recommended although {stand.reason}: it needs no more than what runs today"
        )
    check = s.drift.get(recipe(best.setting).key())
    if best.setting.is_reduced:
        if check is None:
            out.append("the loss was not compared with FP32's")
        elif check.passed is None:
            out.append(f"loss drift: {check.why}")
        if check is not None and check.own_batch_why is not None and s.virtual:
            out.append(check.own_batch_why)
    if s.virtual:
        out += _modelled_worst(s, best)
        out.append(
            "planned on a virtual device: check on the real one (autoamp tune there, or autoamp "
            "run watches memory and the loss scale)"
        )
    if best.setting.amp_level is Level.O2 and s.facts.optimizer_has_master_weights is None:
        out.append("whether the optimizer keeps master weights at O2 was not seen")
    for problem in s.machine.problems:
        # What bites a GradScaler is told by the runs that had one.
        if problem.slug in TRUST_PROBLEMS:
            out.append(f"{problem.sentence.rstrip('.')}: {problem.remedy}")
    for measurement in (best.first, s.as_written):
        if measurement is not None:
            out.extend(_measurement_caveats(measurement))
    return out + _throttled((*best.runs, s.as_written, s.fp32))


def _modelled_worst(s: Session, best: Choice) -> list[str]:
    """Kinds of step for which the modelled times are known to be off, or were never held against
    a published figure."""
    out = []
    share = busy_share(best.first)
    if s.host_bound is not None and share is not None and share < BUSY:
        out.append(
            f"the step is bound by the host (the GPU would be busy {share:.0%} of the time): "
            "modelled samples/s of such steps were up to "
            f"{1 + s.host_bound.throughput:.1f} times the published figure"
        )
    if best.setting.dtype is Dtype.bfloat16:
        out.append(
            "bfloat16 is modelled at the data sheet's rate: no published training figure in "
            "bfloat16 was there to hold the model against"
        )
    return out


def _throttled(runs: Sequence[Measurement | None]) -> list[str]:
    """That a run which the ratios rest on was slowed down by heat or hardware."""
    reasons = (r for m in runs if m is not None for r in m.utilisation.throttle_reasons)
    slowed = slowed_by(tuple(dict.fromkeys(reasons)))
    if not slowed:
        return []
    return [
        f"the GPU was throttled while it was measured ({', '.join(slowed)}): the times may be "
        "those of its cooling"
    ]


def _measurement_caveats(measurement: Measurement) -> list[str]:
    out = list(measurement.caveats)
    if measurement.dataset_restarts:
        count = measurement.dataset_restarts
        times = "once" if count == 1 else f"{count} times"
        out.append(f"the dataset is shorter than a trial: it was restarted {times}")
    return out
