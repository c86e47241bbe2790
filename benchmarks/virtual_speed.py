"""Step time on the virtual device over plain Paddle on the CPU, and planning mode's own speed.

    python benchmarks/virtual_speed.py [--planned]

With ``--planned`` only planning mode is looked at, and its table in ``docs/virtual.md`` written.
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
from pathlib import Path
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
class Encoder(nn.Layer):
    # BERT without its pooler (a prediction for every token), or a vision transformer.
    def __init__(self, width, heads, layers, words):
        super().__init__()
        self.words = words
        self.first = nn.Embedding(words, width) if words else nn.Conv2D(3, width, 16, 16)
        self.places = self.create_parameter([1, 128 if words else 196, width])
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.1, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, words or 1000)
    def forward(self, x):
        x = self.first(x)
        if not self.words:
            x = x.flatten(2).transpose([0, 2, 1])
        x = self.encoder(x + self.places)
        return self.head(x) if self.words else self.head(x.mean(axis=1))
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
elif run["model"] == "resnet50":
    net, x = paddle.vision.models.resnet50(num_classes=10), np.zeros([256, 3, 224, 224])
elif run["model"] == "bert-large":
    net, x = Encoder(1024, 16, 24, 30522), np.zeros([128, 128], "int64")
else:
    net, x = Encoder(768, 12, 12, 0), np.zeros([128, 3, 224, 224])
words = x.dtype == np.int64
x = paddle.to_tensor(x if words else x.astype("float32"))
y = paddle.to_tensor(rng.randint(0, 10, x.shape if words else [x.shape[0]]))
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


PLANNED = {
    "resnet50": "ResNet-50, batch 256 of 224x224",
    "bert-large": "BERT-large, batch 128, 128 tokens",
    "vit-base": "ViT-B/16, batch 128 of 224x224",
}
DOCS = Path(__file__).resolve().parents[1] / "docs" / "virtual.md"


def planned() -> str:
    """Planning mode's table."""
    lines = ["| planned step | precision | CPU time, s | host memory, GiB |", "|---|---|---|---|"]
    for model, name in PLANNED.items():
        for level in ("O0", "O1", "O2"):
            seen = measure(device="planning", model=model, level=level, steps=5)
            step_s, host_gib = statistics.median(seen["times"]), seen["host"] / 2**20
            lines.append(f"| {name} | {level} | {step_s:.3f} | {host_gib:.2f} |")
    return "\n".join(lines)


def write_planned() -> None:
    text = planned()
    print(text)
    begin, end = "<!-- planned: begin -->\n\n", "\n\n<!-- planned: end -->"
    before, rest = DOCS.read_text(encoding="utf-8").split(begin)
    after = rest.split(end)[1]
    DOCS.write_text(before + begin + text + end + after, encoding="utf-8")


def main() -> None:
    if sys.argv[1:] == ["--planned"]:
        write_planned()
        return
    for model in ("resnet18", "transformer4"):
        plain = statistics.median(measure(device="cpu", model=model, level="O0", steps=8)["times"])
        for level in ("O0", "O1", "O2"):
            seen = measure(device="virtual", model=model, level=level, steps=8)["times"]
            ratio = statistics.median(seen) / plain
            print(f"{model} {level}: {ratio:.2f} times plain CPU FP32 ({plain * 1e3:.0f} ms)")
    print(planned())


if __name__ == "__main__":
    main()
