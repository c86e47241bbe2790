"""From the search's candidates to what is recommended: drift check, fresh runs, choice."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

from autoamp.measurement import Measurement, Phase
from autoamp.settings import Setting
from autoamp.studies import reasons
from autoamp.studies.confirm import Interval, is_gain, modelled_ratio, paired_ratio
from autoamp.studies.drift import (
    DRIFT_STEPS,
    FP32_SEEDS,
    UNCHECKED_OUTCOMES,
    DriftCheck,
    compare,
    trains,
)
from autoamp.studies.proposal import Choice, Proposal, Result, recipe
from autoamp.studies.score import instability, standing
from autoamp.studies.session import Candidate, Session, Stopped
from autoamp.studies.space import FP32

MAX_FALLBACKS = 12
"""How often a leader that fails its proof is replaced before the safest is taken."""

MAX_EMULATED_DRIFT_S = 300.0
"""A drift check that the CPU would emulate for longer is left to the GPU, and said so."""

RUNNER_UP_WITHIN = 0.10
"""A safer precision so near to the leader in single runs may tie with it: both are confirmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picks:
    """The settings that the proof is about."""

    reference: Candidate
    leader: Candidate
    at_own_batch: Candidate
    mixed: Candidate | None
    """The fastest mixed precision, also when FP32 leads: the verdict names it."""
    runner_up: Candidate | None
    written: Candidate | None
    """The script's own AMP, where it has one: what runs today is compared in fresh runs too."""

    def all(self) -> tuple[Candidate, ...]:
        """Each once, the reference first."""
        picked = (
            *(self.reference, self.written, self.leader, self.at_own_batch),
            *(self.mixed, self.runner_up),
        )
        return tuple({c.setting.key(): c for c in picked if c is not None}.values())

    def to_win(self) -> tuple[Candidate, ...]:
        """Those that may be recommended and therefore need the drift check."""
        picked = (self.leader, self.at_own_batch, self.runner_up)
        return tuple({c.setting.key(): c for c in picked if c is not None}.values())


def prove(s: Session, stopped: str | None) -> Generator[Proposal, Measurement, Result]:
    """Check drift and confirm in fresh runs, falling to the next leader where one fails."""
    picks = pick(s)
    if stopped is None:
        try:
            for _ in range(MAX_FALLBACKS):
                picks = pick(s)
                if (yield from _drift(s, picks)):
                    continue
                yield from _measure_split(s, picks.leader)
                if not (yield from _confirm(s, picks)):
                    break
            picks = pick(s)
        except Stopped as exc:
            stopped = str(exc)
            picks = pick(s)
    return _result(s, picks, stopped)


def pick(s: Session) -> Picks:
    """The leader, the leader at the script's own batch, and who might tie with it."""
    reference = s.reference()
    candidates = s.candidates()
    own = s.batch_of(reference.setting) if s.space.own_batch is None else s.space.own_batch
    leader = choose(s, reference, candidates, first=True)
    at_own = choose(
        s,
        _own_reference(s, reference),
        [c for c in candidates if s.batch_of(c.setting) == own],
        first=True,
    )
    mixed = [c for c in candidates if c.setting.is_mixed]
    best_mixed = max(mixed, key=lambda c: c.throughput, default=None)
    if leader.setting.is_mixed:
        best_mixed = leader
    near = [
        c
        for c in candidates
        if c.risk.precision < leader.risk.precision
        and c.throughput >= leader.throughput * (1 - RUNNER_UP_WITHIN)
    ]
    return Picks(
        reference=reference,
        leader=leader,
        at_own_batch=at_own,
        mixed=best_mixed,
        runner_up=max(near, key=lambda c: c.throughput, default=None),
        written=next((c for c in candidates if c.setting.is_as_written), None),
    )


def _own_reference(s: Session, reference: Candidate) -> Candidate:
    """What may stay at the script's own batch: FP32 there, else the script as written."""
    if reference.setting.is_as_written or s.fp32_reason is None:
        return reference
    assert s.as_written is not None
    return s.candidate(Setting(), s.as_written)


def choose(
    s: Session, reference: Candidate, candidates: Sequence[Candidate], *, first: bool
) -> Candidate:
    """The candidate to take: from the safest on, a riskier one must show a gain.

    Ties thereby go to the safer setting. ``first``: by first runs; else by confirm runs.
    """
    order = sorted(
        {c.setting.key(): c for c in (reference, *candidates)}.values(), key=lambda c: c.risk
    )
    current = order[0]
    for candidate in order[1:]:
        if first:
            gain = s.is_first_gain(current, candidate)
        else:
            interval = ratio(s, current, candidate)
            gain = interval is not None and is_gain(interval, min_gain=s.options.min_gain)
        if gain:
            current = candidate
    return current


