"""What the sampler takes from the tuner's processor while a trial runs.

    python benchmarks/sampler_cost.py [--looks 2000] [--device gpu:0]

With an NVIDIA GPU it looks at that GPU. Without one it looks at a stand-in for pynvml made from
``tests/machines/t4.json``: then only the Python around NVML is timed, not NVML itself, and the
output says so. Printed: microseconds a look, and the share of one processor at the sampler's
period.
"""

import argparse
import sys
import time
from pathlib import Path

from autoamp.probes.facts import Device, DeviceKind
from autoamp.probes.machine import probe
from autoamp.probes.sampler import PERIOD_S, Sampler


def stand_in() -> Device:
    """Put the fake pynvml in place and give its GPU."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
    import fake_nvml

    sys.modules["pynvml"] = fake_nvml.build(fake_nvml.load("t4"))
    return probe("gpu:0").device


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--looks", type=int, default=2000)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    device = probe(options.device).device
    real = device.kind is DeviceKind.gpu
    if not real:
        device = stand_in()
    # A period that never ends: this thread takes the looks, so that each is timed.
    sampler = Sampler(device, period_s=3600.0)
    sampler.start()
    started = time.perf_counter()
    for _ in range(options.looks):
        sampler.look()
    wall = (time.perf_counter() - started) / options.looks
    sampler.stop()
    cost = sampler.cost_s_per_look
    if cost is None:
        sys.exit(f"no look was taken: {sampler.window(0, 1).reason}")
    what = device.name if real else f"a stand-in for {device.name}; NVML's own time is missing"
    print(f"{options.looks} looks at {what}")
    print(f"processor time a look   {cost * 1e6:8.1f} us")
    print(f"wall time a look        {wall * 1e6:8.1f} us")
    print(f"share of one processor  {cost / PERIOD_S:8.3%} at one look every {PERIOD_S:g} s")


if __name__ == "__main__":
    main()
