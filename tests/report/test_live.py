"""Lines of a running tune."""

import io

import fake_nvml
import machine_files
import pytest
from rich.console import Console

from autoamp.measurement import Label, Measurement, Outcome, Phase, ScriptFacts
from autoamp.report.live import HEAD, TerminalView, View, banner
from autoamp.report.machine import lines as probe_lines
from autoamp.report.text import estimated_text
from autoamp.settings import Dtype, Level, Setting
from autoamp.studies.proposal import Proposal

GIB = 2**30


def shown(**values: object) -> str:
    stream = io.StringIO()
    view = View(Console(file=stream, width=250))
    measurement = Measurement(
        outcome=Outcome.ok,
        throughput_samples_per_s=100.0,
        memory_reserved_peak_bytes=10 * GIB,
        **values,  # type: ignore[arg-type]  # a test's choice of fields
    )
    setting = Setting(batch_size=32, amp_level=Level.O1, dtype=Dtype.float16)
    proposal = Proposal(phase=Phase.search, setting=setting)
    view.trial_finished(3, proposal, measurement, replayed=False)
    return stream.getvalue()


def test_estimates_stand_beside_the_counted_peak() -> None:
    text = shown(
        time_label=Label.modelled,
        memory_label=Label.counted,
        memory_overhead_bytes=GIB,
        memory_workspace_bytes=GIB // 2,
    )
    head, line = text.strip().splitlines()
    assert head == HEAD.strip()
    assert "10.0 GiB +1.5 GiB m" in line
    assert line.index(" ok") == HEAD.index("outcome") - 1, "columns line up"


def test_a_measured_peak_has_nothing_beside_it() -> None:
    assert "10.0 GiB +" not in shown() and "10.0 GiB" in shown()


@pytest.mark.parametrize("baseline", ["planning", "full"])
def test_full_runs_show_a_rate_only_where_the_baseline_had_to_be_one(baseline: str) -> None:
    stream = io.StringIO()
    view = View(Console(file=stream, width=250))
    fp32, amp = Setting(batch_size=32), Setting(amp_level=Level.O1, dtype=Dtype.float16)
    for number, (phase, setting, numerics, rate) in enumerate(
        [
            (Phase.baseline, fp32, baseline, 111.0),
            (Phase.numerics, amp, "full", 222.0),
        ]
    ):
        proposal = Proposal(phase=phase, setting=setting, numerics=numerics)
        measurement = Measurement(outcome=Outcome.ok, throughput_samples_per_s=rate)
        view.trial_finished(number, proposal, measurement, replayed=False)
    text = stream.getvalue()
    assert "111" in text and ("222" in text) == (baseline == "full")


@pytest.mark.parametrize(("extra", "text"), [(0, ""), (3 * GIB, " +3.0 GiB m")])
def test_estimated_text(extra: int, text: str) -> None:
    assert estimated_text(extra) == text


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (ScriptFacts(calls_auto_cast=True, uses_hapi=True, enables_amp=False), "Model.prepare"),
        (ScriptFacts(calls_auto_cast=True, enables_amp=False), "AMP calls, switched off"),
        (ScriptFacts(calls_scaler=True, enables_amp=False), "AMP calls, switched off"),
        (ScriptFacts(enables_amp=False), "added from outside"),
        (ScriptFacts(calls_decorate=True, enables_amp=True), "decorate without auto_cast"),
        (
            ScriptFacts(calls_auto_cast=True, own_level="O1", own_dtype="float16"),
            "AMP O1 float16",
        ),
    ],
)
def test_what_the_script_has_of_amp(facts: ScriptFacts, words: str) -> None:
    stream = io.StringIO()
    View(Console(file=stream, width=250)).facts(facts, Measurement(outcome=Outcome.ok))
    assert words in stream.getvalue()


def trial(view: View, number: int, phase: Phase) -> None:
    setting = Setting(batch_size=32, amp_level=Level.O0, dtype=Dtype.float32)
    proposal = Proposal(phase=phase, setting=setting)
    view.trial_started(number, proposal)
    measurement = Measurement(outcome=Outcome.ok, throughput_samples_per_s=846.5, wall_s=2.0)
    view.trial_finished(number, proposal, measurement, replayed=False)


def test_the_moving_line_knows_what_comes() -> None:
    view = TerminalView(Console(file=io.StringIO(), width=250), compact=True)

    def line() -> str:
        return str(view._line())

    view.device_started("virtual:t4", 0, 2)
    assert "virtual:t4 (1 of 2) · preparing" in line()
    view._wanted = 4
    trial(view, 0, Phase.baseline)
    assert "deciding" in line() and "846.5" in line()
    assert "left" not in line() and "ETA" not in line(), "whether another follows is not known"
    search = Proposal(phase=Phase.search, setting=Setting(batch_size=64))
    view.trial_started(1, search)
    assert "at most 3 trials left" in line() and "ETA 6 s" in line()
    confirm = Proposal(phase=Phase.confirm, setting=Setting(batch_size=64))
    view.trial_started(2, confirm)
    assert "left" not in line() and "ETA" not in line(), "the proof is no trial of the search"
    # The next GPU starts without the best of this one.
    view.device_started("virtual:v100", 1, 2)
    view._current = ""
    assert "virtual:v100 (2 of 2) · preparing" in line()
    assert "best" not in line() and "left" not in line()


@pytest.mark.parametrize(
    ("alias", "words"),
    [("a100-40gb", "FP16/BF16 emulated"), ("t4", "FP16 emulated"), ("gtx1080", "FP32 computed")],
)
def test_only_precisions_that_the_gpu_has_are_called_emulated(
    alias: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = machine_files.assembled(monkeypatch, fake_nvml.load("no-gpu"), f"virtual:{alias}")
    text = banner(machine, None)
    assert words in text
    box = "\n".join(probe_lines(machine))
    assert words in box
    knobs = {k.knob: k for k in machine.knobs}
    useful = alias != "gtx1080"
    of_o2 = ("use_promote", "master_grad", "master_weight")
    assert {knobs[k].available for k in of_o2} == {useful}
    if not useful:
        assert "no 16-bit precision" in knobs["master_grad"].reason
