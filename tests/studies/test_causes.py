"""Why mixed precision brings little: what a busy share says, on a GPU and on a virtual one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from simulated_device import Simulated, drive, t4, virtual

from autoamp.measurement import Measurement, Outcome, Utilisation
from autoamp.settings import Dtype, Level, Setting
from autoamp.studies.confirm import HostBound
from autoamp.studies.phases import Options, Proposal
from autoamp.studies.score import busy_share

AMP = Setting(amp_level=Level.O1, dtype=Dtype.float16)
SLOW_AMP = {"O0": 0.0020, "O1": 0.0024, "O2": 0.0024}


def with_busy(simulated: Simulated, fp32: float, amp: float) -> Callable[[Proposal], Measurement]:
    """The simulated device with these busy shares."""

    def answer(proposal: Proposal) -> Measurement:
        found = simulated(proposal)
        share = fp32 if simulated.effective(proposal.setting).amp_level is Level.O0 else amp
        if simulated.virtual:
            return replace(found, modelled_busy_share=share)
        return replace(found, utilisation=Utilisation(gpu_percent=share * 100))

    return answer


@pytest.mark.parametrize("on_virtual", [False, True])
@pytest.mark.parametrize("script_amp", [None, AMP])
def test_a_device_that_waits_for_the_host_in_amp_is_named(
    script_amp: Setting | None, on_virtual: bool
) -> None:
    """Also where no other batch could be tried, and where the script's own AMP stays in a tie."""
    laws = Simulated(
        script_amp=script_amp, per_sample_s=SLOW_AMP, virtual=on_virtual, tunable=False
    )
    on = virtual() if on_virtual else t4()
    result = drive(with_busy(laws, 0.62, 0.28), on, Options(trials=4), ratio_band=0.5).result
    # On a real device the loss is beyond doubt, and the script's AMP is switched off.
    kept = script_amp is not None and on_virtual
    assert result.verdict == ("keep_as_written" if kept else "keep_fp32")
    (told,) = [x for x in result.why if "28 %" in x]
    assert "62 % in FP32" in told and "launches" in told
    assert ("modelled" in told) == on_virtual
    assert "larger batch" not in told, "the loader's batch cannot be set"


@pytest.mark.parametrize(("fp32", "amp"), [(0.9, 0.8), (0.62, 0.9)])
def test_a_busy_device_waits_for_nobody(fp32: float, amp: float) -> None:
    laws = Simulated(per_sample_s=SLOW_AMP)
    result = drive(with_busy(laws, fp32, amp), t4(), Options(trials=4)).result
    assert not any("busy" in x for x in result.why)


def test_waiting_for_data_is_not_waiting_for_the_host() -> None:
    laws = Simulated(per_sample_s=SLOW_AMP, data_wait=0.7)
    result = drive(with_busy(laws, 0.62, 0.28), t4(), Options(trials=4)).result
    assert any("data wait is 70%" in x for x in result.why)
    assert not any("busy" in x for x in result.why)


def test_a_modelled_share_leaves_the_loader_out() -> None:
    found = Measurement(outcome=Outcome.ok)
    half = replace(found, modelled_busy_share=0.3, data_wait_share=0.5)
    assert busy_share(half) == pytest.approx(0.6)
    assert busy_share(replace(half, data_wait_share=None)) == pytest.approx(0.3)
    assert busy_share(replace(half, modelled_busy_share=None)) is None


def test_a_ratio_of_steps_that_wait_for_the_host_has_their_band() -> None:
    """Published host-bound steps were far off the model: what they gain is a tie sooner."""
    laws, bound = Simulated(virtual=True), HostBound(throughput=1.4, ratio=4.0)
    busy = drive(with_busy(laws, 0.9, 0.9), virtual(), ratio_band=0.05, host_bound=bound).result
    waits = drive(with_busy(laws, 0.9, 0.3), virtual(), ratio_band=0.05, host_bound=bound).result
    assert busy.best.setting.is_mixed and waits.verdict == "keep_fp32"
    assert busy.best.against_fp32 is not None and "±5%" in busy.best.against_fp32.basis
    assert waits.mixed is not None and waits.mixed.against_fp32 is not None
    assert "host" in waits.mixed.against_fp32.basis
    low, high = waits.mixed.against_fp32.low, waits.mixed.against_fp32.high
    assert low is not None and high is not None
    assert low == pytest.approx(waits.mixed.against_fp32.ratio / 5)
    assert high == pytest.approx(waits.mixed.against_fp32.ratio * 5)


def test_that_rates_of_host_bound_steps_are_too_high_is_told() -> None:
    bound = HostBound(throughput=1.4, ratio=0.1)
    laws = Simulated(virtual=True)
    waits = drive(with_busy(laws, 0.3, 0.3), virtual(), host_bound=bound).result
    (told,) = [x for x in waits.caveats if "bound by the host" in x]
    assert "30%" in told and "2.4 times" in told
    busy = drive(with_busy(laws, 0.9, 0.9), virtual(), host_bound=bound).result
    assert not any("bound by the host" in x for x in busy.caveats)


@pytest.mark.parametrize(("amp_busy", "band"), [(0.3, 50), (0.9, 26)])
def test_a_tie_is_told_with_the_band_that_made_it_one(amp_busy: float, band: int) -> None:
    """The band is that of the two at hand, wider where one of them waits for the host."""
    laws = Simulated(script_amp=AMP, virtual=True, per_sample_s={"O0": 1.0, "O1": 1.2, "O2": 1.2})
    answer = with_busy(laws, 0.9, amp_busy)
    bound = HostBound(throughput=1.4, ratio=0.5)
    options = Options(trials=4, keep_batch=True)
    result = drive(answer, virtual(), options, ratio_band=0.26, host_bound=bound).result
    assert result.verdict == "keep_as_written"
    assert any(
        f"FP32, batch 32 is only 1.20x, inside the model's ±{band}%" in x for x in result.why
    )


def test_the_hosts_error_cancels_between_two_batches_of_one_recipe() -> None:
    bound = HostBound(throughput=1.4, ratio=4.0)
    laws = Simulated(virtual=True)
    waits = drive(with_busy(laws, 0.3, 0.3), virtual(), ratio_band=0.05, host_bound=bound).result
    assert waits.verdict == "keep_fp32"
    best = waits.best
    assert best.setting.batch_size is not None and best.setting.batch_size > 32
    assert best.against_fp32 is not None and "±5%" in best.against_fp32.basis
