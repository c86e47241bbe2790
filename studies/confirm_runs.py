"""Fresh runs in fresh processes: the picks and what runs today, alternating."""

from __future__ import annotations

from collections.abc import Generator

from autoamp.measurement import Measurement, Phase
from autoamp.settings import Setting
from autoamp.studies.drift import UNCHECKED_OUTCOMES
from autoamp.studies.picking import Picks
from autoamp.studies.proposal import Proposal
from autoamp.studies.score import instability, standing
from autoamp.studies.session import Candidate, Session


def measure_split(s: Session, leader: Candidate) -> Generator[Proposal, Measurement, None]:
    """Run the leader's precision at FP32's batch, if it was not: the gain is split by it."""
    if not leader.setting.is_reduced or s.fp32 is None or s.fp32_setting is None:
        return
    if at_fp32_batch(s, leader.setting) is None and s.space.batch_settable:
        yield from s.run(
            Phase.confirm,
            s.at_batch(leader.setting, s.batch_of(s.fp32_setting)),
            why="the same precision at FP32's batch, to split the gain",
        )


def at_fp32_batch(s: Session, setting: Setting) -> tuple[Setting, Measurement] | None:
    """A timed run of the setting's precision at the batch of the FP32 baseline.

    The very recipe, or else the variant that the precision was carried on with: knobs such as
    the loss scale hardly move the speed.
    """
    assert s.fp32_setting is not None
    batch = s.batch_of(s.fp32_setting)
    variants = [setting]
    for precision, base in s.bases.items():
        if precision.is_of(setting):
            variants.append(base)
    for variant in variants:
        there = s.at_batch(variant, batch)
        known = s.known(there)
        if known is not None and known.ok and known.throughput_samples_per_s:
            return there, known
    return None


def confirm(s: Session, picks: Picks) -> Generator[Proposal, Measurement, bool]:
    """Fresh runs; True if a pick failed in one and the picking must be redone."""
    members = picks.all()
    if len(members) == 1 and not s.virtual and s.runs_today(members[0].setting):
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
            stand = standing(run, memory_limit_bytes=s.memory_limit_bytes)
            if not stand.can_win and candidate.setting.key() != picks.reference.setting.key():
                s.reject(candidate.setting, f"fresh run {round_number}: {stand.reason}")
    return any(c.setting.key() in s.rejected for c in members)


def _confirm_virtual(s: Session, picks: Picks) -> Generator[Proposal, Measurement, bool]:
    """Memory once more for each pick, numerics once more (another seed) for each recipe."""
    limit = s.memory_limit_bytes
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
