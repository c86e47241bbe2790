"""What is said about a loader that is slower than the virtual device."""

import pytest

from autoamp.measurement import Measurement, Outcome
from autoamp.studies.loading import loader_caveat


def run(device: float, loader: float | None, batch: int = 32) -> Measurement:
    return Measurement(
        outcome=Outcome.ok,
        steps_timed=10,
        samples_timed=10 * batch,
        throughput_samples_per_s=device,
        loader_s_per_step=None if loader is None else batch / loader,
        loader_workers=4,
    )


def test_a_loader_that_keeps_up_is_not_mentioned() -> None:
    assert loader_caveat(run(1000, 1001), run(400, 1001)) is None


def test_an_untimed_loader_is_not_judged() -> None:
    assert loader_caveat(run(1000, None), run(400, None)) is None


def test_a_loader_below_fp32_hides_all_of_amp() -> None:
    said = loader_caveat(run(4000, 300), run(400, 300))
    assert said == (
        "the loader of this machine (num_workers=4) makes 300 samples/s: below the 4,000 that the "
        "device could take (modelled); AMP will not show until it is faster"
    )


def test_a_loader_between_fp32_and_amp_leaves_a_part() -> None:
    said = loader_caveat(run(1000, 600), run(400, 600))
    assert said is not None and "enough for FP32 (400 modelled)" in said and "1.50x" in said


def test_without_fp32_it_is_said_all_the_same() -> None:
    said = loader_caveat(run(1000, 600), None)
    assert said is not None and "AMP will not show" in said


@pytest.mark.parametrize("loader", [300, 600])
def test_where_fp32_is_kept_no_amp_is_spoken_of(loader: float) -> None:
    said = loader_caveat(run(1000, loader), run(400, loader), keeps_fp32=True)
    assert said is not None and "AMP" not in said and "below the 1,000" in said
    assert loader_caveat(run(1000, 1001), run(400, 1001), keeps_fp32=True) is None
