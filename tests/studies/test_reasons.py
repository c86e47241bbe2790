"""The verdict in words: which batch sizes are compared, and which are named."""

from __future__ import annotations

import re

import pytest
from simulated_device import GIB, Simulated, drive, t4

from autoamp.measurement import Outcome
from autoamp.settings import Dtype, Level, Setting
from autoamp.studies.phases import Options, Proposal

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
