"""The virtual device inside the user's process: set up, clock, counters.

Imported in the child: standard library, ``autoamp.wire`` and the other child-side modules of
this package only. Times are *modelled*, memory is *counted*, values are *emulated*.
"""

import os
import sys
from typing import Any, NamedTuple

from autoamp import wire
from autoamp.virtual import (
    amp_gates,
    conv_flags,
    cuda_module,
    paddle_2,
    random_state,
    ranks,
    script_names,
    sparse_embedding,
    tensor_methods,
)
from autoamp.virtual.library import Library


class KernelCount(NamedTuple):
    """What one kernel has done in one dtype since the last ``reset_clock``."""

    name: str
    dtype: str
    calls: int
    flops: float
    bytes: float
    seconds: float
    """Modelled."""


class _State:
    """One per process: which device is played, and the library that plays it."""

    library: Library | None = None
    device: wire.VirtualDevice | None = None


def _library() -> Library:
    if _State.library is None:
        raise RuntimeError("the virtual device is not installed in this process")
    return _State.library


def _core() -> Any:
    return sys.modules["paddle"].base.core


def install(device: wire.VirtualDevice) -> None:
    """Make the virtual device the default and map what scripts say about GPUs to it.

    To be called right after ``import paddle``, in a process started with
    ``device.child_environment``. Raises RuntimeError if paddle did not load the plug-in.
    """
    if _State.library is not None:
        return
    paddle: Any = sys.modules["paddle"]
    types = paddle.base.core.get_all_custom_device_type()
    if script_names.DEVICE_TYPE not in types:
        raise RuntimeError(
            f"paddle did not load the virtual device from "
            f"CUSTOM_DEVICE_ROOT={os.environ.get('CUSTOM_DEVICE_ROOT')!r} (it has: {types})"
        )
    library = Library(os.environ["CUSTOM_DEVICE_ROOT"])
    _State.library = library
    _State.device = device
    script_names.install(paddle)
    cuda_module.install(paddle, device, clock_s)
    amp_gates.install(paddle, device)
    ranks.install(paddle)
    sparse_embedding.install(paddle)
    random_state.install(paddle)
    tensor_methods.install(paddle)
    conv_flags.install(
        paddle, dict(os.environ), lambda limit, kind: library.call("conv_workspace", limit, kind)
    )
    if paddle.__version__.startswith("2."):
        paddle_2.install(paddle)
    _follow_tf32(paddle.base.core, library)
    paddle.set_device(script_names.DEVICE_TYPE)


def _follow_tf32(core: Any, library: Library) -> None:
    """Paddle's switches say whether float32 products may use TF32; the clock follows them."""

    def tell() -> None:
        # CUDA's own variable overrides what programs ask for.
        if os.environ.get("NVIDIA_TF32_OVERRIDE") == "0":
            library.call("set_tf32", 0, 0)
        else:
            library.call("set_tf32", int(core.get_cublas_switch()), int(core.get_cudnn_switch()))

    if not hasattr(core, "get_cublas_switch"):
        paddle_2.stand_in_switches(core)
    tell()
    for name in ("set_cublas_switch", "set_cudnn_switch"):
        original = getattr(core, name)

        def switch(on: bool, original: Any = original) -> None:
            original(on)
            tell()

        # Whoever replaces it after us looks for it by its name.
        switch.__name__ = name
        script_names.replace_everywhere(name, original, switch)


def set_numerics(on: bool) -> None:
    """Switch between full numerics and planning mode; best before the first tensor exists."""
    _library().call("set_numerics", int(on))


def clock_s() -> float:
    """Modelled device seconds since the start or the last ``reset_clock``."""
    return _library().seconds("clock_s")


def synchronize_clock() -> None:
    """Let the modelled host wait for the GPU: what it does next begins there."""
    _library().call("synchronize_clock")


def reset_clock() -> None:
    """Set the clock and the kernel counts to zero."""
    _library().call("reset_clock")


def op_report() -> list[KernelCount]:
    """Every kernel that ran since the last ``reset_clock``, by dtype."""
    return [
        KernelCount(name, dtype, int(calls), float(flops), float(size), float(seconds))
        for name, dtype, calls, flops, size, seconds in _library().rows("kernels")
    ]


def start_trace() -> None:
    """Record the work of every call from now on (``benchmarks/virtual_fit.py``)."""
    _library().call("trace_start")


def save_trace(path: str) -> None:
    """Write what was recorded to ``path`` and stop recording. Raises OSError."""
    if not _library().text_call("trace_save", path):
        raise OSError(f"the trace cannot be written to {path}")


def busy_s() -> float:
    """Of the modelled seconds, those in which the GPU had work."""
    return _library().seconds("busy_s")


def start_range_tracking() -> None:
    """From now on look at every float result of every kernel."""
    _library().call("track_ranges", 1)


def stop_range_tracking() -> list[tuple[str, float, int]]:
    """(AMP-list name, largest finite magnitude, non-finite elements) for each operator seen."""
    _library().call("track_ranges", 0)
    return [(name, float(peak), int(bad)) for name, peak, bad in _library().rows("ranges")]


def start_low_precision_calls() -> None:
    """Set the counts of ``low_precision_calls`` to zero."""
    _library().call("mark_calls")


def low_precision_calls() -> dict[str, tuple[int, int, int, int]]:
    """Calls since the start: AMP-list name to (float16, bfloat16, float32, other).

    Kernels are counted where they run, so ``to_static`` programs and backward operators
    (names ending in ``_grad``) are in it.
    """
    out: dict[str, tuple[int, int, int, int]] = {}
    for name, half, brain, single, other in _library().rows("calls"):
        out[name] = (int(half), int(brain), int(single), int(other))
    return out


def allocated_peak_bytes() -> int:
    """Peak of the bytes in live tensors, by Paddle's own statistics (counted).

    Paddle 2.6 keeps none for custom devices; there it is what the allocator held.
    """
    seen = int(_core().device_memory_stat_peak_value("Allocated", 0))
    seen = max(seen, _library().count("allocated_peak_before"))
    return seen or reserved_peak_bytes()


def live_bytes() -> int:
    """Bytes in live tensors now; on Paddle 2.6 what the allocator holds."""
    seen = int(_core().device_memory_stat_current_value("Allocated", 0))
    return seen or _library().count("used_bytes")


def reserved_peak_bytes() -> int:
    """Peak of the bytes that Paddle's allocator held from the device (counted)."""
    return int(_library().count("peak_bytes"))


def workspace_bytes() -> int:
    """By how much convolution workspaces raise that peak (modelled)."""
    return _library().count("workspace_bytes")


def overhead_bytes() -> int:
    """What driver, context and libraries keep of the GPU's memory (estimated)."""
    return 0 if _State.device is None else _State.device.overhead_bytes


def hold_conv_workspace(limit_mib: int, kind: int) -> None:
    """Set the flags of ``conv_flags`` past the script (``benchmarks/virtual_memory.py``)."""
    _library().call("conv_workspace", limit_mib, kind)


def host_refusals() -> int:
    """Allocations that failed for want of host memory although the GPU had the room."""
    return _library().count("host_refusals")


def host_refused_last() -> bool:
    """Whether the last allocation that failed did so for want of host memory."""
    return _library().count("host_refused_last") != 0
