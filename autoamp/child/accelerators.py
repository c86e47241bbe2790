"""Asks Paddle which accelerators it sees and what its AMP does on them; runs in a child."""

import re
import warnings
from typing import Any

from autoamp.child.paddle_base import base


def main(question: dict[str, Any]) -> dict[str, Any]:
    """Every device of the type that ``question`` names (all types if it names none)."""
    import paddle

    return {
        "paddle": paddle.version.full_version,
        "devices": [
            describe(paddle, kind, index)
            for kind, count in counts(paddle).items()
            if question.get("type") in (None, kind)
            for index in range(count)
        ],
    }


def counts(paddle: Any) -> dict[str, int]:
    """Devices by type, NVIDIA GPUs left out: NVML knows more of them."""
    found: dict[str, int] = {}
    core = base(paddle).core
    if paddle.is_compiled_with_xpu():
        found["xpu"] = int(core.get_xpu_device_count())
    for kind in core.get_all_custom_device_type():
        shown = core.get_available_custom_device() or ()
        found[kind] = len([name for name in shown if name.partition(":")[0] == kind])
    return found


def describe(paddle: Any, kind: str, index: int) -> dict[str, Any]:
    """One device; ``absent`` says why a value is missing."""
    name = f"{kind}:{index}"
    absent: dict[str, str] = {}
    allowed: list[str] | None = None
    try:
        paddle.set_device(name)
        allowed = [dtype for dtype in ("float16", "bfloat16") if amp_works(paddle, dtype)]
    except Exception as error:
        absent["allowed_dtypes"] = reason(error)
    total, free = memory(paddle, kind, index, absent)
    return {
        "type": kind,
        "index": index,
        "name": title(paddle, name, absent),
        "memory_total_bytes": total,
        "memory_free_bytes": free,
        "allowed_dtypes": allowed,
        "absent": absent,
    }


def amp_works(paddle: Any, dtype: str) -> bool:
    """Whether a product under ``auto_cast`` comes out in ``dtype``: Paddle's gates in action.

    They warn and switch AMP off; what they decide is seen in the result, in any version.
    """
    x = paddle.ones([8, 8])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with paddle.amp.auto_cast(enable=True, level="O1", dtype=dtype):
            y = paddle.matmul(x, x)
    return str(y.dtype).rpartition(".")[2] == dtype


def memory(
    paddle: Any, kind: str, index: int, absent: dict[str, str]
) -> tuple[int | None, int | None]:
    """Total and free bytes, as far as this version of Paddle tells them."""
    total = free = None
    try:
        properties = paddle.device.get_device_properties(f"{kind}:{index}")
        total = int(properties.total_memory) or None
    except Exception as error:
        absent["memory_total_bytes"] = reason(error)
    if kind == "xpu" and hasattr(paddle.device, "xpu"):
        try:
            total = int(paddle.device.xpu.memory_total(index))
            free = total - int(paddle.device.xpu.memory_used(index))
            absent.pop("memory_total_bytes", None)
        except Exception as error:
            absent["memory_free_bytes"] = reason(error)
    if total is None:
        absent.setdefault("memory_total_bytes", "Paddle does not tell it for this device")
    if free is None:
        absent.setdefault("memory_free_bytes", "Paddle does not tell it for this device")
    return total, free


def title(paddle: Any, name: str, absent: dict[str, str]) -> str:
    """The device's name, or its type where Paddle has none."""
    try:
        return str(paddle.device.get_device_name(name)) or name
    except Exception as error:
        absent["name"] = reason(error)
        return name


KINDS = (
    # Signs in Paddle's texts (enforce.h, kernel_factory.cc, the allocators, CUDA's own), in small
    # letters; what they mean; and whether the text has more to tell.
    (("is not registered",), "Paddle has no kernel for this dtype on this device", False),
    (("resourceexhausted", "out of memory", "fail to alloc"), "not enough free memory", False),
    (("cudnn", "cublas"), "a CUDA library failed, do driver and wheel fit?", True),
    (("cuda error", "cudaerror"), "CUDA failed, do driver and wheel fit?", True),
    (("unimplemented", "not support"), "Paddle does not do this on this device", True),
)


def reason(error: Exception) -> str:
    """What happened, in a sentence: Paddle frames it in stacks, rulers and hints."""
    text = str(error)
    lines = [x.strip() for x in text.splitlines() if any(c.isalnum() for c in x)]
    hints = [x.removeprefix("[Hint:").rstrip("]").strip() for x in lines if x.startswith("[Hint")]
    plain = [x for x in lines if not x.startswith(("[Hint", "[operator", "--"))]
    named = [x for x in plain if "Error" in x or x.startswith("(")]
    found = (named or plain or hints or [""])[-1]
    # "(InvalidArgument) text. (at file.cc:12)": the middle is the sentence.
    found = re.sub(r"^\(\w+\) ", "", re.sub(r"\s*\(at [^()]*\)\s*$", "", found))[:300]
    for signs, meaning, more in KINDS:
        if any(sign in text.lower() for sign in signs):
            return f"{meaning}: {found}" if more and found else meaning
    return found or type(error).__name__
