"""The end of a tune, as a person reads it."""

from __future__ import annotations

import io
import re

import msgspec
import pytest
from rich.console import Console
from simulated_device import PASCAL, Finished, Simulated, drive, machine, t4, virtual

from autoamp.measurement import Outcome
from autoamp.report.recommendation import lines, print_recommendation
from autoamp.settings import Dtype, Level, Setting
from autoamp.studies import recommend
from autoamp.studies.phases import Options, Proposal
from autoamp.studies.recommendation import Recommendation
from autoamp.studies.script_identity import ScriptIdentity

GIB = 2**30


def build(done: Finished, band: str | None = None) -> Recommendation:
    return recommend.build(
        done.result,
        study="train-3f2a",
        script=ScriptIdentity(entry="train.py", is_module=False, arguments=(), files=()),
        command="train.py",
        wall_s=300.0,
        error_band_note=band,
    )


def text_of(done: Finished, band: str | None = None) -> str:
    return "\n".join(lines(build(done, band)))


def row(text: str, name: str) -> str:
    found = [x for x in text.splitlines() if x.strip().startswith(name)]
    assert found, f"no row {name!r} in:\n{text}"
    return found[0]


def test_amp_pays() -> None:
    done = drive(Simulated(noise=0.002))
    text = text_of(done)
    best = done.result.best.setting
    assert f"recommended: {best.describe()}" in text
    assert "provisional" not in text
    title = row(text, "as written: FP32 (batch 32)")
    assert f"recommended (batch {best.batch_size})" in title and "change against FP32" in title
    assert "GiB" in row(text, "memory peak") and "%" in row(text, "memory peak")
    assert "80 %" in row(text, "GPU utilisation") and "5 %" in row(text, "data wait")
    assert re.search(r"-\d+ %$", row(text, "time for 1,000 samples"))
    gain = row(text, "throughput against FP32")
    assert "95 % interval" in gain and "precision" in gain and "batch" in gain
    drift = row(text, "loss, O2 float16")
    assert "against FP32, both at batch" in drift and "FP32's own spread over 3 seeds" in drift
    assert "the learning rate was tuned for 32" in text
    assert "at your own batch 32" in text and "--keep-batch" in text
    for label in ("modelled", "emulated", "counted"):
        assert label not in text


def test_columns_line_up() -> None:
    text = lines(build(drive(Simulated())))
    start = next(i for i, x in enumerate(text) if "change against" in x)
    at = text[start].index("change against")
    rows = text[start + 1 : start + 7]
    assert all(len(x) <= at or x[at - 1] == " " for x in rows)
    assert text[start].index("recommended") > 0


def test_every_virtual_number_carries_its_label() -> None:
    text = text_of(drive(Simulated(virtual=True), virtual()), "±20 % for the ratio")
    for name, label in (
        ("samples/s", "modelled"),
        ("time for 1,000 samples", "modelled"),
        ("memory peak", "counted"),
    ):
        line = row(text, name)
        cells = re.split(r"\s{3,}", line.strip())[1:]
        assert cells and all(cell.endswith(label) for cell in cells), line
    assert "emulated" in row(text, "skipped steps")
    assert "(emulated)" in row(text, "loss (emulated)")
    assert "modelled times: ±20 % for the ratio" in text
    assert "GPU utilisation: modelled device time alone" in text
    assert "note: planned on a virtual device" in text


