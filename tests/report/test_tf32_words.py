"""TF32 must be told from FP32 wherever a setting is shown: both are level O0."""

import io
from datetime import datetime, timezone

import pytest
from rich.console import Console
from simulated_device import Simulated, ampere, drive, t4, tf32_knob

from autoamp.measurement import Measurement, Outcome, Phase
from autoamp.report import history, live
from autoamp.report import recommendation as report
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
