"""Whole training steps on the virtual device: Paddle's own AMP, memory and loaders on top."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.needs_paddle, pytest.mark.needs_compiler]

Run = Callable[..., dict[str, Any]]

NET = """
import paddle.nn as nn
paddle.seed(7)
rng = np.random.RandomState(0)
def make_net():
    paddle.seed(7)
    return nn.Sequential(nn.Conv2D(3, 8, 3, padding=1), nn.BatchNorm2D(8), nn.ReLU(),
                         nn.Flatten(), nn.Linear(8 * 64, 32), nn.GELU(), nn.Linear(32, 10))
X = rng.randn(16, 3, 8, 8).astype("float32")
Y = rng.randint(0, 10, [16])
def train(level="O0", dtype="float16", steps=4, scale=1024.0, wrap=lambda net: net):
    net = make_net()
    opt = paddle.optimizer.Momentum(0.05, 0.9, parameters=net.parameters(),
                                    multi_precision=level == "O2")
    if level == "O2":
        net, opt = paddle.amp.decorate(net, opt, level="O2", dtype=dtype)
    scaler = paddle.amp.GradScaler(enable=level != "O0" and dtype == "float16",
                                   init_loss_scaling=scale, decr_every_n_nan_or_inf=1)
    model = wrap(net)
    x, y = paddle.to_tensor(X), paddle.to_tensor(Y)
    losses = []
    for _ in range(steps):
        with paddle.amp.auto_cast(enable=level != "O0", level=level if level != "O0" else "O1",
                                  dtype=dtype):
            loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        opt.clear_grad()
        losses.append(float(loss.item()))
    return losses, net, opt, scaler
"""


def test_levels_and_dtypes_train(run: Run, devices: Any) -> None:
    got = run(
        NET
        + """
ran = {}
for level, dtype in (("O0", "float16"), ("O1", "float16"), ("O2", "float16"),
                     ("O1", "bfloat16"), ("O2", "bfloat16")):
    runtime.start_low_precision_calls()
    losses, net, opt, scaler = train(level, dtype)
    calls = runtime.low_precision_calls()
    ran[level + dtype] = dict(losses=losses, conv=calls["conv2d"], matmul=calls["matmul_v2"],
                              weight=str(net[0].weight.dtype), bn=str(net[1].weight.dtype))
give(ran=ran)
place = paddle.device.get_device()
paddle.set_device("cpu")
give(cpu=train()[0], device=place)
""",
        device=devices.a100,
    )
    ran = got["ran"]
    assert got["device"] == "gpu:0"
    assert ran["O0float16"]["losses"] == pytest.approx(got["cpu"], rel=1e-5)
    for name, index in (("O1float16", 0), ("O2float16", 0), ("O1bfloat16", 1), ("O2bfloat16", 1)):
        losses = ran[name]["losses"]
        assert losses[-1] < losses[0]
        assert losses != got["cpu"], "16-bit rounding must leave a trace"
        assert losses == pytest.approx(got["cpu"], rel=0.1)
        assert ran[name]["conv"][index] == 4 and ran[name]["matmul"][index] == 8
        assert sum(ran[name]["conv"]) == 4
    assert ran["O2float16"]["weight"] == "paddle.float16"
    assert ran["O2float16"]["bn"] == "paddle.float32"
    assert ran["O1float16"]["weight"] == "paddle.float32"


def test_overflow_skips_the_step_and_halves_the_scale(run: Run) -> None:
    got = run(
        NET
        + """
losses, net, opt, scaler = train("O1", steps=3, scale=2.0 ** 40)
give(scale=float(scaler._scale.item()),
     moved=not np.array_equal(net[4].weight.numpy(), make_net()[4].weight.numpy()),
     losses=losses)
"""
    )
    assert got["scale"] == 2.0**37
    assert not got["moved"]
    assert got["losses"][0] == pytest.approx(got["losses"][2])


def test_out_of_memory_is_paddles_own_error(run: Run) -> None:
    got = run(
        """
kept = []
try:
    for _ in range(100):
        kept.append(paddle.ones([1 << 20]))
    give(error=None)
