"""May a precision be used, and why: one table of rules over facts, nothing else."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from autoamp.probes.catalogue import lacks_tensor_cores
from autoamp.probes.facts import Device, DeviceKind, PaddleInstall, Verdict
from autoamp.settings import Dtype, Level

FP16_CAPABILITY = (7, 0)
BF16_CAPABILITY = (8, 0)
BF16_CUDA = (11, 0)
OD_PADDLE = (2, 5)
GATED_PADDLE = (2, 6)
"""Paddle 2.4 and 2.5 only warn where the hardware is too old, and run AMP all the same."""
BF16_CUSTOM = ("npu", "intel_hpu", "iluvatar_gpu", "metax_gpu")
"""Custom devices that Paddle 3.3 lets use bfloat16 AMP, by type name."""

GATE = "Paddle python/paddle/amp/auto_cast.py, amp_guard"
CATALOGUE = "GPU catalogue (autoamp devices --json names the source)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Refuses a precision when ``applies``; the first refusal of the table is the verdict."""

    name: str
    dtypes: tuple[Dtype, ...]
    applies: Callable[[Device, PaddleInstall], bool]
    reason: Callable[[Device, PaddleInstall], str]
    source: str
    instead: str | Callable[[Device], str]
    levels: tuple[Level, ...] = (Level.O1, Level.O2, Level.OD)
    forcible: bool = False
    """Advice may be overridden by --allow-unsupported; Paddle's own gate may not."""
    hardware: bool = False
    """A gate of the GPU, which Paddle has closed since ``GATED_PADDLE``."""


BOTH = (Dtype.float16, Dtype.bfloat16)


def version_tuple(text: str | None) -> tuple[int, ...] | None:
    """``(3, 3, 1)`` of ``3.3.1``; None if there is no number."""
    numbers = re.findall(r"\d+", (text or "").split("+")[0])
    return tuple(int(n) for n in numbers[:3]) if numbers else None


def paddle_before(paddle: PaddleInstall, version: tuple[int, int]) -> bool:
    """True if the installed Paddle is known and older; 0.0.0 is a development build, and new."""
    found = version_tuple(paddle.version)
    return found is not None and found[:2] != (0, 0) and found[:2] < version


def capability_text(device: Device) -> str:
    """``7.5``, or ``unknown``."""
    if device.compute_capability is None:
        return "unknown"
    return "{}.{}".format(*device.compute_capability)


def is_nvidia(device: Device) -> bool:
    """True for NVIDIA GPUs, played ones included."""
    return device.kind in (DeviceKind.gpu, DeviceKind.virtual)


def _below(device: Device, least: tuple[int, int]) -> bool:
    capability = device.compute_capability
    return is_nvidia(device) and capability is not None and capability < least


def _custom_type(device: Device) -> str | None:
    """``npu`` of ``npu:0``; None for what is no accelerator beside NVIDIA's."""
    if device.kind is not DeviceKind.custom:
        return None
    return device.paddle_name.partition(":")[0]


def _asked(device: Device) -> bool:
    return device.kind is DeviceKind.custom and device.allowed_dtypes is not None


def _no_fp16_text(device: Device, paddle: PaddleInstall) -> str:
    kind = f"{device.architecture}, " if device.architecture else ""
    model = device.model
    rate = ""
    if model is not None and model.fp16_plain_tflops is not None:
        share = model.fp16_plain_tflops / model.fp32_tflops
        if share < 0.5:
            rate = f"; FP16 arithmetic runs at 1/{round(1 / share)} of the FP32 rate"
        elif share > 1:
            rate = f"; its {share:.0f}x FP16 arithmetic is out of AMP's reach"
    gate = "Paddle switches FP16 AMP off below 7.0"
    if paddle_before(paddle, GATED_PADDLE):
        gate = f"Paddle {paddle.version} only warns below 7.0, later ones switch FP16 AMP off"
    return (
        f"{device.name} has compute capability {capability_text(device)} ({kind}no Tensor Cores"
        f"{rate}); {gate}"
    )


