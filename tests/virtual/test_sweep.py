"""Every operator of training, in every dtype, forward and backward, against the CPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.needs_paddle, pytest.mark.needs_compiler]

Run = Callable[..., dict[str, Any]]

HERE = str(Path(__file__).parent)


@pytest.mark.slow
def test_operators_forward_and_backward_in_every_dtype(run: Run) -> None:
    got = run(
        f"""
sys.path.insert(0, {HERE!r})
import sweep
give(**sweep.judged())
""",
        compute_capability=(8, 0),
    )
    assert got["count"] >= 500
    assert not got["wrong"], "\n".join(f"{k}: {v}" for k, v in got["wrong"].items())
    assert not got["works_now"], "take them off the list of known ones"
    assert not got["no_reference"]


def test_the_sweep_sees_what_is_not_a_number(run: Run) -> None:
    got = run(
        f"""
sys.path.insert(0, {HERE!r})
import sweep
nan, inf = float("nan"), float("inf")
def error(got, want):
    return sweep.error(np.float32(got), np.float32(want))
give(errors=[error([nan, 1], [1, 1]), error([1, 1], [nan, 1]), error([inf, 1], [1, 1]),
             error([inf], [-inf]), error([1, 1], [1])],
     right=[error([nan, 1], [nan, 1]), error([inf, 1], [inf, 1]), error([], []),
            error([nan], [nan])],
     by_dtype=sweep.check("of another dtype", sweep.Case(
         lambda x: x.astype("float32") if x.dtype == paddle.float16 else x,
         (np.ones(3, "float32"),)), "float16"))
"""
    )
    assert got["errors"] == [float("inf")] * 5
    assert got["right"] == [0.0] * 4
    assert "result in" in got["by_dtype"]


def test_arithmetic_is_numpys_float16_bit_for_bit(run: Run) -> None:
    """One float32 operation rounded to 11 bits is the correctly rounded float16 operation."""
    got = run(
        """
rng = np.random.default_rng(1)
bits = rng.integers(0, 65536, (2, 20000), dtype="uint16")
a, b = bits.view("float16")
x, y = paddle.to_tensor(a), paddle.to_tensor(b)
def same(tensor, array):
    found = tensor.numpy()
    return bool(((found == array) | (np.isnan(found) & np.isnan(array))).all())
with np.errstate(all="ignore"):
    give(same=[same(x + y, a + b), same(x - y, a - b), same(x * y, a * b), same(x / y, a / b),
               same(paddle.abs(x), np.abs(a)), same(paddle.maximum(x, y), np.maximum(a, b)),
               same(x.astype("float32").astype("float16"), a),
               same(paddle.to_tensor(a.astype("float32") * 3).astype("float16"),
                    (a.astype("float32") * 3).astype("float16"))])
"""
    )
    assert got["same"] == [True] * 8


def test_other_dtypes_are_the_cpus_own(run: Run) -> None:
    got = run(
        """
rng = np.random.RandomState(0)
ints, bools = rng.randint(-9, 9, (4, 6)), rng.rand(4, 6) > 0.5
doubles = rng.rand(4, 6)
def work():
    i, b, d = paddle.to_tensor(ints), paddle.to_tensor(bools), paddle.to_tensor(doubles)
    j = i.astype("int32")
    out = [i + i, i * 3, i // 4, i % 5, paddle.abs(j), i.sum(), i.max(axis=0), paddle.sort(i),
           b & ~b, b | b, paddle.logical_xor(b, b), b.astype("int64").cumsum(), i > 0, i == i,
           i << 1, paddle.bitwise_and(j, j), d.exp(), d @ d.T, d.mean(), d.std(), d / 3.0,
           paddle.linalg.inv(d[:, :4]), i.reshape([6, 4]).transpose([1, 0]), i[1:3, ::2],
           paddle.concat([i, i]), paddle.unique(i), paddle.nonzero(b), paddle.where(b, i, -i),
           paddle.gather(i, paddle.to_tensor([0, 2])), paddle.topk(i, 2)[0], paddle.arange(7),
           paddle.one_hot(paddle.abs(i[0]), 9) if hasattr(paddle, "one_hot") else i]
    d.stop_gradient = False
    (d * d).sum().backward()
    return [t.numpy() for t in out] + [d.grad.numpy()]
device = work()
paddle.set_device("cpu")
cpu = work()
give(equal=[bool(np.allclose(a, b, rtol=1e-12, atol=0)) and a.dtype == b.dtype
            for a, b in zip(device, cpu)])
