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
    # On a busy machine a worker may be a part of a batch ahead when the clock starts.
    assert m.loader_s_per_step >= BATCH * SLEEP_S / 2 * 0.8


def test_a_script_without_a_loader_says_so(tmp_path: Path) -> None:
    m = trial(tmp_path, SCRIPTS / "no_loader.py", numerics=False)
    assert m.outcome is Outcome.ok
    assert m.loader_s_per_step is None and "DataLoader" in str(m.loader_reason)
    assert m.data_wait_share is None and m.data_wait_reason


AHEAD = """
import sys
import numpy as np, paddle, paddle.nn as nn
class D(paddle.io.Dataset):
    def __len__(self): return 512 * 20
    def __getitem__(self, i): return np.full((256,), i % 7, "float32"), np.int64(i % 10)
net = nn.Sequential(nn.Linear(256, 512), nn.Linear(512, 512), nn.Linear(512, 10))
opt = paddle.optimizer.Adam(1e-3, parameters=net.parameters())
ce = nn.CrossEntropyLoss()
options = eval(sys.argv[1])
for x, y in paddle.io.DataLoader(D(), batch_size=512, **options):
    loss = ce(net(x), y); loss.backward(); opt.step(); opt.clear_grad()
"""


@pytest.mark.parametrize(
    "options",
    ["num_workers=0", "num_workers=2", "num_workers=0, use_buffer_reader=False"],
)
def test_counted_peaks_do_not_depend_on_how_far_the_loader_ran_ahead(
    options: str, tmp_path: Path
) -> None:
    script = tmp_path / "ahead.py"
    script.write_text(AHEAD)
    runs = []
    for name, numerics in (("a", False), ("b", False), ("c", False), ("full", True)):
        m = trial(
            tmp_path,
            script,
            arguments=(f"dict({options})",),
            numerics=numerics,
            steps=4,
            name=name,
        )
        assert m.outcome is Outcome.ok, (m.reason, m.log_tail)
        runs.append(m)
    assert len({m.memory_allocated_peak_bytes for m in runs}) == 1
    reserved = [m.memory_reserved_peak_bytes or 0 for m in runs]
    # docs/virtual.md gives these tolerances: blocks of a few KiB, and two batches.
    assert max(reserved[:3]) - min(reserved[:3]) <= 64 << 10
    assert max(reserved) - min(reserved) <= 2 * 512 * 256 * 4 + (64 << 10)


def test_looking_at_gradients_does_not_raise_the_peak(tmp_path: Path) -> None:
    """Their zeros are counted in full numerics only; planning has the same pool without it."""
    script = tmp_path / "wide.py"
    script.write_text(
        "import paddle\n"
        "w = paddle.create_parameter([2048, 512], 'float32')\n"
        "opt = paddle.optimizer.SGD(1e-3, parameters=[w])\n"
        "x = paddle.ones([8, 2048])\n"
        "for i in range(40):\n"
        "    loss = paddle.matmul(x, w).mean(); loss.backward(); opt.step(); opt.clear_grad()\n"
    )
    peaks = []
    for numerics in (False, True):
        m = trial(tmp_path, script, numerics=numerics, steps=4, name=str(numerics))
        assert m.outcome is Outcome.ok, (m.reason, m.log_tail)
        peaks.append((m.memory_allocated_peak_bytes, m.memory_reserved_peak_bytes))
    assert peaks[0][0] == peaks[1][0]
    assert abs((peaks[0][1] or 0) - (peaks[1][1] or 0)) <= 2 << 20
