"""Recurrent layers on the modelled clock: their products, and steps that wait for each other."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.needs_paddle, pytest.mark.needs_compiler]

Run = Callable[..., dict[str, Any]]

BATCH, TIME, IN, HIDDEN = 64, 50, 96, 256

BODY = f"""
import paddle.nn as nn
paddle.base.core.set_cublas_switch(False)
def measure(cls, layers=1, direction="forward", time={TIME}, dtype="float32"):
    net = getattr(nn, cls)({IN}, {HIDDEN}, num_layers=layers, direction=direction)
    if dtype != "float32":
        net = paddle.amp.decorate(net, level="O2", dtype=dtype)
    x = paddle.zeros([{BATCH}, time, {IN}], dtype)
    x.stop_gradient = False
    runtime.reset_clock()
    out, _ = net(x)
    forward = {{k.name: k for k in runtime.op_report()}}["rnn"]
    runtime.reset_clock()
    out.sum().backward()
    backward = {{k.name: k for k in runtime.op_report()}}["rnn_grad"]
    return dict(flops=forward.flops, seconds=forward.seconds, backward=backward.flops,
                backward_s=backward.seconds)
"""


def products(gates: int, layers: int = 1, directions: int = 1, time: int = TIME) -> float:
    """Operations of every cell's two products over all time steps."""
    inputs = IN + (layers - 1) * directions * HIDDEN
    columns = directions * (inputs + layers * HIDDEN)
    return 2.0 * BATCH * time * gates * HIDDEN * columns


def test_products_of_every_kind_are_counted(run: Run, devices: Any) -> None:
    got = run(
        BODY
        + """
give(LSTM=measure("LSTM"), GRU=measure("GRU"), SimpleRNN=measure("SimpleRNN"),
     deep=measure("LSTM", 3, "bidirect"))
""",
        device=devices.a100,
        numerics=False,
    )
    want = {
        "LSTM": products(4),
        "GRU": products(3),
        "SimpleRNN": products(1),
        "deep": products(4, 3, 2),
    }
    for name, flops in want.items():
        assert got[name]["flops"] == flops, name
        # Backward: one product for what came in, one for the weight.
        assert got[name]["backward"] == 2 * flops, name
        peak = devices.a100.flops_per_s["float32"]
        assert got[name]["seconds"] > flops / peak, name
        assert got[name]["backward_s"] > 2 * flops / peak, name


def test_time_steps_wait_for_each_other(run: Run, devices: Any) -> None:
    """Twice the sequence at half the batch is the same work in twice the steps."""
    got = run(
        BODY
        + f"""
long = measure("LSTM", time={2 * TIME})
half = measure("LSTM", time={2 * TIME}, dtype="float16")
give(short=measure("LSTM"), long=long, half=half)
""",
        device=devices.a100,
        numerics=False,
    )
    assert got["long"]["flops"] == 2 * got["short"]["flops"]
    assert 1.7 < got["long"]["seconds"] / got["short"]["seconds"] < 2.1
    # Each time step has a kernel of its own: its floor stays, whatever the dtype.
    floor_s = 2 * TIME * 3e-6
    assert floor_s < got["half"]["seconds"] < got["long"]["seconds"]
