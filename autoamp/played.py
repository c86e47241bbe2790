"""The one door from a virtual device that was probed to the one that a child process plays."""

import math

from autoamp import wire
from autoamp.errors import UsageError
from autoamp.probes.device_spec import size_text
from autoamp.probes.facts import Device
from autoamp.probes.virtual import virtual_device
from autoamp.virtual.overhead import with_overhead


def played(device: Device, *, numerics: bool) -> wire.VirtualDevice:
    """``device`` as the child plays it, with what is estimated of its memory.

    Raises UsageError ``virtual-memory-too-small`` if that leaves nothing, and
    ``virtual-memory-too-large`` for more than the board has.
    """
    assert device.model is not None and device.memory_total_bytes is not None
    if device.memory_total_bytes > device.model.memory_bytes:
        raise UsageError(
            f"virtual:{device.model.alias} with {size_text(device.memory_total_bytes)}: the board "
            f"has {size_text(device.model.memory_bytes)}",
            slug="virtual-memory-too-large",
            remedy=f"give it that or less, or leave memory= out: --device "
            f"virtual:{device.model.alias}",
        )
    made = with_overhead(
        virtual_device(device.model, device.memory_total_bytes, numerics),
        own_size=device.memory_total_bytes != device.model.memory_bytes,
    )
    # Not overhead_bytes, which is all of the memory at the most.
    estimate = made.driver_bytes + made.context_bytes
    if estimate >= made.memory_bytes:
        raise UsageError(
            f"virtual:{made.alias} with {size_text(made.memory_bytes)}: driver and CUDA context "
            f"alone are estimated at {math.ceil(estimate / 2**20)} MiB there",
            slug="virtual-memory-too-small",
            remedy=f"give it more: --device virtual:{made.alias},memory=2GiB",
        )
    return made
