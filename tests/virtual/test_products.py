"""Every kind of product is counted, not only those that are called matmul."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.needs_paddle, pytest.mark.needs_compiler]

Run = Callable[..., dict[str, Any]]

COUNT = """
def tensor(*shape):
    x = paddle.rand(shape)
    x.stop_gradient = False
    return x
def kernels(call):
    runtime.reset_clock()
    call()
    return {k.name: [k.flops, k.seconds] for k in runtime.op_report()}
a, b = tensor(8, 64, 32), tensor(8, 32, 16)
x, y, v = tensor(64, 32), tensor(32, 16), tensor(32)
bilinear = paddle.nn.Bilinear(32, 16, 8)
image, weight = tensor(2, 8, 16, 16), tensor(4, 8, 3, 3)
calls = {
    "matmul": lambda: (a @ b).sum().backward(),
    "einsum": lambda: paddle.einsum("bij,bjk->bik", a, b).sum().backward(),
    "einsum with an ellipsis": lambda: paddle.einsum("...ij,...jk->...ik", a, b).sum().backward(),
    "addmm": lambda: paddle.addmm(tensor(64, 16), x, y).sum().backward(),
    "mv": lambda: paddle.mv(x, v).sum().backward(),
    "bilinear": lambda: bilinear(tensor(64, 32), tensor(64, 16)).sum().backward(),
    "multi_dot": lambda: paddle.linalg.multi_dot([x.detach(), y.detach()]),
    "deformable_conv": lambda: paddle.vision.ops.deform_conv2d(
        image, tensor(2, 18, 16, 16), weight, padding=1).sum().backward(),
}
if hasattr(paddle, "baddbmm"):
    calls["baddbmm"] = lambda: paddle.baddbmm(tensor(8, 64, 16), a, b).sum().backward()
give(**{name: kernels(call) for name, call in calls.items()})
"""


def test_products_are_counted_and_cost_what_matmul_costs(run: Run, devices: Any) -> None:
    got = run(COUNT, device=devices.a100)
    batched = 2.0 * 8 * 64 * 32 * 16
    matmul, backward = got["matmul"]["matmul"], got["matmul"]["matmul_grad"]
    assert matmul[0] == batched and backward[0] == 2 * batched
    for name in ("einsum", "einsum with an ellipsis"):
        assert got[name]["einsum"] == pytest.approx(matmul, rel=0.02)
        assert got[name]["einsum_grad"] == pytest.approx(backward, rel=0.02)
    single = 2.0 * 64 * 32 * 16
    assert got["addmm"]["addmm"][0] == single and got["addmm"]["addmm_grad"][0] == 2 * single
    assert got["baddbmm"]["baddbmm"][0] == batched
    assert got["baddbmm"]["baddbmm_grad"][0] == 2 * batched
    assert got["mv"]["mv"][0] == 2.0 * 64 * 32
    assert got["bilinear"]["bilinear"][0] == single * 8
    assert got["bilinear"]["bilinear_grad"][0] == 3 * single * 8
    assert got["multi_dot"]["multi_dot"][0] == single
    deformed = 2.0 * (2 * 16 * 16) * 4 * 8 * 9
    assert got["deformable_conv"]["deformable_conv"][0] == deformed
    assert got["deformable_conv"]["deformable_conv_grad"][0] == 2 * deformed
