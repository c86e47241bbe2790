"""The state of one search: what was run, what it showed, what is left to spend."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace

from autoamp.measurement import Measurement, Phase, Scan, ScriptFacts
from autoamp.probes.facts import DeviceKind, Machine
from autoamp.settings import AS_WRITTEN, Setting
from autoamp.studies.ceilings import Ceiling, Curve, doomed, point
from autoamp.studies.confirm import (
    HostBound,
    Interval,
    is_gain,
    modelled_ratio,
    single_runs_ratio,
)
from autoamp.studies.drift import DriftCheck
from autoamp.studies.loss_scale import ScaleWindow
from autoamp.studies.prior import Prior, prior_of
from autoamp.studies.proposal import (
    COUNTED_PHASES,
    NUMERICS_FULL,
    NUMERICS_PLANNING,
    NUMERICS_REAL,
    Options,
    Proposal,
    Skipped,
    Trial,
    recipe,
)
from autoamp.studies.score import Risk, is_host_bound, peak_memory_bytes, risk, standing
from autoamp.studies.space import FP32, Precision, Space

Runs = Generator[Proposal, Measurement, Measurement]
"""A sub-generator that ends with one measurement."""

PROOF_SHARE = 0.5
"""At most this share of ``--timeout`` is kept back for drift and confirm runs."""


PROOF_LENGTH = 1.2
"""Drift runs take more steps than a search trial."""


EMULATED_STEP_FLOPS = 5e10
"""A step computed in full on the CPU may take about this many operations: a second or two on two
cores. A heavier step is emulated at a smaller batch, and the numerics runs say at which."""
EMULATED_LEAST_BATCH = 2
"""Batch normalisation needs more than one sample."""


class Stopped(Exception):
    """The user or the deadline ended the search: choose from what is there."""


class Spent(Exception):
    """The counted trials, or the time meant for them, are used up: go on to the proof."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A measured setting that may win."""

    setting: Setting
    measurement: Measurement
    risk: Risk

    @property
    def throughput(self) -> float:
        assert self.measurement.throughput_samples_per_s is not None
        return self.measurement.throughput_samples_per_s


