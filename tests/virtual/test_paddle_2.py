"""Paddle 2.6.2 from the same source; runs where an interpreter with it is named."""

import json
import os
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from autoamp.virtual.build import ensure_built
from autoamp.virtual.device import child_environment

PYTHON = os.environ.get("AUTOAMP_TEST_PADDLE_2")
ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs_compiler,
    pytest.mark.skipif(
        not PYTHON, reason="set AUTOAMP_TEST_PADDLE_2 to a Python that has paddlepaddle 2.6.2"
    ),
]

BODY = """
import json, os, warnings
warnings.simplefilter("ignore")
import paddle
from autoamp import wire
from autoamp.virtual import runtime
device = json.loads(os.environ["TEST_DEVICE"])
device["compute_capability"] = tuple(device["compute_capability"])
runtime.install(wire.VirtualDevice(**device))
import numpy as np
import paddle.nn as nn
def train(level, dtype="float16"):
    paddle.seed(3)
    net = nn.Sequential(nn.Conv2D(1, 8, 3), nn.BatchNorm2D(8), nn.ReLU(), nn.Flatten(),
                        nn.Linear(8 * 36, 32), nn.LayerNorm(32), nn.Linear(32, 10))
    opt = paddle.optimizer.AdamW(1e-2, parameters=net.parameters(), multi_precision=level == "O2")
    if level == "O2":
        net, opt = paddle.amp.decorate(net, opt, level="O2", dtype=dtype)
    scaler = paddle.amp.GradScaler(enable=level != "O0" and dtype == "float16",
                                   init_loss_scaling=1024.0)
    x = paddle.to_tensor(np.random.RandomState(0).randn(8, 1, 8, 8).astype("float32"))
    y = paddle.to_tensor(np.arange(8))
    losses = []
    for _ in range(4):
        with paddle.amp.auto_cast(enable=level != "O0", level=level if level != "O0" else "O1",
                                  dtype=dtype):
            loss = nn.functional.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(opt); scaler.update(); opt.clear_grad()
        losses.append(float(loss.astype("float32")))
    return losses
runs = {}
for level, dtype in (("O0", "float16"), ("O1", "float16"), ("O2", "float16"),
                     ("O1", "bfloat16"), ("O2", "bfloat16")):
    runtime.start_low_precision_calls()
    runs[level + dtype] = [train(level, dtype), runtime.low_precision_calls()["conv2d"]]
out = dict(runs=runs, version=paddle.__version__, device=paddle.get_device(),
           peak=runtime.allocated_peak_bytes(), clock=runtime.clock_s())
core = paddle.base.core
def product_s():
    z = paddle.ones([2048, 2048])
    before = runtime.clock_s()
    paddle.matmul(z, z)
    return runtime.clock_s() - before
out["tf32"] = [core.get_cublas_switch(), core.get_cudnn_switch()]
out["products_s"] = [product_s()]
core.set_cublas_switch(False)
out["products_s"].append(product_s())
paddle.set_device("cpu")
out["cpu"] = train("O0")
print(json.dumps(out))
"""


def test_every_level_trains(devices: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PYTHON
    plugin = ensure_built(PYTHON, print)
    device = replace(devices.a100, memory_bytes=1 << 30)
    done = subprocess.run(
        [PYTHON, "-c", BODY],
        env={
            **os.environ,
            **child_environment(device, plugin),
            "TEST_DEVICE": json.dumps(asdict(device)),
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    got = json.loads(done.stdout.strip().splitlines()[-1])
    assert got["version"].startswith("2.6") and got["device"] == "gpu:0"
    assert got["runs"]["O0float16"][0] == pytest.approx(got["cpu"], rel=1e-5)
    for name, (losses, conv) in got["runs"].items():
        assert losses[-1] < losses[0], name
        assert losses == pytest.approx(got["cpu"], rel=0.1), name
        column = 2 if name.startswith("O0") else 0 if "bfloat16" not in name else 1
        assert conv[column] == 4, name
    assert got["peak"] > 0 and got["clock"] > 0
    # GPU wheels of 2.6 run FP32 in TF32 unless told otherwise: so does the GPU that is played.
    assert got["tf32"] == [True, True]
    with_tf32, without = got["products_s"]
    assert without > 2 * with_tf32


TOUR = """
sys.path.insert(0, os.environ["TEST_FOLDER"])
import argparse
import gpu_tour
out = gpu_tour.tour()
said = []
from paddle.distributed.launch.context import Context
for options in (["--nproc_per_node", "2"], ["--gpus", "0,1"]):
    sys.argv = ["launch", *options, "train.py"]
    try:
        Context()
    except NotImplementedError as error:
        said.append(str(error))
try:
    paddle.distributed.spawn(print, nprocs=2)
except NotImplementedError as error:
    said.append(str(error))
print(json.dumps({**out, "said": said}))
"""


def test_the_gpu_modules_and_the_refusal_of_ranks(devices: Any, tmp_path: Path) -> None:
    assert PYTHON
    plugin = ensure_built(PYTHON, print)
    done = subprocess.run(
        [PYTHON, "-c", BODY.split("import numpy")[0] + "import sys\n" + TOUR],
        cwd=tmp_path,
        env={
            **os.environ,
            **child_environment(devices.a100, plugin),
            "TEST_DEVICE": json.dumps(asdict(devices.a100)),
            "TEST_FOLDER": str(Path(__file__).parent),
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    got = json.loads(done.stdout.strip().splitlines()[-1])
    assert got["count"] >= 40
    assert not got["wrong"], "\n".join(f"{k}: {v}" for k, v in got["wrong"].items())
    assert len(got["said"]) == 3
    assert all("does not support 2 ranks" in x for x in got["said"])
