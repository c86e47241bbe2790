"""What ``autoamp plan`` prints as JSON: one row a virtual GPU. ``docs/files.md`` has the keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from autoamp.measurement import Measurement, Outcome, Phase
from autoamp.settings import Dtype
from autoamp.studies import recommendation as r
from autoamp.studies.budget import Budget
from autoamp.studies.ceilings import NOT_CLIMBED, OUT_OF_TRIALS
from autoamp.studies.drift import DriftCheck
from autoamp.studies.proposal import NUMERICS_FULL, Result, Trial, recipe
from autoamp.studies.score import NUMERIC_OUTCOMES, instability

SCHEMA_VERSION = 1

PrecisionState = Literal["stable", "unstable", "refused", "does_not_run", "not_looked_at"]

DOES_NOT_RUN = (
    Outcome.crashed,
    Outcome.unsupported_on_device,
    Outcome.not_effective,
    Outcome.no_steps,
)
"""Ends that are an answer, unlike those for want of memory or time or by the user's hand."""


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
    climb_cut_short: str | None = None
    """Why a larger batch may be faster and was not tried; None if the climb came to its end."""
    samples_per_s: float | None = None
    seconds_per_1000_samples: float | None = None
    fp32_samples_per_s: float | None = None
    fp32_batch_size: int | None = None
    against_fp32: r.Ratio | None = None
    """Of the recommended setting at its own batch; the next two are its parts."""
    precision_gain: r.Ratio | None = None
    batch_gain: float | None = None
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
        climb_cut_short=climb_cut_short(result),
        samples_per_s=measured.throughput.samples_per_s,
        seconds_per_1000_samples=measured.seconds_per_1000_samples,
        fp32_samples_per_s=None if fp32 is None else fp32.throughput.samples_per_s,
        fp32_batch_size=None if fp32 is None else fp32.batch_size,
        against_fp32=best.against_fp32,
        precision_gain=best.precision_gain,
        batch_gain=best.batch_gain,
        memory=measured.memory,
        float16=precision_row(Dtype.float16, result),
        bfloat16=precision_row(Dtype.bfloat16, result),
        caveats=recommendation.caveats,
    )


def climb_cut_short(result: Result) -> str | None:
    """Why the recommended precision may be faster at a batch nobody tried; None if its climb
    ended by itself, or the batch cannot be changed."""
    best = result.best.setting
    if not result.space.batch_free or best.batch_size == result.space.largest_batch:
        return None
    climbs = result.ceilings
    if not best.is_as_written:
        climbs = tuple(c for c in climbs if c.recipe == recipe(best))
    if not climbs:
        return result.stopped or NOT_CLIMBED
    for climb in climbs:
        # A smaller batch than the largest tried was faster: more would not have helped. One that
        # only ties with it, inside the band, leaves that open.
        here, there = _rate_at(result, best.batch_size), _rate_at(result, climb.largest_fitting)
        topped = best.batch_size != climb.largest_fitting and (here or 0.0) > (there or 0.0)
        if climb.why in (OUT_OF_TRIALS, NOT_CLIMBED) and not topped:
            return climb.why
    return None


def _rate_at(result: Result, batch: int | None) -> float | None:
    """The highest rate that the recommended recipe was seen to reach at a batch size."""
    wanted = recipe(result.best.setting)
    rates = [
        t.measurement.throughput_samples_per_s
        for t in result.trials
        if t.measurement.ok
        and batch is not None
        and t.proposal.setting.batch_size == batch
        and recipe(t.proposal.setting) == wanted
        and t.measurement.throughput_samples_per_s
    ]
    return max(rates, default=None)


