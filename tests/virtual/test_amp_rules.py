"""Paddle's AMP rules, each with its place in Paddle's source, hold on the virtual device."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.needs_paddle, pytest.mark.needs_compiler]

Run = Callable[..., dict[str, Any]]


def test_what_each_level_casts(run: Run, devices: Any) -> None:
    """python/paddle/amp/amp_lists.py: white and black lists by level and dtype;
    paddle/fluid/eager/amp_utils.h, GetAmpDestDtype: what happens to the operators between."""
    got = run(
        """
x = paddle.ones([4, 4])
half = x.astype("float16")
def dtypes(**context):
    with paddle.amp.auto_cast(**context):
        return {
            "white matmul": paddle.matmul(x, x).dtype,
            "black exp": paddle.exp(half).dtype,
            "black softmax": paddle.nn.functional.softmax(half).dtype,
            "grey tanh single": paddle.tanh(x).dtype,
            "grey tanh half": paddle.tanh(half).dtype,
            "grey add mixed": (half + x).dtype,
            "linear with bias": paddle.nn.functional.linear(x, x, x[0]).dtype,
        }
seen = {}
for name, context in (
    ("O0", dict(level="O0")), ("off", dict(enable=False)), ("OD", dict(level="OD")),
    ("O1", dict(level="O1")), ("O2", dict(level="O2")),
    ("O2 no promote", dict(level="O2", use_promote=False)),
    ("O1 bf16", dict(level="O1", dtype="bfloat16")),
    ("O1 white tanh", dict(level="O1", custom_white_list=["tanh"])),
    ("O1 black matmul_v2", dict(level="O1", custom_black_list=["matmul_v2"])),
    ("O1 black unknown", dict(level="O1", custom_black_list=["matmul"])),
):
    seen[name] = {k: str(v).replace("paddle.", "") for k, v in dtypes(**context).items()}
overlap = None
try:
    with paddle.amp.auto_cast(custom_white_list=["tanh"], custom_black_list=["tanh"]):
        pass
except ValueError as error:
    overlap = str(error)
give(seen=seen, overlap=overlap)
""",
        device=devices.a100,
    )
    seen = got["seen"]
    for name in ("O0", "off"):
        assert seen[name]["white matmul"] == "float32"
        assert seen[name]["black exp"] == "float16"
    # White-listed operators run in the AMP dtype at every level.
    for name in ("OD", "O1", "O2", "O2 no promote", "O1 white tanh"):
        assert seen[name]["white matmul"] == "float16"
    assert seen["O1 bf16"]["white matmul"] == "bfloat16"
    # Black-listed ones in float32 at O1; O2's black list has only EXTRA_BLACK_LIST.
    assert seen["O1"]["black exp"] == seen["O1"]["black softmax"] == "float32"
    assert seen["O2"]["black exp"] == "float16"
    # Between the lists O1 follows its inputs, any float32 among them decides.
    assert seen["O1"]["grey tanh single"] == "float32"
    assert seen["O1"]["grey tanh half"] == "float16"
    assert seen["O1"]["grey add mixed"] == "float32"
    # O2 casts what is not black to 16 bits; use_promote keeps what has a float32 input.
    assert seen["O2"]["grey tanh single"] == "float32"
    assert seen["O2 no promote"]["grey tanh single"] == "float16"
    # OD: white in 16 bits, all others in float32.
    assert seen["OD"]["grey tanh half"] == "float32"
    # Custom lists go by the old operator names; unknown ones are ignored without a word.
    assert seen["O1 white tanh"]["grey tanh single"] == "float16"
    assert seen["O1 black matmul_v2"]["white matmul"] == "float32"
    assert seen["O1 black unknown"]["white matmul"] == "float16"
    assert "overlap" in got["overlap"]


def test_what_decorate_keeps_in_single_precision(run: Run, devices: Any) -> None:
    """python/paddle/amp/auto_cast.py, need_keep_fp32 and amp_decorate; master weights:
    python/paddle/optimizer/optimizer.py, _create_master_weight."""
    got = run(
        """
import paddle.nn as nn
def decorated(dtype, **extra):
    net = nn.Sequential(nn.Conv2D(3, 4, 3), nn.BatchNorm2D(4), nn.InstanceNorm2D(4),
                        nn.GroupNorm(2, 4), nn.LayerNorm(6), nn.Linear(6, 2), nn.SyncBatchNorm(4))
    opt = paddle.optimizer.AdamW(1e-3, parameters=net.parameters())
    net, opt = paddle.amp.decorate(net, opt, level="O2", dtype=dtype, **extra)
    return net, opt
seen = {}
for dtype in ("float16", "bfloat16"):
    net, opt = decorated(dtype)
    seen[dtype] = {type(l).__name__: str(l.weight.dtype if hasattr(l, "weight") else l.scale.dtype)
                   for l in net}
    seen[dtype]["multi_precision"] = opt._multi_precision
