"""The clock's parameters and their sources, read from ``data/clock.json``."""

import json
from functools import lru_cache
from importlib import resources
from typing import Any

from autoamp import wire


@lru_cache(maxsize=1)
def clock_data() -> dict[str, Any]:
    """The file as it is; ``benchmarks/virtual_fit.py`` writes it."""
    text = resources.files("autoamp.virtual").joinpath("data/clock.json").read_text("utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


def sustained_clock(device: wire.VirtualDevice) -> float:
    """Share of the boost clock that the power limit leaves to busy SMs, 1 where unknown.

    Boards of one generation are compared by watts per TFLOP/s of plain float32: those with fewer
    than the board that holds its clock run slower. Power grows with the clock times the square
    of a voltage that falls with the clock, hence an exponent between 1/3 and 1.
    """
    power = clock_data()["power"]
    needed = power["watts_per_tflops"].get("{}.{}".format(*device.compute_capability))
    if needed is None or device.tdp_w <= 0:
        return 1.0
    watts = device.tdp_w / (device.flops_per_s["float32"] / 1e12)
    return float(min(1.0, (watts / needed["value"]) ** power["exponent"]))


def tensor_feed(device: wire.VirtualDevice) -> float:
    """Full rate of the generation's Tensor Cores over the board's own, 1 to 2.

    The catalogue's float16 rates accumulate in float32, which GeForce boards (and a few others)
    do at half rate: their SMs have twice the registers and shared memory per operation.
    """
    full = clock_data()["tensor_fma_per_clock_per_sm"].get(
        "{}.{}".format(*device.compute_capability)
    )
    clocks = device.sm_count * device.boost_clock_mhz * 1e6
    own = device.flops_per_s.get("float16", 0.0)
    if full is None or clocks <= 0 or own <= device.flops_per_s["float32"]:
        return 1.0
    return float(min(2.0, max(1.0, full["value"] * 2 * clocks / own)))


def parameters_for(device: wire.VirtualDevice) -> dict[str, float]:
    """Every parameter of the clock for a GPU, by the plug-in's names."""
    data = clock_data()
    values = {name: float(entry["value"]) for name, entry in data["parameters"].items()}
    caches = data["cache_by_capability"]
    cache = caches.get("{}.{}".format(*device.compute_capability), caches["default"])
    values["l2_bytes"] = float(cache["l2_bytes"])
    values["l2_bytes_per_clock_per_sm"] = float(cache["l2_bytes_per_clock_per_sm"])
    factors = data["bandwidth_by_capability"]
    factor = factors.get("{}.{}".format(*device.compute_capability), factors["default"])
    values["bandwidth_factor"] = float(factor["value"])
    values["sustained_clock"] = sustained_clock(device)
    values["tensor_feed"] = tensor_feed(device)
    return values
