"""May a precision be used, and why: one table of rules over facts, nothing else."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from autoamp.probes.facts import Device, DeviceKind, PaddleInstall, Verdict
from autoamp.settings import Dtype, Level

FP16_CAPABILITY = (7, 0)
BF16_CAPABILITY = (8, 0)
BF16_CUDA = (11, 0)
BF16_CUSTOM = ("npu", "intel_hpu", "iluvatar_gpu", "metax_gpu")
"""Custom devices that Paddle 3.3 lets use bfloat16 AMP, by type name."""

GATE = "python/paddle/amp/auto_cast.py, amp_guard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Refuses a precision when ``applies``; the first refusal of the table is the verdict."""

    name: str
    dtypes: tuple[Dtype, ...]
    applies: Callable[[Device, PaddleInstall], bool]
    reason: Callable[[Device, PaddleInstall], str]
    source: str
    instead: str
    forcible: bool = False
    """Advice may be overridden by --allow-unsupported; Paddle's own gate may not."""


BOTH = (Dtype.float16, Dtype.bfloat16)


def version_tuple(text: str | None) -> tuple[int, ...] | None:
    """``(3, 3, 1)`` of ``3.3.1``; None if there is no number."""
    numbers = re.findall(r"\d+", (text or "").split("+")[0])
    return tuple(int(n) for n in numbers[:3]) if numbers else None


def _capability(device: Device) -> str:
    if device.compute_capability is None:
        return "unknown"
    return "{}.{}".format(*device.compute_capability)


def _below(device: Device, least: tuple[int, int]) -> bool:
    capability = device.compute_capability
    return _nvidia(device) and capability is not None and capability < least


def _nvidia(device: Device) -> bool:
    return device.kind in (DeviceKind.gpu, DeviceKind.virtual)


def _rate_note(device: Device) -> str:
    model = device.model
    if model is None or model.fp16_plain_tflops is None:
        return ""
    share = model.fp16_plain_tflops / model.fp32_tflops
    if share < 0.5:
        return f"; FP16 runs at 1/{round(1 / share)} of the FP32 rate"
    return ""


def _is_gtx16(device: Device) -> bool:
    return _nvidia(device) and re.search(r"GTX\s*16\d\d", device.name) is not None


def _no_fp16_text(device: Device, paddle: PaddleInstall) -> str:
    kind = f"{device.architecture}, " if device.architecture else ""
    return (
        f"{device.name} has compute capability {_capability(device)} ({kind}no Tensor Cores"
        f"{_rate_note(device)}); Paddle switches FP16 AMP off below 7.0"
    )


