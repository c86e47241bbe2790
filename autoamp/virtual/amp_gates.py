"""Paddle's own limits for AMP, applied to the GPU that the virtual device plays.

On a GPU place ``amp_guard`` and ``amp_decorate`` switch AMP off below compute capability 7.0
(float16) and 8.0 (bfloat16): python/paddle/amp/auto_cast.py, ``_is_gpu_float16_supported`` and
``_is_gpu_bfloat16_supported``. Custom devices skip those checks, and get bfloat16 only if their
name is on a list there.
"""

import functools
import sys
import warnings
from typing import Any

from autoamp import wire
from autoamp.virtual.script_names import TOLD_GPU, replace_everywhere

FLOAT16_CAPABILITY = (7, 0)
BFLOAT16_CAPABILITY = (8, 0)


def allowed(device: wire.VirtualDevice, dtype: str) -> bool:
    """Whether Paddle's AMP runs in ``dtype`` on such a GPU; Paddle compares the major number."""
    needed = BFLOAT16_CAPABILITY if dtype == "bfloat16" else FLOAT16_CAPABILITY
    return device.compute_capability[0] >= needed[0]


def _refusal(device: wire.VirtualDevice, dtype: str) -> str:
    needed = BFLOAT16_CAPABILITY if dtype == "bfloat16" else FLOAT16_CAPABILITY
    cuda = " and CUDA Version 11.0 or higher" if dtype == "bfloat16" else ""
    major, minor = device.compute_capability
    return (
        f"For {dtype}, amp only support NVIDIA GPU with Compute Capability "
        f"{needed[0]}.{needed[1]} or higher{cuda}, current GPU is: {device.name}, "
        f"with Compute Capability: {major}.{minor}."
    )


def _dtype_name(dtype: Any) -> str:
    return str(getattr(dtype, "name", dtype)).lower().split(".")[-1]


def install(paddle: Any, device: wire.VirtualDevice) -> None:
    """Put the gates in place; ``auto_cast`` and ``decorate`` look the inner functions up late."""
    # paddle.amp.auto_cast, the attribute, is the function; the module hides behind it.
    module: Any = sys.modules["paddle.amp.auto_cast"]
    # Paddle 2.6 does not import it there.
    on_virtual = paddle.base.framework._current_expected_place
    if hasattr(module, "_is_custom_device_bfloat16_supported"):
        module._is_custom_device_bfloat16_supported = lambda: True
    else:
        # Paddle 2.6 refuses bfloat16 on every custom device: its AMP module is told "GPU". The
        # gates below judge in its place; its own look for a CUDA version.
        TOLD_GPU.add("paddle.amp.auto_cast")
        module._is_gpu_float16_supported = lambda: True
        module._is_gpu_bfloat16_supported = lambda: True

    amp_guard = module.amp_guard

    # wraps keeps name and signature: the child binds arguments by them.
    @functools.wraps(amp_guard)
    def gated_guard(
        enable: bool = True,
        custom_white_list: Any = None,
        custom_black_list: Any = None,
        level: str = "O1",
        dtype: Any = "float16",
        use_promote: bool = True,
    ) -> Any:
        name = _dtype_name(dtype)
        if (
            enable
            and name in ("float16", "bfloat16")
            and not allowed(device, name)
            and _is_custom(on_virtual())
        ):
            warnings.warn(_refusal(device, name), stacklevel=3)
            enable = False
        return amp_guard(enable, custom_white_list, custom_black_list, level, dtype, use_promote)

    amp_decorate = module.amp_decorate

    @functools.wraps(amp_decorate)
    def gated_decorate(
        models: Any,
        optimizers: Any = None,
        level: str = "O1",
        dtype: Any = "float16",
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if not allowed(device, _dtype_name(dtype)) and _is_custom(on_virtual()):
            return models if optimizers is None else (models, optimizers)
        return amp_decorate(models, optimizers, level, dtype, *args, **kwargs)

    for name, old, new in (
        ("amp_guard", amp_guard, gated_guard),
        ("amp_decorate", amp_decorate, gated_decorate),
    ):
        replace_everywhere(name, old, new)
    paddle.amp.is_bfloat16_supported = lambda device_name=None: allowed(device, "bfloat16")


def _is_custom(place: Any) -> bool:
    return type(place).__name__ == "CustomPlace"
