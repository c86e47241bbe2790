"""Runs scripts on the virtual device in processes of their own, as the product does."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from autoamp import wire
from autoamp.virtual.build import ensure_built
from autoamp.virtual.device import child_environment

GIB = 1 << 30

V100 = wire.VirtualDevice(
    name="Tesla V100-SXM2-16GB",
    alias="v100-16gb",
    architecture="Volta",
    compute_capability=(7, 0),
    memory_bytes=16 * GIB,
    bandwidth_bytes_per_s=897e9,
    flops_per_s={"float32": 15.7e12, "float16": 125e12},
    sm_count=80,
    boost_clock_mhz=1530,
)
A100 = wire.VirtualDevice(
    name="A100 SXM4 80GB",
    alias="a100-80gb",
    architecture="Ampere",
    compute_capability=(8, 0),
    memory_bytes=80 * GIB,
    bandwidth_bytes_per_s=2039e9,
    flops_per_s={"float32": 19.5e12, "tf32": 156e12, "float16": 312e12, "bfloat16": 312e12},
    sm_count=108,
    boost_clock_mhz=1410,
)
GTX1080 = wire.VirtualDevice(
    name="GeForce GTX 1080",
    alias="gtx1080",
    architecture="Pascal",
    compute_capability=(6, 1),
    memory_bytes=8 * GIB,
    bandwidth_bytes_per_s=320e9,
    flops_per_s={"float32": 8.9e12},
    sm_count=20,
    boost_clock_mhz=1733,
)

# What the child does after paddle's import, and a way to hand results back.
PREAMBLE = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
import paddle
from autoamp import wire
from autoamp.child import faults
from autoamp.virtual import runtime
faults.work_around(paddle)
_device = json.loads(os.environ["TEST_DEVICE"])
_device["compute_capability"] = tuple(_device["compute_capability"])
runtime.install(wire.VirtualDevice(**_device))
import numpy as np
results = {}
def give(**values):
    results.update(values)
"""
ENDING = """
with open(os.environ["TEST_RESULT"], "w") as f:
    json.dump(results, f)
"""

Run = Callable[..., dict[str, Any]]


class Devices:
    v100 = V100
    a100 = A100
    gtx1080 = GTX1080


@pytest.fixture(scope="session")
def devices() -> type[Devices]:
    return Devices


@pytest.fixture(scope="session")
def plugin() -> Path:
    pytest.importorskip("paddle", reason="needs an installed Paddle")
    return ensure_built(sys.executable, print)


@pytest.fixture(scope="session")
def run(plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """``run(body, device=…, **changes)``: what the body gave with ``give(…)``."""

    def execute(
        body: str,
        device: wire.VirtualDevice = V100,
        check: bool = True,
        environment: dict[str, str] | None = None,
        **changes: Any,
    ) -> dict[str, Any]:
        device = replace(device, **changes)
        folder = tmp_path_factory.mktemp("run")
        script = folder / "script.py"
        script.write_text(PREAMBLE + body + ENDING, encoding="utf-8")
        result = folder / "result.json"
        done = subprocess.run(
            [sys.executable, str(script)],
            cwd=folder,
            env={
                **os.environ,
                **child_environment(device, plugin),
                "TEST_DEVICE": json.dumps(asdict(device)),
                "TEST_RESULT": str(result),
                **(environment or {}),
            },
            capture_output=True,
            text=True,
            timeout=600,
        )
        output = done.stdout + done.stderr
        if check:
            assert done.returncode == 0, output[-4000:]
        found: dict[str, Any] = json.loads(result.read_text()) if result.exists() else {}
        return {**found, "_returncode": done.returncode, "_output": output}

    return execute
