"""Optuna's copy: complete, honest about failures, and never in the way."""

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState as Theirs

from autoamp.measurement import Measurement, Outcome, Phase
from autoamp.settings import AS_WRITTEN, Dtype, Level, Setting
from autoamp.studies.mirror import MIRRORED, Mirror, as_optuna
from autoamp.studies.records import NewStudy, Study, Trial
from autoamp.studies.store import Store, open_store

Make = Callable[..., NewStudy]
Measured = Callable[[float], Measurement]

EVERY_KNOB = Setting(
    batch_size=192,
    amp_level=Level.O2,
    dtype=Dtype.float16,
    init_loss_scaling=32768.0,
    dynamic_loss_scaling=False,
    custom_white_list=("matmul_v2",),
    custom_black_list=("softmax", "exp"),
    use_promote=True,
    master_grad=False,
    accumulate_steps=2,
)


@pytest.fixture
def store(storage_url: str) -> Iterator[Store]:
    with open_store(storage_url) as store:
        yield store


@pytest.fixture
def study(store: Store, new_study: Make) -> Study:
    return store.create_study(new_study())


def run(
    store: Store,
    study: Study,
    measurement: Measurement,
    *,
    phase: Phase = Phase.search,
    setting: Setting = EVERY_KNOB,
) -> Trial:
    trial = store.start_trial(study.id, phase, setting, "real")
    return store.finish_trial(trial.id, measurement)


@pytest.fixture(autouse=True)
def storages() -> Iterator[None]:
    """Optuna keeps its connections until it is told otherwise."""
    yield
    while OPENED:
        storage = OPENED.pop()
        storage.remove_session()
        storage.engine.dispose()


OPENED: list[optuna.storages.RDBStorage] = []


def storage_of(store: Store) -> optuna.storages.RDBStorage:
    OPENED.append(optuna.storages.RDBStorage(store.url))
    return OPENED[-1]


def theirs(store: Store, study: Study) -> optuna.Study:
    return optuna.load_study(study_name=study.name, storage=storage_of(store))


def mirrored(store: Store, study: Study) -> Mirror:
    mirror = Mirror(store.url, study.name)
    mirror.reconcile(store.trials(study.id))
    assert mirror.problem is None
    mirror.close()
    return mirror


def test_an_ok_trial_is_complete_with_its_value(
    store: Store, study: Study, measured: Measured
) -> None:
    trial = run(store, study, measured(310.5))
    mirrored(store, study)
    (found,) = theirs(store, study).trials
    assert (found.state, found.value, found.constraints) == (Theirs.COMPLETE, 310.5, {})
    assert found.params == {
        "batch_size": 192,
        "amp_level": "O2",
        "dtype": "float16",
        "init_loss_scaling": 32768.0,
        "dynamic_loss_scaling": False,
        "use_promote": True,
        "master_grad": False,
        "accumulate_steps": 2,
    }
    assert found.user_attrs["custom_black_list"] == ["softmax", "exp"]
    assert found.user_attrs["time_label"] == "modelled"
    assert found.datetime_start == trial.started_at.replace(tzinfo=None)
    assert theirs(store, study).direction is optuna.study.StudyDirection.MAXIMIZE


def test_failed_trials_teach_by_a_constraint_and_have_no_value(
    store: Store, study: Study, measured: Measured
) -> None:
    failures = [o for o in Outcome if o not in (Outcome.ok, Outcome.interrupted)]
    for outcome in failures:
        run(store, study, replace(measured(99.0), outcome=outcome))
    mirrored(store, study)
    found = theirs(store, study).trials
    assert [(t.state, t.value, t.constraints) for t in found] == [
        (Theirs.PRUNED, None, {outcome.value: 1.0}) for outcome in failures
    ]


def test_an_interrupted_trial_is_no_verdict(store: Store, study: Study) -> None:
    store.start_trial(study.id, Phase.search, EVERY_KNOB, "real")
    store.mark_lost(study.id)
    mirrored(store, study)
    (found,) = theirs(store, study).trials
    assert (found.state, found.value, found.constraints) == (Theirs.FAIL, None, {})


def test_reconcile_adds_what_is_missing_and_nothing_twice(
    store: Store, study: Study, measured: Measured
) -> None:
    first = Mirror(store.url, study.name)
    assert first.reconcile(()) == 0
    assert first.add(run(store, study, measured(1.0))) is True
    assert first.add(store.trials(study.id)[0]) is False
    first.close()
    # The tuner was killed after our commit, before the copy.
    run(store, study, measured(2.0))
    run(store, study, Measurement(outcome=Outcome.out_of_memory))
    second = Mirror(store.url, study.name)
    assert second.reconcile(store.trials(study.id)) == 2
    assert second.reconcile(store.trials(study.id)) == 0
    second.close()
    assert [t.value for t in theirs(store, study).trials] == [1.0, 2.0, None]


