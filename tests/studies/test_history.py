"""States, the best so far and what changed: plain facts in, plain facts out."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autoamp.measurement import Label, Outcome, Phase
from autoamp.probes.facts import Identity
from autoamp.settings import AS_WRITTEN, Dtype, Level, Setting
from autoamp.studies import history
from autoamp.studies.records import NewStudy, StudyState, TrialScalars
from autoamp.studies.script_identity import ScriptIdentity, identify
from autoamp.studies.store import open_store

FP32 = Setting(amp_level=Level.O0)
O2 = Setting(batch_size=192, amp_level=Level.O2, dtype=Dtype.float16)


def scalar(
    number: int,
    value: float | None,
    *,
    phase: Phase = Phase.search,
    setting: Setting = O2,
    outcome: Outcome | None = Outcome.ok,
    numerics: str = "real",
) -> TrialScalars:
    return TrialScalars(
        study_id=1,
        number=number,
        phase=phase,
        setting=setting,
        numerics=numerics,
        outcome=outcome,
        throughput_samples_per_s=value,
        memory_peak_bytes=None,
        time_label=Label.measured,
    )


@pytest.mark.parametrize(
    ("state", "alive", "shown"),
    [
        *[(StudyState.running, True, "running"), (StudyState.running, False, "stopped (killed)")],
        *[(s, False, s.value) for s in StudyState if s is not StudyState.running],
        *[(s, True, s.value) for s in StudyState if s is not StudyState.running],
    ],
)
def test_shown_state(state: StudyState, alive: bool, shown: str) -> None:
    assert history.shown_state(state, holder_alive=alive) == shown


@pytest.mark.parametrize("outcome", [None, *(o for o in Outcome if o is not Outcome.ok)])
def test_no_failed_or_running_trial_is_ever_best(outcome: Outcome | None) -> None:
    trials = [scalar(0, 1e9, outcome=outcome), scalar(1, 1.0)]
    best = history.best_so_far(trials)
    assert best is not None and best.number == 1
    assert history.best_so_far(trials[:1]) is None


def test_runs_with_full_numerics_are_no_times_of_this_gpu() -> None:
    """They may stand for another GPU's, and confirm makes them in a phase that is timed."""
    trials = [
        scalar(0, 5.0, phase=Phase.baseline, setting=FP32, numerics="planning"),
        scalar(1, 100.0, phase=Phase.baseline, setting=FP32, numerics="full"),
        scalar(2, 8.0, numerics="planning"),
        scalar(3, 1e6, phase=Phase.confirm, numerics="full"),
    ]
    best, fp32 = history.best_so_far(trials), history.fp32_baseline(trials)
    assert best is not None and best.number == 2
    assert fp32 is not None and fp32.number == 0
    assert history.gain_against_fp32(trials) == 8.0 / 5.0


def test_where_planning_mode_fails_full_runs_carry_the_times() -> None:
    crashed = scalar(0, None, phase=Phase.baseline, numerics="planning", outcome=Outcome.crashed)
    trials = [crashed, scalar(1, 8.0, numerics="full")]
    best = history.best_so_far(trials)
    assert best is not None and best.number == 1


def test_a_script_without_amp_is_its_own_fp32() -> None:
    own = scalar(0, 5.0, phase=Phase.baseline, setting=Setting())
    trials = [own, scalar(1, 8.0)]
    fp32 = history.fp32_baseline(trials)
    assert fp32 is not None and fp32.number == 0
    assert history.gain_against_fp32(trials) == 8.0 / 5.0
    assert history.fp32_baseline([own]) is None, "FP32 may still be asked for"
    failed = scalar(2, None, phase=Phase.baseline, setting=FP32, outcome=Outcome.crashed)
    assert history.fp32_baseline([*trials, failed]) is None, "it was asked for: AMP is in it"


def test_fp32_can_be_best() -> None:
    trials = [scalar(0, 9.0, phase=Phase.baseline, setting=FP32), scalar(1, 8.0)]
    best = history.best_of(trials, None)
    assert best is not None
    assert (best.setting, best.against_fp32) == (FP32, 1.0)


def test_no_ratio_without_a_baseline_that_ended_well() -> None:
    written = scalar(0, 5.0, phase=Phase.baseline, setting=AS_WRITTEN)
    failed = scalar(1, None, phase=Phase.baseline, setting=FP32, outcome=Outcome.crashed)
    assert history.gain_against_fp32([written, failed, scalar(2, 8.0)]) is None
    assert history.gain_against_fp32([]) is None
    assert history.best_of([], None) is None


def recommendation(**values: object) -> str:
    best = {
        "measured": {
            "setting": {"amp_level": "O1", "batch_size": 64},
            "throughput": {"samples_per_s": 50.0, "label": "modelled"},
        },
        "against_fp32": {"value": 1.4},
    }
    return json.dumps({"best": best | values})


def test_the_recommendation_counts_for_more_than_a_single_run() -> None:
    found = history.best_of([scalar(0, 1e9)], recommendation())
    assert found == history.Best(
        setting=Setting(amp_level=Level.O1, batch_size=64),
        throughput_samples_per_s=50.0,
        against_fp32=1.4,
        time_label=Label.modelled,
    )


@pytest.mark.parametrize(
    "text",
    [
        *("{}", "[]", "nonsense", '{"best": null}', recommendation(measured={})),
        recommendation(measured={"setting": {"new_knob": 1}, "throughput": {}}),
        recommendation(against_fp32=None),
    ],
)
def test_a_recommendation_laid_out_otherwise_is_passed_over(text: str) -> None:
    found = history.best_of([scalar(0, 7.0)], text)
    assert found is not None and found.throughput_samples_per_s == 7.0


def test_what_changed_names_the_latest_study_of_the_script(
    tmp_path: Path, project: Path, machine: Identity, script: ScriptIdentity
) -> None:
    def new(name: str, **values: object) -> NewStudy:
        fields: dict[str, object] = {
            "name": name,
            "script_path": "train.py",
            "arguments": script.arguments,
            "device": "Tesla T4",
            "machine": machine,
            "script": script,
        }
        return NewStudy(**{**fields, **values})  # type: ignore[arg-type]  # fields by name

    with open_store(f"sqlite:///{tmp_path}/autoamp.db") as store:
        assert history.what_changed(store.all_studies(), machine, script) is None
        store.create_study(new("old"))
        store.create_study(new("latest"))
        store.create_study(new("eval", script=replace(script, entry="eval.py")))
        studies = store.all_studies()
    (project / "train.py").write_text("import net  # changed\n")
    now = identify("train.py", is_module=False, arguments=("-c", "c.yml", "-x"), cwd=str(project))
    for elsewhere in ({"device": "Tesla V100"}, {"memory_gib": 2}, {"mig": "1g.5gb"}):
        # Another GPU's study could not have been continued.
        assert history.what_changed(studies, replace(machine, **elsewhere), now) is None
    here = replace(machine, paddle="3.4")
    found = history.what_changed(studies, here, now)
    assert found == (
        "latest",
        (
            "paddle: 3.4 here, 3.3 there",
            "argument new: -x",
            "train.py has changed",
        ),
    )
