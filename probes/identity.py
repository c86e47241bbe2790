"""What a study belongs to, stable over reboots, indexes and driver patches; and what may drift."""

import re

from autoamp.probes.device_spec import size_text
from autoamp.probes.facts import (
    Conditions,
    Device,
    DeviceKind,
    Host,
    Identity,
    Machine,
    PaddleInstall,
)

GIB = 2**30


def identity(device: Device, paddle: PaddleInstall, host: Host | None = None) -> Identity:
    """GPU model and memory, MIG shape, Paddle and CUDA minor versions.

    ``host`` is not part of it: equal GPUs in two hosts share results.
    """
    if device.kind is DeviceKind.virtual and device.model is not None:
        name = f"virtual:{device.model.alias}"
        if device.memory_total_bytes != device.model.memory_bytes:
            name += f",memory={size_text(device.memory_total_bytes or 0)}"
        if not device.numerics:
            name += ",numerics=off"
    elif device.kind is DeviceKind.custom and device.name == device.paddle_name:
        # Paddle has no name for it: the type stands for it, for an index may change.
        name = device.paddle_name.partition(":")[0]
    else:
        name = device.name
    memory = device.memory_total_bytes
    if device.kind is DeviceKind.gpu and device.model is not None and device.mig is None:
        # What NVML calls the total differs by driver and ECC; the model's size does not.
        memory = device.model.memory_bytes
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


def conditions(machine: Machine) -> Conditions:
    """What may differ from one run to the next on the same machine."""
    gpu = machine.device.nvml
    return Conditions(
        hostname=machine.host.hostname,
        driver=machine.host.driver_version,
        power_limit_w=gpu.power_limit_w if gpu else None,
        sm_clock_max_mhz=gpu.sm_clock_max_mhz if gpu else None,
        ecc=gpu.ecc if gpu else None,
        paddle=machine.paddle.version,
        numpy=machine.paddle.numpy_version,
    )


def drift(before: Conditions, now: Conditions) -> tuple[str, ...]:
    """Sentences for what has changed and does not make it another machine: warnings."""
    names = {
        "hostname": "host",
        "driver": "NVIDIA driver",
        "power_limit_w": "power limit (W)",
        "sm_clock_max_mhz": "highest SM clock (MHz)",
        "ecc": "ECC",
        "paddle": "Paddle",
        "numpy": "numpy",
    }
    out = []
    for field, name in names.items():
        old, new = getattr(before, field), getattr(now, field)
        if old != new and old is not None and new is not None:
            out.append(f"{name} was {old}, is {new} now")
    return tuple(out)
