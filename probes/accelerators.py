"""Accelerators beside NVIDIA's (Kunlun XPU, Ascend NPU, Cambricon MLU, ...), asked of Paddle."""

from collections.abc import Mapping
from typing import Any

from autoamp.probes.facts import ONLY_GPUS, Device, DeviceKind, PaddleInstall
from autoamp.probes.paddle_child import ask

TIMEOUT_S = 120.0
"""Paddle's import and the first use of an accelerator take seconds, tens on a cold disk."""


def may_have_any(paddle: PaddleInstall) -> bool:
    """True if this Paddle has a plug-in or build for one: only then is asking worth its time."""
    return paddle.build == "xpu" or bool(paddle.plugins)


def accelerators(
    python: str, kind: str | None = None, environment: Mapping[str, str] | None = None
) -> tuple[Device, ...]:
    """What Paddle sees, in its order; ``kind`` (``npu``) leaves the others out.

    Imports paddle in a child process. Raises MachineError ``paddle-child-failed``.
    """
    answer = ask(
        python,
        "autoamp.child.accelerators",
        {"type": kind},
        environment=environment,
        timeout_s=TIMEOUT_S,
    )
    return tuple(device_of(found) for found in answer["devices"])


def device_of(found: Mapping[str, Any]) -> Device:
    """One device of the child's answer."""
    allowed = found.get("allowed_dtypes")
    told = ("memory_total_bytes", "memory_free_bytes", "allowed_dtypes")
    silent = [name for name in told if found.get(name) is None]
    return Device(
        kind=DeviceKind.custom,
        paddle_name=f"{found['type']}:{found['index']}",
        name=str(found["name"]),
        memory_total_bytes=found.get("memory_total_bytes"),
        memory_free_bytes=found.get("memory_free_bytes"),
        allowed_dtypes=None if allowed is None else tuple(allowed),
        absent={
            **dict.fromkeys(ONLY_GPUS, "only NVIDIA GPUs have one"),
            **dict.fromkeys(("uuid", *silent), "Paddle does not tell it"),
            **{str(key): str(reason) for key, reason in found.get("absent", {}).items()},
        },
    )
