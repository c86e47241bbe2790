"""What a GPU's memory is short of before the first tensor: estimates, each with its source.

The numbers are in ``data/memory.json``. Convolution workspaces are taken during calls and are
modelled in the plug-in (``csrc/workspace.cc``).
"""

import json
from dataclasses import replace
from functools import lru_cache
from importlib import resources
from typing import Any

from autoamp import wire

HOPPER = (9, 0)


@lru_cache(maxsize=1)
def memory_data() -> dict[str, Any]:
    """The file as it is."""
    text = resources.files("autoamp.virtual").joinpath("data/memory.json").read_text("utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


def with_overhead(device: wire.VirtualDevice, *, own_size: bool) -> wire.VirtualDevice:
    """``device`` with the estimates filled in.

    ``own_size``: the memory's size was asked for, so it is what the driver would report and no
    data sheet's; only the context is taken off then.
    """
    return replace(
        device,
        driver_bytes=0 if own_size else driver_bytes(device.alias, device.memory_bytes),
        context_bytes=context_bytes(device.compute_capability),
    )


def driver_bytes(alias: str, memory_bytes: int) -> int:
    """What the driver and error correction keep of a data sheet's memory."""
    data = memory_data()
    share = float(data["driver_share"]["value"])
    if alias in data["ecc_share"]["aliases"]:
        share += float(data["ecc_share"]["value"])
    return int(memory_bytes * share)


def context_bytes(compute_capability: tuple[int, int]) -> int:
    """CUDA context with the kernels that training loads, and cuBLAS's workspaces."""
    data = memory_data()
    contexts = data["context_bytes_by_capability"]
    context = contexts.get("{}.{}".format(*compute_capability), contexts["default"])
    cublas = data["cublas"]
    new = compute_capability >= HOPPER
    workspace = cublas["workspace_bytes_from_hopper" if new else "workspace_bytes"]
    return int(context["value"]) + int(cublas["handles"]) * int(workspace)
