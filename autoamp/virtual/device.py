"""The virtual device as environment variables of the child."""

from pathlib import Path

from autoamp import wire
from autoamp.virtual.clock_data import parameters_for

PREFIX = "AUTOAMP_VGPU_"


def child_environment(device: wire.VirtualDevice, plugin_dir: Path) -> dict[str, str]:
    """Variables that make paddle load the plug-in from ``plugin_dir`` and play ``device``.

    The plug-in reads them once, when paddle is imported. ``float32`` is the one rate that must
    be there; a dtype the GPU cannot do is left out and runs at the float32 rate.
    """
    values: dict[str, object] = {
        "NAME": device.name,
        "ARCHITECTURE": device.architecture,
        "MEMORY_BYTES": device.memory_bytes,
        "USABLE_BYTES": device.usable_bytes,
        "BANDWIDTH_BYTES_PER_S": device.bandwidth_bytes_per_s,
        "SM_COUNT": device.sm_count,
        "BOOST_CLOCK_MHZ": device.boost_clock_mhz,
        "NUMERICS": int(device.numerics),
    }
    for dtype in ("float32", "tf32", "float16", "bfloat16"):
        values[f"FLOPS_{dtype.upper()}"] = device.flops_per_s.get(dtype, 0.0)
    for name, value in parameters_for(device).items():
        values[f"MODEL_{name.upper()}"] = value
    environment = {PREFIX + key: str(value) for key, value in values.items()}
    environment["CUSTOM_DEVICE_ROOT"] = str(plugin_dir)
    return environment