"""
    )
    assert len(got["equal"]) == 33
    assert all(got["equal"]), got["equal"]


@pytest.mark.slow
def test_complex_values_are_refused_clearly_in_sixteen_bits(run: Run) -> None:
    got = run(
        """
x = paddle.to_tensor(np.float32([1, 2, 3, 4]))
spectrum = paddle.fft.rfft(x)
try:
    paddle.fft.rfft(x.astype("float16"))
    give(said=None)
except (RuntimeError, TypeError, NotImplementedError) as error:
    give(said=str(error))
give(real=spectrum.real().numpy().tolist(), complex=str(spectrum.dtype))
"""
    )
    assert got["complex"] == "paddle.complex64"
    assert got["real"][0] == 10.0
    assert "float16" in got["said"] and "complex" in got["said"]


@pytest.mark.slow
def test_sparse_gradients_train_in_single_precision_and_are_refused_under_amp(run: Run) -> None:
    """GradScaler hands them to a kernel for dense tensors, which on a GPU reads beyond them."""
    got = run(
        """
import paddle.nn as nn
ids = paddle.to_tensor(np.random.RandomState(0).randint(0, 50, [16, 4]))
labels = paddle.to_tensor(np.arange(16) % 4)
def train(optimizer, amp=False):
    paddle.seed(1)
    net = nn.Sequential(nn.Embedding(50, 8, sparse=True), nn.Flatten(), nn.Linear(32, 4))
    opt = optimizer(0.05, parameters=net.parameters(), grad_clip=nn.ClipGradByGlobalNorm(1.0))
    scaler = paddle.amp.GradScaler(enable=amp)
    losses = []
    for _ in range(4):
        with paddle.amp.auto_cast(enable=amp):
            loss = nn.functional.cross_entropy(net(ids), labels)
        scaler.scale(loss).backward()
        scaler.step(opt); scaler.update(); opt.clear_grad()
        losses.append(float(loss))
    return losses
out = {}
for name in ("SGD", "Momentum"):
    paddle.set_device("gpu")
    device = train(getattr(paddle.optimizer, name))
    paddle.set_device("cpu")
    out[name] = [device, train(getattr(paddle.optimizer, name))]
paddle.set_device("gpu")
try:
    train(paddle.optimizer.SGD, amp=True)
    said = None
except NotImplementedError as error:
    said = str(error)
give(out=out, said=said)
"""
    )
    for device, cpu in got["out"].values():
        assert device == pytest.approx(cpu, rel=1e-6)
        assert device[-1] < device[0]
    assert "sparse gradient" in got["said"] and "sparse=False" in got["said"]


@pytest.mark.slow
def test_sparse_gradients_of_a_weight_that_amp_casts_are_refused_by_name(
    run: Run, devices: Any
) -> None:
    """At O2 the gradient of that cast would read rubbish, and could end the process."""
    got = run(
        """
import paddle.nn as nn
ids = paddle.to_tensor(np.random.RandomState(0).randint(0, 50, [16, 4]))
def lookup(dtype, level, **how):
    net = nn.Embedding(50, 8, **how)
    if level == "O2":
        net = paddle.amp.decorate(net, level="O2", dtype=dtype)
    with paddle.amp.auto_cast(level=level, dtype=dtype):
        out = net(ids)
    out.astype("float32").sum().backward()
    return bool(net.weight.grad.is_selected_rows())
said, works = {}, {}
for dtype in ("float16", "bfloat16"):
    try:
        lookup(dtype, "O2", sparse=True)
    except NotImplementedError as error:
        said[dtype] = str(error)
    works[dtype] = [lookup(dtype, "O2"), lookup(dtype, "O1", sparse=True)]
half = paddle.ones([50, 8]).astype("float16")
half.stop_gradient = False
nn.functional.embedding(ids, half, sparse=True).astype("float32").sum().backward()
with paddle.no_grad(), paddle.amp.auto_cast(level="O2"):
    looked_at = nn.functional.embedding(ids, half, sparse=True)
give(said=said, works=works, by_hand=bool(half.grad.is_selected_rows()),
     looked_at=looked_at.shape)
""",
        device=devices.a100,
    )
    assert set(got["said"]) == {"float16", "bfloat16"}
    assert all("vgpu" in x and "sparse=False" in x for x in got["said"].values())
    assert got["works"] == {"float16": [False, True], "bfloat16": [False, True]}
    assert got["by_hand"] and got["looked_at"] == [16, 4, 8]
