"""The search below the ceilings: which knobs are worth it, and the runs themselves."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace

from autoamp.measurement import Measurement, Phase
from autoamp.settings import Dtype, Level, Setting
from autoamp.studies.budget import Budget
from autoamp.studies.ceilings import align, point
from autoamp.studies.proposal import Proposal, recipe
from autoamp.studies.score import instability
from autoamp.studies.search import Asker, Dimensions
from autoamp.studies.session import Session
from autoamp.studies.space import FP32, Precision

Steps = Generator[Proposal, Measurement, None]


SEARCH_WITHIN = 0.10
"""Precisions whose best is so near to the leader's are searched further."""

PATIENCE = 8
"""Search trials in a row that bring nothing before the search ends."""

NOTICEABLE = 0.01
"""A smaller improvement does not keep the search alive."""


def search_below(s: Session, budget: Budget) -> Steps:
    """Ask and run until the trials are spent, nothing is left, or nothing improves."""
    dimensions = _dimensions(s, budget)
    if dimensions is None:
        return
    asker = Asker(dimensions, seed=s.options.seed)
    limit = s.memory_limit_bytes
    for setting in asker.grid:
        known = s.known(setting)
        if known is not None:
            seen = point(s.batch_of(setting), known, limit)
            asker.learn(setting, value=seen.throughput, failed=seen.failed)
    asker.enqueue(_obvious(s, dimensions))
    best = max((c.throughput for c in s.candidates()), default=0.0)
    idle = 0
    while s.left > 0 and idle < PATIENCE:
        wanted = asker.ask(s.left, lambda x: s.doomed(x) or changes_nothing(s, x))
        if wanted is None:
            break
        try:
            measurement = yield from s.run(Phase.search, wanted, why="search below the ceiling")
        finally:
            s.skipped.extend(x for x in asker.skipped.values() if x not in s.skipped)
        seen = point(s.batch_of(wanted), measurement, limit)
        asker.learn(wanted, value=seen.throughput, failed=seen.failed)
        idle += 1
        if seen.failed is None and (seen.throughput or 0.0) > best * (1 + NOTICEABLE):
            best, idle = seen.throughput or 0.0, 0
    s.skipped.extend(x for x in asker.skipped.values() if x not in s.skipped)


def changes_nothing(s: Session, setting: Setting) -> str | None:
    """Why a variant of O2 is not worth a run on a clock whose repeats are equal: at a batch where
    both ran it has its plain form's very time and memory. None if it may differ."""
    if not s.virtual:
        return None
    plain_forms = {
        "use_promote": replace(setting, use_promote=None),
        "master_grad": replace(setting, master_grad=None),
    }
    for knob, form in plain_forms.items():
        if form == setting:
            continue
        ours, theirs = s.curve(setting), s.curve(form)
        for mine in ours.fitting:
            plain = theirs.at(mine.batch)
            if plain is None or plain.failed is not None:
                continue
            if (mine.throughput, mine.memory_bytes) == (plain.throughput, plain.memory_bytes):
                return f"{knob} changed neither time nor memory at batch {mine.batch}"
    return None


