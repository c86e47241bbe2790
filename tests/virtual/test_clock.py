"""The modelled clock: what must come out whatever its parameters are."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.needs_paddle, pytest.mark.needs_compiler]

Run = Callable[..., dict[str, Any]]

TIMED = """
import paddle.nn.functional as F
def seconds(call):
    call()
    runtime.reset_clock()
    call()
    return runtime.busy_s()
def ones(*shape, dtype="float32"):
    return paddle.ones(shape, dtype)
"""


def test_products_take_at_least_their_operations_at_the_peak(run: Run, devices: Any) -> None:
    body = (
        TIMED
        + """
out = {}
for dtype in ("float32", "float16"):
    x = ones(4096, 4096, dtype=dtype)
    out[dtype] = seconds(lambda: paddle.matmul(x, x))
x = ones(4096, 4096, dtype="float16")
y = ones(4096, 4095, dtype="float16")
out["odd"] = seconds(lambda: paddle.matmul(x, y))
paddle.base.core.set_cublas_switch(True)
z = ones(4096, 4096)
out["tf32"] = seconds(lambda: paddle.matmul(z, z))
flops = [k.flops for k in runtime.op_report() if k.name == "matmul"]
give(out=out, flops=flops)
"""
    )
    got = run(body, device=devices.a100, numerics=False)
    peak = devices.a100.flops_per_s
    flops = 2 * 4096**3
    assert got["flops"] == [flops]
    out = got["out"]
    for name, rate in (("float32", "float32"), ("float16", "float16"), ("tf32", "tf32")):
        assert flops / peak[rate] < out[name] < 2 * flops / peak[rate], name
    # Rows that are no multiple of 16 bytes cost Tensor Core speed.
    assert out["odd"] > 1.5 * out["float16"]


@pytest.mark.slow
def test_streams_views_layouts_and_channels(run: Run, devices: Any) -> None:
    got = run(
        TIMED
        + """
x = ones(256, 64, 56, 56)
half = x.astype("float16")
w = ones(64, 64, 3, 3, dtype="float16")
last = ones(256, 56, 56, 64, dtype="float16")
narrow, odd = ones(256, 18, 56, 56, dtype="float16"), ones(18, 18, 3, 3, dtype="float16")
narrow32, odd32 = narrow.astype("float32"), odd.astype("float32")
give(relu=seconds(lambda: F.relu(x)), relu_half=seconds(lambda: F.relu(half)),
     view=seconds(lambda: x.reshape([256, -1])), copy=seconds(lambda: x.transpose([0, 2, 3, 1])
     .reshape([256, -1])),
     nchw=seconds(lambda: F.conv2d(half, w, padding=1)),
     nhwc=seconds(lambda: F.conv2d(last, w, padding=1, data_format="NHWC")),
     odd=seconds(lambda: F.conv2d(narrow, odd, padding=1)),
     odd32=seconds(lambda: F.conv2d(narrow32, odd32, padding=1)))
""",
        numerics=False,
    )
    size = 256 * 64 * 56 * 56 * 4
    bandwidth = devices.v100.bandwidth_bytes_per_s
    assert 2 * size / bandwidth < got["relu"] < 3 * size / bandwidth
    assert got["relu_half"] == pytest.approx(got["relu"] / 2, rel=0.05)
    assert got["view"] == 0.0
    assert got["copy"] > 2 * size / bandwidth
    # Tensor Cores want channels last; unaligned channels get no Tensor Cores at all.
    assert got["nhwc"] < got["nchw"]
    assert got["odd"] > 0.5 * got["odd32"]


def test_small_kernels_are_bound_by_the_host(run: Run) -> None:
    got = run(
        TIMED
        + """
x = ones(8)
runtime.reset_clock()
for _ in range(100):
    x = x + x
host, busy = runtime.clock_s(), runtime.busy_s()
runtime.reset_clock()
for _ in range(100):
    float(x.sum())
give(host=host, busy=busy, waiting=runtime.clock_s())
"""
    )
    assert got["host"] > 2 * got["busy"] > 0
    assert got["waiting"] > got["host"]


@pytest.mark.slow
def test_the_clock_is_the_same_every_time(run: Run, devices: Any) -> None:
    body = (
        TIMED
        + """
net = paddle.vision.models.resnet18()
x = paddle.zeros([64, 3, 224, 224])
def step():
    with paddle.amp.auto_cast():
        net(x).mean().backward()
step()
seen = []
for _ in range(3):
    runtime.reset_clock()
    step()
    seen.append(runtime.clock_s())
give(seen=seen)
"""
    )
    got = run(body, device=devices.a100, numerics=False)
    assert got["seen"][0] == pytest.approx(got["seen"][1], rel=1e-9)
    assert got["seen"][1] == pytest.approx(got["seen"][2], rel=1e-9)
