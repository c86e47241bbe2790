"""From a search's result to the file: what it says, and that nothing is made up."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone

import jsonschema
import pytest
from simulated_device import NO_BF16, PASCAL, Finished, Simulated, drive, machine, t4, virtual

from autoamp.measurement import Outcome
from autoamp.probes.facts import Machine, Problem, Severity
from autoamp.settings import AS_WRITTEN, Dtype, Level, Setting
from autoamp.studies import recommend
from autoamp.studies.phases import Options, Proposal
from autoamp.studies.recommendation import Recommendation, decode, encode, json_schema
from autoamp.studies.script_identity import FileHash, ScriptIdentity
from autoamp.studies.snippet import snippet

SCRIPT = ScriptIdentity(
    entry="train.py",
    is_module=False,
    arguments=("--epochs", "90"),
    files=(FileHash(path="train.py", sha256="ab" * 32),),
)
WHEN = datetime(2026, 7, 1, 12, 0, tzinfo=timezone.utc)


def build(done: Finished, **kwargs: object) -> Recommendation:
    """The recommendation of a search, checked against the schema and read back."""
    found = recommend.build(
        done.result,
        study="train-3f2a",
        script=SCRIPT,
        command="train.py --epochs 90",
        wall_s=120.0,
        created_at=WHEN,
        **kwargs,  # type: ignore[arg-type]  # passed through
    )
    data = encode(found)
    jsonschema.Draft202012Validator(json_schema()).validate(json.loads(data))
    assert decode(data, source="test") == found
    return found


def no_effect(proposal: Proposal) -> tuple[Outcome, str] | None:
    return (Outcome.not_effective, "no float16") if proposal.setting.is_mixed else None


ENDINGS = {
    "pays": lambda: drive(Simulated()),
    "virtual": lambda: drive(Simulated(virtual=True), virtual()),
    "planning": lambda: drive(Simulated(virtual=True), virtual(numerics=False)),
    "slower": lambda: drive(Simulated(per_sample_s={"O0": 0.001, "O1": 0.0013, "O2": 0.0014})),
    "pascal": lambda: drive(Simulated(), machine(refused=PASCAL, tensor_cores=0)),
    "no effect": lambda: drive(Simulated(fails=no_effect)),
    "own amp": lambda: drive(
        Simulated(script_amp=Setting(amp_level=Level.O2, dtype=Dtype.float16)),
        options=Options(keep_batch=True),
    ),
    "fp32 too large": lambda: drive(
        Simulated(script_amp=Setting(amp_level=Level.O2, dtype=Dtype.float16), own_batch=256)
    ),
    "no fp32": lambda: drive(
        Simulated(script_amp=Setting(amp_level=Level.O1, dtype=Dtype.float16)), stop_after=1
    ),
    "stopped": lambda: drive(Simulated(), stop_after=6),
    "no loader": lambda: drive(Simulated(has_loader=False)),
    "noisy": lambda: drive(Simulated(noise=0.05)),
    "drifting": lambda: drive(Simulated(drifts=lambda setting: 1.0)),
    "one trial": lambda: drive(Simulated(), options=Options(trials=1)),
}


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda x: x.replace(" ", "-"))
def test_every_ending_is_a_valid_file(ending: str) -> None:
    done = ENDINGS[ending]()
    found = build(done)
    assert found.verdict == done.result.verdict
    assert found.best.setting == done.result.best.setting
    assert found.at_your_batch.setting == done.result.at_your_batch.setting
    # Unknown values have their reason beside them.
    for measured in filter(None, (found.as_written, found.fp32, found.best.measured)):
        use, memory = measured.utilisation, measured.memory
        assert use.gpu_percent is not None or use.reason
        assert memory.peak_bytes is not None or memory.reason
        assert measured.data_wait_share is not None or measured.data_wait_reason
        assert measured.numerics.skipped_steps is not None or measured.numerics.reason
    for ratio in (found.best.against_fp32, found.best.against_as_written):
        assert (ratio.value is not None and ratio.low is not None) or ratio.reason
    assert found.fp32 is not None or found.fp32_reason
    assert found.search.trials + found.search.extra_runs == len(done.proposals)
    assert sum(found.search.outcomes.values()) == len(done.proposals)


def test_numbers_are_those_of_the_runs() -> None:
    done = drive(Simulated())
    found = build(done)
    best = done.result.best
    fresh = [m.throughput_samples_per_s for m in best.runs[1:]]
    assert len(fresh) == 3
    assert found.best.measured.throughput.samples_per_s == pytest.approx(sum(fresh) / 3)  # type: ignore[arg-type]  # all timed
    assert found.best.measured.memory.peak_bytes == best.first.memory_reserved_peak_bytes
    assert found.best.measured.throughput.runs == 4
    value = found.best.measured.throughput.samples_per_s
    assert value and found.best.measured.seconds_per_1000_samples == pytest.approx(1000 / value)


def test_the_interval_of_throughput_is_over_fresh_runs() -> None:
    found = build(drive(Simulated(noise=0.01)))
    throughput = found.best.measured.throughput
    assert throughput.low is not None and throughput.high is not None
    assert throughput.samples_per_s is not None
    assert throughput.low < throughput.samples_per_s < throughput.high
    assert "fresh runs" in throughput.basis


def test_needed_memory_of_a_virtual_device_has_the_estimates_in_it() -> None:
    extra = (2 * 2**30, 2**28)
    done = drive(Simulated(virtual=True, estimated_bytes=extra), virtual())
    memory = build(done).best.measured.memory
    assert (memory.overhead_bytes, memory.workspace_bytes) == extra
    assert memory.peak_bytes == done.result.best.first.memory_reserved_peak_bytes
    assert memory.peak_bytes is not None and memory.needed_bytes == memory.peak_bytes + sum(extra)
    assert (memory.label, memory.needed_label) == ("counted", "modelled")
    limit = (1 - done.result.options.headroom) * 16 * 2**30
    assert memory.needed_bytes <= limit, "the limit holds the sum"
    assert memory.share_of_device == memory.needed_bytes / (16 * 2**30)


def test_labels_of_a_virtual_device() -> None:
    found = build(drive(Simulated(virtual=True), virtual()), error_band_note="±20 % for the ratio")
    for measured in (found.as_written, found.fp32, found.best.measured):
        assert measured is not None
        assert measured.throughput.label == "modelled"
        assert measured.memory.label == "counted"
        # No interval is made of times that repeat exactly.
        assert measured.throughput.low is None
    assert found.best.measured.numerics.label == "emulated"
    assert found.as_written.numerics.label == "not_computed"
    assert {"modelled", "counted", "emulated"} <= set(found.labels)
    assert "measured" not in found.labels
    assert found.error_band == "±20 % for the ratio"
    assert any("virtual" in x for x in found.caveats)


def test_real_numbers_are_called_measured_only() -> None:
    assert set(build(drive(Simulated())).labels) == {"measured"}


def test_machine_and_script_identity() -> None:
    found = build(drive(Simulated()))
    assert found.created_at == "2026-07-01T12:00:00+00:00"
    assert found.machine.device == "Tesla T4" and found.machine.paddle == "3.3.1"
    assert found.machine.compute_capability == "7.5"
    assert recommend.identity_of(found.machine.identity) == t4().identity
    assert found.script.arguments == ("--epochs", "90")
    assert found.script.files[0].sha256 == "ab" * 32


def with_problems(base: Machine) -> Machine:
    slugs = ("paddle-numpy-scaler", "gpu-busy", "few-cores")
    return replace(
        base,
        problems=tuple(
            Problem(severity=Severity.warning, slug=x, sentence=f"{x} seen", remedy="do this")
            for x in slugs
        ),
    )


def test_problems_that_bite_later_travel_with_the_file() -> None:
    half = build(drive(Simulated(), with_problems(t4()))).caveats
    assert "gpu-busy seen: do this" in half
    # A scaler's trouble is told by the runs that had one, once (tests/test_collect.py).
    assert not any("few-cores" in x or "paddle-numpy-scaler" in x for x in half)


def test_learning_rate_advice_only_where_the_batch_changed() -> None:
    advice = recommend.learning_rate_advice(32, 128)
    assert advice is not None
    assert "32 -> 128" in advice and "by 4 " in advice and "about 2 " in advice
    assert "does not change it" in advice
    for pair in ((32, 32), (None, 64), (32, None)):
        assert recommend.learning_rate_advice(*pair) is None


def test_chosen_setting() -> None:
    by_epochs = build(drive(Simulated()))
    assert by_epochs.chosen() is by_epochs.best
    assert by_epochs.chosen(keep_batch=True) is by_epochs.at_your_batch
    by_iterations = build(drive(Simulated(scheduled_by="iterations")))
    assert by_iterations.chosen() is by_iterations.at_your_batch
    assert "iterations" in by_iterations.default_reason


def test_refused_precisions_are_listed_with_reasons() -> None:
    found = build(drive(Simulated(), machine(refused=NO_BF16)))
    skipped = {x.what: x.reason for x in found.search.skipped}
    assert skipped["O1 bfloat16"] == NO_BF16[Dtype.bfloat16]


SNIPPETS = [
    Setting(batch_size=64, amp_level=level, dtype=dtype, **knobs)  # type: ignore[arg-type]  # passed through
    for level in (Level.O1, Level.O2, Level.OD)
    for dtype in (Dtype.float16, Dtype.bfloat16)
    for knobs in (
        {},
        {"init_loss_scaling": 32768.0, "dynamic_loss_scaling": False},
        {"custom_black_list": ("exp", "softmax"), "custom_white_list": ("elementwise_add",)},
        {"use_promote": False, "master_grad": True},
    )
]


@pytest.mark.parametrize("setting", [AS_WRITTEN, Setting(amp_level=Level.O0), *SNIPPETS])
def test_snippets_are_python_and_hold_every_knob(setting: Setting) -> None:
    setting = setting.canonical()
    code = snippet(setting)
    compile(code, "snippet", "exec")
    if setting.batch_size is not None:
        assert f"batch_size = {setting.batch_size}" in code
    if not setting.is_mixed:
        assert "paddle.amp." not in code
        return
    assert f'level="{setting.amp_level}"' in code and f'dtype="{setting.dtype}"' in code
    for op in (*setting.custom_black_list, *setting.custom_white_list):
        assert repr(op) in code
    assert ("GradScaler(" in code) == (setting.dtype is Dtype.float16)
    assert ("paddle.amp.decorate(" in code) == (setting.amp_level is Level.O2)
    if setting.init_loss_scaling is not None:
        assert "init_loss_scaling=32768.0" in code
        assert "use_dynamic_loss_scaling=False" in code
    if setting.use_promote is not None:
        assert "use_promote=False" in code
    if setting.master_grad is not None:
        assert "master_grad=True" in code
