"""What may vary on this machine with this script, and why not more."""

from __future__ import annotations

from dataclasses import dataclass

from autoamp.errors import MachineError
from autoamp.measurement import Loader, Measurement, ScriptFacts
from autoamp.probes.facts import DeviceKind, Machine, Verdict
from autoamp.settings import Dtype, Level, Setting
from autoamp.studies.prior import notes, ordered, prior_of
from autoamp.studies.proposal import Options, Skipped

MIN_STEPS_AN_EPOCH = 4
"""Fewer optimizer steps an epoch than this is no longer the same training."""

MAX_BATCH = 65_535
"""Some CUDA kernels take the batch as a grid dimension, which ends here."""

DEFAULT_LEVELS = (Level.O1, Level.O2)
DEFAULT_DTYPES = (Dtype.bfloat16, Dtype.float16)
"""bfloat16 first: the same rate as float16 on every GPU that has it, and no loss scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Level, dtype and TF32 switches; O0 float32 is FP32, and TF32 with the switches on."""

    level: Level
    dtype: Dtype
    tf32: bool | None = None

    @property
    def is_mixed(self) -> bool:
        return self.level is not Level.O0

    @property
    def name(self) -> str:
        return self.setting(None).precision()

    def setting(self, batch: int | None) -> Setting:
        """The plain setting of this precision at a batch size."""
        return Setting(batch_size=batch, amp_level=self.level, dtype=self.dtype, tf32=self.tf32)

    def is_of(self, setting: Setting) -> bool:
        """True if the setting is a variant of this precision."""
        return (self.level, self.dtype, self.tf32) == setting.arithmetic


FP32 = Precision(level=Level.O0, dtype=Dtype.float32)
TF32 = Precision(level=Level.O0, dtype=Dtype.float32, tf32=True)
"""FP32 with both of Paddle's switches on: weights and memory stay float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The space of settings. ``batches`` is a fixed list where the user gave one, otherwise
    empty: then batch sizes from ``own_batch`` up to ``max_batch`` are climbed."""

    precisions: tuple[Precision, ...]
    """FP32 first, then in the order in which they are tried."""
    own_batch: int | None
    batch_free: bool
    batch_reason: str | None
    """Why the batch size is not tuned; None if it is."""
    batches: tuple[int, ...] = ()
    max_batch: int | None = None
    max_batch_reason: str | None = None
    memory_total_bytes: int | None = None
    memory_limit_bytes: float | None = None
    """Capacity less the headroom; None if the capacity is not known."""
    exclusions: tuple[Skipped, ...] = ()
    caveats: tuple[str, ...] = ()

    @property
    def largest_batch(self) -> int | None:
        """No larger one would be run, with any number of trials."""
        return max(self.batches) if self.batches else self.max_batch

    @property
    def mixed(self) -> tuple[Precision, ...]:
        return tuple(p for p in self.precisions if p.is_mixed)

    @property
    def reduced(self) -> tuple[Precision, ...]:
        """All but FP32: TF32, where it is offered, and the mixed ones."""
        return tuple(p for p in self.precisions if p != FP32)

    @property
    def setting_batch(self) -> int | None:
        """The batch size that settings carry at the script's own batch: None where the batch
        cannot be set, so that nothing of the script's loader is touched."""
        return self.own_batch if self.batch_free or self.batch_settable else None

    @property
    def batch_settable(self) -> bool:
        """True if the loader takes a batch size, tuned or not."""
        return self.own_batch is not None and (self.batch_free or self.batch_reason == KEEP_BATCH)


KEEP_BATCH = "--keep-batch was given"


