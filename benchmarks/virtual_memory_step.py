"""Peaks of a planned run, to be held against what was published; child of ``virtual_memory.py``.

python virtual_memory_step.py '{"model": "resnet50", "arguments": {...}, "level": "O1", ...}'
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

STEPS = 3
"""The first creates optimizer state, the second meets it."""


def main() -> None:
    run = json.loads(sys.argv[1])
    device = json.loads(os.environ["BENCHMARK_DEVICE"])
    device["compute_capability"] = tuple(device["compute_capability"])
    faults.work_around(paddle)
    runtime.install(wire.VirtualDevice(**device))
    runtime.hold_conv_workspace(run["limit_mib"], run["search"])
    print(json.dumps({"fits": fits(run), **peaks()}))


def peaks() -> dict[str, int]:
    return {
        "reserved": runtime.reserved_peak_bytes(),
        "workspace": runtime.workspace_bytes(),
        "overhead": runtime.overhead_bytes(),
    }


def fits(run: dict[str, object]) -> bool:
    """False where Paddle says that the device is out of memory."""
    try:
        train(run)
    except MemoryError as error:
        if "Out of memory error on vgpu" not in str(error):
            raise
        return False
    return True


def train(run: dict[str, object]) -> None:
    level = str(run["level"])
    place = virtual_models if hasattr(virtual_models, str(run["model"])) else virtual_zoo
    net, optimizer_of, loss_of = getattr(place, str(run["model"]))(**run["arguments"])
    # Batches that the reader has put on the device in advance.
    ahead = [paddle.zeros([int(run["input_bytes"])], "uint8") for _ in range(int(run["ahead"]))]
    optimizer = optimizer_of(level == "O2")
    if level == "O2":
        net, optimizer = paddle.amp.decorate(net, optimizer, level="O2")
    on = level != "O0"
    scaler = paddle.amp.GradScaler(enable=on, init_loss_scaling=1024.0)
    for _ in range(STEPS):
        with paddle.amp.auto_cast(
            enable=on, level=level if on else "O1", custom_white_list=run["white"] or None
        ):
            loss = loss_of(net)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
    del ahead


if __name__ == "__main__":
    main()