except MemoryError as error:
    give(error=str(error), held=len(kept))
kept.clear()
# The process goes on: what was freed can be had again.
give(after=float(paddle.ones([1 << 20]).sum()), peak=runtime.reserved_peak_bytes())
""",
        memory_bytes=64 << 20,
    )
    assert "Out of memory error on vgpu:0" in got["error"]
    assert "ResourceExhausted" in got["error"]
    assert 10 <= got["held"] <= 16
    assert got["after"] == 1 << 20
    assert got["peak"] <= 64 << 20


def test_more_than_the_host_has_is_refused_before_it_hurts(run: Run) -> None:
    got = run(
        """
try:
    paddle.empty([1 << 40], dtype="float32")  # 4 TiB on a GPU that claims to have them
    give(error=None)
except MemoryError as error:
    give(error=str(error))
give(refusals=runtime.host_refusals())
""",
        memory_bytes=1 << 50,
    )
    assert "Out of memory error on vgpu:0" in got["error"]
    assert got["refusals"] >= 1


@pytest.mark.slow
def test_below_its_compute_capability_paddle_switches_amp_off(run: Run, devices: Any) -> None:
    body = (
        NET
        + """
seen = {}
for dtype in ("float16", "bfloat16"):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with paddle.amp.auto_cast(dtype=dtype):
            out = paddle.matmul(paddle.ones([8, 8]), paddle.ones([8, 8]))
    net = paddle.amp.decorate(nn.Linear(4, 4), level="O2", dtype=dtype)
    seen[dtype] = dict(out=str(out.dtype), weight=str(net.weight.dtype),
                       warned=[str(w.message) for w in caught])
give(seen=seen, bf16=paddle.amp.is_bfloat16_supported())
"""
    )
    old = run(body, device=devices.gtx1080)["seen"]
    assert old["float16"]["out"] == old["bfloat16"]["out"] == "paddle.float32"
    assert old["float16"]["weight"] == "paddle.float32"
    assert any("Compute Capability 7.0" in w for w in old["float16"]["warned"])
    volta = run(body, device=devices.v100)
    assert volta["seen"]["float16"]["out"] == "paddle.float16"
    assert volta["seen"]["float16"]["weight"] == "paddle.float16"
    assert not volta["seen"]["float16"]["warned"]
    assert volta["seen"]["bfloat16"]["out"] == "paddle.float32"
    assert any("Compute Capability 8.0" in w for w in volta["seen"]["bfloat16"]["warned"])
    assert volta["bf16"] is False


@pytest.mark.slow
def test_to_static_trains_and_is_counted(run: Run) -> None:
    got = run(
        NET
        + """
out = {}
for level in ("O0", "O1", "O2"):
    dynamic = train(level)[0]
    runtime.start_low_precision_calls()
    static = train(level, wrap=lambda net: paddle.jit.to_static(net, full_graph=True))[0]
    out[level] = dict(dynamic=dynamic, static=static, calls=runtime.low_precision_calls())
give(out=out)
"""
    )
    for level, column in (("O0", 2), ("O1", 0), ("O2", 0)):
        seen = got["out"][level]
        assert seen["static"] == pytest.approx(seen["dynamic"], rel=2e-2)
        assert seen["calls"]["conv2d"][column] == 4


@pytest.mark.slow
def test_loaders_with_workers_and_threads(run: Run) -> None:
    got = run(
        """
import threading
class Data(paddle.io.Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, i):
        # Workers may use tensors, as some data sets do.
        t = paddle.to_tensor(np.full([4], i, "float32"), place=paddle.CPUPlace())
        return (t * 2).numpy(), np.int64(i)
out = {}
for workers, extra in ((0, {}), (2, {}), (2, dict(persistent_workers=True)),
                       (2, dict(use_buffer_reader=False))):
    loader = paddle.io.DataLoader(Data(), batch_size=8, num_workers=workers, **extra)
    total = 0.0
    for epoch in range(2):
        for x, y in loader:
            total += float((x.sum() / 8 - y.astype("float32").sum()).item())
    out[f"{workers}{sorted(extra)}"] = [total, str(x.place)]
