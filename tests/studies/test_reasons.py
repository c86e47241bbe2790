"""The verdict in words: which batch sizes are compared, and which are named."""

from __future__ import annotations

import re

import pytest
from simulated_device import GIB, NO_BF16, PASCAL, Simulated, drive, machine, t4, virtual

from autoamp.measurement import Outcome
from autoamp.probes.facts import DeviceKind
from autoamp.settings import AS_WRITTEN, Dtype, Level, Setting
from autoamp.studies.phases import Options, Proposal
from autoamp.studies.space import FP32

AMP = Setting(amp_level=Level.O1, dtype=Dtype.float16)
SLOW_AMP = {"O0": 0.0020, "O1": 0.0021, "O2": 0.0021}
SAME_BYTES = dict.fromkeys(("O0", "O1", "O2"), 0.10 * GIB)


def small_alone(proposal: Proposal) -> tuple[Outcome, str] | None:
    large = proposal.setting.is_mixed and (proposal.setting.batch_size or 0) > 32
    return (Outcome.out_of_memory, "no room") if large else None


def test_a_smaller_batch_is_compared_with_fp32_there() -> None:
    """FP32's larger batch is not the precision's doing."""
    laws = Simulated(fails=small_alone, overhead_s=0.2, per_sample_s=SLOW_AMP)
    result = drive(laws, t4()).result
    assert result.verdict == "keep_fp32"
    batch = result.best.setting.batch_size
    assert batch is not None and batch > 32
    found = re.search(
        r"at batch 32, the largest that both ran, has (\S+)x FP32's throughput, and FP32 goes on "
        rf"to batch {batch}",
        result.headline,
    )
    assert found, result.headline
    fp32 = Setting(batch_size=32, amp_level=Level.O0, dtype=Dtype.float32)
    assert result.mixed is not None
    share = laws.throughput(result.mixed.setting) / laws.throughput(fp32)
    assert float(found[1]) == pytest.approx(share, abs=0.01)


def test_without_a_common_batch_both_are_named() -> None:
    def fails(proposal: Proposal) -> tuple[Outcome, str] | None:
        large = proposal.setting.is_mixed and (proposal.setting.batch_size or 0) >= 32
        return (Outcome.out_of_memory, "no room") if large else None

    laws = Simulated(fails=fails, overhead_s=0.2, per_sample_s=SLOW_AMP)
    result = drive(laws, t4()).result
    batch = result.best.setting.batch_size
    assert re.search(rf"at batch \d+ has \S+x the throughput of FP32 at batch {batch}",
                     result.headline), result.headline  # fmt: skip


@pytest.mark.parametrize("amp", [None, AMP])
def test_a_halved_batch_is_named_in_the_headline(amp: Setting | None) -> None:
    laws = Simulated(
        own_batch=512, script_amp=amp, bytes_per_sample=SAME_BYTES, per_sample_s=SLOW_AMP
    )
    result = drive(laws, t4()).result
    assert result.verdict == "keep_fp32"
    word = "keep FP32" if amp is None else "switch the script's AMP off, use FP32"
    assert result.headline.startswith(f"{word}, batch {result.best.setting.batch_size}: ")
    assert "the script's own batch size 512 does not fit this device" in result.why
    assert not any("instead of 512" in x for x in result.why)


def test_an_unchanged_batch_is_not_named() -> None:
    result = drive(Simulated(per_sample_s=SLOW_AMP), t4(), Options(keep_batch=True)).result
    assert result.headline.startswith("keep FP32: AMP does not pay here")
    assert "batch" not in result.headline


def test_a_larger_fp32_batch_is_compared_with_the_fp32_that_ran() -> None:
    laws = Simulated(overhead_s=0.2, per_sample_s=SLOW_AMP, bytes_per_sample=SAME_BYTES)
    result = drive(laws, t4()).result
    batch = result.best.setting.batch_size
    assert any(x.startswith(f"batch {batch} instead of 32 in FP32: ") for x in result.why)


@pytest.mark.parametrize("on_virtual", [False, True])
def test_the_scripts_own_amp_is_never_called_safer_than_fp32(on_virtual: bool) -> None:
    """It stays in a tie because it is what its author ran."""
    close = {"O0": 0.0020, "O1": 0.00199, "O2": 0.0024}
    laws = Simulated(script_amp=AMP, per_sample_s=close, virtual=on_virtual)
    on = virtual() if on_virtual else t4()
    result = drive(laws, on, Options(trials=4, keep_batch=True), ratio_band=0.26).result
    assert result.verdict == "keep_as_written"
    ratio = laws.throughput(FP32.setting(32)) / laws.throughput(AS_WRITTEN)
    inside = "inside the model's ±26%" if on_virtual else "no gain beyond what runs differ by"
    told = f"the script's own setting stays: FP32, batch 32 is only {ratio:.2f}x, {inside}"
    assert told in result.why
    assert not any("safer" in x for x in result.why)


@pytest.mark.parametrize("refused", [True, False])
def test_a_larger_fp32_batch_that_only_ties_is_named(refused: bool) -> None:
    """The table shows it as faster; whether mixed precision is there changes nothing."""
    laws = Simulated(virtual=True, per_sample_s=SLOW_AMP, bytes_per_sample=SAME_BYTES)
    on = machine(kind=DeviceKind.virtual, name="GTX 1080", refused=PASCAL if refused else NO_BF16)
    result = drive(laws, on, Options(trials=12), ratio_band=0.5).result
    assert result.verdict == "keep_fp32" and result.best.setting.batch_size == 32
    (told,) = [x for x in result.why if re.match(r"batch \d+ in FP32: ", x)]
    found = re.search(r"batch (\d+) in FP32: (\S+)x, inside the model's ±50%: a tie", told)
    assert found and "GPU" in told
    ratio = laws.throughput(FP32.setting(int(found[1]))) / laws.throughput(FP32.setting(32))
    assert float(found[2]) == pytest.approx(ratio, abs=0.01)


@pytest.mark.parametrize("script_amp", [None, AMP])
@pytest.mark.parametrize("per_sample", [SLOW_AMP, {"O0": 0.0020, "O1": 0.0008, "O2": 0.0024}])
def test_a_precision_that_got_no_trial_is_named_in_every_verdict(
    per_sample: dict[str, float], script_amp: Setting | None
) -> None:
    laws = Simulated(script_amp=script_amp, per_sample_s=per_sample)
    result = drive(laws, machine(), Options(trials=4, keep_batch=True)).result
    looked = {t.proposal.setting.arithmetic for t in result.trials}
    left = [p.name for p in result.space.mixed if p.setting(None).arithmetic not in looked]
    assert left
    for name in left:
        assert f"{name}: too few trials to look at it" in result.why


@pytest.mark.parametrize("trials", range(3, 9))
def test_a_trial_that_no_climb_can_use_goes_to_the_next_precision(trials: int) -> None:
    done = drive(Simulated(script_amp=AMP, has_loader=False), t4(), Options(trials=trials))
    seen = {p.setting.arithmetic for p in done.counted}
    unseen = [p for p in done.result.space.mixed if p.setting(None).arithmetic not in seen]
    assert not unseen or len(done.counted) == trials
