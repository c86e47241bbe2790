"""From a catalogue row to the device that the virtual accelerator plays."""

from autoamp import wire
from autoamp.probes.facts import GpuModel
from autoamp.probes.peaks import products


def virtual_device(model: GpuModel, memory_bytes: int, numerics: bool) -> wire.VirtualDevice:
    """Dense peak rates of products in FLOP/s by dtype: Tensor Cores where there are any, else
    plain."""
    rates = {name: peak.tflops * 1e12 for name, peak in products(model).items()}
    return wire.VirtualDevice(
        name=model.name,
        alias=model.alias,
        architecture=model.architecture,
        compute_capability=model.compute_capability,
        memory_bytes=memory_bytes,
        bandwidth_bytes_per_s=model.bandwidth_gb_per_s * 1e9,
        flops_per_s=rates,
        sm_count=model.sm_count or 1,
        boost_clock_mhz=model.boost_clock_mhz or 0.0,
        tdp_w=model.tdp_w or 0.0,
        numerics=numerics,
    )
