"""Rows of a plan: made from whole searches on simulated devices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulated_device import PASCAL, Finished, Simulated, drive, machine, virtual

from autoamp.measurement import Outcome
from autoamp.probes.facts import DeviceKind
from autoamp.settings import Dtype, Level, Setting
from autoamp.studies import plan_table, recommend
from autoamp.studies.phases import Options, Proposal
from autoamp.studies.script_identity import ScriptIdentity

BAND = plan_table.Band(calibrated=True, throughput=0.2, ratio=0.1, note="a note")
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