def ratio(s: Session, first: Candidate, second: Candidate) -> Interval | None:
    """Ratio second/first by the fresh runs (virtual: by the model); None without any pair."""
    if s.virtual:
        return modelled_ratio(first.throughput, second.throughput, band=s.ratio_band)
    ours, theirs = _confirm_runs(s, first.setting), _confirm_runs(s, second.setting)
    pairs = [
        (a.throughput_samples_per_s, b.throughput_samples_per_s)
        for round_number, a in ours.items()
        if (b := theirs.get(round_number)) is not None
        and a.ok
        and b.ok
        and a.throughput_samples_per_s
        and b.throughput_samples_per_s
    ]
    return paired_ratio([(x, y) for x, y in pairs if x and y]) if pairs else None


def _confirm_runs(s: Session, setting: Setting) -> dict[int, Measurement]:
    """Fresh time runs of a setting by round."""
    return {
        t.proposal.repeat: t.measurement
        for t in s.trials
        if t.proposal.phase is Phase.confirm
        and t.proposal.repeat > 0
        and t.proposal.numerics == s.mode
        and t.proposal.steps is None
        and t.proposal.setting.key() == setting.key()
    }


def _drift(s: Session, picks: Picks) -> Generator[Proposal, Measurement, bool]:
    """Check every mixed recipe that may win; True if one failed and the pick must be redone."""
    mixed = [c for c in picks.to_win() if c.setting.is_mixed]
    unchecked = {
        recipe(c.setting).key(): c.setting for c in mixed if recipe(c.setting).key() not in s.drift
    }
    failed = False
    if unchecked:
        batch = _common_batch(s, list(unchecked.values()))
        fp32 = yield from _fp32_losses(s, batch)
        if _reject_fp32(s, picks.reference, batch, fp32):
            return True
        for key, setting in unchecked.items():
            if key in s.ruled_out:
                continue
            check = yield from _check_recipe(s, setting, batch, fp32)
            s.drift[key] = check
            if check.passed is False:
                s.rule_out_alike(setting, f"drift check: {check.why}")
                failed = True
    if failed:
        return True
    for candidate in mixed:
        if (yield from _check_own_batch(s, candidate.setting)):
            failed = True
    return failed


def _common_batch(s: Session, settings: Sequence[Setting]) -> int | None:
    """The largest batch at which FP32 and these recipes ran; emulated: FP32's own."""
    if s.fp32_setting is None:
        return None
    if s.virtual:
        return s.emulated_batch
    batch = s.batch_of(s.fp32_setting)
    if not s.space.batch_settable:
        return batch
    tops = [max((p.batch for p in s.curve(x).fitting), default=batch) for x in settings]
    fits = [
        p.batch
        for p in s.curve(s.fp32_setting).fitting
        if p.batch <= min(tops) and s.at_batch(FP32.setting(None), p.batch).key() not in s.rejected
    ]
    return max(fits, default=min(batch, *tops))


def _fp32_losses(
    s: Session, batch: int | None
) -> Generator[Proposal, Measurement, list[Measurement]]:
    """FP32's longer runs, one a seed; a single one where the tolerance is given or it fails."""
    if s.fp32_setting is None or s.stability_mode is None:
        return []
    seeds = 1 if s.options.max_drift is not None else FP32_SEEDS
    runs: list[Measurement] = []
    if s.virtual:
        wanted_s = (seeds + 1) * DRIFT_STEPS * (s.emulated_step_s or 0.0)
        if wanted_s > MAX_EMULATED_DRIFT_S:
            s.drift_skipped = (
                f"{seeds + 1} runs of {DRIFT_STEPS} emulated steps would take about "
                f"{wanted_s / 60:.0f} min on this CPU; check it on the GPU"
            )
            return []
    for number in range(seeds):
        run = yield from s.run(
            Phase.drift,
            s.at_batch(FP32.setting(None), batch),
            numerics=s.stability_mode,
            steps=DRIFT_STEPS,
            repeat=1,
            seed=s.options.seed + number,
            why=f"FP32's own spread, seed {number + 1} of {seeds}",
        )
        runs.append(run)
        if not run.ok or not run.losses:
            break
    return runs


