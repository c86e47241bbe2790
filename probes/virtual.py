"""From a catalogue row to the device that the virtual accelerator plays."""

from autoamp import wire
from autoamp.probes.facts import GpuModel


def virtual_device(model: GpuModel, memory_bytes: int, numerics: bool) -> wire.VirtualDevice:
    """Dense peak rates in FLOP/s by dtype: Tensor Cores where there are any, else plain."""
    flops = {"float32": model.fp32_tflops}
    if model.tf32_tflops is not None:
        flops["tf32"] = model.tf32_tflops
    float16 = model.fp16_tensor_tflops or model.fp16_plain_tflops
    if float16 is not None:
        flops["float16"] = float16
    if model.bf16_tensor_tflops is not None:
        flops["bfloat16"] = model.bf16_tensor_tflops
    return wire.VirtualDevice(
        name=model.name,
        alias=model.alias,
        architecture=model.architecture,
        compute_capability=model.compute_capability,
        memory_bytes=memory_bytes,
        bandwidth_bytes_per_s=model.bandwidth_gb_per_s * 1e9,
        flops_per_s={name: rate * 1e12 for name, rate in flops.items()},
        sm_count=model.sm_count or 1,
        boost_clock_mhz=model.boost_clock_mhz or 0.0,
        numerics=numerics,
    )
