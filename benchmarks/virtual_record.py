"""Records one training step in planning mode, for ``virtual_fit.py``; run as a child of it.

python virtual_record.py '{"model": "bert", "arguments": {...}, "level": "O1", ...}' OUT
"""

import json
import os
import sys
import warnings

warnings.simplefilter("ignore")

import paddle  # noqa: E402
import virtual_models  # noqa: E402

from autoamp import wire  # noqa: E402
from autoamp.child import faults  # noqa: E402
from autoamp.virtual import runtime  # noqa: E402


def main() -> None:
    run = json.loads(sys.argv[1])
    device = json.loads(os.environ["BENCHMARK_DEVICE"])
    device["compute_capability"] = tuple(device["compute_capability"])
    faults.work_around(paddle)
    runtime.install(wire.VirtualDevice(**device))
    level = run["level"]
    net, optimizer_of, loss_of = getattr(virtual_models, run["model"])(**run["arguments"])
    optimizer = optimizer_of(level == "O2")
    on = level != "O0"
    if level == "O2":
        net, optimizer = paddle.amp.decorate(net, optimizer, level="O2")
    scaler = paddle.amp.GradScaler(enable=on, init_loss_scaling=1024.0)

    def step() -> None:
        with paddle.amp.auto_cast(
            enable=on,
            level=level if on else "O1",
            custom_white_list=run["white"] or None,
            custom_black_list=run["black"] or None,
        ):
            loss = loss_of(net)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()

    # The first steps create optimizer state and fill the allocator.
    step()
    step()
    runtime.start_trace()
    step()
    runtime.save_trace(sys.argv[2])


if __name__ == "__main__":
    main()
