"""The plug-in's clock on recorded steps: what the fit and the validation share."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from virtual_rows import Row, Run

from autoamp import wire
from autoamp.probes import catalogue
from autoamp.probes.virtual import virtual_device
from autoamp.virtual.build import ensure_built
from autoamp.virtual.clock_data import parameters_for
from autoamp.virtual.device import child_environment
from autoamp.virtual.library import Library

HERE = Path(__file__).parent
# Any GPU that Paddle allows every precision on: work is counted, not timed, while recording.
RECORDED_ON = "a100-80gb"


def device_of(alias: str) -> wire.VirtualDevice:
    return virtual_device(catalogue.find(alias), 200 << 30, numerics=False)


class Clock:
    """The plug-in's own model, timing recorded steps under any parameters."""

    def __init__(self, rows: list[Row], traces: Path) -> None:
        plugin = ensure_built(sys.executable, print)
        self._library = Library(str(plugin))
        self._numbers: dict[Path, int] = {}
        self._paths = {row.name: record(row.run, traces, plugin) for row in rows}

    def seconds(self, row: Row, parameters: dict[str, float]) -> float:
        device = device_of(row.alias)
        for key, value in {
            "bandwidth_bytes_per_s": device.bandwidth_bytes_per_s,
            "sm_count": device.sm_count,
            "boost_clock_mhz": device.boost_clock_mhz,
            **{
                f"{dtype}_flops_per_s": device.flops_per_s.get(dtype, 0.0)
                for dtype in ("float32", "tf32", "float16", "bfloat16")
            },
            **parameters_for(device),
            **parameters,
        }.items():
            self._library.set_parameter(key, value)
        # The TF32 row says so; below Ampere there is none.
        self._library.call("set_tf32", 1, 1)
        path = self._paths[row.name]
        if path not in self._numbers:
            self._numbers[path] = self._library.text_call("trace_load", str(path))
        return self._library.replay(self._numbers[path], row.run.program)


def record(run: Run, traces: Path, plugin: Path) -> Path:
    """A trace depends on the run alone; rows of the same run share it, on whatever GPU."""
    text = json.dumps(asdict(run), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    path = traces / f"{run.model}-{run.level}-{run.arguments.get('batch', '')}-{digest}.txt"
    if path.exists():
        return path
    device = device_of(RECORDED_ON)
    subprocess.run(
        [sys.executable, str(HERE / "virtual_record.py"), text, str(path)],
        env={
            **os.environ,
            **child_environment(device, plugin),
            "BENCHMARK_DEVICE": json.dumps(asdict(device)),
        },
        check=True,
        stderr=subprocess.DEVNULL,
    )
    return path
