"""Rows of a plan: made from whole searches on simulated devices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulated_device import GIB, PASCAL, Finished, Simulated, drive, machine, virtual

from autoamp.measurement import Outcome
from autoamp.probes.facts import DeviceKind
from autoamp.settings import Dtype, Level, Setting
from autoamp.studies import plan_table, recommend
from autoamp.studies.ceilings import OUT_OF_TRIALS
from autoamp.studies.phases import Options, Proposal
from autoamp.studies.score import NUMERIC_OUTCOMES
from autoamp.studies.script_identity import ScriptIdentity

BAND = plan_table.Band(calibrated=True, throughput=0.2, ratio=0.1, note="a note")
EVERY = Options(all_numerics=True)
"""As a plan asks."""
EVERYTHING = machine(kind=DeviceKind.virtual, name="A100")


def row_of(done: Finished) -> plan_table.PlanRow:
    found = recommend.build(
        done.result,
        study="train-3f2a",
        script=ScriptIdentity(entry="train.py", is_module=False, arguments=(), files=()),
        command="train.py",
        wall_s=300.0,
    )
    return plan_table.finished_row("virtual:v100", BAND, done.result, found)


def test_a_row_is_what_the_search_recommends() -> None:
    done = drive(Simulated(virtual=True), virtual())
    row = row_of(done)
    best = done.result.best
    assert row.setting is not None and row.setting.setting() == best.setting
    assert row.batch_size == best.setting.batch_size
    assert row.samples_per_s == best.first.throughput_samples_per_s
    assert row.against_fp32 is not None and row.against_fp32.low is not None
    assert row.fp32_batch_size == 32
    assert row.problem is None
    assert str(row.batch_size) not in (row.recipe or "")


def test_refused_types_say_why() -> None:
    on = machine(kind=DeviceKind.virtual, name="GTX 1080", refused=PASCAL)
    row = row_of(drive(Simulated(virtual=True), on))
    assert row.verdict == "keep_fp32"
    assert row.float16 is not None and row.float16.state == "refused"
    assert "Pascal" in row.float16.reason
    assert row.bfloat16 is not None and "8.0" in row.bfloat16.reason


def test_a_type_is_stable_by_the_drift_check_of_any_level() -> None:
    row = row_of(drive(Simulated(virtual=True), virtual()))
    assert row.float16 is not None and row.float16.state == "stable"
    assert "FP32" in row.float16.reason and "emulated steps" in row.float16.reason


def test_a_type_that_overflows_everywhere_is_unstable_with_the_reason() -> None:
    def overflows(setting: Setting) -> str | None:
        return "loss is inf" if setting.dtype is Dtype.float16 else None

    row = row_of(drive(Simulated(virtual=True, unstable=overflows), virtual()))
    assert row.float16 is not None and row.float16.state == "unstable"
    assert "loss is inf" in row.float16.reason
    assert row.verdict == "keep_fp32"


def test_a_loss_that_drifts_is_unstable_although_finite() -> None:
    row = row_of(drive(Simulated(virtual=True, drifts=lambda setting: 5.0), virtual()))
    assert row.float16 is not None and row.float16.state == "unstable"


def test_stable_at_one_level_is_enough() -> None:
    def overflows(setting: Setting) -> str | None:
        wrong = setting.dtype is Dtype.float16 and setting.amp_level is Level.O2
        return "loss is inf" if wrong else None

    row = row_of(drive(Simulated(virtual=True, unstable=overflows), virtual()))
    assert row.float16 is not None and row.float16.state == "stable"
    assert row.float16.reason.startswith("O1 float16")


SLOW = {"O0": 0.001, "O1": 0.004, "O2": 0.004}


@pytest.mark.parametrize("everything", [False, True])
def test_a_slow_type_is_emulated_only_where_a_plan_asks_for_it(everything: bool) -> None:
    done = drive(
        Simulated(virtual=True, per_sample_s=SLOW),
        EVERYTHING,
        Options(all_numerics=everything),
    )
    row = row_of(done)
    wanted = "stable" if everything else "not_looked_at"
    assert row.bfloat16 is not None and row.bfloat16.state == wanted
    if not everything:
        assert "no faster than FP32" in row.bfloat16.reason


def test_without_numerics_nothing_is_said_about_stability() -> None:
    on = machine(kind=DeviceKind.virtual, name="A100", numerics=False)
    row = row_of(drive(Simulated(virtual=True), on))
    for found in (row.float16, row.bfloat16):
        assert found is not None and found.state == "not_looked_at"
        assert "not" in found.reason


def test_left_out_by_the_options() -> None:
    row = row_of(drive(Simulated(virtual=True), EVERYTHING, Options(dtypes=(Dtype.bfloat16,))))
    assert row.float16 is not None and row.float16.state == "not_looked_at"
    assert "options" in row.float16.reason


def test_a_climb_that_ran_out_of_trials_is_said() -> None:
    simulated = Simulated(virtual=True, overhead_s=1.0)
    few = row_of(drive(simulated, EVERYTHING, Options(trials=6)))
    assert any("more --trials" in caveat for caveat in few.caveats)
    enough = row_of(drive(replace(simulated, dataset_length=128), EVERYTHING, Options(trials=40)))
    assert not any("more --trials" in caveat for caveat in enough.caveats)


def test_out_of_memory_is_no_stability() -> None:
    def fails(proposal: Proposal) -> tuple[Outcome, str] | None:
        if proposal.setting.dtype is Dtype.bfloat16:
            return Outcome.out_of_memory, "out of memory"
        return None

    row = row_of(drive(Simulated(virtual=True, fails=fails), EVERYTHING))
    assert row.bfloat16 is not None and row.bfloat16.state == "not_looked_at"


NOT_NUMERIC = [o for o in Outcome if o is not Outcome.ok and o not in NUMERIC_OUTCOMES]


@pytest.mark.parametrize("outcome", NOT_NUMERIC, ids=str)
def test_an_end_that_says_nothing_about_the_numbers_is_not_called_unstable(
    outcome: Outcome,
) -> None:
    def fails(proposal: Proposal) -> tuple[Outcome, str] | None:
        wanted = proposal.setting.dtype is Dtype.bfloat16 and proposal.numerics == "full"
        return (outcome, "what happened") if wanted else None

    row = row_of(drive(Simulated(virtual=True, fails=fails), EVERYTHING, EVERY))
    wanted = "does_not_run" if outcome in plan_table.DOES_NOT_RUN else "not_looked_at"
    assert row.bfloat16 is not None and row.bfloat16.state == wanted
    assert f"{str(outcome).replace('_', ' ')}: what happened" in row.bfloat16.reason
    assert row.float16 is not None and row.float16.state == "stable"


@pytest.mark.parametrize("outcome", plan_table.DOES_NOT_RUN, ids=str)
@pytest.mark.parametrize("trials", [6, 24])
def test_a_type_that_was_looked_at_and_failed_is_not_called_not_looked_at(
    outcome: Outcome, trials: int
) -> None:
    """However its runs were made, and whichever level broke first."""

    def fails(proposal: Proposal) -> tuple[Outcome, str] | None:
        wanted = proposal.setting.dtype is Dtype.float16
        return (outcome, "what happened") if wanted else None

    options = Options(all_numerics=True, trials=trials, dtypes=(Dtype.float16,))
    row = row_of(drive(Simulated(virtual=True, fails=fails), EVERYTHING, options))
    assert row.float16 is not None and row.float16.state == "does_not_run"
    assert (
        row.float16.reason.startswith("O1 float16, batch ")
        and "what happened" in row.float16.reason
    )


def test_the_batchs_gain_is_not_the_precisions() -> None:
    row = row_of(drive(Simulated(virtual=True, overhead_s=1.0), virtual()))
    assert row.against_fp32 is not None and row.against_fp32.value is not None
    assert row.precision_gain is not None and row.precision_gain.value is not None
    assert row.batch_gain is not None and row.batch_gain > row.precision_gain.value
    assert row.fp32_samples_per_s and row.fp32_batch_size != row.batch_size
    parts = row.precision_gain.value * row.batch_gain
    assert parts == pytest.approx(row.against_fp32.value, rel=0.01)


@pytest.mark.parametrize("outcome", NUMERIC_OUTCOMES, ids=str)
def test_an_end_by_the_numbers_is_unstable(outcome: Outcome) -> None:
    def fails(proposal: Proposal) -> tuple[Outcome, str] | None:
        wanted = proposal.setting.dtype is Dtype.bfloat16 and proposal.numerics == "full"
        return (outcome, "what happened") if wanted else None

    row = row_of(drive(Simulated(virtual=True, fails=fails), EVERYTHING, EVERY))
    assert row.bfloat16 is not None and row.bfloat16.state == "unstable"


def test_a_drift_run_without_memory_is_no_drift() -> None:
    def fails(proposal: Proposal) -> tuple[Outcome, str] | None:
        mixed = proposal.setting.is_mixed and proposal.numerics == "full"
        return (Outcome.out_of_memory, "no room") if mixed else None

    row = row_of(drive(Simulated(virtual=True, fails=fails), EVERYTHING, Options(trials=8)))
    for found in (row.float16, row.bfloat16):
        assert found is not None and found.state == "not_looked_at"


def test_why_not_speaks_of_the_type_itself_and_not_of_one_with_a_longer_name() -> None:
    def fails(proposal: Proposal) -> tuple[Outcome, str] | None:
        return (
            (Outcome.out_of_memory, "no room") if proposal.setting.dtype is Dtype.float16 else None
        )

    def overflows(setting: Setting) -> str | None:
        wrong = setting.dtype is Dtype.bfloat16 and setting.amp_level is Level.O2
        return "loss is inf" if wrong else None

    simulated = Simulated(virtual=True, fails=fails, unstable=overflows)
    row = row_of(drive(simulated, EVERYTHING, EVERY))
    assert row.float16 is not None and row.float16.state == "not_looked_at"
    assert "bfloat16" not in row.float16.reason and "loss is inf" not in row.float16.reason
    assert "float16, batch" in row.float16.reason and "out of memory" in row.float16.reason


@pytest.mark.parametrize(
    ("options", "stop_after", "words"),
    [
        (Options(all_numerics=True), 1, "stopped early"),
        (Options(all_numerics=True, timeout_s=15.0), None, "--timeout"),
        (Options(all_numerics=True, trials=1), None, "too few trials"),
    ],
    ids=["Ctrl-C", "timeout", "trials"],
)
def test_a_search_that_ended_early_does_not_blame_the_options(
    options: Options, stop_after: int | None, words: str
) -> None:
    row = row_of(drive(Simulated(virtual=True), EVERYTHING, options, stop_after=stop_after))
    for found in (row.float16, row.bfloat16):
        assert found is not None and found.state == "not_looked_at"
        assert words in found.reason and "options" not in found.reason


def test_a_climb_that_was_cut_short_is_a_key_of_the_row() -> None:
    simulated = Simulated(virtual=True, overhead_s=1.0)
    assert row_of(drive(simulated, EVERYTHING, Options(trials=6))).climb_cut_short is not None
    stopped = row_of(drive(simulated, EVERYTHING, EVERY, stop_after=2))
    assert stopped.climb_cut_short == "stopped early"
    ended = replace(simulated, dataset_length=128)
    assert row_of(drive(ended, EVERYTHING, Options(trials=40))).climb_cut_short is None
    kept = row_of(drive(simulated, EVERYTHING, Options(trials=6, keep_batch=True)))
    assert kept.climb_cut_short is None


@pytest.mark.parametrize(("factor", "short"), [(0.9, True), (1.1, False)])
def test_a_smaller_batch_ends_the_search_for_larger_ones_only_if_it_is_faster(
    factor: float, short: bool
) -> None:
    """Inside the band it may be recommended although a larger one, the last one tried, was not
    slower: then a still larger one may be faster."""
    done = drive(Simulated(virtual=True, overhead_s=1.0), EVERYTHING, Options(trials=6))
    result = done.result
    best, rate = result.best.setting, result.best.first.throughput_samples_per_s
    assert best.batch_size is not None and rate is not None
    smaller = replace(best, batch_size=best.batch_size - 8)
    seen = next(t for t in result.trials if t.proposal.setting.key() == best.key())
    added = replace(
        seen,
        proposal=replace(seen.proposal, setting=smaller),
        measurement=replace(seen.measurement, throughput_samples_per_s=factor * rate),
    )
    other = replace(
        result,
        trials=(*result.trials, added),
        best=replace(result.best, setting=smaller),
    )
    assert (plan_table.climb_cut_short(other) is not None) == short


@pytest.mark.parametrize(("length", "short"), [(2048, True), (512, False)])
def test_at_the_largest_batch_there_is_no_trial_is_missing(length: int, short: bool) -> None:
    """The same seven trials end at batch 128; with 512 samples no larger one is allowed."""
    simulated = Simulated(
        virtual=True, overhead_s=1.0, dataset_length=length, own_batch=16, capacity=200 * GIB
    )
    done = drive(simulated, EVERYTHING, Options(trials=7))
    row = row_of(done)
    assert row.batch_size == 128
    climbed = next(c for c in done.result.ceilings if c.largest_fitting == 128)
    assert climbed.why == OUT_OF_TRIALS
    assert (row.climb_cut_short is not None) == short
    assert any("more --trials" in caveat for caveat in row.caveats) == short


def test_the_json_names_every_null() -> None:
    failed = plan_table.PlanRow(
        device="virtual:t4",
        gpu="Tesla T4",
        memory_bytes=1,
        band=BAND,
        problem=plan_table.Problem(slug="refused-precision", message="no", remedy=None),
    )
    table = plan_table.PlanTable(
        schema_version=1,
        autoamp_version="0",
        created_at="now",
        command="train.py",
        labels={},
        rows=(row_of(drive(Simulated(virtual=True), virtual())), failed),
        stopped=None,
    )
    text = plan_table.encode(table).decode()
    assert '"slug": "refused-precision"' in text and '"state": "stable"' in text