def _reject_fp32(
    s: Session, reference: Candidate, batch: int | None, runs: list[Measurement]
) -> bool:
    """True if FP32 itself failed a longer run at a batch that is not the script's own: it cannot
    be recommended there, and another batch has to serve for the comparison."""
    setting = s.at_batch(FP32.setting(None), batch)
    if s.virtual or not runs or runs[-1].ok:
        return False
    last = runs[-1]
    if last.outcome in UNCHECKED_OUTCOMES:
        return False
    if setting.key() == reference.setting.key() or setting.key() in s.rejected:
        return False
    s.reject(setting, f"longer run: {last.outcome}: {last.reason or 'no reason recorded'}")
    return True


def _check_recipe(
    s: Session, setting: Setting, batch: int | None, fp32: list[Measurement]
) -> Generator[Proposal, Measurement, DriftCheck]:
    plain = s.at_batch(recipe(setting), batch)
    if s.stability_mode is None or not fp32:
        known = s.known(setting)
        assert known is not None
        why = (
            "numerics were not computed (planning mode)"
            if s.stability_mode is None
            else s.drift_skipped or s.fp32_reason or "FP32 could not be run"
        )
        blank = compare(plain, known, [], batch=batch, max_drift=s.options.max_drift)
        return replace(blank, passed=None, why=f"not compared: {why}")
    if not fp32[0].ok:
        known = s.known(setting)
        assert known is not None
        blank = compare(plain, known, fp32, batch=batch, max_drift=s.options.max_drift)
        why = f"FP32's longer run ended {fp32[0].outcome}: {fp32[0].reason or 'no reason'}"
        return replace(blank, passed=None, why=f"not compared: {why}")
    run = yield from s.run(
        Phase.drift,
        plain,
        numerics=s.stability_mode,
        steps=DRIFT_STEPS,
        repeat=1,
        seed=s.options.seed,
        why=f"{plain.precision()} against FP32 at the same batch",
    )
    return compare(plain, run, fp32, batch=batch, max_drift=s.options.max_drift)


def _check_own_batch(s: Session, setting: Setting) -> Generator[Proposal, Measurement, bool]:
    """Is the recommended batch itself finite, stable, and does its loss fall? True if not."""
    key = recipe(setting).key()
    check = s.drift.get(key)
    if check is None or s.stability_mode is None or check.batch == s.batch_of(setting):
        return False
    if s.virtual:
        _note(s, key, f"numerics at batch {s.batch_of(setting)} itself were not emulated")
        return False
    run = yield from s.run(
        Phase.drift,
        setting,
        numerics=s.stability_mode,
        steps=DRIFT_STEPS,
        repeat=1,
        seed=s.options.seed,
        why="longer, at the recommended batch",
    )
    fp32 = next(
        (
            t.measurement
            for t in s.trials
            if t.proposal.phase is Phase.drift and not t.proposal.setting.is_mixed
        ),
        None,
    )
    wrong = trains(run, fp32)
    batch = s.batch_of(setting)
    if wrong is not None:
        s.reject(setting, f"longer run at batch {batch}: {wrong}")
        return True
    seen = (
        f"could not be looked at ({run.outcome})"
        if run.outcome in UNCHECKED_OUTCOMES
        else f"finite, stable over {run.steps_done} steps"
    )
    _note(s, key, f"at batch {batch}: {seen}")
    return False


def _note(s: Session, key: str, text: str) -> None:
    """Keep what was seen at a recommended batch beside the recipe's comparison."""
    check = s.drift[key]
    notes = dict.fromkeys((check.own_batch_why, text) if check.own_batch_why else (text,))
    s.drift[key] = replace(check, own_batch_why="; ".join(notes))


def _measure_split(s: Session, leader: Candidate) -> Generator[Proposal, Measurement, None]:
    """Run the leader's precision at FP32's batch, if it was not: the gain is split by it."""
    if not leader.setting.is_mixed or s.fp32 is None or s.fp32_setting is None:
        return
    if _at_fp32_batch(s, leader.setting) is None and s.space.batch_settable:
        yield from s.run(
            Phase.confirm,
            s.at_batch(leader.setting, s.batch_of(s.fp32_setting)),
            why="the same precision at FP32's batch, to split the gain",
        )


def _at_fp32_batch(s: Session, setting: Setting) -> tuple[Setting, Measurement] | None:
    """A timed run of the setting's precision at the batch of the FP32 baseline.

    The very recipe, or else the variant that the precision was carried on with: knobs such as
    the loss scale hardly move the speed.
    """
    assert s.fp32_setting is not None
    batch = s.batch_of(s.fp32_setting)
    variants = [setting]
    for precision, base in s.bases.items():
        if (precision.level, precision.dtype) == (setting.amp_level, setting.dtype):
            variants.append(base)
    for variant in variants:
        there = s.at_batch(variant, batch)
        known = s.known(there)
        if known is not None and known.ok and known.throughput_samples_per_s:
            return there, known
    return None