class Session:
    """Everything the phases share. Lives in memory; replaying the same answers rebuilds it."""

    def __init__(
        self,
        machine: Machine,
        options: Options,
        *,
        clock: Callable[[], float],
        ratio_band: float | None,
        host_bound: HostBound | None,
        stop: Callable[[], bool],
        stored: Sequence[Proposal] = (),
    ) -> None:
        self.machine = machine
        self.options = options
        self.ratio_band = ratio_band
        self.host_bound = host_bound
        self.stored = {p.key: p for p in stored}
        """Runs that are answered from the history, also beyond ``--trials``."""
        self._clock = clock
        self._stop = stop
        virtual = machine.device.kind is DeviceKind.virtual
        self.virtual = virtual
        self.mode = NUMERICS_PLANNING if virtual else NUMERICS_REAL
        """How time and memory runs are made."""
        self.stability_mode: str | None = NUMERICS_REAL
        """How numerics are looked at; None where they cannot be."""
        if virtual:
            self.stability_mode = NUMERICS_FULL if machine.device.numerics else None
        self.trials: list[Trial] = []
        self.facts = ScriptFacts()
        self._space: Space | None = None
        self.as_written: Measurement | None = None
        self.as_written_is_fp32 = False
        self.as_written_setting = AS_WRITTEN
        """How ``as_written`` was run: at a smaller batch where the script's own does not fit."""
        self.script_batch: int | None = None
        """The script's own batch size where that does not fit; None: it is ``space.own_batch``."""
        self.fp32: Measurement | None = None
        self.fp32_setting: Setting | None = None
        self.fp32_reason: str | None = None
        self.scan: Scan | None = None
        self.window: ScaleWindow | None = None
        self.bases: dict[Precision, Setting] = {}
        """The variant of each precision that is carried on, at the script's own batch."""
        self.ceilings: dict[str, Ceiling] = {}
        self.ruled_out: dict[str, str] = {}
        """Recipes that cannot win, by key, with the reason."""
        self.rejected: dict[str, str] = {}
        """Single settings that failed a longer or a fresh run, by key, with the reason."""
        self.drift: dict[str, DriftCheck] = {}
        self.drift_skipped: str | None = None
        self.skipped: list[Skipped] = []
        self.spent: str | None = None
        """Why the counted phases ended before their end."""
        self.cut_short: str | None = None
        """Why fewer trials than asked for were run."""
        self.caveats: list[str] = []
        self.prior: Prior | None = prior_of(machine)
        """The kept roofline; None without one."""
        self._answers: dict[str, Measurement] = {}
        self._plain: dict[tuple[str, str], tuple[Setting, Measurement]] = {}

    @property
    def space(self) -> Space:
        assert self._space is not None, "the space is built right after the first run"
        return self._space

    @space.setter
    def space(self, space: Space) -> None:
        self._space = space

    @property
    def has_space(self) -> bool:
        return self._space is not None

    def has_knob(self, name: str) -> bool:
        """False where the probe says that this Paddle does not have the knob: a setting with it
        would be run without it."""
        knob = self.machine.knob(name)
        return knob is None or knob.available

    @property
    def left(self) -> int:
        """Counted trials that may still be run."""
        used = sum(1 for t in self.trials if t.proposal.counted)
        return self.options.trials - used

    def run(
        self,
        phase: Phase,
        setting: Setting,
        *,
        why: str,
        numerics: str | None = None,
        scan: bool = False,
        steps: int | None = None,
        repeat: int = 0,
        seed: int | None = None,
    ) -> Runs:
        """Have the setting run, unless the very run was made before.

        Raises Spent or Stopped instead of proposing beyond the budget or the deadline.
        """
        proposal = Proposal(
            phase=phase,
            setting=setting,
            numerics=numerics or self.mode,
            scan=scan,
            steps=steps,
            repeat=repeat,
            seed=self.options.seed if seed is None else seed,
            why=why,
        )
        plain = not scan and steps is None and repeat == 0
        if plain:
            known = self.known(setting, proposal.numerics)
            if known is not None:
                return known
        if proposal.key in self._answers:
            return self._answers[proposal.key]
        self.check_stop()
        if phase in COUNTED_PHASES and proposal.key not in self.stored:
            if self.left <= 0:
                raise Spent("the trials are used up")
            if phase is not Phase.baseline and self.search_time_over():
                assert self.options.timeout_s is not None
                self.cut_short = (
                    f"of the {self.options.timeout_s:g} s given (--timeout), what was left was "
                    "kept for drift and confirm runs"
                )
                raise Spent(self.cut_short)
        measurement = yield proposal
        self.trials.append(Trial(proposal=proposal, measurement=measurement))
        self._answers[proposal.key] = measurement
        if plain:
            self.remember(setting, proposal.numerics, measurement)
        return measurement

    def remember(self, setting: Setting, numerics: str, measurement: Measurement) -> None:
        """Let the measurement stand for the setting's plain run."""
        self._plain[(setting.key(), numerics)] = (setting.canonical(), measurement)

    def known(self, setting: Setting, numerics: str | None = None) -> Measurement | None:
        """The plain run of this setting, if there was one."""
        found = self._plain.get((setting.key(), numerics or self.mode))
        return None if found is None else found[1]

    def check_stop(self) -> None:
        """Raise Stopped if the user or the deadline says so."""
        timeout = self.options.timeout_s
        if timeout is not None and self._clock() >= timeout:
            raise Stopped(f"the time given ({timeout:g} s) is over")
        if self._stop():
            raise Stopped("stopped early")

    def search_time_over(self) -> bool:
        """True once what is left of ``--timeout`` is needed to prove what was found."""
        timeout = self.options.timeout_s
        if timeout is None or not self.trials:
            return False
        mean = sum(t.measurement.wall_s for t in self.trials) / len(self.trials)
        need = mean * PROOF_LENGTH * proof_runs(self.options, virtual=self.virtual)
        reserve = min(need, timeout * PROOF_SHARE)
        return self._clock() + reserve >= timeout

    def batch_of(self, setting: Setting) -> int:
        """The batch size the setting runs at; 1 where none can be seen."""
        return setting.batch_size or self.space.own_batch or 1

    @property
    def memory_limit_bytes(self) -> float | None:
        """What a setting may need: capacity less the headroom, or as much as runs today where
        that is more. Who leaves less already gains nothing by being refused what needs no more.
        """
        limit, today = self.space.memory_limit_bytes, self.memory_today_bytes
        return limit if limit is None or today is None else max(limit, today)

    @property
    def memory_today_bytes(self) -> int | None:
        """The highest peak of the script as it is; None where its own batch does not fit."""
        peaks = [
            peak
            for t in self.trials
            if t.measurement.ok
            and t.proposal.numerics == self.mode
            and not t.proposal.scan
            and self.runs_today(t.proposal.setting)
            and (peak := peak_memory_bytes(t.measurement)) is not None
        ]
        return max(peaks, default=None)

    def curve(self, setting: Setting) -> Curve:
        """All time and memory runs of the setting's recipe over the batch size."""
        wanted = recipe(setting)
        limit = self.memory_limit_bytes
        own = self.space.own_batch or 1
        points = []
        for (_, numerics), (ran, measurement) in self._plain.items():
            if numerics == self.mode and not ran.is_as_written and recipe(ran) == wanted:
                points.append(point(self.batch_of(ran), measurement, limit))
        return Curve(
            recipe=wanted,
            points=tuple(points),
            limit_bytes=limit,
            own_batch=own,
            max_batch=self.space.max_batch or own,
            max_batch_reason=self.space.max_batch_reason or "the batch size is not tuned",
            batches=self.space.batches,
        )

    def leader_curve(self) -> Curve | None:
        """The curve that holds the fastest run so far."""
        best: tuple[float, Curve] | None = None
        for setting in self.recipes():
            curve = self.curve(setting)
            fastest = curve.fastest
            if fastest is None or fastest.throughput is None:
                continue
            if best is None or fastest.throughput > best[0]:
                best = (fastest.throughput, curve)
        return None if best is None else best[1]

    def recipes(self) -> tuple[Setting, ...]:
        """Every recipe that was run and is not ruled out, in the order of first runs."""
        out: dict[str, Setting] = {}
        for (_, numerics), (ran, _) in self._plain.items():
            plain = recipe(ran)
            if numerics != self.mode or ran.is_as_written or plain.key() in self.ruled_out:
                continue
            out.setdefault(plain.key(), plain)
        return tuple(out.values())

    def rule_out(self, setting: Setting, reason: str) -> None:
        """The recipe cannot win any more, at any batch size."""
        self.ruled_out.setdefault(recipe(setting).key(), reason)

    def rule_out_alike(self, setting: Setting, reason: str) -> None:
        """The recipe drifts, and so does each of its precision that protects no more: neither
        another loss scale nor promotion cures a loss that was finite and wrong."""
        self.rule_out(setting, reason)
        for other in self.recipes():
            if other.arithmetic != setting.arithmetic:
                continue
            more_lists = set(other.custom_black_list) - set(setting.custom_black_list)
            more_grads = bool(other.master_grad) and not setting.master_grad
            if not more_lists and not more_grads:
                self.rule_out(other, f"as {recipe(setting).describe()}: {reason}")

    def reject(self, setting: Setting, reason: str) -> None:
        """This setting cannot win any more, nor its precision at a larger batch; at a smaller
        one it may."""
        self.rejected.setdefault(setting.key(), reason)
        self.skipped.append(Skipped(what=setting.describe(), reason=reason))
        batch = self.batch_of(setting)
        for candidate in self.candidates():
            other = candidate.setting
            same = other.arithmetic == setting.arithmetic
            if same and not other.is_as_written and self.batch_of(other) >= batch:
                self.rejected.setdefault(other.key(), f"{setting.describe()}: {reason}")

    def doomed(self, setting: Setting) -> str | None:
        """Why a run of the setting cannot succeed; None if it may."""
        reason = self.ruled_out.get(recipe(setting).key())
        if reason is not None:
            return reason
        curve = self.curve(setting)
        if not curve.points:
            curve = self.curve(self._base_of(setting))
        return doomed(curve, self.batch_of(setting))

    def _base_of(self, setting: Setting) -> Setting:
        for precision, base in self.bases.items():
            if precision.is_of(setting):
                return base
        return FP32.setting(None)

    def candidates(self) -> tuple[Candidate, ...]:
        """Settings that may win, by what their time and memory run showed; safest first."""
        out = []
        limit = self.memory_limit_bytes
        for (key, numerics), (setting, measurement) in self._plain.items():
            if numerics != self.mode or key in self.rejected:
                continue
            if setting.is_as_written and self.as_written_is_fp32:
                continue
            if recipe(setting).key() in self.ruled_out:
                continue
            if standing(measurement, memory_limit_bytes=limit).can_win:
                out.append(self.candidate(setting, measurement))
        # A stable sort: of equal risks the setting tried first stays first.
        return tuple(sorted(out, key=lambda c: c.risk))

    def candidate(self, setting: Setting, measurement: Measurement) -> Candidate:
        # The learning rate was chosen for the script's own batch, also where that does not fit.
        own = self.script_batch or self.space.own_batch
        return Candidate(setting=setting, measurement=measurement, risk=risk(setting, own))

    def reference(self) -> Candidate:
        """FP32 at the script's batch, or (where FP32 could not be run) the script as written.

        It may always stay, also where it leaves less than the headroom.
        """
        if self.fp32 is not None and self.fp32_setting is not None:
            return self.candidate(self.fp32_setting, self.fp32)
        assert self.as_written is not None
        return self.candidate(self.as_written_setting, self.as_written)

    @property
    def has_reference(self) -> bool:
        """True once there is something that may stay. A script that only ran at a smaller batch
        than its own may not: as written it would run out of memory."""
        return self.fp32 is not None or (self.as_written is not None and self.script_batch is None)

    def runs_today(self, setting: Setting) -> bool:
        """True for what the script does without autoamp, on this device."""
        if self.script_batch is not None or self.as_written is None:
            return False
        fp32 = self.as_written_is_fp32 and setting == self.fp32_setting
        return setting.is_as_written or fp32

    def modelled_ratio(self, first: Candidate, second: Candidate) -> Interval:
        """Ratio of two settings' modelled times, with the model's band.

        One recipe at two batches launches the same kernels: what the model gets wrong of the host
        is in both and cancels.
        """
        waits = recipe(first.setting) != recipe(second.setting) and any(
            is_host_bound(c.measurement) for c in (first, second)
        )
        return modelled_ratio(
            first.throughput,
            second.throughput,
            band=self.ratio_band,
            host_bound=self.host_bound if waits else None,
        )

    def first_ratio(self, first: Candidate, second: Candidate) -> Interval:
        """Ratio of two settings by their first runs."""
        if self.virtual:
            return self.modelled_ratio(first, second)
        return single_runs_ratio(first.throughput, second.throughput)

    def is_first_gain(self, first: Candidate, second: Candidate) -> bool:
        """Whether first runs speak for ``second``; within their own spread they do not."""
        spreads = [c.measurement.throughput_spread or 0.0 for c in (first, second)]
        least = max(self.options.min_gain, math.hypot(*spreads))
        return is_gain(self.first_ratio(first, second), min_gain=least)

    @property
    def emulated_batch(self) -> int | None:
        """The batch for runs that look at numerics: the script's own, on a virtual device less
        where a step in full would take the host too long."""
        own = self.space.own_batch
        flops = self.as_written.step_flops if self.as_written is not None else None
        if not self.virtual or own is None or not flops or not self.space.batch_settable:
            return own
        fits = int(own * EMULATED_STEP_FLOPS / flops)
        return min(own, max(EMULATED_LEAST_BATCH, fits))

    @property
    def emulated_step_s(self) -> float | None:
        """Seconds that this host takes for a step in full, from the runs that made such steps."""
        paces = [
            (t.measurement.wall_s - (t.measurement.startup_s or 0.0)) / t.measurement.steps_done
            for t in self.trials
            if t.proposal.numerics == NUMERICS_FULL and t.measurement.steps_done
        ]
        return min(paces, default=None)

    def at_batch(self, setting: Setting, batch: int | None) -> Setting:
        """The same recipe at another batch size (None: the loader is left alone)."""
        return replace(setting, batch_size=batch if self.space.batch_settable else None)


def proof_runs(options: Options, *, virtual: bool) -> int:
    """About how many drift and confirm runs come on top of ``--trials``."""
    seeds = 1 if options.max_drift is not None else 3
    drift = seeds + 1
    if virtual:
        return drift + 4
    settings = 2 if options.keep_batch else 3
    return drift + settings - 1 + settings * options.confirm_pairs