net, _ = decorated("float16", excluded_layers=[nn.Linear])
seen["excluded"] = str(net[5].weight.dtype)
net, _ = decorated("float16", save_dtype="float32")
seen["saved"] = str(net.state_dict()["5.weight"].dtype)
o1 = paddle.amp.decorate(nn.Linear(2, 2), level="O1")
seen["O1"] = str(o1.weight.dtype)
for level in ("O0", "OD"):
    try:
        paddle.amp.decorate(nn.Linear(2, 2), level=level)
        seen[level] = None
    except ValueError as error:
        seen[level] = str(error)
net = nn.Linear(4, 4)
opt = paddle.optimizer.AdamW(1e-3, parameters=net.parameters())
net, opt = paddle.amp.decorate(net, opt, level="O2", master_grad=True)
with paddle.amp.auto_cast(level="O2"):
    loss = net(paddle.ones([2, 4])).mean()
loss.backward()
seen["master_grad"] = str(net.weight.grad.dtype)
opt.step()
masters = list(opt._master_weights.values())
seen["masters"] = [str(m.dtype) for m in masters]
seen["rounded"] = all(
    bool((opt._master_weights[p.name].numpy().astype("float16") == p.numpy()).all())
    for p in net.parameters())
give(seen=seen)
""",
        device=devices.a100,
    )
    seen = got["seen"]
    half = seen["float16"]
    for name in ("BatchNorm2D", "SyncBatchNorm", "LayerNorm", "InstanceNorm2D"):
        assert half[name] == "paddle.float32", name
    for name in ("Conv2D", "Linear", "GroupNorm"):
        assert half[name] == "paddle.float16", name
    brain = seen["bfloat16"]
    assert brain["BatchNorm2D"] == brain["SyncBatchNorm"] == "paddle.float32"
    for name in ("LayerNorm", "InstanceNorm2D", "Conv2D", "Linear"):
        assert brain[name] == "paddle.bfloat16", name
    assert half["multi_precision"] is True
    assert seen["excluded"] == seen["saved"] == "paddle.float32"
    assert seen["O1"] == "paddle.float32"
    assert seen["O0"] and seen["OD"]
    assert seen["master_grad"] == "paddle.float32"
    assert seen["masters"] == ["paddle.float32"] * 2
    assert seen["rounded"]


def test_how_the_loss_scale_moves(run: Run) -> None:
    """python/paddle/amp/grad_scaler.py, AmpScaler._update: halved after
    decr_every_n_nan_or_inf bad steps, doubled after incr_every_n_steps good ones."""
    got = run(
        """
import contextlib, io
weight = paddle.create_parameter([4], "float32")
opt = paddle.optimizer.SGD(0.1, parameters=[weight])
def path(bad, **scaler):
    scaler = paddle.amp.GradScaler(init_loss_scaling=1024.0, **scaler)
    out, moved = [], []
    for is_bad in bad:
        before = weight.numpy().copy()
        with paddle.amp.auto_cast():
            loss = (weight * (float("inf") if is_bad else 1.0)).sum()
        with contextlib.redirect_stdout(io.StringIO()):
            scaler.scale(loss).backward()
            scaler.step(opt); scaler.update(); opt.clear_grad()
        out.append(float(scaler._scale.item()))
        moved.append(bool((weight.numpy() != before).any()))
    return out, moved
give(first_bad=path([1, 0, 1, 1], decr_every_n_nan_or_inf=2),
     each_bad=path([1, 1, 0], decr_every_n_nan_or_inf=1, decr_ratio=0.25),
     grows=path([0, 0, 0, 1, 0], incr_every_n_steps=2, incr_ratio=4.0,
                decr_every_n_nan_or_inf=1),
     static=path([1, 0], use_dynamic_loss_scaling=False))
# Other dtype than float16: the scaler switches itself off at the first scale().
scaler = paddle.amp.GradScaler(init_loss_scaling=1024.0)
give(enabled=scaler.is_enable())
""",
    )
    assert got["first_bad"] == [[1024, 1024, 1024, 512], [False, True, False, False]]
    assert got["each_bad"] == [[256, 64, 64], [False, False, True]]
    assert got["grows"] == [[1024, 4096, 4096, 2048, 2048], [True, True, True, False, True]]
    assert got["static"] == [[1024, 1024], [False, True]]
    assert got["enabled"]


@pytest.mark.slow
def test_the_scaler_switches_itself_off_under_bfloat16(run: Run, devices: Any) -> None:
    """python/paddle/amp/grad_scaler.py, AmpScaler.scale."""
    got = run(
        """
weight = paddle.create_parameter([4, 4], "float32")
scaler = paddle.amp.GradScaler(init_loss_scaling=1024.0)
with paddle.amp.auto_cast(dtype="bfloat16"):
    loss = paddle.matmul(weight, weight).astype("float32").sum()
scaled = scaler.scale(loss)
give(enabled=scaler.is_enable(), same=float(scaled) == float(loss))
""",
        device=devices.a100,
    )
    assert got["enabled"] is False
    assert got["same"]
