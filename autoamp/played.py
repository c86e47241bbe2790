"""The one door from a virtual device that was probed to the one that a child process plays."""

from autoamp import wire
from autoamp.errors import UsageError
from autoamp.probes.facts import Device
from autoamp.probes.virtual import virtual_device
from autoamp.virtual.overhead import with_overhead


def played(device: Device, *, numerics: bool) -> wire.VirtualDevice:
    """``device`` as the child plays it, with what is estimated of its memory.

    Raises UsageError ``virtual-memory-too-small`` if that leaves nothing.
    """
    assert device.model is not None and device.memory_total_bytes is not None
    made = with_overhead(
        virtual_device(device.model, device.memory_total_bytes, numerics),
        own_size=device.memory_total_bytes != device.model.memory_bytes,
    )
    if made.overhead_bytes >= made.memory_bytes:
        raise UsageError(
            f"virtual:{made.alias} with {made.memory_bytes / 2**20:.0f} MiB: driver and CUDA "
            f"context alone are estimated at {made.overhead_bytes / 2**20:.0f} MiB there",
            slug="virtual-memory-too-small",
            remedy=f"give it more: --device virtual:{made.alias},memory=2GiB",
        )
    return made