def _instead_of_bf16(device: Device) -> str:
    """What this very device can do: advice to use what it cannot do either helps nobody."""
    if _below(device, FP16_CAPABILITY) or lacks_tensor_cores(device.name):
        return "tune the batch size in FP32"
    return "float16"


RULES: tuple[Rule, ...] = (
    Rule(
        name="cpu",
        dtypes=BOTH,
        applies=lambda d, p: d.kind is DeviceKind.cpu,
        reason=lambda d, p: (
            "Paddle's AMP does nothing on a CPU: auto_cast and GradScaler switch themselves off"
        ),
        source=f"{GATE}; grad_scaler.py, AmpScaler.__init__",
        instead="tune for a GPU, or plan with --device virtual:NAME",
    ),
    Rule(
        name="OD before Paddle 2.5",
        dtypes=BOTH,
        levels=(Level.OD,),
        applies=lambda d, p: paddle_before(p, OD_PADDLE),
        reason=lambda d, p: f"Paddle {p.version} has no level OD: it came with 2.5",
        source="Paddle python/paddle/amp/auto_cast.py, 2.5 against 2.4",
        instead="level O1",
    ),
    Rule(
        name="fp16 below 7.0",
        dtypes=(Dtype.float16,),
        applies=lambda d, p: _below(d, FP16_CAPABILITY),
        reason=_no_fp16_text,
        source=f"{GATE}, _is_gpu_float16_supported",
        hardware=True,
        instead="tune the batch size in FP32",
    ),
    Rule(
        name="bf16 below 8.0",
        dtypes=(Dtype.bfloat16,),
        applies=lambda d, p: _below(d, BF16_CAPABILITY),
        reason=lambda d, p: (
            f"{d.name} has compute capability {capability_text(d)}; BF16 needs 8.0 (Ampere)"
        ),
        source=f"{GATE}, _is_gpu_bfloat16_supported",
        hardware=True,
        instead=_instead_of_bf16,
    ),
    Rule(
        name="bf16 with CUDA 10",
        dtypes=(Dtype.bfloat16,),
        applies=lambda d, p: (
            d.kind is DeviceKind.gpu
            and (version_tuple(p.cuda_version) or BF16_CUDA)[:2] < BF16_CUDA
        ),
        reason=lambda d, p: f"this Paddle was built with CUDA {p.cuda_version}; BF16 AMP needs 11",
        source=f"{GATE}, _is_gpu_bfloat16_supported",
        hardware=True,
        instead="install a Paddle built with CUDA 11 or later",
    ),
    Rule(
        name="Turing without Tensor Cores",
        dtypes=(Dtype.float16,),
        applies=lambda d, p: is_nvidia(d) and lacks_tensor_cores(d.name),
        reason=lambda d, p: (
            f"{d.name} reports compute capability 7.5 and has no Tensor Cores: "
            "FP16 AMP brings no gain there and is known for NaN"
        ),
        source=f"{CATALOGUE}; ultralytics/yolov5 issue 7908, NVIDIA/apex issue 806",
        instead="FP32, or --allow-unsupported to try",
        forcible=True,
    ),
    Rule(
        name="Paddle's own answer",
        dtypes=BOTH,
        applies=lambda d, p: _asked(d),  # narrowed to the dtype in `refusing`
        reason=lambda d, p: (
            f"Paddle {p.version} switches it off on {d.name}: asked, it ran "
            + (" and ".join(d.allowed_dtypes or ()) or "neither")
        ),
        source="asked Paddle in a process of its own (auto_cast around a matrix product)",
        instead="a dtype that it takes, or FP32",
    ),
    Rule(
        name="bf16 on XPU",
        dtypes=(Dtype.bfloat16,),
        applies=lambda d, p: (
            not _asked(d) and _custom_type(d) == "xpu" and paddle_before(p, (3, 0))
        ),
        reason=lambda d, p: f"Paddle {p.version} has no BF16 AMP on XPU; 3.x has it on XPU3",
        source=f"{GATE}, _is_xpu_bfloat16_supported",
        instead="float16",
    ),
    Rule(
        name="bf16 on custom devices",
        dtypes=(Dtype.bfloat16,),
        applies=lambda d, p: (
            not _asked(d)
            and _custom_type(d) not in (None, "xpu")
            and (paddle_before(p, (3, 0)) or _custom_type(d) not in BF16_CUSTOM)
        ),
        reason=lambda d, p: (
            f"Paddle {p.version} has no BF16 AMP on custom devices"
            if paddle_before(p, (3, 0))
            else f"Paddle 3.x allows BF16 AMP on {', '.join(BF16_CUSTOM)} only"
        ),
        source=f"{GATE}, _is_custom_device_bfloat16_supported",
        instead="float16",
    ),
)