def _confirm(s: Session, picks: Picks) -> Generator[Proposal, Measurement, bool]:
    """Fresh runs; True if a pick failed in one and the picking must be redone."""
    members = picks.all()
    if len(members) == 1 and not s.virtual:
        # Nothing to compare: what runs today stays, and that needs no proof.
        return False
    if s.virtual:
        return (yield from _confirm_virtual(s, picks))
    for round_number in range(1, s.options.confirm_pairs + 1):
        # Every other round runs backwards, so that a slow trend favours nobody.
        order = members if round_number % 2 else members[::-1]
        for candidate in order:
            if candidate.setting.key() in s.rejected:
                continue
            run = yield from s.run(
                Phase.confirm,
                candidate.setting,
                repeat=round_number,
                seed=s.options.seed + round_number,
                why=f"round {round_number} of {s.options.confirm_pairs}",
            )
            stand = standing(run, memory_limit_bytes=s.space.memory_limit_bytes)
            if not stand.can_win and candidate.setting.key() != picks.reference.setting.key():
                s.reject(candidate.setting, f"fresh run {round_number}: {stand.reason}")
    return any(c.setting.key() in s.rejected for c in members)


def _confirm_virtual(s: Session, picks: Picks) -> Generator[Proposal, Measurement, bool]:
    """Memory once more for each pick, numerics once more (another seed) for each recipe."""
    limit = s.space.memory_limit_bytes
    failed = False
    for candidate in picks.all():
        run = yield from s.run(
            Phase.confirm,
            candidate.setting,
            repeat=1,
            seed=s.options.seed + 1,
            why="memory once more, in a fresh process",
        )
        stand = standing(run, memory_limit_bytes=limit)
        if not stand.can_win and candidate.setting.key() != picks.reference.setting.key():
            s.reject(candidate.setting, f"fresh run: {stand.reason}")
            failed = True
    if s.stability_mode is None or s.stability_mode == s.mode:
        return failed
    own = s.emulated_batch
    for candidate in picks.to_win():
        if not candidate.setting.is_mixed or candidate.setting.key() in s.rejected:
            continue
        run = yield from s.run(
            Phase.confirm,
            s.at_batch(candidate.setting, own),
            numerics=s.stability_mode,
            repeat=1,
            seed=s.options.seed + 1,
            why="numerics once more, with another seed",
        )
        wrong = None
        if run.outcome not in UNCHECKED_OUTCOMES:
            wrong = (
                f"{run.outcome}: {run.reason or 'no reason recorded'}"
                if not run.ok
                else instability(run)
            )
        if wrong is not None:
            s.rule_out(candidate.setting, f"fresh numerics run with another seed: {wrong}")
            failed = True
    return failed


def _result(s: Session, picks: Picks, stopped: str | None) -> Result:
    assert s.as_written is not None
    passed = {key for key, check in s.drift.items() if check.passed is not False}
    standing_still = {picks.reference.setting.key(), Setting().key()}

    def may_win(c: Candidate) -> bool:
        # Unproved settings win only when the search was cut short, and are marked so.
        if stopped is not None or c.setting.key() in standing_still:
            return True
        fresh = any(m.ok for m in _confirm_runs(s, c.setting).values())
        return fresh and (not c.setting.is_mixed or recipe(c.setting).key() in passed)

    own = picks.at_own_batch
    compared = stopped is None or _proved(s, picks)
    everyone = [c for c in picks.all() if may_win(c) and c.setting.key() not in s.rejected]
    best = picks.leader
    if compared:
        best = choose(s, picks.reference, everyone, first=False)
        batch = s.batch_of(own.setting)
        own = choose(
            s,
            _own_reference(s, picks.reference),
            [c for c in everyone if s.batch_of(c.setting) == batch],
            first=False,
        )
    mixed = best if best.setting.is_mixed else picks.mixed
    verdict = "keep_fp32"
    if best.setting.is_mixed:
        verdict = "use"
    elif best.setting.is_as_written:
        verdict = "keep_as_written"
    best_choice = _choice(s, best, picks)
    own_choice = best_choice if own is best else _choice(s, own, picks)
    mixed_choice = None if mixed is None else _choice(s, mixed, picks)
    default, default_reason = _default(s, best)
    headline, why = reasons.explain(s, verdict, best_choice, mixed_choice, stopped)
    return Result(
        machine=s.machine,
        options=s.options,
        facts=s.facts,
        space=s.space,
        trials=tuple(s.trials),
        as_written=s.as_written,
        fp32=s.fp32,
        fp32_setting=s.fp32_setting,
        fp32_reason=s.fp32_reason,
        scan=s.scan,
        scale_window=s.window,
        ceilings=tuple(s.ceilings.values()),
        skipped=tuple(dict.fromkeys((*s.space.exclusions, *s.skipped))),
        drift=tuple(s.drift.values()),
        best=best_choice,
        at_your_batch=own_choice,
        mixed=mixed_choice,
        verdict=verdict,
        headline=headline,
        why=why,
        default=default,
        default_reason=default_reason,
        caveats=tuple(dict.fromkeys(s.caveats + reasons.caveats(s, best_choice, stopped))),
        stopped=stopped,
    )


