"""What goes in and out of the search: options, proposals, trials done, and the result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from autoamp.errors import UsageError
from autoamp.measurement import Measurement, Phase, Scan, ScriptFacts
from autoamp.probes.facts import Machine
from autoamp.settings import AS_WRITTEN, Dtype, Level, Setting

if TYPE_CHECKING:
    from autoamp.studies.ceilings import Ceiling
    from autoamp.studies.confirm import Interval
    from autoamp.studies.drift import DriftCheck
    from autoamp.studies.loss_scale import ScaleWindow
    from autoamp.studies.space import Space

NUMERICS_REAL = "real"
NUMERICS_FULL = "full"
NUMERICS_PLANNING = "planning"

COUNTED_PHASES = (Phase.baseline, Phase.scan, Phase.numerics, Phase.ceiling, Phase.search)
"""Phases that ``--trials`` counts; drift and confirm runs come on top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asked of the search; fractions are fractions (``headroom`` 0.10 is 10 %).

    Raises UsageError ``bad-option`` for a value outside its range.
    """

    trials: int = 24
    timeout_s: float | None = None
    levels: tuple[Level, ...] | None = None
    dtypes: tuple[Dtype, ...] | None = None
    tf32: bool | None = None
    """True: asked for by name; False: left out by name; None: looked at where it is offered."""
    batch_sizes: tuple[int, ...] | None = None
    keep_batch: bool = False
    headroom: float = 0.10
    max_drift: float | None = None
    """Allowed relative loss difference to FP32; None: FP32's own spread over three seeds."""
    min_gain: float = 0.03
    confirm_pairs: int = 3
    seed: int = 0
    allow_unsupported: bool = False
    all_numerics: bool = False
    """Emulate every precision, also one that the model finds slow: a plan's reader asks whether
    it is stable."""

    def __post_init__(self) -> None:
        _check(self.trials >= 1, "--trials", "at least 1", self.trials)
        _check(
            self.timeout_s is None or self.timeout_s > 0,
            "--timeout",
            "more than 0 s",
            self.timeout_s,
        )
        _check(0 <= self.headroom < 1, "--headroom", "from 0 % to below 100 %", self.headroom)
        _check(self.min_gain >= 0, "--min-gain", "0 or more", self.min_gain)
        # One run is never proof: a recommendation needs at least one fresh pair.
        _check(self.confirm_pairs >= 1, "--confirm", "at least 1 pair", self.confirm_pairs)
        _check(
            self.max_drift is None or self.max_drift > 0,
            "--max-drift",
            "more than 0",
            self.max_drift,
        )
        batches = self.batch_sizes
        _check(
            batches is None or (len(batches) > 0 and all(b >= 1 for b in batches)),
            "--batch-sizes",
            "whole numbers of 1 or more",
            batches,
        )


def _check(good: bool, option: str, expected: str, found: object) -> None:
    if not good:
        raise UsageError(
            f"{option}: expected {expected}, found {found}",
            slug="bad-option",
            remedy=f"give {option} a value of {expected}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One child run that the search asks for.

    ``numerics`` is ``real`` (a real device or the CPU), ``planning`` (virtual: time and memory)
    or ``full`` (virtual: stability). ``steps`` None means the usual number of steps.
    """

    phase: Phase
    setting: Setting
    numerics: str = NUMERICS_REAL
    scan: bool = False
    steps: int | None = None
    repeat: int = 0
    """0 for the first run of a setting; confirm and drift count their fresh runs from 1."""
    seed: int = 0
    why: str = ""
    """One short phrase for the live line."""

    @property
    def key(self) -> str:
        """Unique for each run asked for; a run stored under it answers the proposal again."""
        return "|".join(
            (
                str(self.phase),
                self.setting.key(),
                self.numerics,
                "scan" if self.scan else "plain",
                f"repeat {self.repeat}",
                f"seed {self.seed}",
                f"steps {'usual' if self.steps is None else self.steps}",
            )
        )

    @property
    def counted(self) -> bool:
        """True if ``--trials`` counts this run."""
        return self.phase in COUNTED_PHASES


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A proposal with what its run showed."""

    proposal: Proposal
    measurement: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A setting (or a whole precision) that was not run, or ruled out, and why."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A setting that was chosen, the runs that speak for it, and how it compares."""

    setting: Setting
    runs: tuple[Measurement, ...]
    """Time and memory runs: the first one, then the fresh ones of confirm."""
    stability: tuple[Measurement, ...] = ()
    """Runs with full numerics (virtual devices) or longer ones (drift)."""
    against_fp32: Interval | None = None
    against_as_written: Interval | None = None
    precision_gain: Interval | None = None
    """Same precision at the FP32 baseline's batch, against FP32 there."""
    batch_gain: float | None = None
    """What is left of the gain once precision's part is taken out."""
    split_reason: str | None = None
    """Why the gain could not be split."""
    confirmed: bool = False
    reason: str = ""
    """Why this one and not the next."""

    @property
    def first(self) -> Measurement:
        return self.runs[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Everything a recommendation is made from."""

    machine: Machine
    options: Options
    facts: ScriptFacts
    space: Space
    trials: tuple[Trial, ...]
    as_written: Measurement
    fp32: Measurement | None
    fp32_setting: Setting | None
    fp32_reason: str | None
    """Why there is no FP32 run, or why it has another batch size."""
    scan: Scan | None
    scale_window: ScaleWindow | None
    ceilings: tuple[Ceiling, ...]
    skipped: tuple[Skipped, ...]
    drift: tuple[DriftCheck, ...]
    best: Choice
    at_your_batch: Choice
    mixed: Choice | None
    """The best mixed-precision setting, shown beside the verdict when FP32 is kept."""
    verdict: str
    """``use``, ``keep_fp32`` or ``keep_as_written``."""
    headline: str
    why: tuple[str, ...]
    default: str
    """``best`` or ``at_your_batch``: what ``autoamp run`` takes."""
    default_reason: str
    caveats: tuple[str, ...]
    stopped: str | None
    """Why the search ended early; None if it ran to its end."""
    as_written_setting: Setting = AS_WRITTEN
    """The script as written, at a smaller batch where its own does not fit."""
    script_batch: int | None = None
    """The script's own batch size, also where it does not fit."""

    @property
    def counted_trials(self) -> int:
        return sum(1 for t in self.trials if t.proposal.counted)


@lru_cache(maxsize=4096)
def recipe(setting: Setting) -> Setting:
    """The setting without its batch size: what precision is used, and how."""
    return replace(setting.canonical(), batch_size=None)
