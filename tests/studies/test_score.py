"""What may win, what it holds against the capacity, and what is the safer."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoamp.measurement import (
    Effect,
    Label,
    LossScale,
    Measurement,
    Outcome,
    Utilisation,
)
from autoamp.settings import AS_WRITTEN, Dtype, Level, Setting
from autoamp.studies.score import (
    gradients_vanished,
    instability,
    late_scale_drops,
    peak_memory_bytes,
    risk,
    standing,
)

GOOD = Measurement(
    outcome=Outcome.ok,
    throughput_samples_per_s=100.0,
    memory_reserved_peak_bytes=1000,
    steps_done=20,
    losses=(2.0, 1.0),
)


@pytest.mark.parametrize("outcome", [x for x in Outcome if x is not Outcome.ok])
def test_only_ok_can_win_however_fast(outcome: Outcome) -> None:
    fast = replace(GOOD, outcome=outcome, reason="because", throughput_samples_per_s=1e9)
    stand = standing(fast, memory_limit_bytes=None)
    assert not stand.can_win
    assert stand.reason is not None and "because" in stand.reason and f"{outcome}" in stand.reason


def test_a_knob_without_effect_cannot_win() -> None:
    idle = Effect(knob="amp_level", wanted="float16 operators", seen="none", effective=False)
    stand = standing(replace(GOOD, effects=(idle,)), memory_limit_bytes=None)
    assert not stand.can_win and "amp_level had no effect" in (stand.reason or "")


@pytest.mark.parametrize("throughput", [None, 0.0, -1.0, math.nan, math.inf])
def test_a_throughput_is_needed(throughput: float | None) -> None:
    broken = replace(GOOD, throughput_samples_per_s=throughput)
    assert not standing(broken, memory_limit_bytes=None).can_win


def test_headroom() -> None:
    assert standing(GOOD, memory_limit_bytes=1000).can_win
    assert not standing(GOOD, memory_limit_bytes=999).can_win
    unknown = replace(GOOD, memory_reserved_peak_bytes=None)
    assert standing(unknown, memory_limit_bytes=1).can_win


def test_the_drivers_count_holds_where_it_is_larger() -> None:
    seen = replace(GOOD, utilisation=Utilisation(memory_used_peak_bytes=1500))
    assert peak_memory_bytes(seen) == 1500
    assert peak_memory_bytes(replace(GOOD, memory_reserved_peak_bytes=None)) is None
    only = replace(GOOD, memory_reserved_peak_bytes=None, memory_allocated_peak_bytes=7)
    assert peak_memory_bytes(only) == 7


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_losses_must_be_finite_unless_never_computed(loss: float) -> None:
    bad = replace(GOOD, losses=(1.0, loss))
    assert instability(bad) is not None
    assert instability(replace(bad, numerics_label=Label.not_computed)) is None


def scales(*values: tuple[int, float]) -> tuple[LossScale, ...]:
    return tuple(LossScale(step=step, value=value) for step, value in values)


def test_scale_falls() -> None:
    early = scales((0, 2.0**16), (1, 2.0**15), (2, 2.0**14))
    assert instability(replace(GOOD, loss_scales=early)) is None
    late = scales((0, 2.0**16), (12, 2.0**15), (18, 2.0**14))
    assert late_scale_drops(late, 20) == 2
    assert instability(replace(GOOD, loss_scales=late)) is not None
    gone = scales((0, 2.0), (1, 0.5))
    assert "0.5" in (instability(replace(GOOD, loss_scales=gone)) or "")
    rising = scales((0, 2.0), (12, 4.0), (15, 8.0))
    assert instability(replace(GOOD, loss_scales=rising)) is None


def test_vanished_gradients_need_fp32_to_compare_with() -> None:
    empty = replace(GOOD, zero_gradient_share=0.97)
    assert gradients_vanished(empty, replace(GOOD, zero_gradient_share=0.02)) is not None
    # A model with sparse gradients has them in FP32 too.
    assert gradients_vanished(empty, replace(GOOD, zero_gradient_share=0.96)) is None
    assert gradients_vanished(empty, None) is None
    assert gradients_vanished(GOOD, GOOD) is None


def at(level: Level, dtype: Dtype, batch: int | None = 32, **knobs: object) -> Setting:
    return Setting(batch_size=batch, amp_level=level, dtype=dtype, **knobs)  # type: ignore[arg-type]  # passed through


ORDER = [
    AS_WRITTEN,
    at(Level.O0, Dtype.float32),
    at(Level.O0, Dtype.float32, 64),
    at(Level.O0, Dtype.float32, 256),
    at(Level.O1, Dtype.bfloat16),
    at(Level.O1, Dtype.float16),
    at(Level.O1, Dtype.float16, 64),
    at(Level.O1, Dtype.float16, 32, use_promote=False),
    at(Level.OD, Dtype.bfloat16),
    at(Level.O2, Dtype.bfloat16),
    at(Level.O2, Dtype.float16),
    at(Level.O2, Dtype.float16, 512),
]


def test_safety_order() -> None:
    assert sorted(ORDER, key=lambda s: risk(s, 32)) == ORDER


@given(batches=st.lists(st.integers(1, 4096), min_size=2, max_size=2, unique=True))
def test_the_batch_nearer_to_the_scripts_is_safer(batches: list[int]) -> None:
    own = 64
    near, far = sorted(batches, key=lambda b: abs(math.log2(b / own)))
    first, second = (risk(at(Level.O1, Dtype.float16, b), own) for b in (near, far))
    assert first.batch_distance <= second.batch_distance