def build_space(
    machine: Machine, baseline: Measurement, facts: ScriptFacts, options: Options
) -> Space:
    """The space for this machine and script.

    Raises MachineError ``refused-precision`` if a precision that was asked for by name is
    refused by the hardware or by Paddle.
    """
    precisions, exclusions = allowed_precisions(machine, options)
    if TF32 in precisions:
        found = tf32_not_offered(machine, baseline, options)
        if found is not None:
            precisions = tuple(p for p in precisions if p != TF32)
            exclusions = (Skipped(what=TF32.name, reason=found), *exclusions)
    prior, in_tf32 = prior_of(machine), bool(baseline.tf32_matmul)
    precisions = ordered(prior, precisions, fp32_in_tf32=in_tf32)
    own_batch = baseline.batch_size or _loader_batch(facts)
    batch_reason = _batch_reason(facts, own_batch, options)
    batch_free = batch_reason is None
    total, limit = memory_of(machine, options)
    cap: int | None = None
    cap_reason: str | None = None
    batches: tuple[int, ...] = ()
    if batch_free:
        assert own_batch is not None
        cap, cap_reason = _batch_cap(facts, own_batch)
        if options.batch_sizes is not None:
            batches, dropped = _fixed_batches(options.batch_sizes, own_batch, facts)
            exclusions += dropped
    caveats = list(notes(prior, precisions, fp32_in_tf32=in_tf32))
    if facts.optimizer_has_master_weights is False and any(
        p.level is Level.O2 for p in precisions
    ):
        caveats.append(
            f"O2 without master weights: {facts.optimizer or 'the optimizer'} has no "
            "multi_precision in Paddle, so small updates may be lost in 16-bit weights"
        )
    return Space(
        precisions=precisions,
        own_batch=own_batch,
        batch_free=batch_free,
        batch_reason=batch_reason,
        batches=batches,
        max_batch=cap,
        max_batch_reason=cap_reason,
        memory_total_bytes=total,
        memory_limit_bytes=limit,
        exclusions=exclusions,
        caveats=tuple(caveats),
    )


def memory_of(machine: Machine, options: Options) -> tuple[int | None, float | None]:
    """Bytes of the device, and what is left of them with the headroom taken off."""
    total = machine.device.memory_total_bytes
    if total is None and machine.device.kind is DeviceKind.cpu:
        total = machine.host.memory_available_bytes
    return total, None if total is None else total * (1 - options.headroom)


def allowed_precisions(
    machine: Machine, options: Options
) -> tuple[tuple[Precision, ...], tuple[Skipped, ...]]:
    """FP32, TF32 and every mixed precision that the machine takes, with what was left out and
    why. Whether FP32 has TF32 in it already is known only after a run: see ``build_space``.

    Raises MachineError ``refused-precision`` as ``build_space`` does; it needs no run, so that
    the answer comes before the first trial.
    """
    levels = DEFAULT_LEVELS if options.levels is None else options.levels
    dtypes = DEFAULT_DTYPES if options.dtypes is None else options.dtypes
    mixed_levels = tuple(dict.fromkeys(x for x in levels if x is not Level.O0))
    mixed_dtypes = tuple(
        sorted(
            {x for x in dtypes if x is not Dtype.float32},
            key=DEFAULT_DTYPES.index,
        )
    )
    allowed: list[Precision] = []
    excluded: list[Skipped] = []
    knob = machine.knob("tf32")
    if options.tf32 is not False and knob is not None:
        if knob.available:
            allowed.append(TF32)
        else:
            excluded.append(Skipped(what=TF32.name, reason=knob.reason))
    if options.tf32 and TF32 not in allowed:
        raise tf32_refused(machine, "the probe has no verdict" if knob is None else knob.reason)
    refusals: dict[Precision, Verdict] = {}
    for dtype in mixed_dtypes:
        for level in mixed_levels:
            precision = Precision(level=level, dtype=dtype)
            verdict = machine.verdict(level, dtype)
            if verdict is None:
                reason = f"the probe has no verdict for it on {machine.device.name}"
                if machine.device.kind is DeviceKind.cpu:
                    reason = "Paddle's AMP does nothing on the CPU"
                verdict = Verdict(
                    level=level,
                    dtype=dtype,
                    allowed=False,
                    forcible=False,
                    reason=reason,
                    source="autoamp",
                )
            if verdict.allowed or (verdict.forcible and options.allow_unsupported):
                allowed.append(precision)
                continue
            refusals[precision] = verdict
            excluded.append(Skipped(what=precision.name, reason=verdict.reason))
    named: list[tuple[str, set[Precision]]] = [
        (str(asked), {Precision(level=x, dtype=asked) for x in mixed_levels})
        for asked in options.dtypes or ()
        if asked is not Dtype.float32
    ]
    named += [
        (str(asked), {Precision(level=asked, dtype=x) for x in mixed_dtypes})
        for asked in options.levels or ()
        if asked is not Level.O0
    ]
    for name, wanted in named:
        if wanted and not wanted.intersection(allowed):
            first = min(wanted, key=lambda p: p.name)
            verdict = refusals[first]
            forced = " Or force it with --allow-unsupported." if verdict.forcible else ""
            raise MachineError(
                f"{name} was asked for, but {first.name} is refused on "
                f"{machine.device.name}: {verdict.reason}",
                slug="refused-precision",
                remedy=(verdict.instead or "leave it out of --levels and --dtypes") + forced,
            )
    return (FP32, *allowed), tuple(excluded)