sums = []
def work():
    sums.append(float(paddle.matmul(paddle.ones([64, 64]), paddle.ones([64, 64])).sum()))
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
give(out=out, sums=sums)
"""
    )
    for name, (total, place) in got["out"].items():
        assert total == 0.0
        # Without the buffer reader batches stay on the CPU, on a GPU as here.
        assert ("vgpu" in place) == ("use_buffer_reader" not in name)
    assert got["sums"] == [64.0**3] * 4


@pytest.mark.slow
def test_saving_and_loading_with_master_weights(run: Run) -> None:
    got = run(
        NET
        + """
losses, net, opt, scaler = train("O2", steps=2)
paddle.save({"net": net.state_dict(), "opt": opt.state_dict(), "scaler": scaler.state_dict()}, "c")
kept = paddle.load("c")
master = {k: v.numpy() for k, v in kept["opt"]["master_weights"].items()}
half = net[4].weight.numpy()
single = [v for k, v in master.items() if v.shape == half.shape][0]
give(half=str(half.dtype), single=str(single.dtype),
     rounded=bool((single.astype("float16") == half).all()))
net.set_state_dict(kept["net"]); opt.set_state_dict(kept["opt"])
scaler.load_state_dict(kept["scaler"])
"""
    )
    assert got["half"] == "float16" and got["single"] == "float32"
    assert got["rounded"]


@pytest.mark.slow
def test_hapi_model_trains_under_amp(run: Run) -> None:
    got = run(
        """
paddle.seed(1)
class Data(paddle.io.Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, i):
        return np.full([8], i / 16, "float32"), np.int64(i % 2)
net = paddle.nn.Sequential(paddle.nn.Linear(8, 8), paddle.nn.ReLU(), paddle.nn.Linear(8, 2))
model = paddle.Model(net)
opt = paddle.optimizer.Adam(1e-3, parameters=net.parameters(), multi_precision=True)
model.prepare(opt, paddle.nn.CrossEntropyLoss(), amp_configs={"level": "O2"})
runtime.start_low_precision_calls()
model.fit(Data(), batch_size=4, epochs=1, verbose=0)
give(weight=str(net[0].weight.dtype), calls=runtime.low_precision_calls()["matmul_v2"])
"""
    )
    assert got["weight"] == "paddle.float16", "O2 decorates, as on a GPU build"
    assert got["calls"][0] == 8


@pytest.mark.slow
def test_several_ranks_are_refused_by_name(run: Run) -> None:
    got = run(
        """
os.environ.update(PADDLE_TRAINERS_NUM="2", PADDLE_TRAINER_ID="0", PADDLE_DISTRI_BACKEND="xccl")
try:
    paddle.distributed.init_parallel_env()
    give(said=None)
except NotImplementedError as error:
    give(said=str(error))
os.environ.update(PADDLE_TRAINERS_NUM="1")
paddle.distributed.init_parallel_env()
give(alone=paddle.distributed.get_world_size())
"""
    )
    assert "virtual device" in got["said"] and "one GPU" in got["said"]
    assert got["alone"] == 1


def test_a_reshape_that_copies_leaves_its_input_alone(run: Run) -> None:
    """Eager calls hand in a view's output already sharing its input's memory."""
    got = run(
        """
x = paddle.arange(24, dtype="float32").reshape([4, 6])
before = x.numpy().copy()
held = paddle.device.cuda.memory_allocated()
merged = x.transpose([1, 0]).reshape([3, 8])
grown = paddle.device.cuda.memory_allocated() - held
view = x.reshape([8, 3])
give(same=bool((x.numpy() == before).all()), right=bool(
    (merged.numpy() == before.T.reshape(3, 8)).all()), grown=grown,
    shared=paddle.device.cuda.memory_allocated() - held - grown,
    seen=float(view[0, 1]))
"""
    )
    assert got["same"] and got["right"]
    assert got["grown"] >= 24 * 4
    assert got["shared"] == 0
    assert got["seen"] == 1.0
