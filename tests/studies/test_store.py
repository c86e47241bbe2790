"""One contract for every database: what is stored comes back, at once and to anybody."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoamp.errors import StorageError, UsageError
from autoamp.measurement import Label, LossScale, Measurement, Outcome, Phase
from autoamp.probes.facts import Identity
from autoamp.settings import AS_WRITTEN, Dtype, Level, Setting
from autoamp.studies import codec
from autoamp.studies.reading import open_reader
from autoamp.studies.records import NewStudy, TrialState
from autoamp.studies.script_identity import ScriptIdentity, identify, with_files
from autoamp.studies.store import Store, open_store

FP32 = Setting(amp_level=Level.O0)
O2 = Setting(
    batch_size=192,
    amp_level=Level.O2,
    dtype=Dtype.float16,
    init_loss_scaling=32768.0,
    custom_black_list=("softmax",),
)
Make = Callable[..., NewStudy]
Measured = Callable[[float], Measurement]


def same(a: Measurement, b: Measurement) -> bool:
    """Equality in which NaN equals NaN."""
    return repr(a) == repr(b)


def test_a_study_comes_back_as_it_was_stored(storage_url: str, new_study: Make) -> None:
    new = new_study(arguments=("--名", "a b", "it's"), options_json='{"levels": ["O1"]}')
    before = datetime.now(timezone.utc)
    with open_store(storage_url) as store:
        made = store.create_study(new)
    with open_store(storage_url) as store:
        found = store.study("train-3f2a")
    assert found == made
    assert found.arguments == new.arguments
    assert found.machine == new.machine
    assert found.script == new.script
    assert found.options_json == new.options_json
    assert found.state == "running"
    assert found.space_json is None
    assert before - timedelta(seconds=1) < found.created_at < before + timedelta(minutes=1)
    assert found.created_at.utcoffset() == timedelta(0)


def test_trials_are_numbered_from_zero_in_each_study(storage_url: str, new_study: Make) -> None:
    with open_store(storage_url) as store:
        one, two = store.create_study(new_study("a")), store.create_study(new_study("b"))
        numbers = [
            store.start_trial(study.id, Phase.search, FP32, "real").number
            for study in (one, two, one, one, two)
        ]
    assert numbers == [0, 0, 1, 2, 1]


def test_a_trial_runs_then_is_finished(
    storage_url: str, new_study: Make, measured: Measured
) -> None:
    with open_store(storage_url) as store:
        study = store.create_study(new_study())
        started = store.start_trial(study.id, Phase.ceiling, O2, "planning")
        assert (started.state, started.measurement, started.finished_at) == (
            TrialState.running,
            None,
            None,
        )
        store.finish_trial(started.id, measured(310.5))
        (found,) = store.trials(study.id)
    assert found.setting == O2
    assert found.phase is Phase.ceiling
    assert found.numerics == "planning"
    assert found.state is TrialState.finished
    assert found.measurement == measured(310.5)
    assert found.finished_at is not None and found.finished_at >= found.started_at


def test_a_finished_trial_is_never_finished_again(
    storage_url: str, new_study: Make, measured: Measured
) -> None:
    with open_store(storage_url) as store:
        study = store.create_study(new_study())
        trial = store.start_trial(study.id, Phase.search, O2, "real")
        store.finish_trial(trial.id, measured(1.0))
        with pytest.raises(StorageError) as e:
            store.finish_trial(trial.id, measured(2.0))
        (found,) = store.trials(study.id)
    assert e.value.slug == "study-in-use"
    assert found.measurement == measured(1.0)


def test_a_lost_trial_has_an_outcome_and_no_value(
    storage_url: str, new_study: Make, measured: Measured
) -> None:
    with open_store(storage_url) as store:
        study, other = store.create_study(new_study("a")), store.create_study(new_study("b"))
        done = store.start_trial(study.id, Phase.search, FP32, "real")
        store.finish_trial(done.id, measured(5.0))
        orphan = store.start_trial(study.id, Phase.search, O2, "real")
        elsewhere = store.start_trial(other.id, Phase.search, O2, "real")
        assert store.mark_lost(study.id) == 1
        first, second = store.trials(study.id)
        (untouched,) = store.trials(other.id)
        with pytest.raises(StorageError):
            store.finish_trial(orphan.id, measured(9.0))
    assert first.measurement == measured(5.0)
    assert second.state is TrialState.lost
    assert second.measurement is not None
    assert second.measurement.outcome is Outcome.interrupted
    assert second.measurement.throughput_samples_per_s is None
    assert untouched.id == elsewhere.id and untouched.state is TrialState.running


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.ok])
def test_sql_finds_no_throughput_of_a_failed_trial(
    tmp_path_factory: pytest.TempPathFactory, new_study: Make, measured: Measured, outcome: Outcome
) -> None:
    url = f"sqlite:///{tmp_path_factory.mktemp('s')}/autoamp.db"
    with open_store(url) as store:
        study = store.create_study(new_study())
        trial = store.start_trial(study.id, Phase.search, O2, "real")
        store.finish_trial(trial.id, replace(measured(99.0), outcome=outcome, reason="it failed"))
        (row,) = store.rows("SELECT * FROM autoamp_trial")
        (summary,) = store.studies()
    assert row["throughput_samples_per_s"] is None
    assert row["outcome"] == outcome.value and row["reason"] == "it failed"
    assert summary.best is None and summary.best_throughput_samples_per_s is None


def test_scalar_columns_repeat_the_measurement(storage_url: str, new_study: Make) -> None:
    m = Measurement(
        outcome=Outcome.ok,
        throughput_samples_per_s=12.5,
        memory_allocated_peak_bytes=5 * 2**33,
        memory_reserved_peak_bytes=6 * 2**33,
        skipped_steps=3,
        loss_scales=(LossScale(step=0, value=65536.0), LossScale(step=9, value=32768.0)),
        time_label=Label.modelled,
        memory_label=Label.counted,
        numerics_label=Label.emulated,
        wall_s=7.25,
    )
    with open_store(storage_url) as store:
        study = store.create_study(new_study())
        store.finish_trial(store.start_trial(study.id, Phase.search, O2, "full").id, m)
        (row,) = store.rows("SELECT * FROM autoamp_trial")
    wanted = {
        "outcome": "ok",
        "throughput_samples_per_s": 12.5,
        "memory_allocated_peak_bytes": 5 * 2**33,
        "memory_reserved_peak_bytes": 6 * 2**33,
        "skipped_steps": 3,
        "final_loss_scale": 32768.0,
        "time_label": "modelled",
        "memory_label": "counted",
        "numerics_label": "emulated",
        "wall_s": 7.25,
        "batch_size": 192,
        "amp_level": "O2",
        "dtype": "float16",
    }
    assert {key: row[key] for key in wanted} == wanted


def test_values_that_json_and_databases_dislike(storage_url: str, new_study: Make) -> None:
    m = Measurement(
        outcome=Outcome.diverged,
        reason="loss is \0 nan 损失",
        losses=(1.0, math.nan, math.inf, -math.inf),
        loss_scales=(LossScale(step=0, value=math.inf),),
        log_tail="nan\0\ud800null",
    )
    with open_store(storage_url) as store:
        study = store.create_study(new_study())
        store.finish_trial(store.start_trial(study.id, Phase.search, O2, "full").id, m)
        (found,) = store.trials(study.id)
    assert found.measurement is not None
    assert same(found.measurement, replace(m, log_tail="nan\0\\ud800null"))


numbers = st.floats(width=64)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    losses=st.lists(numbers).map(tuple),
    throughput=st.none() | numbers,
    text=st.text(),
    reason=st.none() | st.text(),
)
def test_any_measurement_survives_json(
    losses: tuple[float, ...], throughput: float | None, text: str, reason: str | None
) -> None:
    m = Measurement(
        outcome=Outcome.ok,
        losses=losses,
        throughput_samples_per_s=throughput,
        log_tail=text,
        reason=reason,
    )
    stored = codec.encode(m)
    json.loads(stored, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert same(codec.decode(stored, Measurement), m)


def test_fields_of_a_newer_autoamp_are_passed_over() -> None:
    body = json.loads(codec.encode(Measurement(outcome=Outcome.ok, steps_done=4)))
    body["joules_per_sample"] = 3
    body["utilisation"]["tensor_core_percent"] = 50
    found = codec.decode(json.dumps(body), Measurement)
    assert found == Measurement(outcome=Outcome.ok, steps_done=4)


def test_unknown_study_names_the_near_ones(storage_url: str, new_study: Make) -> None:
    with open_store(storage_url) as store:
        with pytest.raises(UsageError, match="no study yet"):
            store.study("train-3f2a")
        for name in ("train-3f2a", "ocr-77c0"):
            store.create_study(new_study(name))
        with pytest.raises(UsageError, match="ocr-77c0") as e:
            store.study("trian-3f2a")
    assert e.value.slug == "unknown-study"
    assert e.value.exit_code == 2
    assert e.value.remedy == "did you mean train-3f2a?"


def test_a_name_is_taken_once(storage_url: str, new_study: Make) -> None:
    with open_store(storage_url) as store:
        assert store.free_name("train-3f2a") == "train-3f2a"
        store.create_study(new_study())
        with pytest.raises(UsageError) as e:
            store.create_study(new_study())
        assert store.free_name("train-3f2a") == "train-3f2a-2"
        store.create_study(new_study("train-3f2a-2"))
        assert store.free_name("train-3f2a") == "train-3f2a-3"
        assert len(store.studies()) == 2
    assert e.value.slug == "study-exists"


def test_what_is_saved_on_a_study_is_read_back(
    storage_url: str, new_study: Make, script: ScriptIdentity
) -> None:
    with open_store(storage_url) as store:
        study = store.create_study(new_study())
        assert store.recommendation(study.id) is None
        store.save_space(study.id, '{"levels": ["O1"]}')
        store.save_recommendation(study.id, '{"kept": "FP32 因为"}')
        store.save_script(study.id, replace(script, entry="other.py"))
        store.save_options(study.id, '{"trials": 48}')
        store.set_state(study.id, "done")
    with open_store(storage_url) as store:
        found = store.study(study.name)
        assert store.recommendation(study.id) == '{"kept": "FP32 因为"}'
    assert (found.space_json, found.options_json) == ('{"levels": ["O1"]}', '{"trials": 48}')
    assert found.script.entry == "other.py"
    assert found.state == "done"
    assert found.updated_at > study.updated_at


def test_writing_to_a_deleted_study_says_so(storage_url: str, new_study: Make) -> None:
    with open_store(storage_url) as store:
        for write in (
            lambda: store.start_trial(77, Phase.search, O2, "real"),
            lambda: store.set_state(77, "done"),
            lambda: store.save_space(77, "{}"),
        ):
            with pytest.raises(StorageError) as e:
                write()
            assert e.value.slug == "study-deleted"
        assert store.recommendation(77) is None and store.trials(77) == ()


def test_misspelt_states_are_refused(storage_url: str, new_study: Make) -> None:
    with open_store(storage_url) as store:
        study = store.create_study(new_study())
        with pytest.raises(ValueError):
            store.set_state(study.id, "finished")
        with pytest.raises(ValueError, match="planning"):
            store.start_trial(study.id, Phase.search, O2, "plan")
        assert store.trials(study.id) == ()


def test_summaries_compare_with_the_fp32_baseline(
    storage_url: str, new_study: Make, measured: Measured
) -> None:
    with open_store(storage_url) as store:
        study = store.create_study(new_study())
        for phase, setting, value in (
            (Phase.baseline, AS_WRITTEN, 100.0),
            (Phase.baseline, FP32, 80.0),
            (Phase.scan, FP32, 999.0),
            (Phase.search, O2, 200.0),
            (Phase.search, replace(O2, batch_size=64), 200.0),
            (Phase.drift, O2, 999.0),
        ):
            trial = store.start_trial(study.id, phase, setting, "real")
            store.finish_trial(trial.id, measured(value))
        store.create_study(new_study("empty"))
        summary, empty = store.studies()
    assert summary.best == O2
    assert summary.best_throughput_samples_per_s == 200.0
    assert summary.best_against_fp32 == 2.5
    assert summary.time_label is Label.modelled
    assert summary.trials == 6
    assert (empty.trials, empty.best, empty.best_against_fp32) == (0, None, None)


def test_the_reader_answers_as_the_store_does(
    storage_url: str, new_study: Make, measured: Measured, machine: Identity
) -> None:
    with open_store(storage_url) as store:
        study = store.create_study(new_study())
        trial = store.start_trial(study.id, Phase.search, O2, "real")
        store.finish_trial(trial.id, measured(3.0))
        with open_reader(storage_url) as reader:
            assert isinstance(reader, Store) == (not storage_url.startswith("sqlite"))
            assert reader.study(study.name) == store.study(study.name)
            assert reader.studies() == store.studies()
            assert reader.trials(study.id) == store.trials(study.id)
            assert reader.lease(study.id) is None
            assert reader.find_matching(machine, study.script) == store.study(study.name)


class TestFindMatching:
    def test_latest_of_the_same_machine_and_script(
        self, storage_url: str, new_study: Make, machine: Identity, script: ScriptIdentity
    ) -> None:
        with open_store(storage_url) as store:
            assert store.find_matching(machine, script) is None
            for name in ("first", "second"):
                store.create_study(new_study(name))
            other = replace(machine, device="Tesla V100")
            store.create_study(new_study("elsewhere", machine=other))
            found = store.find_matching(machine, script)
        assert found is not None and found.name == "second"

    @pytest.mark.parametrize("field", ["device", "memory_gib", "mig", "paddle", "cuda"])
    def test_another_machine_never_matches(
        self, tmp_path: object, new_study: Make, machine: Identity, field: str
    ) -> None:
        changed: dict[str, Any] = {field: 8 if field == "memory_gib" else "other"}
        other = replace(machine, **changed)
        with open_store(f"sqlite:///{tmp_path}/autoamp.db") as store:
            study = store.create_study(new_study())
            assert store.find_matching(other, study.script) is None
            assert store.find_matching(machine, study.script) == study

    def test_a_changed_module_seen_only_in_the_baseline(
        self, tmp_path: object, new_study: Make, machine: Identity, project: object
    ) -> None:
        def now() -> ScriptIdentity:
            return identify(
                "train.py", is_module=False, arguments=("-c", "c.yml"), cwd=str(project)
            )

        with open_store(f"sqlite:///{tmp_path}/autoamp.db") as store:
            study = store.create_study(new_study())
            store.save_script(study.id, with_files(study.script, [f"{project}/net.py"]))
            assert store.find_matching(machine, now()) is not None
            with open(f"{project}/net.py", "a") as f:
                f.write("size = 2\n")
            assert store.find_matching(machine, now()) is None