def refusing(level: Level, dtype: Dtype, device: Device, paddle: PaddleInstall) -> Rule | None:
    """The first rule of the table that refuses this precision; None if none does."""
    if level is Level.O0 or (_asked(device) and str(dtype) in (device.allowed_dtypes or ())):
        return None
    for rule in RULES:
        if dtype in rule.dtypes and level in rule.levels and rule.applies(device, paddle):
            return rule
    return None


def judge(
    level: Level,
    dtype: Dtype,
    device: Device,
    paddle: PaddleInstall,
    *,
    allow_unsupported: bool = False,
) -> Verdict:
    """The verdict for one precision: the first rule that refuses it, else allowed.

    With ``allow_unsupported`` what is merely advised against becomes allowed, loudly. Paddle's
    own gates stay closed, and the reason says what forcing them would do.
    """
    rule = refusing(level, dtype, device, paddle)
    if rule is None:
        return Verdict(
            level=level,
            dtype=dtype,
            allowed=True,
            forcible=False,
            reason=_allowed_reason(level, dtype, device),
            source=GATE if level is not Level.O0 else "always possible",
        )
    reason = rule.reason(device, paddle)
    if allow_unsupported and rule.forcible:
        reason = f"forced by --allow-unsupported, against this advice: {reason}"
    elif allow_unsupported:
        reason = f"{reason}; --allow-unsupported cannot change that: {_closed_by(rule, paddle)}"
    return Verdict(
        level=level,
        dtype=dtype,
        allowed=allow_unsupported and rule.forcible,
        forcible=rule.forcible,
        reason=reason,
        source=rule.source,
        instead=rule.instead if isinstance(rule.instead, str) else rule.instead(device),
    )


def _closed_by(rule: Rule, paddle: PaddleInstall) -> str:
    if rule.hardware and paddle_before(paddle, GATED_PADDLE):
        return (
            f"Paddle {paddle.version} would run it, Paddle {'.'.join(map(str, GATED_PADDLE))} and "
            "later do not, and autoamp recommends nothing that an upgrade takes away"
        )
    return "Paddle itself does it"


def _allowed_reason(level: Level, dtype: Dtype, device: Device) -> str:
    if level is Level.O0:
        return "FP32 is always a candidate"
    if _asked(device):
        return "Paddle was asked and ran it"
    if device.compute_capability is None:
        return "Paddle decides on the device itself; each trial checks that it took effect"
    if device.tensor_core_generation:
        return f"Tensor Cores generation {device.tensor_core_generation}"
    if device.model is None:
        return f"not in the catalogue, judged by compute capability {capability_text(device)}"
    return f"compute capability {capability_text(device)}, no Tensor Cores: expect little"


def verdicts(
    device: Device, paddle: PaddleInstall, *, allow_unsupported: bool = False
) -> tuple[Verdict, ...]:
    """FP32, and O1, O2 and OD with each dtype."""
    pairs = [(Level.O0, Dtype.float32)]
    pairs += [(level, dtype) for level in (Level.O1, Level.O2, Level.OD) for dtype in BOTH]
    return tuple(
        judge(level, dtype, device, paddle, allow_unsupported=allow_unsupported)
        for level, dtype in pairs
    )
