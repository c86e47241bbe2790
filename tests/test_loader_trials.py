"""Real trials of a script whose data set sleeps: what the loader gives with the device idle."""

from pathlib import Path

import pytest
from real_trials import SCRIPTS, trial

from autoamp.measurement import Measurement, Outcome

pytestmark = [pytest.mark.slow, pytest.mark.needs_paddle, pytest.mark.needs_compiler]

SLEEP_S = 0.004
BATCH = 16


def run(tmp_path: Path, seconds: float, workers: int, numerics: bool = False) -> Measurement:
    m = trial(
        tmp_path,
        SCRIPTS / "slow_loader.py",
        arguments=(str(seconds), str(workers)),
        numerics=numerics,
        name=f"{workers}-{seconds}-{numerics}",
    )
    assert m.outcome is Outcome.ok, (m.reason, m.log_tail)
    return m


@pytest.mark.parametrize("numerics", [False, True], ids=["planned", "emulated"])
def test_a_sleeping_data_set_holds_the_step(tmp_path: Path, numerics: bool) -> None:
    alone = run(tmp_path, SLEEP_S, 0, numerics)
    # A sleep takes at least what it was asked for, on however busy a machine.
    assert alone.loader_s_per_step is not None
    assert alone.loader_s_per_step >= BATCH * SLEEP_S
    assert alone.loader_workers == 0
    assert alone.samples_per_s_with_loader == pytest.approx(BATCH / alone.loader_s_per_step)
    assert alone.data_wait_share is not None and alone.data_wait_share > 0.5
    assert alone.modelled_busy_share is not None and alone.modelled_busy_share < 0.5
    assert alone.utilisation.gpu_percent is None
    # The throughput of decisions is the device's.
    assert alone.throughput_samples_per_s is not None
    assert alone.throughput_samples_per_s > 2 * alone.samples_per_s_with_loader


def test_two_workers_sleep_beside_each_other(tmp_path: Path) -> None:
    m = run(tmp_path, SLEEP_S, 2)
    assert m.loader_workers == 2 and m.loader_s_per_step is not None
    assert m.loader_s_per_step >= BATCH * SLEEP_S / 2


def test_a_script_without_a_loader_says_so(tmp_path: Path) -> None:
    m = trial(tmp_path, SCRIPTS / "no_loader.py", numerics=False)
    assert m.outcome is Outcome.ok
    assert m.loader_s_per_step is None and "DataLoader" in str(m.loader_reason)
    assert m.data_wait_share is None and m.data_wait_reason
