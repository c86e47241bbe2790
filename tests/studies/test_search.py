"""Asking Optuna: no duplicates, failures as constraints, and nothing invented."""

from __future__ import annotations

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.trial import TrialState

from autoamp.settings import Dtype, Level, Setting
from autoamp.studies.search import WORKS, Asker, Dimensions, grid
from autoamp.studies.space import FP32, Precision

O1 = Precision(level=Level.O1, dtype=Dtype.float16)
O2 = Precision(level=Level.O2, dtype=Dtype.float16)
O2B = Precision(level=Level.O2, dtype=Dtype.bfloat16)

WIDE = Dimensions(
    precisions=(O2, O1, O2B, FP32),
    batches=(32, 64, 96, 128, 192, 256),
    scales=(32768.0, 131072.0),
    black_lists=((), ("exp", "reduce_sum")),
    master_grads=(None, True),
    use_promotes=(None, False),
)


def nothing_doomed(setting: Setting) -> str | None:
    return None


def value_of(setting: Setting) -> float:
    assert setting.batch_size is not None
    return setting.batch_size / (1 + setting.batch_size / 100)


def test_the_grid_is_canonical_and_has_no_duplicates() -> None:
    settings_of = grid(WIDE)
    keys = [s.key() for s in settings_of]
    assert len(set(keys)) == len(keys)
    assert all(s == s.canonical() for s in settings_of)
    fp32 = [s for s in settings_of if not s.is_mixed]
    assert len(fp32) == len(WIDE.batches), "FP32 has no knob but the batch"
    assert all(s.master_grad is None for s in settings_of if s.amp_level is not Level.O2)
    bf16 = [s for s in settings_of if s.dtype is Dtype.bfloat16]
    assert all(s.init_loss_scaling is None and not s.custom_black_list for s in bf16)


def test_plain_settings_come_first() -> None:
    first = grid(WIDE)[: len(WIDE.batches)]
    assert not any(s.custom_black_list or s.master_grad or s.use_promote is False for s in first)


def test_a_small_grid_is_run_whole() -> None:
    small = Dimensions(precisions=(O1, FP32), batches=(32, 64, 128))
    asker = Asker(small, seed=0)
    asked = []
    for left in range(10, 0, -1):
        setting = asker.ask(left, nothing_doomed)
        if setting is None:
            break
        asked.append(setting)
        asker.learn(setting, value=value_of(setting), failed=None)
    assert tuple(asked) == grid(small)


@pytest.mark.parametrize("seed", range(5))
def test_no_duplicates_below_a_large_grid(seed: int) -> None:
    asker = Asker(WIDE, seed=seed)
    keys = []
    for left in range(30, 0, -1):
        setting = asker.ask(left, nothing_doomed)
        assert setting is not None
        keys.append(setting.key())
        asker.learn(setting, value=value_of(setting), failed=None)
    assert len(set(keys)) == 30
    assert set(keys) <= {s.key() for s in asker.grid}


def test_the_same_history_gives_the_same_questions() -> None:
    def run() -> list[str]:
        asker = Asker(WIDE, seed=7)
        out = []
        for left in range(12, 0, -1):
            setting = asker.ask(left, nothing_doomed)
            assert setting is not None
            out.append(setting.key())
            failed = "out of memory" if (setting.batch_size or 0) > 128 else None
            asker.learn(setting, value=None if failed else value_of(setting), failed=failed)
        return out

    assert run() == run()


def test_failures_are_constraints_without_values() -> None:
    asker = Asker(WIDE, seed=1)
    for left in range(25, 0, -1):
        setting = asker.ask(left, nothing_doomed)
        assert setting is not None
        failed = "out of memory" if (setting.batch_size or 0) > 96 else None
        asker.learn(setting, value=None if failed else value_of(setting), failed=failed)
    trials = asker._study.trials
    assert {t.state for t in trials} <= {TrialState.COMPLETE, TrialState.PRUNED}
    values = {value_of(s) for s in asker.grid}
    for trial in trials:
        if trial.state is TrialState.COMPLETE:
            assert trial.value in values and not trial.constraints
        else:
            assert trial.values is None
    broken = [t for t in trials if t.constraints.get(WORKS, 0) > 0]
    assert broken and all(t.state is TrialState.PRUNED for t in broken)


def test_doomed_settings_are_never_asked_and_keep_their_reason() -> None:
    def doomed(setting: Setting) -> str | None:
        return "above a known out of memory" if (setting.batch_size or 0) > 64 else None

    asker = Asker(WIDE, seed=3)
    for left in range(15, 0, -1):
        setting = asker.ask(left, doomed)
        assert setting is not None and doomed(setting) is None
        asker.learn(setting, value=value_of(setting), failed=None)
    assert asker.skipped
    assert {x.reason for x in asker.skipped.values()} == {"above a known out of memory"}


def test_everything_doomed_or_tried_ends_it() -> None:
    asker = Asker(WIDE, seed=0)
    assert asker.ask(5, lambda setting: "no") is None
    small = Asker(Dimensions(precisions=(FP32,), batches=(8,)), seed=0)
    small.learn(small.grid[0], value=1.0, failed=None)
    assert small.ask(5, nothing_doomed) is None


def test_enqueued_settings_come_first() -> None:
    asker = Asker(WIDE, seed=0)
    winner = WIDE.setting(O1, 256, 32768.0, (), None, None)
    asker.enqueue([winner, winner])
    assert asker.ask(5, nothing_doomed) == winner


def test_settings_from_outside_the_space_are_only_remembered() -> None:
    asker = Asker(WIDE, seed=0)
    asker.learn(
        Setting(batch_size=7, amp_level=Level.O1, dtype=Dtype.float16), value=1.0, failed=None
    )
    assert asker._study.trials == []


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_params_and_settings_are_inverse(data: st.DataObject) -> None:
    asker = Asker(WIDE, seed=0)
    setting = data.draw(st.sampled_from(asker.grid))
    params = asker._params(setting)
    assert params is not None
    assert asker._setting(params) == setting


def test_optuna_stays_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    Asker(WIDE, seed=0).ask(1, nothing_doomed)
    assert capsys.readouterr() == ("", "")
    assert optuna.logging.get_verbosity() == optuna.logging.WARNING
