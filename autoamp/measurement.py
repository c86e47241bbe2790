"""Measurement: what one trial showed. Plain facts, no judgement beyond the outcome."""

from dataclasses import dataclass
from enum import Enum

from autoamp.label import Label as Label


class Outcome(str, Enum):
    """How a trial ended; the reason beside it is a sentence a person can act on."""

    ok = "ok"
    out_of_memory = "out_of_memory"
    not_finite = "not_finite"
    scale_collapsed = "scale_collapsed"
    diverged = "diverged"
    too_slow = "too_slow"
    timed_out = "timed_out"
    crashed = "crashed"
    host_memory = "host_memory"
    no_steps = "no_steps"
    too_few_steps = "too_few_steps"
    not_effective = "not_effective"
    unsupported_on_device = "unsupported_on_device"
    interrupted = "interrupted"

    def __str__(self) -> str:
        return self.value

    def __format__(self, spec: str) -> str:
        """In sentences and tables it reads as words; ``str`` is what files and history store."""
        return format(self.value.replace("_", " "), spec)


class Phase(str, Enum):
    """What a trial is run for."""

    baseline = "baseline"
    scan = "scan"
    numerics = "numerics"
    ceiling = "ceiling"
    search = "search"
    drift = "drift"
    confirm = "confirm"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A knob that was put in place: where in the script, and the script's own value before."""

    knob: str
    value: str
    where: str
    previous: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Whether a knob was seen to take effect, and what was seen."""

    knob: str
    wanted: str
    seen: str
    effective: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCalls:
    """Calls of one operator in one step by dtype; ``op`` is the name AMP lists use."""

    op: str
    float16: int = 0
    bfloat16: int = 0
    float32: int = 0
    other: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LossScale:
    """The loss scale from the given optimizer step on."""

    step: int
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """A data loader or batch sampler that fed training."""

    ordinal: int
    kind: str
    site: str
    batch_size: int | None
    dataset_length: int | None
    tunable: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFacts:
    """What the script itself does, learned from its as-written run."""

    calls_auto_cast: bool = False
    calls_scaler: bool = False
    calls_decorate: bool = False
    uses_hapi: bool = False
    enables_amp: bool | None = None
    """Some AMP call has an effect as written. None in histories from before this was recorded."""
    uses_to_static: bool = False
    own_level: str | None = None
    own_dtype: str | None = None
    optimizer: str | None = None
    optimizer_has_master_weights: bool | None = None
    scheduled_by: str | None = None
    loaders: tuple[Loader, ...] = ()
    partial: bool = False
    """The script failed in its first step: only what it did until then was seen."""

    @property
    def amp_in_effect(self) -> bool:
        """False for an FP32 script, AMP calls with ``enable=False`` in it or not."""
        if self.enables_amp is not None:
            return self.enables_amp
        return self.calls_auto_cast or self.calls_scaler or self.calls_decorate


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Numerics of an FP32 run: exponents are floor(log2(abs(x))) of non-zero gradients."""

    grad_exponent_min: int | None = None
    grad_exponent_max: int | None = None
    grad_exponents: tuple[tuple[int, int], ...] = ()
    zero_gradient_share: float | None = None
    overflow_ops: tuple[str, ...] = ()
    overflow_ops_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilisation:
    """Samples of the device during the timed window; a missing value has its reason."""

    gpu_percent: float | None = None
    memory_used_peak_bytes: int | None = None
    power_mean_w: float | None = None
    energy_j: float | None = None
    sm_clock_mean_mhz: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Everything one trial showed.

    ``throughput_samples_per_s`` is samples really delivered over the wall clock of the timed
    window, data wait included. On a virtual device: over the modelled device time, as if the
    loader were never late; ``samples_per_s_with_loader`` has this machine's loader in it.
    ``throughput_spread`` is half the range of the window's blocks relative to their mean.
    """

    outcome: Outcome
    reason: str | None = None

    time_label: Label = Label.measured
    memory_label: Label = Label.measured
    numerics_label: Label = Label.measured

    batch_size: int | None = None
    steps_done: int = 0
    steps_timed: int = 0
    samples_timed: int = 0
    timed_s: float | None = None
    throughput_samples_per_s: float | None = None
    throughput_spread: float | None = None
    block_throughputs: tuple[float, ...] = ()
    data_wait_share: float | None = None
    data_wait_reason: str | None = None

    modelled_busy_share: float | None = None
    """Virtual devices only: share of a step, this machine's loader included, in which the model
    has work for the GPU. Nothing sampled it."""
    loader_s_per_step: float | None = None
    """Virtual devices only: seconds in which this machine's loader makes the batches of a step,
    measured after the timed steps with the device idle. The throughput leaves it out."""
    loader_workers: int | None = None
    loader_reason: str | None = None

    memory_allocated_peak_bytes: int | None = None
    memory_reserved_peak_bytes: int | None = None
    memory_overhead_bytes: int | None = None
    """Virtual devices only, estimated: driver, CUDA context, libraries. Not in the peaks."""
    memory_workspace_bytes: int | None = None
    """Virtual devices only, modelled: by how much the scratch memory of convolutions raises the
    reserved peak. Not in the peaks."""
    memory_reason: str | None = None
    utilisation: Utilisation = Utilisation()

    losses: tuple[float, ...] = ()
    loss_steps: tuple[int, ...] = ()
    skipped_steps: int | None = 0
    """None where numerics were not computed: nothing overflows there."""
    loss_scales: tuple[LossScale, ...] = ()
    zero_gradient_share: float | None = None

    op_calls: tuple[OpCalls, ...] = ()
    applied: tuple[Applied, ...] = ()
    effects: tuple[Effect, ...] = ()
    facts: ScriptFacts | None = None
    scan: Scan | None = None
    tf32_matmul: bool | None = None
    tf32_conv: bool | None = None
    proposal_key: str | None = None
    """What the run was asked for, with seed, steps and repeat: resume answers by it."""
    step_flops: float | None = None
    """Floating-point operations of one step, counted on a virtual device only."""
    step_bytes: float | None = None
    """Bytes that its kernels read and write, counted there as well."""
    taken_from: str | None = None
    """``STUDY, trial N`` where an emulated run of another virtual GPU's study stands for this
    one: ``wall_s`` was spent there."""
    dataset_restarts: int = 0
    refused_writes: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()

    exit_code: int | None = None
    signal: int | None = None
    wall_s: float = 0.0
    startup_s: float | None = None
    log_path: str | None = None
    log_tail: str = ""

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.ok

    @property
    def loader_samples_per_s(self) -> float | None:
        """What the loader gives by itself, on this machine."""
        if not self.loader_s_per_step or not self.steps_timed or not self.samples_timed:
            return None
        return self.samples_timed / self.steps_timed / self.loader_s_per_step

    @property
    def samples_per_s_with_loader(self) -> float | None:
        """Modelled: a step takes as long as the slower of device and loader.

        Paddle's loaders fetch in a thread or processes of their own, ahead of the loop, so the
        two overlap with any number of workers.
        """
        rate, device = self.loader_samples_per_s, self.throughput_samples_per_s
        return None if rate is None or device is None else min(rate, device)

    @property
    def memory_estimated_bytes(self) -> int:
        """What comes on top of the counted peaks of a virtual device; 0 elsewhere."""
        return (self.memory_overhead_bytes or 0) + (self.memory_workspace_bytes or 0)

    @property
    def skipped_text(self) -> str:
        """For tables. Histories from before say 0 where nothing was computed."""
        computed = self.numerics_label is not Label.not_computed
        return str(self.skipped_steps) if computed and self.skipped_steps is not None else "-"

    @property
    def final_loss_scale(self) -> float | None:
        return self.loss_scales[-1].value if self.loss_scales else None

    @property
    def seconds_per_1000_samples(self) -> float | None:
        if not self.throughput_samples_per_s:
            return None
        return 1000.0 / self.throughput_samples_per_s

    @property
    def energy_j_per_1000_samples(self) -> float | None:
        """Joules of the device (not its host) in the timed window; None if it was not sampled."""
        if self.utilisation.energy_j is None or not self.samples_timed:
            return None
        return 1000.0 * self.utilisation.energy_j / self.samples_timed
