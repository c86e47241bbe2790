"""What the history tells: state, best so far, what changed since. Pure; no database here."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from autoamp.measurement import Label, Outcome, Phase
from autoamp.probes.facts import Identity
from autoamp.settings import Level, Setting
from autoamp.studies.proposal import NUMERICS_FULL
from autoamp.studies.records import Study, StudyState, Trial, TrialScalars
from autoamp.studies.script_identity import ScriptIdentity, changes_since

T = TypeVar("T", TrialScalars, Trial)

HARDWARE = ("device", "memory_gib", "mig")
"""What of a machine's identity no update of software changes."""

KILLED = "stopped (killed)"

_TIMED = (Phase.baseline, Phase.ceiling, Phase.search, Phase.confirm)
"""Phases whose throughput may be compared; the others run slower on purpose."""


def shown_state(state: StudyState, *, holder_alive: bool) -> str:
    """The state for people: a study marked running whose tuner is gone was killed."""
    return KILLED if state is StudyState.running and not holder_alive else str(state)


def device_of(shown: str, machine: str) -> str:
    """The device with its options (``memory=``, ``numerics=``), which rows of older databases
    have in the machine's identity alone."""
    try:
        return str(json.loads(machine)["device"])
    except (ValueError, KeyError, TypeError):
        return shown


def timing(trials: Sequence[T]) -> Sequence[T]:
    """The trials that are made for their times: a run with full numerics looks at losses, and
    may stand for one on another GPU. Where planning mode does not run the script, all are full.
    """
    planned = [t for t in trials if t.numerics != NUMERICS_FULL]
    return planned if any(_ended_well(t) for t in planned) else trials


def _ended_well(trial: TrialScalars | Trial) -> bool:
    if isinstance(trial, Trial):
        return trial.measurement is not None and trial.measurement.ok
    return trial.outcome is Outcome.ok


def best_so_far(trials: Sequence[TrialScalars]) -> TrialScalars | None:
    """The fastest trial that ended well; the earlier one of equals."""
    timed = [t for t in timing(trials) if _value(t) is not None]
    return max(timed, key=lambda t: (_value(t) or 0.0, -t.number), default=None)


def fp32_baseline(trials: Sequence[T]) -> T | None:
    """FP32 at the script's own batch: the latest baseline that ended well.

    Where the search went on without asking for an FP32 run, the script as written is one.
    """
    asked = [t for t in trials if t.phase is Phase.baseline]
    fp32 = [t for t in asked if t.setting.amp_level is Level.O0]
    if not fp32 and len(asked) < len(trials):
        fp32 = asked
    timed = {t.number for t in timing(trials)}
    found = [t for t in fp32 if t.number in timed and _ended_well(t)]
    return max(found, key=lambda t: t.number, default=None)


def gain_against_fp32(trials: Sequence[TrialScalars]) -> float | None:
    """Throughput of the best so far over that of the FP32 baseline."""
    best, fp32 = best_so_far(trials), fp32_baseline(trials)
    if best is None or fp32 is None:
        return None
    top, base = _value(best), _value(fp32)
    return top / base if top and base else None


def fp32_of(trials: Sequence[Trial]) -> float | None:
    """Throughput of the FP32 baseline, samples/s; for a table that has the full trials."""
    trial = fp32_baseline(trials)
    if trial is None or trial.measurement is None:
        return None
    return trial.measurement.throughput_samples_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The setting that stands for a study: recommended, else the fastest trial so far."""

    setting: Setting
    throughput_samples_per_s: float | None
    against_fp32: float | None
    time_label: Label | None


def best_of(trials: Sequence[TrialScalars], recommendation: str | None) -> Best | None:
    """What a summary shows; None before any trial ended well.

    A confirmed recommendation counts for more than the fastest single run.
    """
    if recommendation is not None:
        found = _recommended(recommendation)
        if found is not None:
            return found
    top = best_so_far(trials)
    if top is None:
        return None
    return Best(
        setting=top.setting,
        throughput_samples_per_s=top.throughput_samples_per_s,
        against_fp32=gain_against_fp32(trials),
        time_label=top.time_label,
    )


def _recommended(text: str) -> Best | None:
    """The few keys a summary needs; None if a newer autoamp laid them out otherwise.

    The typed reader of the whole file costs more imports than listing studies may last.
    """
    try:
        best: dict[str, Any] = json.loads(text)["best"]
        measured = best["measured"]
        return Best(
            setting=Setting.from_json(measured["setting"]),
            throughput_samples_per_s=measured["throughput"]["samples_per_s"],
            against_fp32=best["against_fp32"].get("value"),
            time_label=Label(measured["throughput"]["label"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def what_changed(
    studies: Sequence[Study], machine: Identity, script: ScriptIdentity
) -> tuple[str, tuple[str, ...]] | None:
    """Why none of ``studies`` (oldest first) is continued: the latest study of the same script on
    this GPU and what differs now, as sentences. None if there is none: a study of another GPU is
    no study that could have been continued."""
    for study in reversed(studies):
        if any(getattr(study.machine, x) != getattr(machine, x) for x in HARDWARE):
            continue
        if (study.script.entry, study.script.is_module) == (script.entry, script.is_module):
            return study.name, study_differences(study, machine, script)
    return None


def study_differences(study: Study, machine: Identity, script: ScriptIdentity) -> tuple[str, ...]:
    """What differs between a stored study and the machine and script at hand."""
    return (*machine.differences(study.machine), *changes_since(study.script, script))


def _value(trial: TrialScalars) -> float | None:
    if trial.outcome is not Outcome.ok or trial.phase not in _TIMED:
        return None
    return trial.throughput_samples_per_s