def test_estimates_and_this_machines_loader_stand_apart() -> None:
    slow = Simulated(virtual=True, estimated_bytes=(GIB, GIB // 2), loader_samples_per_s=100.0)
    done = drive(slow, virtual())
    text = text_of(done)
    counted = done.result.best.first.memory_reserved_peak_bytes
    assert counted is not None and f"{counted / GIB:.1f} GiB counted" in row(text, "memory peak")
    assert row(text, "and context, workspaces").count("1.5 GiB modelled") >= 2
    assert row(text, "with this machine's loader").count("100/s modelled") >= 2
    assert "% modelled" in row(text, "busy share")
    assert "GPU utilisation" not in text, "nothing sampled it"
    assert "% modelled" in row(text, "data wait")
    assert "the loader of this machine (num_workers=2) makes 100 samples/s" in text
    assert "AMP will not show until it is faster" in text


def test_keep_fp32_gives_the_number_and_the_reason() -> None:
    slow = Simulated(per_sample_s={"O0": 0.0002, "O1": 0.0003, "O2": 0.0003}, data_wait=0.61)
    text = text_of(drive(slow, options=Options(keep_batch=True)))
    first = text.strip().splitlines()[0]
    assert first.startswith("Keep FP32: AMP does not pay here: best O1 float16 is 0.")
    assert "95 % interval" in first
    assert "data wait is 61% of each step" in text and "num_workers" in text
    assert "O1 float16 against FP32" in row(text, "as written: FP32"), "the loser is shown too"
    assert "recommended" not in text


def test_refused_names_the_hardware() -> None:
    done = drive(Simulated(), machine(refused=PASCAL, tensor_cores=0, name="GTX 1080"))
    text = text_of(done)
    assert text.strip().startswith("Keep FP32, batch 128")
    assert PASCAL[Dtype.float16] in text


def test_no_amp_worked() -> None:
    def no_effect(proposal: Proposal) -> tuple[Outcome, str] | None:
        mixed = proposal.setting.is_mixed
        return (Outcome.not_effective, "no operator ran in float16") if mixed else None

    text = text_of(drive(Simulated(fails=no_effect), options=Options(keep_batch=True)))
    assert "no mixed precision worked here" in text
    assert "no operator ran in float16" in text


def test_a_script_whose_own_amp_does_not_pay_is_told_to_switch_it_off() -> None:
    own = Setting(amp_level=Level.O1, dtype=Dtype.float16)
    slow = {"O0": 0.0010, "O1": 0.0014, "O2": 0.0014}
    text = text_of(drive(Simulated(script_amp=own, per_sample_s=slow)))
    assert text.strip().startswith("Switch the script's AMP off, use FP32")


def test_a_script_with_amp_has_its_own_column() -> None:
    own = Setting(amp_level=Level.O1, dtype=Dtype.float16)
    text = text_of(drive(Simulated(script_amp=own)))
    title = row(text, "as written ")
    assert "FP32 (batch 32)" in title and "recommended (batch" in title
    assert "throughput against the script as written" in text


def test_without_fp32_the_change_is_against_the_script() -> None:
    own = Setting(amp_level=Level.O1, dtype=Dtype.float16)
    text = text_of(drive(Simulated(script_amp=own), stop_after=1))
    assert text.strip().startswith("Keep the script as written")
    assert "FP32 (batch" not in text


def test_stopped_early_is_provisional() -> None:
    text = text_of(drive(Simulated(), stop_after=8))
    assert "recommended (provisional, not confirmed)" in text
    assert "note: not confirmed" in text


def test_iterations_are_said() -> None:
    text = text_of(drive(Simulated(scheduled_by="iterations")))
    assert "autoamp run takes the setting at your own batch" in text


def test_planning_only_has_no_numbers_for_numerics() -> None:
    text = text_of(drive(Simulated(virtual=True), virtual(numerics=False)))
    assert not [x for x in text.splitlines() if x.strip().startswith("skipped steps")]
    assert text.count("numerics were not computed in these runs") == 1


@pytest.mark.parametrize("width", [60, 80, 200])
def test_printing_keeps_lines_whole(width: int) -> None:
    found = build(drive(Simulated(), t4()))
    out = io.StringIO()
    print_recommendation(Console(file=out, width=width), found)
    assert out.getvalue().splitlines() == [x.rstrip() for x in lines(found)]


def test_markup_in_names_is_printed_as_it_is() -> None:
    found = msgspec.structs.replace(build(drive(Simulated())), caveats=("see [bold]x[/bold] [1]",))
    out = io.StringIO()
    print_recommendation(Console(file=out, width=200), found)
    assert "note: see [bold]x[/bold] [1]" in out.getvalue()


def test_energy_is_shown_where_power_was_sampled() -> None:
    rec = build(drive(Simulated(noise=0.002)))
    assert "energy for 1,000 samples" not in "\n".join(lines(rec))
    use = msgspec.structs.replace(rec.best.measured.utilisation, power_mean_w=60.0)
    measured = msgspec.structs.replace(
        rec.best.measured, utilisation=use, seconds_per_1000_samples=2.5
    )
    best = msgspec.structs.replace(rec.best, measured=measured)
    text = "\n".join(lines(msgspec.structs.replace(rec, best=best)))
    assert "150 J" in row(text, "energy for 1,000 samples")


@pytest.mark.parametrize("own_batch", [32, 512])
def test_the_setting_that_run_takes_is_named_by_what_it_is(own_batch: int) -> None:
    """A batch that does not fit is nobody's own any more."""
    laws = Simulated(own_batch=own_batch, scheduled_by="iterations", overhead_s=0.05)
    done = drive(laws)
    assert done.result.default == "at_your_batch"
    batch = done.result.at_your_batch.setting.batch_size
    at = (
        "your own batch" if batch == own_batch else f"batch {batch}, for your own 512 does not fit"
    )
    assert (batch == own_batch) == (own_batch == 32)
    assert f"autoamp run takes the setting at {at}: the script is scheduled" in text_of(done)
