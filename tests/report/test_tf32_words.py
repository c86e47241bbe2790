"""TF32 must be told from FP32 wherever a setting is shown: both are level O0."""

import io
from dataclasses import fields, replace
from datetime import datetime, timezone

import pytest
from rich.console import Console
from simulated_device import Simulated, ampere, drive, t4, tf32_knob

from autoamp.measurement import Measurement, Outcome, Phase
from autoamp.report import history, live
from autoamp.report import recommendation as report
from autoamp.report.text import setting_cells
from autoamp.settings import Dtype, Level, Setting
from autoamp.studies import recommend
from autoamp.studies.proposal import Proposal
from autoamp.studies.records import Trial, TrialState
from autoamp.studies.script_identity import ScriptIdentity

FP32 = Setting(batch_size=32, amp_level=Level.O0, dtype=Dtype.float32)
TF32 = Setting(batch_size=32, amp_level=Level.O0, dtype=Dtype.float32, tf32=True)
BOTH = Setting(batch_size=32, amp_level=Level.O1, dtype=Dtype.float16, tf32=True)
OK = Measurement(outcome=Outcome.ok, throughput_samples_per_s=10.0, batch_size=32)


def live_row(setting: Setting) -> str:
    out = io.StringIO()
    view = live.View(Console(file=out, width=200))
    proposal = Proposal(phase=Phase.ceiling, setting=setting)
    view.trial_finished(1, proposal, OK, replayed=False)
    return out.getvalue().splitlines()[-1]


def history_row(setting: Setting) -> str:
    moment = datetime(2026, 1, 1, tzinfo=timezone.utc)
    trial = Trial(
        id=1,
        number=1,
        phase=Phase.ceiling,
        setting=setting,
        numerics="real",
        state=TrialState.finished,
        measurement=OK,
        started_at=moment,
        finished_at=moment,
    )
    return " ".join(history._trial_line(trial, None))


@pytest.mark.parametrize("row", [live_row, history_row])
def test_a_trials_row(row) -> None:  # type: ignore[no-untyped-def]  # one of two functions
    assert "tf32" in row(TF32) and "float32" not in row(TF32)
    assert "float32" in row(FP32) and "tf32" not in row(FP32)
    assert "float16" in row(BOTH)


def test_the_lists_of_studies() -> None:
    assert history._short(TF32) == "TF32 32"
    assert history._short(FP32) == "FP32 32"
    assert history._short(Setting()) == "as written"
    assert history._short(BOTH) == "O1 fp16 32"
    assert history._short(replace(BOTH, dtype=Dtype.bfloat16, batch_size=None)) == "O1 bf16"


KNOBS: list[dict[str, object]] = [
    {"custom_black_list": ("softmax",)},
    {"custom_white_list": ("softmax",)},
    {"use_promote": False},
    {"use_promote": True},
    {"master_grad": True},
    {"master_grad": False},
    {"dynamic_loss_scaling": False},
    {"init_loss_scaling": 512.0},
    {"accumulate_steps": 2},
    {"tf32": False},
    {"amp_level": Level.O2},
    {"dtype": Dtype.bfloat16},
    {"batch_size": 64},
    {"amp_level": None, "dtype": None, "tf32": None},
    {"amp_level": Level.O0, "dtype": Dtype.float32, "tf32": False},
    {"amp_level": Level.O0, "dtype": Dtype.float32, "tf32": True},
]


def test_rows_of_different_settings_differ_and_both_tables_say_the_same() -> None:
    every = [BOTH, *(replace(BOTH, **knob) for knob in KNOBS)]  # type: ignore[arg-type]  # by name
    touched = {name for knob in KNOBS for name in knob}
    assert touched == {field.name for field in fields(Setting)}
    assert len({setting_cells(x, 32) for x in every}) == len(every)
    for setting in every:
        cells = [cell for cell in setting_cells(setting, 32) if cell]
        for row in (live_row(setting), history_row(setting)):
            assert " ".join(cells) in " ".join(row.split()), row
    assert setting_cells(Setting(), 32) == ("own", "-", "32", "-", "-")
    assert setting_cells(FP32, None)[-1] == "-"


def test_the_machine_line() -> None:
    assert "TF32 yes" in live.verdict_line(ampere())
    old = t4(knobs=(tf32_knob(available=False, reason="came with Ampere"),))
    assert "TF32 no (came with Ampere)" in live.verdict_line(old)
    assert "TF32" not in live.verdict_line(t4())


def test_the_ending_of_a_search_that_tf32_wins() -> None:
    fast = Simulated(
        per_sample_s={"O0": 0.002, "O1": 0.0021, "O2": 0.0021}, tf32_per_sample_s=0.0008
    )
    result = drive(fast, ampere()).result
    script = ScriptIdentity(entry="train.py", is_module=False, arguments=(), files=())
    found = recommend.build(result, study="s", script=script, command="train.py", wall_s=1.0)
    text = "\n".join(report.lines(found))
    assert "recommended: FP32 with TF32 products" in text
    assert "keep FP32" not in text.lower().replace("recommended", "")
    assert found.best.setting.tf32 and "set_cublas_switch(True)" in found.best.snippet
    assert "10 bits" in text