RULES: tuple[Rule, ...] = (
    Rule(
        name="cpu",
        dtypes=BOTH,
        applies=lambda d, p: d.kind is DeviceKind.cpu,
        reason=lambda d, p: (
            "Paddle's AMP does nothing on a CPU: auto_cast and GradScaler switch themselves off"
        ),
        source=GATE,
        instead="tune for a GPU, or plan with --device virtual:NAME",
    ),
    Rule(
        name="fp16 below 7.0",
        dtypes=(Dtype.float16,),
        applies=lambda d, p: _below(d, FP16_CAPABILITY),
        reason=_no_fp16_text,
        source=GATE,
        instead="tune the batch size in FP32",
    ),
    Rule(
        name="bf16 below 8.0",
        dtypes=(Dtype.bfloat16,),
        applies=lambda d, p: _below(d, BF16_CAPABILITY),
        reason=lambda d, p: (
            f"{d.name} has compute capability {_capability(d)}; BF16 needs 8.0 (Ampere)"
        ),
        source=GATE,
        instead="float16",
    ),
    Rule(
        name="bf16 with CUDA 10",
        dtypes=(Dtype.bfloat16,),
        applies=lambda d, p: (
            d.kind is DeviceKind.gpu
            and (version_tuple(p.cuda_version) or BF16_CUDA)[:2] < BF16_CUDA
        ),
        reason=lambda d, p: f"this Paddle was built with CUDA {p.cuda_version}; BF16 AMP needs 11",
        source=GATE,
        instead="install a Paddle built with CUDA 11 or later",
    ),
    Rule(
        name="GTX 16",
        dtypes=(Dtype.float16,),
        applies=lambda d, p: _is_gtx16(d),
        reason=lambda d, p: (
            f"{d.name} reports compute capability 7.5 and has no Tensor Cores: "
            "FP16 AMP brings no gain there and is known for NaN"
        ),
        source="GPU catalogue; ultralytics/yolov5 issue 7908, NVIDIA/apex issue 806",
        instead="FP32, or --allow-unsupported to try",
        forcible=True,
    ),
    Rule(
        name="bf16 on XPU",
        dtypes=(Dtype.bfloat16,),
        applies=lambda d, p: (
            d.kind is DeviceKind.custom
            and d.paddle_name.startswith("xpu")
            and (version_tuple(p.version) or (0,)) < (3,)
        ),
        reason=lambda d, p: f"Paddle {p.version} has no BF16 AMP on XPU; 3.x has it on XPU3",
        source=GATE,
        instead="float16",
    ),
    Rule(
        name="bf16 on custom devices",
        dtypes=(Dtype.bfloat16,),
        applies=lambda d, p: (
            d.kind is DeviceKind.custom
            and not d.paddle_name.startswith("xpu")
            and (
                (version_tuple(p.version) or (0,)) < (3,)
                or d.paddle_name.partition(":")[0] not in BF16_CUSTOM
            )
        ),
        reason=lambda d, p: (
            f"Paddle {p.version} allows BF16 AMP on {', '.join(BF16_CUSTOM)} only"
            if (version_tuple(p.version) or (0,)) >= (3,)
            else f"Paddle {p.version} has no BF16 AMP on custom devices"
        ),
        source=f"{GATE}, _is_custom_device_bfloat16_supported",
        instead="float16",
    ),
)


def judge(level: Level, dtype: Dtype, device: Device, paddle: PaddleInstall) -> Verdict:
    """The verdict for one precision: the first rule that refuses it, else allowed."""
    if level is not Level.O0:
        for rule in RULES:
            if dtype in rule.dtypes and rule.applies(device, paddle):
                return Verdict(
                    level=level,
                    dtype=dtype,
                    allowed=False,
                    forcible=rule.forcible,
                    reason=rule.reason(device, paddle),
                    source=rule.source,
                    instead=rule.instead,
                )
    return Verdict(
        level=level,
        dtype=dtype,
        allowed=True,
        forcible=False,
        reason=_allowed_reason(level, dtype, device),
        source=GATE if level is not Level.O0 else "always possible",
    )


def _allowed_reason(level: Level, dtype: Dtype, device: Device) -> str:
    if level is Level.O0:
        return "FP32 is always a candidate"
    if device.compute_capability is None:
        return "Paddle decides on the device itself; each trial checks that it took effect"
    if device.tensor_core_generation:
        return f"Tensor Cores generation {device.tensor_core_generation}"
    return f"compute capability {_capability(device)}"


def verdicts(device: Device, paddle: PaddleInstall) -> tuple[Verdict, ...]:
    """FP32, and O1 and O2 with each dtype."""
    out = [judge(Level.O0, Dtype.float32, device, paddle)]
    for level in (Level.O1, Level.O2):
        for dtype in BOTH:
            out.append(judge(level, dtype, device, paddle))
    return tuple(out)


def forced(found: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    """With --allow-unsupported: what is merely advised against becomes allowed, loudly."""
    return tuple(
        Verdict(
            level=v.level,
            dtype=v.dtype,
            allowed=True,
            forcible=True,
            reason=f"forced by --allow-unsupported, against this advice: {v.reason}",
            source=v.source,
            instead=v.instead,
        )
        if not v.allowed and v.forcible
        else v
        for v in found
    )


def tf32_text(device: Device) -> str:
    """What FP32 may really be on this device; each baseline records the state it saw."""
    capability = device.compute_capability
    if not _nvidia(device) or capability is None:
        return "TF32 unknown"
    if capability < BF16_CAPABILITY:
        return "TF32 no (Ampere and newer)"
    return "TF32 possible (recorded with every baseline: Paddle 2.6 and 3.x differ)"
