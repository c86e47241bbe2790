"""Steps of every optimizer at O2 against float32; a body for a child process."""

from typing import Any

STEPS = """
O = paddle.optimizer
rng = np.random.RandomState(0)
# Values that every dtype has: what remains is the arithmetic of the update.
START = rng.randint(-64, 64, [2, 8, 8]).astype("float32") / 64
SLOPE = rng.randint(-64, 64, [2, 8, 8]).astype("float32") / 64
WAYS = {"Rprop": dict(learning_rate_range=(1e-6, 1.0)), "ASGD": dict(batch_num=1)}
CASES = {name: (name, WAYS.get(name, {}), 1e-3) for name in O.__all__
         if name not in ("Optimizer", "LBFGS") and isinstance(getattr(O, name), type)}
CASES.update({
    "Momentum, many at once": ("Momentum", dict(use_multi_tensor=True), 1e-3),
    "Momentum, nesterov, many at once":
        ("Momentum", dict(use_multi_tensor=True, use_nesterov=True, weight_decay=1e-2), 1e-3),
    "Adam, many at once": ("Adam", dict(use_multi_tensor=True), 1e-3),
    "AdamW, lazy": ("AdamW", dict(lazy_mode=True), 1e-3),
    "RMSProp, centered": ("RMSProp", dict(centered=True, momentum=0.9), 1e-3)})
class Net(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.w = paddle.nn.ParameterList(
            [self.create_parameter([8, 8], default_initializer=paddle.nn.initializer.Assign(x))
             for x in START])
    def forward(self, slopes):
        return sum((w * s.astype(w.dtype)).sum() for w, s in zip(self.w, slopes))
def steps(case, place, level, dtype="float16"):
    paddle.set_device(place)
    name, how, rate = CASES[case]
    net = Net()
    opt = getattr(O, name)(rate, parameters=net.parameters(), **how)
    if level == "O2":
        net, opt = paddle.amp.decorate(net, opt, level="O2", dtype=dtype)
    slopes = [paddle.to_tensor(x) for x in SLOPE]
    for _ in range(4):
        with paddle.amp.auto_cast(enable=level == "O2", level="O2", dtype=dtype):
            loss = net(slopes)
        loss.backward()
        opt.step()
        opt.clear_grad()
    if level != "O2":
        return [w.numpy() for w in net.w]
    masters = [opt._master_weights[w.name] for w in net.w]
    rounded = all(bool((m.astype(dtype) == w).all()) for m, w in zip(masters, net.w))
    return [m.numpy() for m in masters], rounded
out = {}
for case in CASES:
    want = steps(case, "cpu", "O0")
    single = steps(case, "gpu", "O0")
    seen = dict(cpu=max(float(np.abs(a - b).max()) for a, b in zip(single, want)))
    moved = max(float(np.abs(a - b).max()) for a, b in zip(want, START))
    for dtype in ("float16", "bfloat16"):
        masters, rounded = steps(case, "gpu", "O2", dtype)
        off = max(float(np.abs(a - b).max()) for a, b in zip(masters, want))
        seen[dtype] = dict(off=off / moved, rounded=rounded,
                           moved=min(float(np.abs(a - b).max()) for a, b in zip(masters, START)))
    out[case] = seen
give(out=out)
"""


def judge(out: dict[str, Any]) -> None:
    for case, seen in out.items():
        assert seen["cpu"] < 1e-6, case
        for dtype in ("float16", "bfloat16"):
            found = seen[dtype]
            assert found["moved"] > 0, (case, dtype)
            assert found["rounded"], (case, dtype)
            assert found["off"] < 1e-2, (case, dtype, found["off"])
