"""``autoamp run``: what it refuses and what it says when a setting did not take effect."""

import pytest
from simulated_device import ampere, t4, tf32_knob

from autoamp import full_run
from autoamp.errors import MachineError
from autoamp.measurement import Effect, Measurement, Outcome
from autoamp.settings import Dtype, Level, Setting

TF32 = Setting(amp_level=Level.O0, dtype=Dtype.float32, tf32=True)
BOTH = Setting(amp_level=Level.O1, dtype=Dtype.float16, tf32=True)
TURING = t4(knobs=(tf32_knob(available=False, reason="TF32 came with Ampere"),))


def test_refused_where_there_is_none() -> None:
    with pytest.raises(MachineError, match="came with Ampere") as caught:
        full_run.tf32_notes(TURING, TF32)
    assert caught.value.slug == "refused-precision"


def test_beside_amp_it_is_a_note() -> None:
    (note,) = full_run.tf32_notes(TURING, BOTH)
    assert "no effect" in note and "came with Ampere" in note


@pytest.mark.parametrize("setting", [TF32, BOTH])
def test_nothing_to_say_where_it_is_there(setting: Setting) -> None:
    assert full_run.tf32_notes(ampere(), setting) == ()


@pytest.mark.parametrize("outcome", [Outcome.not_effective, Outcome.no_steps])
def test_a_training_whose_hooks_did_not_load_is_told(outcome: Outcome) -> None:
    reason = "autoamp's hooks could not be installed: boom"
    (found,) = full_run.warnings(Measurement(outcome=outcome, reason=reason))
    assert "boom" in found and "setting" in found
    assert full_run.warnings(Measurement(outcome=Outcome.crashed, reason="x")) == ()


@pytest.mark.parametrize("effective", [True, False])
def test_a_training_that_ran_without_it_is_told(effective: bool) -> None:
    seen = Effect(knob="tf32", wanted="on", seen="products off", effective=effective)
    found = full_run.warnings(Measurement(outcome=Outcome.ok, effects=(seen,)))
    assert bool(found) != effective
