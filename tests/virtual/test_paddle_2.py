"""Paddle 2.6.2 from the same source; runs where an interpreter with it is named."""

import json
import os
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import paddle_2_known as known
import pytest
from optimizer_steps import STEPS, judge
from real_trials import SCRIPTS, trial

from autoamp.collect import COPIED_VIEWS
from autoamp.measurement import Outcome
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


def in_paddle_2(body: str, device: Any, folder: Path | None = None) -> dict[str, Any]:
    """What the last line that ``body`` printed says."""
    assert PYTHON
    done = subprocess.run(
        [PYTHON, "-c", body],
        cwd=folder,
        env={
            **os.environ,
            **child_environment(device, ensure_built(PYTHON, print)),
            "TEST_DEVICE": json.dumps(asdict(device)),
            "TEST_FOLDER": str(Path(__file__).parent),
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    got: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return got


def test_every_level_trains(devices: Any) -> None:
    got = in_paddle_2(BODY, replace(devices.a100, memory_bytes=1 << 30))
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
    body = BODY.split("import numpy")[0] + "import sys\n" + TOUR
    got = in_paddle_2(body, devices.a100, tmp_path)
    assert got["count"] >= 40
    assert not got["wrong"], "\n".join(f"{k}: {v}" for k, v in got["wrong"].items())
    assert len(got["said"]) == 3
    assert all("does not support 2 ranks" in x for x in got["said"])


ATTENTION = """
import itertools
F = paddle.nn.functional
rng = np.random.RandomState(0)
base = [rng.rand(2, 16, 4, 32).astype("float32") for _ in range(3)]
mask = paddle.to_tensor(rng.rand(2, 1, 16, 16).astype("float32"), place=paddle.CPUPlace())
def plain(q, k, v, mask, causal):
    q, k, v = (x.transpose([0, 2, 1, 3]) for x in (q, k, v))
    scores = q @ k.transpose([0, 1, 3, 2]) * 32 ** -0.5
    if mask is not None:
        scores = scores + mask
    if causal:
        scores = scores + paddle.triu(paddle.full([16, 16], -1e4), 1)
    return (F.softmax(scores) @ v).transpose([0, 2, 1, 3])
def results(call, place, dtype):
    tensors = [paddle.to_tensor(x, place=place).astype(dtype) for x in base]
    for tensor in tensors:
        tensor.stop_gradient = False
    out = call(*tensors)
    out.astype("float32").sum().backward()
    return [out.astype("float32").numpy(), tensors[2].grad.astype("float32").numpy()], out.dtype
off, dtypes = {}, {}
for dtype, masked, causal in itertools.product(
    ("float32", "float16", "bfloat16"), (False, True), (False, True)
):
    paddle.set_device("cpu")
    own = mask if masked else None
    want, _ = results(lambda q, k, v: plain(q, k, v, own, causal), paddle.CPUPlace(), "float32")
    paddle.set_device("gpu")
    own = paddle.to_tensor(mask).cuda().astype(dtype) if masked else None
    got, kind = results(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, own, is_causal=causal),
        paddle.CUDAPlace(0), dtype)
    off[f"{dtype} {masked} {causal}"] = max(float(abs(a - b).max()) for a, b in zip(got, want))
    dtypes[dtype] = str(kind)
x = paddle.ones([2, 16, 4, 32])
flash, _ = F.flash_attention.flash_attention(x, x, x, causal=True)
print(json.dumps(dict(off=off, dtypes=dtypes, flash=flash.shape)))
"""


def test_attention_is_computed_without_the_fused_kernel(devices: Any) -> None:
    got = in_paddle_2(BODY.split("import paddle.nn")[0] + ATTENTION, devices.a100)
    allowed = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}
    assert len(got["off"]) == 12
    for name, off in got["off"].items():
        assert off < allowed[name.split()[0]], name
    assert all(kind == f"paddle.{dtype}" for dtype, kind in got["dtypes"].items())
    assert got["flash"] == [2, 16, 4, 32]


EINSUM = """
rng = np.random.RandomState(0)
def results(equation, shapes, dtype, place):
    paddle.set_device(place)
    tensors = [paddle.to_tensor(np.float32(x)).astype(dtype) for x in shapes]
    for tensor in tensors:
        tensor.stop_gradient = False
    out = paddle.einsum(equation, *tensors)
    (out.astype("float32") ** 2).sum().backward()
    kinds = {str(x.dtype) for x in (out, *(y.grad for y in tensors))}
    return [x.astype("float32").numpy() for x in (out, *(y.grad for y in tensors))], kinds
off, kinds = {}, {}
for equation, *shapes in (
    ("bij,bjk->bik", [2, 3, 4], [2, 4, 5]),
    ("bij,bkj->bik", [2, 3, 4], [2, 5, 4]),
    ("jb,kbj->bk", [4, 2], [5, 2, 4]),
    ("...ij,...jk->...ik", [2, 3, 4], [2, 4, 5]),
    ("i,j->ij", [3], [4]),
    ("ij->ji", [3, 4]),
):
    values = [rng.rand(*shape) for shape in shapes]
    want, _ = results(equation, values, "float32", "cpu")
    for dtype in ("float32", "float16", "bfloat16"):
        got, found = results(equation, values, dtype, "gpu")
        off[f"{dtype} {equation}"] = max(
            float(abs(a - b).max() / abs(b).max()) for a, b in zip(got, want)
        )
        kinds[f"{dtype} {equation}"] = sorted(found)
print(json.dumps(dict(off=off, kinds=kinds)))
"""


def test_einsum_keeps_its_operands_for_the_gradient(devices: Any) -> None:
    got = in_paddle_2(BODY.split("import paddle.nn")[0] + EINSUM, devices.a100)
    allowed = {"float32": 1e-6, "float16": 3e-3, "bfloat16": 2e-2}
    assert len(got["off"]) == 18
    for name, off in got["off"].items():
        dtype = name.split()[0]
        assert off < allowed[dtype], name
        assert got["kinds"][name] == [f"paddle.{dtype}"], name


def test_master_weights_of_every_optimizer(devices: Any) -> None:
    body = BODY.split("import paddle.nn")[0] + "def give(out):\n    print(json.dumps(out))\n"
    judge(in_paddle_2(body + STEPS, devices.a100))


def test_lost_writes_through_views_are_told_in_every_result(tmp_path: Path) -> None:
    assert PYTHON
    m = trial(tmp_path, SCRIPTS / "plain_fp32.py", python=PYTHON)
    assert m.outcome is Outcome.ok, (m.reason, m.log_tail)
    assert COPIED_VIEWS in m.caveats


HERE = f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
START = BODY.split("import numpy")[0] + "import sys\n" + HERE


def test_operators_forward_and_backward_in_every_dtype(devices: Any) -> None:
    body = f"import sweep\nprint(json.dumps(sweep.judged({sorted(known.SWEEP)!r})))\n"
    got = in_paddle_2(START + body, devices.a100)
    assert got["count"] >= 1000
    assert not got["wrong"], "\n".join(f"{k}: {v}" for k, v in got["wrong"].items())
    assert not got["works_now"], "take them off the list of known ones"
    assert {name.rsplit(" ", 1)[0] for name in got["no_reference"]} == set(known.NO_REFERENCE)


@pytest.mark.parametrize("numerics", [True, False], ids=["emulated", "planned"])
def test_nothing_ends_by_a_signal_but_what_is_known(
    numerics: bool, devices: Any, tmp_path: Path
) -> None:
    body = (
        "import hazards, scenarios\n"
        "print(json.dumps(dict(found=hazards.run(), refused=scenarios.REFUSED)))\n"
    )
    got = in_paddle_2(START + body, replace(devices.a100, numerics=numerics), tmp_path)
    assert len(got["found"]) >= 40
    wrong = []
    for name, outcome in got["found"].items():
        code, error = outcome["code"], outcome["error"]
        if name not in known.RACES and (code < 0) != (name in known.ENDS):
            wrong.append(f"{name}: exit {code}, {error}")
        if code < 0 or not numerics:
            continue
        wanted = known.HAZARDS.get(name, (got["refused"].get(name),))[0]
        if name in known.WORKS:
            wanted = None
        if error is not None if wanted is None else error is None or wanted not in error:
            wrong.append(f"{name}: {error}")
    assert not wrong, "\n".join(wrong)
