"""``autoamp run``: what it refuses and what it says when a setting did not take effect."""

from dataclasses import replace

import pytest
from simulated_device import GIB, Simulated, ampere, drive, t4, tf32_knob

from autoamp import full_run
from autoamp.errors import MachineError
from autoamp.measurement import Applied, Effect, LossScale, Measurement, Outcome
from autoamp.settings import Dtype, Level, Setting
from autoamp.studies import recommend
from autoamp.studies.recommendation import Recommendation
from autoamp.studies.script_identity import ScriptIdentity

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


def config_of(simulated: Simulated) -> Recommendation:
    return recommend.build(
        drive(simulated, t4()).result,
        study="s",
        script=ScriptIdentity(entry="train.py", is_module=False, arguments=(), files=()),
        command="train.py",
        wall_s=1.0,
    )


def notes_of(config: Recommendation, *, keep_batch: bool) -> tuple[str, ...]:
    return full_run.batch_notes(config, config.chosen(keep_batch=keep_batch).setting)


def test_a_changed_batch_is_told_with_the_advice() -> None:
    config = config_of(Simulated())
    assert config.script_batch == config.own_batch == 32
    told, advice = notes_of(config, keep_batch=False)
    batch = config.best.setting.batch_size
    assert told == f"batch size changed from 32 to {batch} (--keep-batch leaves it)"
    assert advice.startswith(f"batch 32 -> {batch}")
    assert notes_of(config, keep_batch=True) == ()


SAME = dict.fromkeys(("O0", "O1", "O2"), 0.10 * GIB)


@pytest.mark.parametrize("keep_batch", [False, True])
@pytest.mark.parametrize("amp_pays", [False, True])
def test_a_batch_that_does_not_fit_is_never_changed_silently(
    keep_batch: bool, amp_pays: bool
) -> None:
    """The script says 512: so do the notes, whatever the search was run at."""
    slow = {"O0": 0.002, "O1": 0.0021, "O2": 0.0021}
    pays = {"O0": 0.002, "O1": 0.0010, "O2": 0.0008}
    speeds = pays if amp_pays else slow
    config = config_of(Simulated(own_batch=512, bytes_per_sample=SAME, per_sample_s=speeds))
    assert config.own_batch == 512 != config.as_written.batch_size
    told, advice = notes_of(config, keep_batch=keep_batch)
    batch = config.chosen(keep_batch=keep_batch).setting.batch_size
    assert told.startswith(f"batch size changed from 512 to {batch} (512 does not fit")
    assert advice.startswith(f"batch 512 -> {batch}")
    assert "leaves it" not in told


def test_nothing_is_told_where_the_setting_has_the_scripts_own_batch_again() -> None:
    """AMP fits the batch that FP32 did not: that is no change."""
    config = config_of(Simulated(own_batch=256))
    assert config.as_written.batch_size == 128 and config.own_batch == 256
    assert config.at_your_batch.setting.batch_size == 256
    assert notes_of(config, keep_batch=True) == ()


def batch_effect(delivered: int) -> Effect:
    return Effect(knob="batch_size", wanted="64", seen=str(delivered), effective=delivered == 64)


@pytest.mark.parametrize(
    ("delivered", "templated", "told"),
    [
        (64, (), None),
        (32, (), "the training ran at 32"),
        (0, (), "no DataLoader"),
        (0, ("batch_size",), None),
        (32, ("batch_size",), "the training ran at 32"),
    ],
)
def test_a_batch_that_was_not_delivered_is_told(
    delivered: int, templated: tuple[str, ...], told: str | None
) -> None:
    seen = Measurement(outcome=Outcome.ok, steps_done=5, effects=(batch_effect(delivered),))
    found = full_run.not_seen(seen, Setting(batch_size=64), templated)
    assert [told in x for x in found] == [True] if told is not None else found == ()
    assert full_run.not_seen(replace(seen, steps_done=0), Setting(batch_size=64)) == ()


@pytest.mark.parametrize("dtype", [Dtype.float16, Dtype.bfloat16])
@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("scaler", [True, False])
def test_amp_that_the_training_never_ran_under_is_told(
    dtype: Dtype, applied: bool, scaler: bool
) -> None:
    setting = Setting(amp_level=Level.O1, dtype=dtype)
    hook = Applied(knob="amp_level", value="O1", where="train.py:3")
    seen = Measurement(
        outcome=Outcome.ok,
        steps_done=5,
        applied=(hook,) if applied else (),
        loss_scales=(LossScale(step=0, value=1024.0),) if scaler else (),
    )
    found = full_run.not_seen(seen, setting)
    if not applied:
        assert [setting.precision() in x and "not applied" in x for x in found] == [True]
    elif dtype is Dtype.float16 and not scaler:
        assert ["GradScaler" in x for x in found] == [True]
    else:
        assert found == ()
    assert full_run.not_seen(seen, setting, ("amp_level",)) == ()
    # FP32 of a script that calls no AMP leaves no trace, and needs none.
    fp32 = Setting(amp_level=Level.O0, dtype=Dtype.float32)
    assert full_run.not_seen(replace(seen, applied=()), fp32) == ()


def test_another_scripts_batch_and_learning_rate_are_not_spoken_of() -> None:
    config = config_of(Simulated())
    setting = config.chosen(keep_batch=False).setting
    (told,) = full_run.batch_notes(config, setting, other_script=True)
    assert f"batch size {setting.batch_size} is set if" in told and "32" not in told
    alone = replace(setting, batch_size=None)
    assert full_run.batch_notes(config, alone, other_script=True) == ()