def tf32_not_offered(machine: Machine, baseline: Measurement, options: Options) -> str | None:
    """Why TF32 is nothing beside FP32, by the switches the baseline ran with; None if it is.

    Raises MachineError ``refused-precision`` if it was asked for and this Paddle cannot do it.
    """
    switches = (baseline.tf32_matmul, baseline.tf32_conv)
    if None in switches:
        reason = "this Paddle has no switches for it (core.set_cublas_switch, set_cudnn_switch)"
        if options.tf32:
            raise tf32_refused(machine, reason)
        return reason
    if all(switches):
        return "FP32 has it already: products and convolutions ran in TF32 at the baseline"
    return None


def tf32_refused(machine: Machine, reason: str) -> MachineError:
    """The error for TF32 that was asked for by name."""
    return MachineError(
        f"tf32 was asked for, but it is refused on {machine.device.name}: {reason}",
        slug="refused-precision",
        remedy="leave it out of --dtypes",
    )


def tunable_loaders(facts: ScriptFacts) -> tuple[Loader, ...]:
    """The loaders whose batch size may be replaced."""
    return tuple(x for x in facts.loaders if x.tunable)


def _loader_batch(facts: ScriptFacts) -> int | None:
    for loader in tunable_loaders(facts):
        if loader.batch_size is not None:
            return loader.batch_size
    return None


def _batch_reason(facts: ScriptFacts, own_batch: int | None, options: Options) -> str | None:
    if not facts.loaders:
        return "no DataLoader or batch sampler of Paddle's feeds this training"
    if not tunable_loaders(facts):
        reasons = [x.reason for x in facts.loaders if x.reason]
        return reasons[0] if reasons else "the loader's batch size cannot be replaced"
    if own_batch is None:
        return "the script's own batch size could not be seen"
    if options.keep_batch:
        return KEEP_BATCH
    return None


def _dataset_length(facts: ScriptFacts) -> int | None:
    lengths = [x.dataset_length for x in tunable_loaders(facts) if x.dataset_length is not None]
    # Several training loaders step together: the shortest ends the epoch.
    return min(lengths) if lengths else None


def _batch_cap(facts: ScriptFacts, own_batch: int) -> tuple[int, str]:
    length = _dataset_length(facts)
    if length is None:
        return MAX_BATCH, f"no batch above {MAX_BATCH} is tried (CUDA grid limit)"
    by_data = max(own_batch, length // MIN_STEPS_AN_EPOCH)
    if by_data >= MAX_BATCH:
        return MAX_BATCH, f"no batch above {MAX_BATCH} is tried (CUDA grid limit)"
    return by_data, (
        f"the dataset has {length} samples: a larger batch would leave fewer than "
        f"{MIN_STEPS_AN_EPOCH} steps an epoch"
    )


def _fixed_batches(
    wanted: tuple[int, ...], own_batch: int, facts: ScriptFacts
) -> tuple[tuple[int, ...], tuple[Skipped, ...]]:
    length = _dataset_length(facts)
    kept, dropped = [], []
    for batch in sorted(set(wanted)):
        # With drop_last a batch beyond the dataset leaves no step at all.
        if length is not None and batch > length and batch != own_batch:
            dropped.append(
                Skipped(
                    what=f"batch {batch}",
                    reason=f"the dataset has only {length} samples",
                )
            )
        else:
            kept.append(batch)
    return tuple(kept), tuple(dropped)
