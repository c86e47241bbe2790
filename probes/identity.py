"""What a study belongs to: stable over reboots, indexes and driver patches."""

import re

from autoamp.probes.facts import Device, DeviceKind, Identity, PaddleInstall

GIB = 2**30


def identity(device: Device, paddle: PaddleInstall) -> Identity:
    """GPU model and memory, MIG shape, Paddle and CUDA minor versions."""
    if device.kind is DeviceKind.virtual and device.model is not None:
        name = f"virtual:{device.model.alias}"
        if device.memory_total_bytes != device.model.memory_bytes:
            name += f",memory={(device.memory_total_bytes or 0) / GIB:g}GiB"
        if not device.numerics:
            name += ",numerics=off"
    else:
        name = device.name
    memory = device.memory_total_bytes
    return Identity(
        device=name,
        memory_gib=None if memory is None else round(memory / GIB),
        mig=device.mig,
        paddle=minor(paddle.version),
        cuda=minor(paddle.cuda_version),
    )


def minor(version: str | None) -> str | None:
    """``3.3`` of ``3.3.1``."""
    match = re.match(r"(\d+\.\d+)", version or "")
    return match.group(1) if match else version
