"""Losses against FP32's, at one batch size."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from autoamp.measurement import Label, LossScale, Measurement, Outcome
from autoamp.settings import Dtype, Level, Setting
from autoamp.studies.drift import (
    DRIFT_STEPS,
    UNCHECKED_OUTCOMES,
    DriftCheck,
    compare,
    falls,
    head_loss,
    tail_loss,
    trains,
)

O1 = Setting(batch_size=32, amp_level=Level.O1, dtype=Dtype.float16)


def run(final: float, *, start: float = 2.5, steps: int = 80, every: int = 1) -> Measurement:
    """A loss that goes down in a straight line for half of the run, then stays."""
    losses = [
        final + (start - final) * max(0.0, 1 - 2 * i / steps) for i in range(0, steps, every)
    ]
    return Measurement(
        outcome=Outcome.ok,
        steps_done=steps,
        losses=tuple(losses),
        loss_steps=tuple(i + 1 for i in range(0, steps, every)),
    )


FP32 = (run(0.50), run(0.52), run(0.49))


def check(candidate: Measurement, max_drift: float | None = None) -> DriftCheck:
    return compare(O1, candidate, FP32, batch=32, max_drift=max_drift)


def test_longer_than_the_late_failures_known() -> None:
    assert DRIFT_STEPS > 60


def test_inside_the_spread_of_three_seeds() -> None:
    found = check(run(0.525))
    assert found.passed is True
    assert found.tolerance == pytest.approx(0.03)
    assert found.tolerance_basis == "FP32's own spread over 3 seeds"
    assert found.difference == pytest.approx(0.025)
    assert found.fp32_losses == pytest.approx((0.50, 0.52, 0.49))


@pytest.mark.parametrize("final", [0.54, 0.45, 0.0])
def test_outside_on_either_side(final: float) -> None:
    """A loss that drops to zero is as wrong as one that rises."""
    assert check(run(final)).passed is False


def test_max_drift_replaces_the_spread() -> None:
    assert check(run(0.54), max_drift=0.10).passed is True
    assert check(run(0.52), max_drift=0.01).passed is False


def test_a_script_that_seeds_itself_gets_a_floor() -> None:
    same = (run(0.5),) * 3
    near = compare(O1, run(0.505), same, batch=32, max_drift=None)
    assert near.passed is True and "1%" in (near.tolerance_basis or "")
    assert compare(O1, run(0.6), same, batch=32, max_drift=None).passed is False


def test_the_shorter_run_sets_the_steps_compared() -> None:
    found = check(run(0.51, steps=40))
    assert found.steps == 40


def test_failures_do_not_pass() -> None:
    for outcome in (Outcome.not_finite, Outcome.scale_collapsed, Outcome.crashed):
        found = check(replace(run(0.5), outcome=outcome, reason="inf at step 59"))
        assert found.passed is False and "step 59" in found.why
    falling = tuple(LossScale(step=s, value=2.0**-s) for s in (0, 50, 60, 70))
    assert check(replace(run(0.5), loss_scales=falling)).passed is False
    assert check(replace(run(0.5), losses=(*run(0.5).losses[:-1], math.nan))).passed is False


def test_vanished_gradients_do_not_pass_though_the_loss_is_finite() -> None:
    fp32 = tuple(replace(m, zero_gradient_share=0.01) for m in FP32)
    flat = replace(run(0.5), zero_gradient_share=0.99)
    assert compare(O1, flat, fp32, batch=32, max_drift=None).passed is False


@pytest.mark.parametrize("outcome", UNCHECKED_OUTCOMES)
def test_what_could_not_be_seen_is_unknown(outcome: Outcome) -> None:
    found = check(replace(run(0.5), outcome=outcome, reason="took too long"))
    assert found.passed is None and "took too long" in found.why


def test_no_losses_no_verdict() -> None:
    assert check(replace(run(0.5), losses=(), loss_steps=())).passed is None
    assert compare(O1, run(0.5), (), batch=32, max_drift=None).passed is None
    planned = replace(run(9.0), numerics_label=Label.not_computed)
    assert check(planned).passed is None


def test_fp32_that_is_not_finite_is_no_measure() -> None:
    broken = (run(math.nan), *FP32[1:])
    found = compare(O1, run(0.5), broken, batch=32, max_drift=None)
    assert found.passed is None and "FP32" in found.why


def test_the_first_seed_must_be_the_candidates() -> None:
    failed = replace(FP32[0], outcome=Outcome.crashed)
    assert compare(O1, run(0.5), (failed, *FP32[1:]), batch=32, max_drift=None).passed is None


def test_trains_at_its_own_batch() -> None:
    assert trains(run(0.7), FP32[0]) is None
    rising = replace(run(0.5), losses=tuple(reversed(run(0.5).losses)))
    assert "does not fall" in (trains(rising, FP32[0]) or "")
    # Where FP32's loss does not fall either, that says nothing about the precision.
    assert trains(rising, rising) is None
    assert trains(replace(rising, outcome=Outcome.timed_out), FP32[0]) is None
    assert "gone" in (trains(replace(rising, outcome=Outcome.crashed, reason="gone"), None) or "")


def test_sparse_losses() -> None:
    sparse = run(0.5, every=10)
    assert tail_loss(sparse) == pytest.approx(0.5)
    assert (head_loss(sparse) or 0) > 2
    assert falls(sparse) is True
    assert falls(run(0.5, every=20)) is None, "too few to say"
    assert tail_loss(Measurement(outcome=Outcome.ok)) is None
