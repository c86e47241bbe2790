"""What a trial costs the script: its steps' time, and once the start and the end.

Run by hand: ``python benchmarks/step_overhead.py``. The same script runs bare and under a trial
(CPU, FP32, knobs as written), alternating; the script itself prints when each step ended, so
both sides are timed by the same clock. Medians of a run, then the median over the pairs.

    step:  median step of the trial over that of the bare script; wanted at most 1.02
    start: from the launch to the first step, less the bare script's; wanted at most 0.5 s
    end:   from the last step to the end, less the bare script's: a trial leaves at once, past
           the interpreter's tear-down, so this is below zero and stands apart

A ratio means something only where the bare script repeats itself: its own spread over the runs
is printed beside it, and with more than 5 % of it there is no verdict (exit 2).
"""

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from autoamp import launch, wire
from autoamp.settings import AS_WRITTEN

STEP_LIMIT = 1.02
FIXED_LIMIT_S = 0.5
SHORTEST_STEP_S = 0.02
LARGEST_SPREAD = 0.05
WARMUP_STEPS = 5

SCRIPT = """\
import sys
import time

import numpy as np
import paddle
import paddle.nn as nn

STEPS, WIDTH = int(sys.argv[1]), int(sys.argv[2])


class Rows(paddle.io.Dataset):
    def __len__(self):
        return 128 * STEPS

    def __getitem__(self, index):
        return np.full(WIDTH, index % 7, "float32"), np.int64(index % 10)


layers = []
for _ in range(4):
    layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
model = nn.Sequential(*layers, nn.Linear(WIDTH, 10))
optimizer = paddle.optimizer.AdamW(1e-4, parameters=model.parameters())
print("CLOCK", time.monotonic(), flush=True)
for x, y in paddle.io.DataLoader(Rows(), batch_size=128, num_workers=0):
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    # Before the step: a trial ends inside its last one.
    print("CLOCK", time.monotonic(), float(loss), flush=True)
    optimizer.step()
    optimizer.clear_grad()
"""


class Timing:
    """One run, from the lines it printed."""

    def __init__(self, started_s: float, ended_s: float, output: str) -> None:
        lines = [line.split() for line in output.splitlines() if line.startswith("CLOCK")]
        clocks = [float(line[1]) for line in lines]
        if len(clocks) < WARMUP_STEPS + 3:
            raise SystemExit(f"the script made {len(clocks)} marks only:\n{output[-2000:]}")
        steps = [after - before for before, after in itertools.pairwise(clocks)]
        self.step_s = statistics.median(steps[WARMUP_STEPS:])
        self.start_s = clocks[0] - started_s
        self.end_s = ended_s - clocks[-1]


def bare(command: Sequence[str], folder: Path) -> Timing:
    started = time.monotonic()
    with open(folder / "bare.txt", "w+", encoding="utf-8") as log:
        subprocess.run(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, check=True)
        ended = time.monotonic()
        log.seek(0)
        return Timing(started, ended, log.read())


def under_trial(command: Sequence[str], folder: Path, steps: int, divert_files: bool) -> Timing:
    trial_dir = tempfile.mkdtemp(dir=folder, prefix="trial-")
    python, script, *arguments = command
    target = launch.Target(
        entry=script, is_module=False, arguments=tuple(arguments), python=python, cwd=str(folder)
    )
    timed = steps - WARMUP_STEPS
    plan = wire.Plan(
        trial_dir=trial_dir,
        device="cpu",
        setting=AS_WRITTEN.to_json(),
        warmup_steps=WARMUP_STEPS,
        min_steps=timed,
        max_steps=timed,
        min_timed_s=0.0,
        seed=0,
        divert_files=divert_files,
    )
    started = time.monotonic()
    launch.run(target, plan, device="cpu", extra_env={}, limit_s=600.0)
    ended = time.monotonic()
    log = Path(trial_dir, wire.LOG_FILE).read_text(encoding="utf-8")
    return Timing(started, ended, log)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--width", type=int, default=400, help="wider: longer steps")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with paddle")
    parser.add_argument(
        "--no-divert", action="store_true", help="without the diversion of files: its share"
    )
    parser.add_argument("--core", type=int, help="run all on one CPU: less noise on a shared one")
    args = parser.parse_args()
    if args.core is not None:
        os.sched_setaffinity(0, {args.core})

    ratios, starts, ends, bare_steps = [], [], [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "train.py"
        script.write_text(SCRIPT, encoding="utf-8")
        command = [args.python, str(script), str(args.steps), str(args.width)]
        bare(command, folder)  # fills the disk cache, for both sides alike
        for pair in range(args.pairs):
            # Which goes first alternates, too: a machine that slows down favours neither.
            runs = {}
            for kind in ("bare", "trial") if pair % 2 == 0 else ("trial", "bare"):
                if kind == "bare":
                    runs[kind] = bare(command, folder)
                else:
                    runs[kind] = under_trial(command, folder, args.steps, not args.no_divert)
            ratios.append(runs["trial"].step_s / runs["bare"].step_s)
            starts.append(runs["trial"].start_s - runs["bare"].start_s)
            ends.append(runs["trial"].end_s - runs["bare"].end_s)
            bare_steps.append(runs["bare"].step_s)
            print(
                f"pair {pair + 1}: step {runs['bare'].step_s * 1e3:.1f} ms bare, "
                f"{runs['trial'].step_s * 1e3:.1f} ms in a trial; start and end "
                f"{runs['bare'].start_s:.2f} + {runs['bare'].end_s:.2f} s bare, "
                f"{runs['trial'].start_s:.2f} + {runs['trial'].end_s:.2f} s in a trial"
            )
    step = statistics.median(bare_steps)
    spread = (max(bare_steps) - min(bare_steps)) / step
    ratio, start = statistics.median(ratios), statistics.median(starts)
    print(f"bare step:   {step * 1e3:.1f} ms, its own spread {spread:.0%}")
    print(f"step ratio:  {ratio:.3f}  ({min(ratios):.3f} to {max(ratios):.3f})")
    print(f"start cost:  {start:+.2f} s  ({min(starts):+.2f} to {max(starts):+.2f})")
    print(f"end:         {statistics.median(ends):+.2f} s")
    if step < SHORTEST_STEP_S:
        print(f"The step is shorter than {SHORTEST_STEP_S * 1e3:.0f} ms: raise --width.")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    if spread > LARGEST_SPREAD:
        print("No verdict: the bare script's own steps vary too much on this machine now.")
        return 2
    return 0 if ratio <= STEP_LIMIT and start <= FIXED_LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