def _proved(s: Session, picks: Picks) -> bool:
    """True if every pick has at least one pair of fresh runs with the reference."""
    if s.virtual:
        return True
    others = [c for c in picks.all() if c.setting.key() != picks.reference.setting.key()]
    return all(ratio(s, picks.reference, c) is not None for c in others)


def _choice(s: Session, candidate: Candidate, picks: Picks) -> Choice:
    setting = candidate.setting
    fresh = tuple(m for m in _confirm_runs(s, setting).values() if m.ok)
    stability = tuple(
        t.measurement
        for t in s.trials
        if t.measurement.ok
        and recipe(t.proposal.setting) == recipe(setting)
        and (t.proposal.phase in (Phase.numerics, Phase.drift) or t.proposal.numerics != s.mode)
        and not t.proposal.scan
    )
    against_fp32 = None
    if s.fp32 is not None and s.fp32_setting is not None:
        fp32 = s.candidate(s.fp32_setting, s.fp32)
        against_fp32 = _best_ratio(s, fp32, candidate)
    against_written = None
    if not s.as_written_is_fp32 and s.as_written is not None:
        written = s.candidate(Setting(), s.as_written)
        if written.measurement.throughput_samples_per_s:
            against_written = _best_ratio(s, written, candidate)
    precision, batch, split_reason = _split(s, candidate, against_fp32)
    return Choice(
        setting=setting,
        runs=(candidate.measurement, *fresh),
        stability=stability,
        against_fp32=against_fp32,
        against_as_written=against_written if not s.as_written_is_fp32 else against_fp32,
        precision_gain=precision,
        batch_gain=batch,
        split_reason=split_reason,
        confirmed=len(fresh) >= 1,
        reason=reasons.why_this_one(s, candidate, picks),
    )


def _best_ratio(s: Session, first: Candidate, second: Candidate) -> Interval:
    if first.setting.key() == second.setting.key():
        return Interval(ratio=1.0, low=None, high=None, basis="the same setting")
    return ratio(s, first, second) or s.first_ratio(first, second)


def _split(
    s: Session, candidate: Candidate, total: Interval | None
) -> tuple[Interval | None, float | None, str | None]:
    """(precision's gain, batch's gain, why not): the first measured at FP32's own batch."""
    if total is None or s.fp32 is None or s.fp32_setting is None:
        return None, None, s.fp32_reason or "FP32 was not run"
    batch = s.batch_of(s.fp32_setting)
    fp32 = s.candidate(s.fp32_setting, s.fp32)
    if candidate.setting.is_as_written:
        if batch == s.space.own_batch:
            return total, 1.0, None
        return None, None, f"FP32 ran at batch {batch}, the script at {s.space.own_batch}"
    if s.at_batch(candidate.setting, batch).key() == fp32.setting.key():
        return (
            Interval(ratio=1.0, low=None, high=None, basis="the same setting"),
            total.ratio,
            None,
        )
    found = _at_fp32_batch(s, candidate.setting)
    if found is None:
        return None, None, f"{candidate.setting.precision()} was not measured at batch {batch}"
    setting, measurement = found
    gain = _best_ratio(s, fp32, s.candidate(setting, measurement))
    if recipe(setting) != recipe(candidate.setting):
        gain = replace(gain, basis=f"{gain.basis} (of {setting.describe()})")
    return gain, total.ratio / gain.ratio, None


def _default(s: Session, best: Candidate) -> tuple[str, str]:
    if s.options.keep_batch:
        return "at_your_batch", "--keep-batch was given"
    if s.facts.scheduled_by == "iterations":
        return "at_your_batch", (
            "the script is scheduled by iterations: a larger batch would not finish sooner, it "
            "would see more data"
        )
    return "best", "the fastest setting that was confirmed"
