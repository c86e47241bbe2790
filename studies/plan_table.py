"""What ``autoamp plan`` prints as JSON: one row a virtual GPU. ``docs/files.md`` has the keys."""

from __future__ import annotations

from typing import Literal

import msgspec

from autoamp.measurement import Measurement, Phase
from autoamp.settings import Dtype
from autoamp.studies import recommendation as r
from autoamp.studies.proposal import NUMERICS_FULL, Result, recipe
from autoamp.studies.score import instability

SCHEMA_VERSION = 1

PrecisionState = Literal["stable", "unstable", "refused", "not_looked_at"]


class PrecisionRow(r.Struct, frozen=True, kw_only=True):
    """Whether a 16-bit type is allowed on the GPU, and how it behaved (emulated)."""

    state: PrecisionState
    reason: str


class Problem(r.Struct, frozen=True, kw_only=True):
    """Why a GPU has no recommendation; ``slug`` is explained in docs/messages.md."""

    slug: str
    message: str
    remedy: str | None


class Band(r.Struct, frozen=True, kw_only=True):
    """Relative half-widths of the model's error, and where they come from."""

    calibrated: bool
    throughput: float
    ratio: float
    note: str


class PlanRow(r.Struct, frozen=True, kw_only=True):
    """One GPU. Without a recommendation everything but ``problem`` and the device is null."""

    device: str
    gpu: str
    memory_bytes: int | None
    band: Band
    study: str | None = None
    verdict: r.Verdict | None = None
    headline: str | None = None
    setting: r.SettingRecord | None = None
    description: str | None = None
    recipe: str | None = None
    """The description without the batch size."""
    batch_size: int | None = None
    samples_per_s: float | None = None
    seconds_per_1000_samples: float | None = None
    fp32_samples_per_s: float | None = None
    fp32_batch_size: int | None = None
    against_fp32: r.Ratio | None = None
    memory: r.Memory | None = None
    float16: PrecisionRow | None = None
    bfloat16: PrecisionRow | None = None
    caveats: tuple[str, ...] = ()
    problem: Problem | None = None


class PlanTable(r.Struct, frozen=True, kw_only=True):
    """The whole output."""

    schema_version: int
    autoamp_version: str
    created_at: str
    command: str
    labels: dict[str, str]
    rows: tuple[PlanRow, ...]
    stopped: str | None
    """Why rows are missing; None if every device was planned for."""


def finished_row(
    device: str, band: Band, result: Result, recommendation: r.Recommendation
) -> PlanRow:
    """The row of a GPU whose search came to an end."""
    best = recommendation.best
    measured = best.measured
    fp32 = recommendation.fp32
    return PlanRow(
        device=device,
        gpu=result.machine.device.name,
        memory_bytes=result.machine.device.memory_total_bytes,
        band=band,
        study=recommendation.study,
        verdict=recommendation.verdict,
        headline=recommendation.headline,
        setting=measured.setting,
        description=measured.description,
        recipe=recipe(best.setting).describe(),
        batch_size=measured.batch_size,
        samples_per_s=measured.throughput.samples_per_s,
        seconds_per_1000_samples=measured.seconds_per_1000_samples,
        fp32_samples_per_s=None if fp32 is None else fp32.throughput.samples_per_s,
        fp32_batch_size=None if fp32 is None else fp32.batch_size,
        against_fp32=best.against_fp32,
        memory=measured.memory,
        float16=precision_row(Dtype.float16, result),
        bfloat16=precision_row(Dtype.bfloat16, result),
        caveats=recommendation.caveats,
    )


def precision_row(dtype: Dtype, result: Result) -> PrecisionRow:
    """Allowed and stable? By the probe's verdicts, the drift check and the emulated runs."""
    verdicts = [v for v in result.machine.verdicts if v.dtype is dtype]
    tried = [t for t in result.trials if t.proposal.setting.dtype is dtype]
    if not tried and not any(v.allowed for v in verdicts):
        reason = verdicts[0].reason if verdicts else "the probe has no verdict for it"
        return PrecisionRow(state="refused", reason=reason)
    checks = [c for c in result.drift if c.setting.dtype is dtype]
    for check in checks:
        if check.passed:
            name = recipe(check.setting).describe()
            return PrecisionRow(
                state="stable",
                reason=f"{name}: {check.steps} emulated steps, {check.why}",
            )
    failed = [c for c in checks if c.passed is False]
    drifted = {recipe(c.setting).key() for c in failed}
    runs: dict[str, list[Measurement]] = {}
    names: dict[str, str] = {}
    for trial in tried:
        if trial.proposal.numerics != NUMERICS_FULL or trial.proposal.phase is Phase.baseline:
            continue
        plain = recipe(trial.proposal.setting)
        runs.setdefault(plain.key(), []).append(trial.measurement)
        names[plain.key()] = plain.describe()
    wrong: list[str] = [f"{recipe(c.setting).describe()}: {c.why}" for c in failed]
    for key, made in runs.items():
        problem = next((p for m in made if (p := _problem(m)) is not None), None)
        if problem is None and key not in drifted:
            steps = max(m.steps_done for m in made)
            batch = made[0].batch_size
            at = f" at batch {batch}" if batch else ""
            return PrecisionRow(
                state="stable",
                reason=f"{names[key]}: finite and its loss scale kept over {steps} emulated "
                f"steps{at}; its loss was not compared with FP32's",
            )
        if problem is not None:
            wrong.append(f"{names[key]}: {problem}")
    if wrong:
        return PrecisionRow(state="unstable", reason="; ".join(dict.fromkeys(wrong)))
    return PrecisionRow(state="not_looked_at", reason=_why_not(dtype, result))


def _problem(measurement: Measurement) -> str | None:
    if measurement.ok:
        return instability(measurement)
    return f"{measurement.outcome}: {measurement.reason or 'no reason recorded'}"


def _why_not(dtype: Dtype, result: Result) -> str:
    for skipped in result.skipped:
        if str(dtype) in skipped.what:
            return f"{skipped.what}: {skipped.reason}"
    if not result.machine.device.numerics:
        return "numerics were not computed (numerics=off)"
    if any(t.proposal.setting.dtype is dtype for t in result.trials):
        return "no faster than FP32 by the model, so its numerics were not emulated"
    return "it was left out by the options"


def encode(table: PlanTable) -> bytes:
    """The JSON's bytes."""
    return msgspec.json.format(msgspec.json.encode(table), indent=2) + b"\n"
