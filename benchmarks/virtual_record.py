"""Records one training step in planning mode; run as a child of ``virtual_clock.py``.

python virtual_record.py '{"model": "bert", "arguments": {...}, "level": "O1", ...}' OUT
"""

import json
import os
import sys
import warnings

warnings.simplefilter("ignore")

import paddle  # noqa: E402
import virtual_models  # noqa: E402
import virtual_zoo  # noqa: E402

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
    place = virtual_models if hasattr(virtual_models, run["model"]) else virtual_zoo
    net, optimizer_of, loss_of = getattr(place, run["model"])(**run["arguments"])
    optimizer = optimizer_of(level == "O2")
    # A network that is float16 throughout has neither master weights nor a scaler.
    half = level == "half"
    if half:
        net = paddle.amp.decorate(net, level="O2", master_weight=False)
        level = "O2"
    elif level == "O2":
        net, optimizer = paddle.amp.decorate(net, optimizer, level="O2")
    on = level != "O0"
    scaler = paddle.amp.GradScaler(enable=on and not half, init_loss_scaling=1024.0)

    def step() -> None:
        with paddle.amp.auto_cast(
            enable=on,
            level=level if on else "O1",
            custom_white_list=run["white"] or None,
            custom_black_list=run["black"] or None,
        ):
            loss = loss_of(net)
        scaler.scale(loss).backward()
        if run["steps"] == "optimizer":
            scaler.step(optimizer)
            scaler.update()
        if run["steps"] != "accumulate":
            optimizer.clear_grad()

    # The first steps create optimizer state and fill the allocator.
    step()
    step()
    runtime.start_trace()
    step()
    runtime.save_trace(sys.argv[2])


if __name__ == "__main__":
    main()
