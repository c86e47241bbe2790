"""Who is to be proved: the leader, who might tie with it, and what runs today."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoamp.measurement import Measurement, Phase
from autoamp.settings import Setting
from autoamp.studies.confirm import Interval, is_gain, paired_ratio
from autoamp.studies.session import Candidate, Session

RUNNER_UP_WITHIN = 0.10
"""A safer precision so near to the leader in single runs may tie with it: both are confirmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picks:
    """The settings that the proof is about."""

    reference: Candidate
    leader: Candidate
    at_own_batch: Candidate
    mixed: Candidate | None
    """The fastest mixed precision, also when FP32 leads: the verdict names it. TF32 where
    nothing mixed works."""
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


def pick(s: Session) -> Picks:
    """The leader, the leader at the script's own batch, and who might tie with it."""
    reference = s.reference()
    candidates = s.candidates()
    leader = choose(s, reference, candidates, first=True)
    at_own = choose_at_own_batch(s, reference, candidates, first=True)
    mixed = [c for c in candidates if c.setting.is_mixed]
    mixed = mixed or [c for c in candidates if c.setting.is_reduced]
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


def choose_at_own_batch(
    s: Session, reference: Candidate, candidates: Sequence[Candidate], *, first: bool
) -> Candidate:
    """The candidate to take at the script's own batch size; where none has it in memory, at the
    one that it was halved to."""
    if s.script_batch is not None:
        there = [c for c in candidates if s.batch_of(c.setting) == s.script_batch]
        if there:
            return choose(s, min(there, key=lambda c: c.risk), there, first=first)
    own = s.batch_of(reference.setting) if s.space.own_batch is None else s.space.own_batch
    same = [c for c in candidates if s.batch_of(c.setting) == own]
    return choose(s, own_reference(s, reference), same, first=first)


def own_reference(s: Session, reference: Candidate) -> Candidate:
    """What may stay at the script's own batch: FP32 there, else the script as written."""
    if reference.setting.is_as_written or s.fp32_reason is None or s.script_batch is not None:
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
        return s.modelled_ratio(first, second)
    ours, theirs = fresh_runs(s, first.setting), fresh_runs(s, second.setting)
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


def fresh_runs(s: Session, setting: Setting) -> dict[int, Measurement]:
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
