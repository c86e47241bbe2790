"""Counted memory against arithmetic: parameters, gradients, optimizer state, activations."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.needs_paddle, pytest.mark.needs_compiler]

Run = Callable[..., dict[str, Any]]

# Peaks of the third step: the first ones create optimizer state.
MEASURE = """
import paddle.nn as nn
def measure(net, opt, loss_of, level, steps=3):
    if level == "O2":
        net, opt = paddle.amp.decorate(net, opt, level="O2")
    scaler = paddle.amp.GradScaler(enable=level != "O0", init_loss_scaling=1024.0)
    for i in range(steps):
        if i == steps - 1:
            resident = paddle.device.cuda.memory_allocated()
            paddle.device.cuda.reset_max_memory_allocated()
        with paddle.amp.auto_cast(enable=level != "O0", level=level if level != "O0" else "O1"):
            loss = loss_of(net)
        scaler.scale(loss).backward()
        del loss
        scaler.step(opt)
        scaler.update()
        opt.clear_grad()
    return dict(resident=resident, peak=paddle.device.cuda.max_memory_allocated(),
                reserved=paddle.device.cuda.max_memory_reserved())
"""


@pytest.mark.slow
@pytest.mark.parametrize("level", ["O0", "O2"])
def test_wide_linears(run: Run, level: str) -> None:
    """State-bound: AdamW on nine 2048 x 2048 layers, a batch of 256."""
    got = run(
        MEASURE
        + f"""
net = nn.Sequential(*[nn.Linear(2048, 2048, bias_attr=False) for _ in range(9)])
opt = paddle.optimizer.AdamW(1e-4, parameters=net.parameters(), multi_precision={level == "O2"})
x = paddle.zeros([256, 2048])
give(**measure(net, opt, lambda net: net(x).mean(), {level!r}))
""",
        numerics=False,
    )
    weights = 9 * 2048 * 2048
    activation = 256 * 2048
    # clear_grad() keeps the gradients' memory and fills it with zeros. O0: weight, two moments,
    # gradient in 32 bits. O2: weight and gradient in 16, master copy and moments in 32.
    resident = weights * (4 + 8 + 4 if level == "O0" else 2 + 4 + 8 + 2) + activation * 4
    width = 4 if level == "O0" else 2
    # Eight layers' outputs are kept, then one layer's new gradient joins the old one.
    peak = resident + 8 * activation * width + 2048 * 2048 * width
    assert got["resident"] == pytest.approx(resident, rel=0.01)
    assert got["peak"] == pytest.approx(peak, rel=0.05)
    assert got["reserved"] >= got["peak"]


@pytest.mark.slow
@pytest.mark.parametrize("level", ["O0", "O2"])
def test_resnet50(run: Run, devices: Any, level: str) -> None:
    """Activation-bound: what each layer keeps for its backward pass, added up by shapes."""
    got = run(
        MEASURE
        + f"""
level = {level!r}
net = paddle.vision.models.resnet50()
opt = paddle.optimizer.Momentum(0.1, 0.9, parameters=net.parameters(),
                                multi_precision=level == "O2")
kept = []
def note(kind):
    def hook(layer, inputs, output):
        kept.append((kind, int(np.prod(output.shape))))
    return hook
handles = []
for layer in net.sublayers():
    name = type(layer).__name__
    if name in ("Conv2D", "ReLU", "MaxPool2D"):
        handles.append(layer.register_forward_post_hook(note(name)))
x, y = paddle.zeros([32, 3, 224, 224]), paddle.zeros([32], "int64")
loss_of = lambda net: nn.functional.cross_entropy(net(x), y)
with paddle.no_grad():
    loss_of(net)
for handle in handles:
    handle.remove()
shapes = list(kept)
give(weights=sum(int(np.prod(p.shape)) for p in net.parameters()), kept=shapes,
     **measure(net, opt, loss_of, level))
""",
        device=devices.a100,
        numerics=False,
    )
    # A convolution's output is batch norm's input, ReLU's output the next convolution's and its
    # own gradient's; batch norm's output and the blocks' sums are needed by nobody later on.
    elements = sum(n for _, n in got["kept"])
    width = 4 if level == "O0" else 2
    # Weight, velocity and gradient; at O2 a master copy, and weight and gradient in 16 bits.
    state = got["weights"] * (4 + 4 + 4 if level == "O0" else 2 + 4 + 4 + 2)
    inputs = 32 * 3 * 224 * 224 * (4 if level == "O0" else 4 + 2)
    assert got["peak"] == pytest.approx(state + inputs + elements * width, rel=0.05)


@pytest.mark.slow
def test_transformer_grows_with_the_batch_as_its_activations_do(run: Run, devices: Any) -> None:
    body = (
        MEASURE
        + """
batch = int(os.environ["BATCH"])
paddle.seed(0)
layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.1, activation="gelu")
net = nn.TransformerEncoder(layer, 6)
opt = paddle.optimizer.AdamW(1e-4, parameters=net.parameters())
x = paddle.zeros([batch, 128, 512])
give(weights=sum(int(np.prod(p.shape)) for p in net.parameters()),
     **measure(net, opt, lambda net: net(x).mean(), "O0"))
"""
    )
    small, large = (
        run(body, device=devices.a100, numerics=False, environment={"BATCH": str(b)})
        for b in (32, 64)
    )
    # Kept per token and layer: scaled query, key, value, merged context, input and output of
    # both layer norms (float32), masks of two dropouts (bytes); of the wide layer what goes into
    # GELU and what comes out of dropout, and its mask; of the scores softmax, dropout, mask.
    width, wide, heads, length, layers = 512, 2048, 8, 128, 6
    per_token = layers * (width * (8 * 4 + 2) + wide * (2 * 4 + 1) + heads * length * (2 * 4 + 1))
    inputs = width * 4
    grown = large["peak"] - small["peak"]
    assert grown == pytest.approx(32 * length * (per_token + inputs), rel=0.05)
    # Weight, two moments, gradient.
    state = small["weights"] * 16
    assert small["resident"] == pytest.approx(state + 32 * length * inputs, rel=0.01)
