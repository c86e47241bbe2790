"""Does the precision train like FP32? Losses at one batch size, seeds and data order equal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autoamp.measurement import Label, Measurement, Outcome
from autoamp.settings import Setting
from autoamp.studies.score import gradients_vanished, instability

DRIFT_STEPS = 80
"""Longer than the late failures known: a float16 loss that was fine until it dropped to zero at
step 59 (PaddleNLP issue 7160)."""

FP32_SEEDS = 3
TAIL = 0.25
"""The loss compared is the mean over this last part of the steps: single losses are noise."""

FLOOR = 0.01
"""Tolerance where FP32's own spread is smaller, as when a script seeds itself and all three
seeds give one curve: a hundredth of the larger of the final loss and what training took off
it. One per cent is the loss that Intel Neural Compressor tolerates by default."""

UNCHECKED_OUTCOMES = (
    Outcome.timed_out,
    Outcome.too_slow,
    Outcome.host_memory,
    Outcome.too_few_steps,
    Outcome.interrupted,
)
"""Ends that say nothing about the numerics, only that they could not be looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftCheck:
    """The comparison made for one recipe. ``passed`` None: it could not be made, see ``why``."""

    setting: Setting
    batch: int | None
    steps: int
    label: Label
    fp32_losses: tuple[float, ...]
    """Final loss of FP32, one for each seed; the first has the candidate's seed."""
    candidate_loss: float | None
    difference: float | None
    tolerance: float | None
    tolerance_basis: str | None
    passed: bool | None
    why: str
    own_batch_why: str | None = None
    """What was seen at the recommended batch itself; no loss is compared there."""


def tail_loss(measurement: Measurement, until_step: int | None = None) -> float | None:
    """Mean loss over the last quarter of the steps; None if no loss was recorded."""
    losses = _losses(measurement, until_step)
    if not losses:
        return None
    count = max(1, round(len(losses) * TAIL))
    return sum(losses[-count:]) / count


def head_loss(measurement: Measurement, until_step: int | None = None) -> float | None:
    """Mean loss over the first quarter of the steps; None if no loss was recorded."""
    losses = _losses(measurement, until_step)
    if not losses:
        return None
    count = max(1, round(len(losses) * TAIL))
    return sum(losses[:count]) / count


def compare(
    setting: Setting,
    candidate: Measurement,
    fp32: Sequence[Measurement],
    *,
    batch: int | None,
    max_drift: float | None,
) -> DriftCheck:
    """Judge a recipe's losses against FP32's at the same batch size.

    ``fp32`` holds runs of several seeds, the first with the candidate's seed. The tolerance is
    FP32's own spread over the seeds (largest less smallest final loss), or ``max_drift`` times
    the FP32 loss where it is given.
    """
    label = candidate.numerics_label
    steps = candidate.steps_done

    def check(
        passed: bool | None,
        why: str,
        *,
        losses: tuple[float, ...] = (),
        loss: float | None = None,
        difference: float | None = None,
        tolerance: float | None = None,
        basis: str | None = None,
    ) -> DriftCheck:
        return DriftCheck(
            setting=setting,
            batch=batch,
            steps=steps,
            label=label,
            fp32_losses=losses,
            candidate_loss=loss,
            difference=difference,
            tolerance=tolerance,
            tolerance_basis=basis,
            passed=passed,
            why=why,
        )

    if candidate.outcome in UNCHECKED_OUTCOMES:
        return check(None, f"not compared: {candidate.outcome}: {candidate.reason or 'no reason'}")
    if not candidate.ok:
        return check(False, f"{candidate.outcome}: {candidate.reason or 'no reason recorded'}")
    if label is Label.not_computed:
        return check(None, "not compared: numerics were not computed")
    unstable = instability(candidate) or gradients_vanished(candidate, fp32[0] if fp32 else None)
    if unstable is not None:
        return check(False, unstable)
    good = [m for m in fp32 if m.ok and m.losses]
    if not good or good[0] is not fp32[0]:
        return check(None, "not compared: FP32 left no losses at this batch size")
    if not candidate.losses:
        return check(None, "not compared: no loss was recorded")
    until = min(_last_step(m) for m in (candidate, *good))
    steps = until
    finals = tuple(x for m in good if (x := tail_loss(m, until)) is not None)
    loss = tail_loss(candidate, until)
    start = head_loss(good[0], until)
    if loss is None or start is None or len(finals) != len(good):
        return check(None, "not compared: too few losses were recorded")
    if not all(math.isfinite(x) for x in finals):
        return check(None, "not compared: FP32's own loss is not finite", losses=finals)
    difference = loss - finals[0]
    tolerance, basis = _tolerance(finals, start, max_drift)
    if not math.isfinite(loss):
        return check(False, "the loss was not finite", losses=finals, loss=loss)
    passed = abs(difference) <= tolerance
    why = f"loss {loss:.4g} against FP32's {finals[0]:.4g} after {until} steps: " + (
        f"within {basis}" if passed else f"outside {basis} (±{tolerance:.3g})"
    )
    return check(
        passed,
        why,
        losses=finals,
        loss=loss,
        difference=difference,
        tolerance=tolerance,
        basis=basis,
    )


def trains(measurement: Measurement, fp32: Measurement | None) -> str | None:
    """What is wrong at the recommended batch itself: finite, scale stable, loss falling.

    No loss is compared with another batch size's. None if nothing is wrong or nothing could be
    looked at. A loss that does not fall counts only if FP32's does.
    """
    if measurement.outcome in UNCHECKED_OUTCOMES:
        return None
    if not measurement.ok:
        return f"{measurement.outcome}: {measurement.reason or 'no reason recorded'}"
    unstable = instability(measurement) or gradients_vanished(measurement, fp32)
    if unstable is not None:
        return unstable
    if measurement.numerics_label is Label.not_computed or fp32 is None:
        return None
    if falls(fp32) and falls(measurement) is False:
        return "the loss does not fall, FP32's does"
    return None


def falls(measurement: Measurement) -> bool | None:
    """True if the last quarter's mean loss is below the first's; None with too few losses."""
    first, last = head_loss(measurement), tail_loss(measurement)
    if first is None or last is None or len(measurement.losses) < 8:
        return None
    return last < first


def _tolerance(
    finals: tuple[float, ...], start: float, max_drift: float | None
) -> tuple[float, str]:
    if max_drift is not None:
        return max_drift * abs(finals[0]), f"--max-drift {max_drift:.1%} of FP32's loss"
    spread = max(finals) - min(finals)
    floor = FLOOR * max(abs(finals[0]), abs(start - finals[0]))
    if spread >= floor and len(finals) > 1:
        return spread, f"FP32's own spread over {len(finals)} seeds"
    return floor, f"{FLOOR:.0%} of FP32's loss (its own spread over {len(finals)} seeds is less)"


def _losses(measurement: Measurement, until_step: int | None) -> list[float]:
    if until_step is None or not measurement.loss_steps:
        return list(measurement.losses)
    return [
        loss
        for step, loss in zip(measurement.loss_steps, measurement.losses, strict=False)
        if step <= until_step
    ]


def _last_step(measurement: Measurement) -> int:
    if measurement.loss_steps:
        return max(measurement.loss_steps)
    return max(measurement.steps_done, len(measurement.losses))
