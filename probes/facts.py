"""What a probe found: plain values, ``None`` for unknown with the reason kept beside it."""

from dataclasses import dataclass, field
from enum import Enum

from autoamp.settings import Dtype, Level


class DeviceKind(str, Enum):
    """The kinds of device that ``--device`` names."""

    gpu = "gpu"
    cpu = "cpu"
    virtual = "virtual"
    custom = "custom"

    def __str__(self) -> str:
        return self.value


class Severity(str, Enum):
    """``blocker`` stops tuning, ``warning`` is advice, ``note`` is a fact worth knowing."""

    blocker = "blocker"
    warning = "warning"
    note = "note"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """One row of the catalogue. Rates are dense peaks in TFLOP/s; ``None`` where not sourced."""

    alias: str
    name: str
    nvml_name: str | None
    architecture: str
    compute_capability: tuple[int, int]
    tensor_core_generation: int
    memory_bytes: int
    bandwidth_gb_per_s: float
    fp32_tflops: float
    tf32_tflops: float | None
    fp16_plain_tflops: float | None
    fp16_tensor_tflops: float | None
    bf16_tensor_tflops: float | None
    sm_count: int | None
    boost_clock_mhz: float | None
    tdp_w: float | None
    notes: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator (or the CPU) as the probe sees it; ``absent`` says why a field is None."""

    kind: DeviceKind
    paddle_name: str
    """What ``paddle.set_device`` takes: ``gpu:0``, ``cpu``, ``npu:0``; virtual: ``virtual``."""
    name: str
    uuid: str | None = None
    architecture: str | None = None
    compute_capability: tuple[int, int] | None = None
    tensor_core_generation: int | None = None
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None
    mig: str | None = None
    """MIG profile such as ``1g.5gb`` if the device is an instance."""
    model: GpuModel | None = None
    numerics: bool = True
    """False: planning mode of a virtual device."""
    absent: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddleInstall:
    """Paddle as installed for one interpreter, read from metadata without importing it."""

    python: str
    version: str | None = None
    distribution: str | None = None
    """``paddlepaddle`` or ``paddlepaddle-gpu``."""
    gpu_build: bool | None = None
    cuda_version: str | None = None
    cudnn_version: str | None = None
    numpy_version: str | None = None
    python_version: str | None = None
    absent: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The computer around the accelerator."""

    hostname: str
    os: str
    cpu_model: str | None
    cpu_count: int
    """Logical processors this process may use."""
    memory_total_bytes: int
    memory_available_bytes: int
    shm_free_bytes: int | None
    driver_version: str | None
    driver_cuda_version: str | None
    """Highest CUDA the driver supports."""
    absent: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """May this precision be used on this device with this Paddle, and why (not)."""

    level: Level
    dtype: Dtype
    allowed: bool
    forcible: bool
    """True if ``--allow-unsupported`` may override a refusal."""
    reason: str
    source: str
    instead: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something about the machine that a person should know, with what to do about it."""

    severity: Severity
    slug: str
    sentence: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a study belongs to; two machines with equal identities share results."""

    device: str
    memory_gib: int | None
    mig: str | None
    paddle: str | None
    """Major.minor."""
    cuda: str | None
    """Major.minor."""

    def differences(self, other: "Identity") -> tuple[str, ...]:
        """Sentences ``field: ours, theirs`` for every field that differs."""
        out = []
        for name in ("device", "memory_gib", "mig", "paddle", "cuda"):
            ours, theirs = getattr(self, name), getattr(other, name)
            if ours != theirs:
                out.append(f"{name}: {ours} here, {theirs} there")
        return tuple(out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Everything the probe found, for one chosen device."""

    device: Device
    """The device that tuning would use."""
    devices: tuple[Device, ...]
    """All accelerators seen, in CUDA order."""
    host: Host
    paddle: PaddleInstall
    verdicts: tuple[Verdict, ...]
    problems: tuple[Problem, ...]
    identity: Identity
    device_reason: str = ""
    """Why this device was chosen."""

    def verdict(self, level: Level, dtype: Dtype) -> Verdict | None:
        """The verdict for one precision, None if the probe did not judge it."""
        for v in self.verdicts:
            if v.level is level and v.dtype is dtype:
                return v
        return None
