"""The search's result: the choice among what was proved, with its gains and reasons."""

from __future__ import annotations

from dataclasses import replace

from autoamp.measurement import Phase
from autoamp.settings import Setting
from autoamp.studies import caveats, reasons
from autoamp.studies.confirm import Interval
from autoamp.studies.confirm_runs import at_fp32_batch
from autoamp.studies.picking import Picks, choose, choose_at_own_batch, fresh_runs, ratio
from autoamp.studies.proposal import Choice, Result, recipe
from autoamp.studies.session import Candidate, Session


def result_of(s: Session, picks: Picks, stopped: str | None) -> Result:
    """Choose by the fresh runs and put everything a recommendation needs together."""
    assert s.as_written is not None
    passed = {key for key, check in s.drift.items() if check.passed is not False}
    standing_still = {picks.reference.setting.key(), Setting().key()}

    def may_win(c: Candidate) -> bool:
        # Unproved settings win only when the search was cut short, and are marked so.
        if stopped is not None or c.setting.key() in standing_still:
            return True
        fresh = any(m.ok for m in fresh_runs(s, c.setting).values())
        return fresh and (not c.setting.is_reduced or recipe(c.setting).key() in passed)

    own = picks.at_own_batch
    compared = stopped is None or _proved(s, picks)
    everyone = [c for c in picks.all() if may_win(c) and c.setting.key() not in s.rejected]
    best = picks.leader
    if compared:
        best = choose(s, picks.reference, everyone, first=False)
        own = choose_at_own_batch(s, picks.reference, everyone, first=False)
    mixed = picks.mixed
    if best.setting.is_mixed or (best.setting.is_reduced and not _is_mixed(mixed)):
        mixed = best
    verdict = "keep_fp32"
    if best.setting.is_reduced:
        verdict = "use"
    elif best.setting.is_as_written:
        verdict = "keep_as_written"
    best_choice = _choice(s, best, picks, same_batch=s.options.keep_batch)
    own_choice = best_choice if own is best else _choice(s, own, picks, same_batch=True)
    mixed_choice = None if mixed is None else _choice(s, mixed, picks, same_batch=False)
    default, default_reason = _default(s, best, own)
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
        caveats=tuple(dict.fromkeys(s.caveats + caveats.caveats(s, best_choice, stopped))),
        stopped=stopped,
        as_written_setting=s.as_written_setting,
        script_batch=s.script_batch or s.space.own_batch,
    )


def _is_mixed(candidate: Candidate | None) -> bool:
    return candidate is not None and candidate.setting.is_mixed


def _proved(s: Session, picks: Picks) -> bool:
    """True if every pick has at least one pair of fresh runs with the reference."""
    if s.virtual:
        return True
    others = [c for c in picks.all() if c.setting.key() != picks.reference.setting.key()]
    return all(ratio(s, picks.reference, c) is not None for c in others)


def _choice(s: Session, candidate: Candidate, picks: Picks, *, same_batch: bool) -> Choice:
    setting = candidate.setting
    fresh = tuple(m for m in fresh_runs(s, setting).values() if m.ok)
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
        reason=reasons.why_this_one(s, candidate, picks, same_batch=same_batch),
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
    found = at_fp32_batch(s, candidate.setting)
    if found is None:
        return None, None, f"{candidate.setting.precision()} was not measured at batch {batch}"
    setting, measurement = found
    gain = _best_ratio(s, fp32, s.candidate(setting, measurement))
    if recipe(setting) != recipe(candidate.setting):
        gain = replace(gain, basis=f"{gain.basis} (of {setting.describe()})")
    return gain, total.ratio / gain.ratio, None


def _default(s: Session, best: Candidate, own: Candidate) -> tuple[str, str]:
    if s.options.keep_batch:
        return "at_your_batch", "--keep-batch was given"
    other_batch = s.batch_of(best.setting) != s.batch_of(own.setting)
    if s.facts.scheduled_by == "iterations" and other_batch:
        return "at_your_batch", (
            "the script is scheduled by iterations: a larger batch would not finish sooner, it "
            "would see more data"
        )
    return "best", "the fastest setting that was confirmed"
