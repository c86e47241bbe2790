"""Step time on the virtual device over plain Paddle on the CPU, and planning mode's own speed.

    python benchmarks/virtual_speed.py

Prints ratios of CPU time per step (all threads of the process, one of them computing): wall
time on a busy machine says more about the neighbours. Goals: FP32 1.25, FP16 2.0; a planned
step of ResNet-50 at batch 256 under 1 s.
"""

import json
import os
import statistics
import subprocess
import sys
from dataclasses import asdict, replace
from typing import Any

from autoamp.probes import catalogue
from autoamp.probes.virtual import virtual_device
from autoamp.virtual.build import ensure_built
from autoamp.virtual.device import child_environment

BODY = """
import json, os, resource, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
import paddle
import paddle.nn as nn
run = json.loads(sys.argv[1])
if run["device"] != "cpu":
    from autoamp import wire
    from autoamp.child import faults
    from autoamp.virtual import runtime
    faults.work_around(paddle)
    device = json.loads(os.environ["BENCHMARK_DEVICE"])
    device["compute_capability"] = tuple(device["compute_capability"])
    runtime.install(wire.VirtualDevice(**device))
paddle.seed(1)
rng = np.random.RandomState(0)
level = run["level"]
class Transformer(nn.Layer):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.1)
        self.encoder = nn.TransformerEncoder(layer, 4)
        self.head = nn.Linear(128, 10)
    def forward(self, x):
        return self.head(self.encoder(x).mean(axis=1))
if run["model"] == "resnet18":
    net, x = paddle.vision.models.resnet18(num_classes=10), rng.randn(8, 3, 64, 64)
elif run["model"] == "transformer4":
    net, x = Transformer(), rng.randn(16, 64, 128)
else:
    net, x = paddle.vision.models.resnet50(num_classes=10), np.zeros([256, 3, 224, 224])
x = paddle.to_tensor(x.astype("float32"))
y = paddle.to_tensor(rng.randint(0, 10, [x.shape[0]]))
opt = paddle.optimizer.AdamW(1e-4, parameters=net.parameters(), multi_precision=level == "O2")
if level == "O2":
    net, opt = paddle.amp.decorate(net, opt, level="O2")
scaler = paddle.amp.GradScaler(enable=level != "O0", init_loss_scaling=1024.0)
times = []
for _ in range(run["steps"]):
    start = time.process_time()
    with paddle.amp.auto_cast(enable=level != "O0", level=level if level != "O0" else "O1"):
        loss = nn.functional.cross_entropy(net(x), y)
    scaler.scale(loss).backward()
    scaler.step(opt); scaler.update(); opt.clear_grad()
    float(loss.item())
    times.append(time.process_time() - start)
print(json.dumps(dict(times=times[2:], host=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)))
"""


def measure(**run: Any) -> dict[str, Any]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if run["device"] != "cpu":
        model = catalogue.find("v100-32gb")
        device = virtual_device(model, model.memory_bytes, numerics=run["device"] != "planning")
        if run["device"] == "planning":
            device = replace(device, memory_bytes=200 << 30)
        plugin = ensure_built(sys.executable, print)
        environment.update(child_environment(device, plugin))
        environment["BENCHMARK_DEVICE"] = json.dumps(asdict(device))
    done = subprocess.run(
        [sys.executable, "-c", BODY, json.dumps(run)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    for model in ("resnet18", "transformer4"):
        plain = statistics.median(measure(device="cpu", model=model, level="O0", steps=8)["times"])
        for level in ("O0", "O1", "O2"):
            seen = measure(device="virtual", model=model, level=level, steps=8)["times"]
            ratio = statistics.median(seen) / plain
            print(f"{model} {level}: {ratio:.2f} times plain CPU FP32 ({plain * 1e3:.0f} ms)")
    for level in ("O0", "O1", "O2"):
        seen = measure(device="planning", model="resnet50", level=level, steps=5)
        print(
            f"planned ResNet-50 batch 256 {level}: {statistics.median(seen['times']):.2f} s, "
            f"{seen['host'] / 2**20:.2f} GiB of host memory"
        )


if __name__ == "__main__":
    main()
