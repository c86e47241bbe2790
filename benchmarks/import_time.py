"""How long the quick commands take, as ratios to an empty interpreter on the same machine.

    python benchmarks/import_time.py [--runs 15] [--trials 200]

Prints the median of several runs of each command, taken in turn so that a busy moment hits all
alike. ``studies list`` reads a database with five studies made on the spot.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace

from autoamp.measurement import Measurement, Outcome, Phase
from autoamp.probes.facts import Identity
from autoamp.settings import Level, Setting
from autoamp.studies.records import NewStudy
from autoamp.studies.script_identity import ScriptIdentity
from autoamp.studies.store import open_store

MAIN = "from autoamp.cli.main import main; main()"
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "autoamp --help": ["-c", MAIN, "--help"],
    "autoamp studies list": ["-c", MAIN, "studies", "list"],
    # A device by name, so that the exit code is 0 whatever this machine lacks.
    "autoamp probe": ["-c", MAIN, "probe", "--device", "virtual:t4"],
}
LIMITS_S = {"autoamp --help": 0.3, "autoamp studies list": 0.6, "autoamp probe": 0.5}
STUDIES = 5


def fill(folder: str, trials: int) -> None:
    """A history with ``trials`` trials over five studies."""
    machine = Identity(device="Tesla T4", memory_gib=16, mig=None, paddle="3.3", cuda="12.6")
    measurement = Measurement(outcome=Outcome.ok, losses=tuple(0.5 for _ in range(200)))
    script = ScriptIdentity(entry="train.py", is_module=False, arguments=(), files=())
    with open_store(f"sqlite:///{folder}/autoamp.db") as store:
        for number in range(STUDIES):
            study = store.create_study(
                NewStudy(
                    name=f"train-{number:04x}",
                    script_path="train.py",
                    arguments=(),
                    device="Tesla T4",
                    machine=machine,
                    script=script,
                )
            )
            for i in range(trials // STUDIES):
                setting = Setting(batch_size=i + 1, amp_level=Level.O1)
                trial = store.start_trial(study.id, Phase.search, setting, "real")
                done = replace(measurement, throughput_samples_per_s=100.0 + i)
                store.finish_trial(trial.id, done)
            store.set_state(study.id, "done")


def seconds(arguments: list[str], folder: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--trials", type=int, default=200)
    options = parser.parse_args()
    os.environ.pop("AUTOAMP_STORAGE", None)
    with tempfile.TemporaryDirectory() as folder:
        fill(folder, options.trials)
        taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
        for _ in range(options.runs + 1):
            for name, arguments in COMMANDS.items():
                taken[name].append(seconds(arguments, folder))
    # The first round compiles byte code and fills the disk's cache.
    median = {name: statistics.median(values[1:]) for name, values in taken.items()}
    bare = median["python -c pass"]
    print(f"median of {options.runs} runs, {options.trials} trials stored")
    for name, value in median.items():
        limit = LIMITS_S.get(name)
        aim = "" if limit is None else f"   aim {limit * 1000:.0f} ms"
        print(f"{name:<22} {value * 1000:6.0f} ms  {value / bare:5.2f}x bare{aim}")


if __name__ == "__main__":
    main()