def _dimensions(s: Session, budget: Budget) -> Dimensions | None:
    """The knobs worth a search: the leading precisions, around their fastest batch sizes."""
    best: dict[Precision, float] = {}
    everything = dict(s.bases)
    if s.fp32_setting is not None:
        everything = {FP32: s.fp32_setting, **everything}
    for precision, setting in everything.items():
        fastest = s.curve(setting).fastest
        if fastest is not None and fastest.throughput:
            best[precision] = fastest.throughput
    if not best:
        return None
    top = max(best.values())
    precisions = tuple(
        sorted((p for p in best if best[p] >= (1 - SEARCH_WITHIN) * top), key=lambda p: -best[p])
    )
    batches: tuple[int | None, ...] = (s.space.setting_batch,)
    if s.space.batch_free:
        batches = _batches_around(s, [everything[p] for p in precisions], budget.ladder_ends)
    bases = [everything[p] for p in precisions if p.is_mixed]
    half = [b for b in bases if b.dtype is Dtype.float16]
    # A virtual device's time does not depend on the loss scale, and planning runs see no
    # overflow: there these knobs only change through the cures of unstable precisions.
    free = budget.variants and not s.virtual
    scales = [b.init_loss_scaling for b in half]
    if free and s.window is not None and half:
        scales += s.window.candidates()[:2]
    lists = [b.custom_black_list for b in half]
    if free and s.scan is not None and half and s.scan.overflow_ops:
        lists += [(), tuple(sorted(s.scan.overflow_ops))]
    o2 = [b for b in bases if b.amp_level is Level.O2]
    masters = [b.master_grad for b in o2 if b.dtype is Dtype.float16]
    if free and masters and s.has_knob("master_grad"):
        masters += [None, True]
    promotes: list[bool | None] = [b.use_promote for b in o2]
    if budget.variants and o2 and s.has_knob("use_promote"):
        promotes += [None, False]
    return Dimensions(
        precisions=precisions,
        batches=batches,
        scales=tuple(dict.fromkeys(scales)) or (None,),
        black_lists=tuple(dict.fromkeys(lists)) or ((),),
        master_grads=tuple(dict.fromkeys(masters)) or (None,),
        use_promotes=tuple(dict.fromkeys(promotes)) or (None,),
    )


def _batches_around(s: Session, settings: list[Setting], count: int) -> tuple[int, ...]:
    """Batch sizes near the fastest ones: measured neighbours and the gaps between them."""
    own = s.space.own_batch
    out: set[int] = set() if own is None or s.space.batches else {own}
    for setting in settings:
        curve = s.curve(setting)
        fastest = curve.fastest
        if fastest is None:
            continue
        fitting = [p.batch for p in curve.fitting]
        below = [b for b in fitting if b < fastest.batch]
        above = [b for b in fitting if b > fastest.batch]
        out.add(fastest.batch)
        if s.space.batches:
            out.update(s.space.batches)
            continue
        if below:
            out.update((below[-1], align((below[-1] + fastest.batch) / 2)))
        if above:
            out.add(align((above[0] + fastest.batch) / 2))
        elif curve.failing and curve.failing[-1].batch > fastest.batch:
            out.add(align((curve.failing[-1].batch + fastest.batch) / 2))
    near = sorted(out, key=lambda b: _distance(b, s, settings))
    return tuple(sorted(near[:count]))


def _distance(batch: int, s: Session, settings: list[Setting]) -> float:
    tops = [f.batch for x in settings if (f := s.curve(x).fastest) is not None]
    return min(abs(math.log2(batch / top)) for top in tops) if tops else 0.0


def _obvious(s: Session, dimensions: Dimensions) -> list[Setting]:
    """Every leading precision at the leader's fastest batch, then plain settings at the others:
    the batch moves throughput more than any other knob."""
    leader = s.leader_curve()
    if leader is None or leader.fastest is None:
        return []
    leading = [base for p, base in s.bases.items() if p in dimensions.precisions]
    first = [s.at_batch(base, leader.fastest.batch).canonical() for base in leading]
    others = [
        s.at_batch(base, batch).canonical() for base in leading for batch in dimensions.batches
    ]
    return list(dict.fromkeys((*first, *others)))


def refine_lists(s: Session) -> Steps:
    """Take operators off the leader's black list one at a time: each costs speed."""
    candidates = s.candidates()
    if not candidates:
        return
    leader = max(candidates, key=lambda c: c.throughput)
    current = leader.setting
    if len(current.custom_black_list) < 2:
        return
    for op in current.custom_black_list:
        shorter = tuple(x for x in current.custom_black_list if x != op)
        trial = replace(current, custom_black_list=shorter)
        reason = s.ruled_out.get(recipe(trial).key())
        if reason is not None:
            continue
        numerics = s.stability_mode or s.mode
        where = s.at_batch(trial, s.emulated_batch) if s.virtual else trial
        phase = Phase.numerics if s.virtual else Phase.search
        full = yield from s.run(
            phase, where, numerics=numerics, why=f"is {op} needed in the list?"
        )
        if not full.ok or instability(full) is not None:
            s.rule_out(trial, f"unstable without {op} in the black list")
            continue
        if s.virtual:
            yield from s.run(Phase.search, trial, why=f"without {op} in the list")
        current = trial
