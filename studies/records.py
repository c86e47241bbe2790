"""What the database holds, as values: studies, trials, summaries. No database code here."""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from autoamp.measurement import Label, Measurement, Outcome, Phase
from autoamp.probes.facts import Identity
from autoamp.settings import Setting
from autoamp.studies.script_identity import ScriptIdentity

NUMERICS = ("real", "full", "planning")
"""How a trial computed: ``real`` on a real device; on a virtual one ``full`` (every value
emulated) or ``planning`` (large kernels only advance the clock)."""


class StudyState(str, Enum):
    """``running`` counts only while a tuner holds the study's lease."""

    running = "running"
    done = "done"
    stopped = "stopped"
    failed = "failed"

    def __str__(self) -> str:
        return self.value


class TrialState(str, Enum):
    """``lost``: the tuner died while the trial ran; such a trial has no value."""

    running = "running"
    finished = "finished"
    lost = "lost"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class NewStudy:
    """A study to be created; ``options_json`` is what the user asked for."""

    name: str
    script_path: str
    arguments: tuple[str, ...]
    device: str
    """For people: ``Tesla T4``, ``virtual:a100-40gb,numerics=off``."""
    machine: Identity
    script: ScriptIdentity
    options_json: str = "{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """One stored study. Times are UTC."""

    id: int
    name: str
    script_path: str
    arguments: tuple[str, ...]
    device: str
    machine: Identity
    script: ScriptIdentity
    options_json: str
    space_json: str | None
    state: StudyState
    autoamp_version: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One child run of one setting; ``measurement`` is None while it runs. Times are UTC."""

    id: int
    number: int
    """Counts from 0 within the study."""
    phase: Phase
    setting: Setting
    numerics: str
    state: TrialState
    measurement: Measurement | None
    started_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialScalars:
    """The few facts of a trial that tables and summaries need; a value only if outcome is ok."""

    study_id: int
    number: int
    phase: Phase
    setting: Setting
    numerics: str
    outcome: Outcome | None
    throughput_samples_per_s: float | None
    memory_peak_bytes: int | None
    time_label: Label | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRow:
    """Who holds a study. ``heartbeat_at_s`` is seconds since the epoch by the holder's clock."""

    study_id: int
    token: str
    host: str
    host_id: str
    """Changes with every boot and PID namespace: a PID means something only within it."""
    pid: int
    process_started: str
    acquired_at: datetime
    heartbeat_at_s: float
    beats: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySummary:
    """One line of ``autoamp studies list``."""

    id: int
    name: str
    script_path: str
    device: str
    state: str
    """A ``StudyState``, or ``stopped (killed)`` when the tuner died."""
    trials: int
    """Trials that ended, lost ones included."""
    best: Setting | None
    best_throughput_samples_per_s: float | None
    best_against_fp32: float | None
    """Ratio of throughputs; None until both are known."""
    time_label: Label | None
    has_recommendation: bool
    created_at: datetime
    updated_at: datetime
