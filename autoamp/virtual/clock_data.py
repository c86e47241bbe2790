"""The clock's parameters and their sources, read from ``data/clock.json``."""

import json
from functools import lru_cache
from importlib import resources
from typing import Any


@lru_cache(maxsize=1)
def clock_data() -> dict[str, Any]:
    """The file as it is; ``benchmarks/virtual_fit.py`` writes it."""
    text = resources.files("autoamp.virtual").joinpath("data/clock.json").read_text("utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


def parameters_for(compute_capability: tuple[int, int]) -> dict[str, float]:
    """Every parameter of the clock for a GPU, by the plug-in's names."""
    data = clock_data()
    values = {name: float(entry["value"]) for name, entry in data["parameters"].items()}
    caches = data["cache_by_capability"]
    cache = caches.get("{}.{}".format(*compute_capability), caches["default"])
    values["l2_bytes"] = float(cache["l2_bytes"])
    values["l2_bytes_per_clock_per_sm"] = float(cache["l2_bytes_per_clock_per_sm"])
    return values
