"""From a catalogue row to the device that the virtual accelerator plays."""

from autoamp import wire
from autoamp.probes.facts import GpuModel
from autoamp.probes.peaks import peaks


def virtual_device(model: GpuModel, memory_bytes: int, numerics: bool) -> wire.VirtualDevice:
    """Dense peak rates in FLOP/s by dtype: Tensor Cores where there are any, else plain.

    Without Tensor Cores float16 is no faster than float32: the double rate of P100 and GTX 16xx
    is that of float16 accumulation, and Paddle's products accumulate in float32.
    """
    rates = {name: peak.tflops * 1e12 for name, peak in peaks(model).items()}
    if not model.tensor_core_generation and "float16" in rates:
        rates["float16"] = min(rates["float16"], rates["float32"])
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