def precision_row(dtype: Dtype, result: Result) -> PrecisionRow:
    """Allowed and stable? By the probe's verdicts, the drift check and the emulated runs.

    Only the numbers make a type unstable. One whose runs crashed, or that did not take effect,
    does not run; a run that ended for want of time or memory leaves it not looked at.
    """
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
    runs: dict[str, list[Measurement]] = {}
    names: dict[str, str] = {}
    unfinished: list[Trial] = []
    broke_off: set[str] = set()
    """Recipes whose comparison failed by a run that says nothing about the numbers."""
    for trial in tried:
        if trial.proposal.numerics != NUMERICS_FULL or trial.proposal.phase is Phase.baseline:
            continue
        plain = recipe(trial.proposal.setting)
        names[plain.key()] = plain.describe()
        found = trial.measurement
        if found.ok or found.outcome in NUMERIC_OUTCOMES:
            runs.setdefault(plain.key(), []).append(found)
            continue
        unfinished.append(trial)
        if trial.proposal.phase is Phase.drift:
            broke_off.add(plain.key())
    failed = [c for c in checks if c.passed is False and recipe(c.setting).key() not in broke_off]
    drifted = {recipe(c.setting).key() for c in failed}
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
    if not unfinished and tried and not any(t.measurement.ok for t in tried):
        unfinished = tried
    if unfinished and result.machine.device.numerics:
        return _without_numbers(unfinished)
    return PrecisionRow(state="not_looked_at", reason=_why_not(dtype, result, tried, checks))


def _without_numbers(trials: Sequence[Trial]) -> PrecisionRow:
    """A type of which no run came as far as its numbers."""
    broken = [t for t in trials if t.measurement.outcome in DOES_NOT_RUN]
    told: dict[tuple[str, str], str] = {}
    for trial in broken or trials:
        # Once a precision, however many batches ended alike.
        end, setting = _ended(trial.measurement), trial.proposal.setting
        told.setdefault((setting.precision(), end), f"{setting.describe()}: {end}")
    state: PrecisionState = "does_not_run" if broken else "not_looked_at"
    return PrecisionRow(state=state, reason="; ".join(told.values()))


def _problem(measurement: Measurement) -> str | None:
    """What is wrong with the numbers of a run that ended well or by its numbers."""
    return instability(measurement) if measurement.ok else _ended(measurement)


def _ended(measurement: Measurement) -> str:
    return f"{measurement.outcome}: {measurement.reason or 'no reason recorded'}"


def _why_not(
    dtype: Dtype, result: Result, tried: Sequence[Trial], checks: Sequence[DriftCheck]
) -> str:
    """Why no run with full numerics speaks of the type."""
    if not result.machine.device.numerics:
        return "numerics were not computed (numerics=off)"
    for check in checks:
        return f"{recipe(check.setting).describe()}: {check.why}"
    # A whole precision before a single setting of it.
    for skipped in sorted(result.skipped, key=lambda x: len(_words(x.what))):
        if str(dtype) in _words(skipped.what):
            return f"{skipped.what}: {skipped.reason}"
    if not any(p.dtype is dtype for p in result.space.precisions):
        return "it was left out by the options (--levels, --dtypes)"
    what = "its numerics were emulated" if tried else "it was looked at"
    if result.stopped is not None:
        return f"the search ended before {what}: {result.stopped}"
    if tried and not result.options.all_numerics:
        return "no faster than FP32 by the model, so its numerics were not emulated"
    if result.counted_trials >= result.options.trials:
        return f"the trials (--trials {result.options.trials}) were used up before {what}"
    if result.options.timeout_s is not None and not tried:
        return f"the time for the search (--timeout) was used up before {what}"
    if not Budget(trials=result.options.trials).numerics:
        return "too few trials to emulate it beside the search (more --trials)"
    return f"the search ended before {what}"


def _words(what: str) -> tuple[str, ...]:
    """``O1 bfloat16, batch 64`` in words: a dtype's name may be part of another's."""
    return tuple(re.split(r"[ ,]+", what))


def encode(table: PlanTable) -> bytes:
    """The JSON's bytes."""
    return msgspec.json.format(msgspec.json.encode(table), indent=2) + b"\n"