def test_orphans_are_failed(store: Store, study: Study, measured: Measured) -> None:
    """A trial that stays RUNNING pushes the default sampler away from its place."""
    mirrored(store, study)
    theirs(store, study).ask({"batch_size": optuna.distributions.IntDistribution(1, 2**24)})
    theirs(store, study).enqueue_trial({"batch_size": 3})
    mirrored(store, study)
    assert [t.state for t in theirs(store, study).trials] == [Theirs.FAIL, Theirs.FAIL]


def test_only_points_of_the_search_are_copied(
    store: Store, study: Study, measured: Measured
) -> None:
    for phase in Phase:
        run(store, study, measured(1.0), phase=phase)
    store.start_trial(study.id, Phase.search, EVERY_KNOB, "real")
    mirrored(store, study)
    assert [t.user_attrs["phase"] for t in theirs(store, study).trials] == [*map(str, MIRRORED)]


def test_settings_of_one_study_never_clash(store: Store, study: Study, measured: Measured) -> None:
    """Optuna refuses a parameter whose range differs between trials of a study."""
    settings = [AS_WRITTEN, EVERY_KNOB, Setting(amp_level=Level.O0, dtype=Dtype.float32)]
    settings += [replace(EVERY_KNOB, amp_level=level) for level in Level]
    settings += [replace(EVERY_KNOB, dtype=dtype) for dtype in Dtype]
    settings += [replace(EVERY_KNOB, batch_size=b, accumulate_steps=b) for b in (1, 65536)]
    settings += [replace(EVERY_KNOB, init_loss_scaling=2.0**e) for e in (-24, 0, 64)]
    for setting in settings:
        run(store, study, measured(1.0), setting=setting)
    mirrored(store, study)
    assert len(theirs(store, study).trials) == len(settings)


def test_optunas_sampler_learns_from_the_copy(
    store: Store, study: Study, measured: Measured
) -> None:
    for batch in (8, 16, 32, 64):
        run(store, study, measured(float(batch)), setting=replace(EVERY_KNOB, batch_size=batch))
    run(store, study, Measurement(outcome=Outcome.out_of_memory))
    mirrored(store, study)
    found = theirs(store, study)
    assert found.best_trial.params["batch_size"] == 64
    found.sampler = optuna.samplers.TPESampler(seed=0, n_startup_trials=1)
    distributions = found.trials[0].distributions
    assert set(found.ask(distributions).params) == set(distributions)


def test_a_study_of_somebody_else_is_left_alone(
    store: Store, study: Study, measured: Measured
) -> None:
    other = optuna.create_study(storage=storage_of(store), study_name=study.name)
    other.add_trial(optuna.trial.create_trial(value=1.0))
    run(store, study, measured(5.0))
    mirror = Mirror(store.url, study.name)
    assert mirror.reconcile(store.trials(study.id)) == 0
    mirror.close()
    assert mirror.problem is not None and study.name in mirror.problem
    assert [t.value for t in theirs(store, study).trials] == [1.0]


@pytest.mark.slow
def test_a_failing_copy_never_stops_the_tuner(
    tmp_path: Path, new_study: Make, measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoamp.studies.mirror.TIMEOUT_S", 0.05)
    path = tmp_path / "autoamp.db"
    with open_store(f"sqlite:///{path}") as store:
        study = store.create_study(new_study())
        trial = run(store, study, measured(1.0))
        mirror = Mirror(store.url, study.name)
        blocker = sqlite3.connect(path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        try:
            assert mirror.add(trial) is False
        finally:
            blocker.close()
        assert mirror.problem is not None and "next start" in mirror.problem
        assert mirror.add(trial) is False, "it waits for the next start"
        mirror.close()
        mirrored(store, study)
        assert len(theirs(store, study).trials) == 1


def test_a_database_that_is_gone(tmp_path: Path) -> None:
    mirror = Mirror(f"sqlite:///{tmp_path}/no/such/folder/a.db", "x")
    assert mirror.problem is not None
    assert mirror.reconcile(()) == 0
    mirror.close()


def test_a_running_trial_has_no_copy(store: Store, study: Study) -> None:
    trial = store.start_trial(study.id, Phase.search, EVERY_KNOB, "real")
    with pytest.raises(ValueError, match="not ended"):
        as_optuna(trial)
    mirror = Mirror(store.url, study.name)
    assert mirror.add(trial) is False
    mirror.close()


def test_our_tables_are_untouched_by_optunas(
    store: Store, study: Study, measured: Measured
) -> None:
    run(store, study, measured(1.0))
    before = (store.study(study.name), store.trials(study.id))
    mirrored(store, study)
    assert (store.study(study.name), store.trials(study.id)) == before
    with open_store(store.url) as again:
        assert again.trials(study.id) == before[1]
