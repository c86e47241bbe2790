"""Which knobs beside level and dtype this Paddle has on this device; pure functions of facts."""

from collections.abc import Mapping
from dataclasses import replace

from autoamp.probes.facts import Device, DeviceKind, KnobVerdict, PaddleInstall
from autoamp.probes.peaks import tf32 as tf32_peak
from autoamp.probes.rules import (
    BF16_CAPABILITY,
    capability_text,
    is_nvidia,
    paddle_before,
    verdicts,
    version_tuple,
)
from autoamp.settings import Level

MASTER_WEIGHT_OPTIMIZERS = (
    "Adadelta",
    "Adagrad",
    "Adam",
    "Adamax",
    "AdamW",
    "ASGD",
    "Lamb",
    "Momentum",
    "NAdam",
    "RAdam",
    "RMSProp",
    "Rprop",
    "SGD",
)
"""Optimizers with a ``_multi_precision`` attribute, which ``decorate`` at O2 switches on, also
where the constructor has no such argument (Paddle 3.3, python/paddle/optimizer and
amp/auto_cast.py, _set_multi_precision). Others update float16 parameters directly."""

NO_MASTER_WEIGHT_OPTIMIZERS = ("LBFGS",)

TF32_OVERRIDE = "NVIDIA_TF32_OVERRIDE"

LITTLE_TF32 = 1.2
"""Below this ratio of peaks TF32 is said to bring little; it is tried all the same."""

PROMOTE_PADDLE = (2, 5)
MASTER_GRAD_PADDLE = (2, 6)


def has_master_weights(optimizer: str | None) -> bool | None:
    """Whether that optimizer class keeps FP32 master weights at O2; None if it is not Paddle's."""
    if optimizer is None:
        return None
    if optimizer in MASTER_WEIGHT_OPTIMIZERS:
        return True
    return False if optimizer in NO_MASTER_WEIGHT_OPTIMIZERS else None


def knob_verdicts(
    device: Device, paddle: PaddleInstall, environment: Mapping[str, str] | None = None
) -> tuple[KnobVerdict, ...]:
    """``tf32`` and the knobs of O2, each with its reason."""
    found = (tf32(device, paddle, environment), *_of_o2(paddle))
    mixed = [v for v in verdicts(device, paddle) if v.level is not Level.O0]
    if any(v.allowed or v.forcible for v in mixed):
        return found
    return tuple(
        replace(knob, available=False, reason="no use here: no 16-bit precision")
        if knob.available and knob.knob != "tf32"
        else knob
        for knob in found
    )


def _of_o2(paddle: PaddleInstall) -> tuple[KnobVerdict, ...]:
    return (
        _by_version(
            paddle,
            "use_promote",
            PROMOTE_PADDLE,
            "O2 runs an op in FP32 if one of its inputs is FP32; before 2.5 O2 was almost pure "
            "FP16 and unlisted ops stayed low",
            "Paddle python/paddle/amp/auto_cast.py, 2.5 against 2.4",
        ),
        _by_version(
            paddle,
            "master_grad",
            MASTER_GRAD_PADDLE,
            "keeps O2's gradients in FP32, so that tiny ones survive unscaling",
            "Paddle python/paddle/amp/auto_cast.py, amp_decorate of 2.6",
        ),
        KnobVerdict(
            knob="master_weight",
            available=paddle.version is not None,
            reason="at O2 decorate(optimizers=...) keeps FP32 copies of the parameters in every "
            "optimizer of Paddle's but LBFGS; without that argument small updates are lost"
            if paddle.version is not None
            else "no Paddle here",
            source="Paddle python/paddle/amp/auto_cast.py, _set_multi_precision (read in 3.3)",
        ),
    )


def _by_version(
    paddle: PaddleInstall, knob: str, since: tuple[int, int], what: str, source: str
) -> KnobVerdict:
    if paddle.version is None:
        return KnobVerdict(knob=knob, available=False, reason="no Paddle here", source=source)
    old = paddle_before(paddle, since)
    reason = f"Paddle {paddle.version} does not have it: it came with {since[0]}.{since[1]}"
    return KnobVerdict(knob=knob, available=not old, reason=reason if old else what, source=source)


def tf32(
    device: Device, paddle: PaddleInstall, environment: Mapping[str, str] | None = None
) -> KnobVerdict:
    """What "FP32" may really be on this device; each baseline records the state it saw.

    ``environment`` is the one the script will run in: ``NVIDIA_TF32_OVERRIDE=0`` there keeps
    CUDA's libraries from TF32 whatever a program asks for (NVIDIA, cuBLAS and cuDNN manuals).
    """
    source = "Paddle core.get_cublas_switch, core.get_cudnn_switch; NVIDIA Ampere whitepaper"
    capability = device.compute_capability
    if not is_nvidia(device):
        kind = "a CPU" if device.kind is DeviceKind.cpu else "this accelerator"
        return KnobVerdict(
            knob="tf32", available=False, reason=f"{kind} has no TF32", source=source
        )
    if capability is None:
        return KnobVerdict(
            knob="tf32", available=False, reason="compute capability unknown", source=source
        )
    if capability < BF16_CAPABILITY:
        return KnobVerdict(
            knob="tf32",
            available=False,
            reason=f"compute capability {capability_text(device)}: TF32 came with Ampere (8.0)",
            source=source,
        )
    if (environment or {}).get(TF32_OVERRIDE) == "0":
        return KnobVerdict(
            knob="tf32",
            available=False,
            reason=f"{TF32_OVERRIDE}=0 in the environment forbids it; unset it to allow TF32",
            source="NVIDIA, cuBLAS library manual",
        )
    return KnobVerdict(
        knob="tf32",
        available=True,
        reason="Tensor Cores can run FP32 products as TF32 (10 bits of mantissa)"
        + _tf32_rate(device)
        + ". "
        + _tf32_default(paddle),
        source=source,
    )


def _tf32_rate(device: Device) -> str:
    """What the catalogue's peaks promise: GeForce boards have hardly more for TF32 than FP32."""
    peak = tf32_peak(device.model) if device.model is not None else None
    if device.model is None or peak is None:
        return ""
    ratio = peak.tflops / device.model.fp32_tflops
    if ratio < LITTLE_TF32:
        return f", at {ratio:.2g}x the FP32 peak on this board: expect little"
    return f", at {ratio:.2g}x the FP32 peak"


def _tf32_default(paddle: PaddleInstall) -> str:
    version = version_tuple(paddle.version)
    if version is None:
        state = "Whether Paddle does so differs by version"
    elif version[:2] == (2, 6):
        state = "Paddle 2.6 does so by itself, in products and convolutions"
    elif not paddle_before(paddle, (3, 0)):
        state = "Paddle 3.x does so by itself in convolutions, not in matrix products"
    else:
        state = f"Paddle {paddle.version}: not known"
    return state + "; every baseline records what it ran with"
