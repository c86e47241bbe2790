"""What a probe found: plain values, ``None`` for unknown with the reason kept beside it."""

from dataclasses import dataclass, field
from enum import Enum

from autoamp.label import Label
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


POWER_CAP = "software power cap"
"""The throttle reason of a GPU at its power limit: where boards of 70 W, and any board under large
products, work all day. Such times repeat; those of a GPU slowed down by heat do not."""


def slowed_by(reasons: tuple[str, ...]) -> tuple[str, ...]:
    """The throttle reasons that make times doubtful: heat, power brake, hardware slowdown."""
    return tuple(reason for reason in reasons if reason != POWER_CAP)


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
class GpuProcess:
    """A process that holds memory on a GPU; ``name`` is None where /proc does not show it."""

    pid: int
    memory_bytes: int | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlGpu:
    """One GPU or MIG instance as NVML sees it; ``absent`` says why a field is None."""

    index: int
    """NVML's index, ordered by PCI bus; instances carry that of their GPU."""
    name: str | None = None
    uuid: str | None = None
    pci_bus_id: str | None = None
    architecture: str | None = None
    compute_capability: tuple[int, int] | None = None
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_used_bytes: int | None = None
    ecc: bool | None = None
    mig_enabled: bool | None = None
    mig_profile: str | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    """The limit in force."""
    power_limit_default_w: float | None = None
    temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    memory_clock_mhz: int | None = None
    memory_clock_max_mhz: int | None = None
    throttle_reasons: tuple[str, ...] = ()
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    persistence: bool | None = None
    compute_mode: str | None = None
    utilisation_percent: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    absent: dict[str, str] = field(default_factory=dict)


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
    allowed_dtypes: tuple[str, ...] | None = None
    """Dtypes in which Paddle's AMP was seen to run when asked; None: Paddle was not asked."""
    nvml: NvmlGpu | None = None
    """The GPU's state in full; None for what NVML does not see."""
    absent: dict[str, str] = field(default_factory=dict)


ONLY_GPUS = (
    "architecture",
    "compute_capability",
    "tensor_core_generation",
    "mig",
    "model",
    "nvml",
)
"""Fields of a Device that only NVIDIA GPUs have."""


INSTALLED_TWICE = "are installed over each other"
"""Ends the reason why ``PaddleInstall.distribution`` is absent where two are there."""


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
    cuda_archs: tuple[int, ...] = ()
    """Compute capabilities the wheel was compiled for (``75`` is 7.5); empty: it does not say."""
    build: str | None = None
    """``cpu``, ``cuda``, ``rocm`` or ``xpu``."""
    plugins: tuple[str, ...] = ()
    """Custom devices that Paddle would load: plug-in files found beside it, by name."""
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
    wsl: bool = False
    """Linux under Windows: NVML answers in part, processes and clocks are Windows' own."""
    jetson: str | None = None
    """The board's name if this is one: GPU and CPU share their memory there."""
    nvidia_on_pci: int | None = None
    """NVIDIA display or compute controllers on the PCI bus, driver or not."""
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
class KnobVerdict:
    """May a knob beside level and dtype be used with this Paddle on this device, and why."""

    knob: str
    """``master_grad``, ``use_promote``, ``master_weight``, ``tf32``, ``init_loss_scaling``."""
    available: bool
    reason: str
    source: str


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
class Conditions:
    """What may drift without making it another machine: compared, and said, never refused."""

    hostname: str
    driver: str | None
    power_limit_w: float | None
    sm_clock_max_mhz: int | None
    ecc: bool | None
    paddle: str | None
    """The full version; the minor one belongs to the identity."""
    numpy: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulRate:
    """One measured matrix product of ``m x k`` by ``k x n``."""

    dtype: str
    """``float32``, ``tf32``, ``float16`` or ``bfloat16``."""
    m: int
    n: int
    k: int
    flops_per_s: float
    share_of_peak: float | None = None
    """Against the catalogue's dense peak; None where that is not known."""

    @property
    def aligned(self) -> bool:
        """True if all sizes are multiples of 64, the largest granule Tensor Cores ask for."""
        return not (self.m % 64 or self.n % 64 or self.k % 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """What ``autoamp probe --bench`` found; ``absent`` says why a value is None."""

    device: str
    label: Label
    """``measured``, or ``modelled`` on a virtual device."""
    taken_at: str
    """UTC, ISO 8601."""
    paddle: str | None
    matmuls: tuple[MatmulRate, ...]
    copy_bytes_per_s: float | None = None
    """Device to device, read plus written."""
    copy_share_of_peak: float | None = None
    launch_s: float | None = None
    """One small kernel after the other: the floor of any step's time a kernel."""
    host_to_device_bytes_per_s: float | None = None
    sm_clock_mhz: float | None = None
    """Mean during the run."""
    power_w: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    """Seen in a tenth of the looks or more; ``slowed_by`` tells those that make it doubtful."""
    other_processes: tuple[str, ...] = ()
    """Seen on the GPU before or after: the rates are not its own alone."""
    absent: dict[str, str] = field(default_factory=dict)


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
    knobs: tuple[KnobVerdict, ...] = ()
    roofline: Roofline | None = None
    """The last ``autoamp probe --bench`` of this machine and device, if one was kept."""

    def verdict(self, level: Level, dtype: Dtype) -> Verdict | None:
        """The verdict for one precision, None if the probe did not judge it."""
        for v in self.verdicts:
            if v.level is level and v.dtype is dtype:
                return v
        return None

    def knob(self, name: str) -> KnobVerdict | None:
        """The verdict for a knob, None if the probe did not judge it."""
        return next((k for k in self.knobs if k.knob == name), None)
