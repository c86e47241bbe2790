"""The search as a generator: it asks for runs one at a time and ends with what to recommend.

Pure: it starts nothing, stores nothing and prints nothing. The caller runs each proposal (or
answers it from history) and sends the measurement back. Given the same machine, options and
measurements it asks the same questions in the same order, which is how a search is resumed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import replace

from autoamp.errors import ScriptError
from autoamp.measurement import Measurement, Outcome, Phase, ScriptFacts
from autoamp.probes.facts import Machine
from autoamp.settings import AS_WRITTEN, Dtype, Level, Setting
from autoamp.studies.budget import TINY, Budget, plan_line
from autoamp.studies.ceilings import MEMORY_OUTCOMES, align, ceiling, next_step, point
from autoamp.studies.drift import UNCHECKED_OUTCOMES
from autoamp.studies.loss_scale import scale_window
from autoamp.studies.proposal import (
    NUMERICS_FULL,
    NUMERICS_PLANNING,
    Options,
    Proposal,
    Result,
    Skipped,
    Trial,
    recipe,
)
from autoamp.studies.proving import prove
from autoamp.studies.score import gradients_vanished, instability, standing
from autoamp.studies.search import Asker, Dimensions
from autoamp.studies.session import Session, Spent, Stopped
from autoamp.studies.space import FP32, Precision, allowed_precisions, build_space

__all__ = ["Options", "Proposal", "Result", "Trial", "plan_line", "search"]

Steps = Generator[Proposal, Measurement, None]

MAX_RESCUES = 2
"""Variants tried for a precision whose plain form is not stable."""

NUMERIC_OUTCOMES = (Outcome.not_finite, Outcome.scale_collapsed, Outcome.diverged)

NOT_PROMISING = 0.9
"""A precision below this share of FP32's modelled speed gets no emulated numerics run of its
own: those are the slow ones, and the drift check looks at it anyway before it could win."""

SEARCH_WITHIN = 0.10
"""Precisions whose best is so near to the leader's are searched further."""

PATIENCE = 8
"""Search trials in a row that bring nothing before the search ends."""

NOTICEABLE = 0.01


def search(
    machine: Machine,
    options: Options,
    *,
    clock: Callable[[], float],
    ratio_band: float | None = None,
    throughput_band: float | None = None,
    stop: Callable[[], bool],
) -> Generator[Proposal, Measurement, Result]:
    """Ask for runs (``yield`` a Proposal, ``send`` its Measurement); returns the Result.

    ``clock`` gives the seconds used so far; ``ratio_band`` is the relative half-width of the
    virtual device's error for a ratio of times (None: uncalibrated); ``stop`` True ends the
    search after the run at hand. ``throughput_band`` belongs to single modelled throughputs; no
    decision rests on it. Raises ScriptError ``baseline-failed`` and MachineError
    ``refused-precision``.
    """
    del throughput_band
    # Refused precisions are an answer before the first run, not after it.
    allowed_precisions(machine, options)
    session = Session(machine, options, clock=clock, ratio_band=ratio_band, stop=stop)
    stopped: str | None = None
    try:
        try:
            yield from _baseline(session)
            yield from _explore(session)
        except Spent as exc:
            session.spent = str(exc)
        _finish_ceilings(session)
    except Stopped as exc:
        stopped = str(exc)
    result = yield from prove(session, stopped)
    return result


def _baseline(s: Session) -> Steps:
    first = yield from s.run(Phase.baseline, AS_WRITTEN, why="the script as written")
    if not first.ok and s.mode == NUMERICS_PLANNING and s.machine.device.numerics and s.left > 0:
        # A script that looks at its own values can stumble over numbers never computed.
        planning = first
        s.mode = NUMERICS_FULL
        first = yield from s.run(Phase.baseline, AS_WRITTEN, why="again, with full numerics")
        if first.ok:
            s.caveats.append(
                "planning mode does not run this script "
                f"({planning.outcome}: {planning.reason}): every run computed in full"
            )
    if first.ok and not first.throughput_samples_per_s:
        first = replace(first, outcome=Outcome.too_few_steps, reason="no step could be timed")
    if not first.ok:
        raise baseline_failed(first, "as written")
    s.as_written = first
    s.facts = first.facts or ScriptFacts()
    s.space = build_space(s.machine, first, s.facts, s.options)
    s.caveats.extend(s.space.caveats)
    setting = FP32.setting(s.space.setting_batch)
    if not s.space.mixed or not (
        s.facts.calls_auto_cast or s.facts.calls_scaler or s.facts.calls_decorate
    ):
        s.as_written_is_fp32 = True
        s.remember(setting, s.mode, first)
        s.fp32, s.fp32_setting = first, setting
        return
    s.fp32_reason = "no run was left for FP32"
    yield from _fp32(s, setting)


def _fp32(s: Session, setting: Setting) -> Steps:
    """FP32 of a script that uses AMP itself: at its own batch, or the largest that fits."""
    measurement = yield from s.run(Phase.baseline, setting, why="FP32 at the script's batch")
    own = setting
    too_large: Measurement | None = None
    while measurement.outcome in MEMORY_OUTCOMES:
        too_large = too_large or measurement
        s.fp32_reason = f"FP32 does not fit at batch {s.batch_of(own)}: {too_large.reason}"
        smaller = align(s.batch_of(setting) / 2)
        if smaller < 1 or not s.space.batch_settable:
            return
        setting = FP32.setting(smaller)
        measurement = yield from s.run(
            Phase.baseline, setting, why="FP32 does not fit at the script's batch"
        )
    if not measurement.ok:
        raise baseline_failed(measurement, "in FP32 (O0)")
    s.fp32, s.fp32_setting = measurement, setting
    if too_large is None:
        s.fp32_reason = None


def baseline_failed(measurement: Measurement, how: str) -> ScriptError:
    """The error for a script that does not run: outcome, reason, and the log's tail."""
    reason = measurement.reason or "no reason recorded"
    tail = measurement.log_tail.rstrip()
    log = f"\nThe last lines of its output:\n{tail}" if tail else ""
    where = f" Full log: {measurement.log_path}" if measurement.log_path else ""
    remedy = "make it run on this device without autoamp first."
    if measurement.outcome in NUMERIC_OUTCOMES:
        remedy = (
            "its numerics break before autoamp changes anything: turn the script's own AMP off "
            "(autoamp adds it from outside where it pays), or cure the loss in FP32 first."
        )
    return ScriptError(
        f"the script does not run {how}: {measurement.outcome}: {reason}{log}",
        slug="baseline-failed",
        remedy=remedy + where,
    )


def _explore(s: Session) -> Steps:
    budget = Budget(trials=s.options.trials)
    looks = _precisions_to_look_at(s, budget)
    if any(p.dtype is Dtype.float16 for p in looks) and budget.scan:
        yield from _scan(s)
    for precision in looks:
        yield from _look(s, precision, budget)
    if s.space.batch_free:
        yield from _climb(s, budget)
    if s.options.trials > TINY:
        yield from _search(s, budget)
    if budget.list_refinement:
        yield from _refine_lists(s)


def _precisions_to_look_at(s: Session, budget: Budget) -> tuple[Precision, ...]:
    mixed = s.space.mixed
    left = s.left - (budget.scan and any(p.dtype is Dtype.float16 for p in mixed))
    looks = mixed[: budget.looks(left)]
    for precision in mixed[len(looks) :]:
        s.skipped.append(Skipped(what=precision.name, reason="too few trials to look at it"))
    return looks


def _scan(s: Session) -> Steps:
    if s.stability_mode is None:
        s.caveats.append(
            "numerics were not computed (planning mode): no loss scale or op list was derived"
        )
        return
    if s.fp32_setting is None:
        return
    small = s.emulated_batch
    if s.virtual and small != s.space.own_batch:
        s.caveats.append(
            f"numerics were computed in full at batch {small}: a step at the script's own "
            f"{s.space.own_batch} would take this CPU too long"
        )
    measurement = yield from s.run(
        Phase.scan,
        s.at_batch(s.fp32_setting, small) if s.virtual else s.fp32_setting,
        numerics=s.stability_mode,
        scan=True,
        why="gradient range and operators that leave float16's range",
    )
    if not measurement.ok or measurement.scan is None:
        s.caveats.append(
            f"the numerics scan gave nothing ({measurement.outcome}: "
            f"{measurement.reason or 'no gradients seen'}): the default loss scale is used"
        )
        return
    s.scan = measurement.scan
    s.window = scale_window(measurement.scan)


def _look(s: Session, precision: Precision, budget: Budget) -> Steps:
    """The precision at the script's own batch; if unstable, a few variants that may cure it."""
    plain = precision.setting(s.space.setting_batch)
    if precision.dtype is Dtype.float16 and s.window is not None:
        plain = replace(plain, init_loss_scaling=s.window.chosen_scale)
    reason = ""
    for number, variant in enumerate((plain, *_rescues(s, plain, precision)[:MAX_RESCUES])):
        # A cure is worth a run only while enough is left to use it.
        if number and s.left < 3:
            break
        why = "at the script's batch" if number == 0 else f"unstable before ({reason})"
        measurement = yield from s.run(Phase.ceiling, variant, why=why)
        if measurement.outcome in MEMORY_OUTCOMES:
            s.bases[precision] = variant
            return
        found = yield from _what_is_wrong(s, variant, measurement, budget)
        if found is None:
            s.bases[precision] = variant
            return
        reason, numeric = found
        s.rule_out(variant, reason)
        if not numeric:
            break
    s.skipped.append(Skipped(what=precision.name, reason=reason))


def _what_is_wrong(
    s: Session, variant: Setting, measurement: Measurement, budget: Budget
) -> Generator[Proposal, Measurement, tuple[str, bool] | None]:
    """(reason, is it numeric) if the variant cannot go on; None if it can."""
    stand = standing(measurement, memory_limit_bytes=None)
    if not stand.can_win:
        unstable = measurement.ok and instability(measurement) is not None
        numeric = measurement.outcome in NUMERIC_OUTCOMES or unstable
        return stand.reason or "failed", numeric
    vanished = gradients_vanished(measurement, s.fp32)
    if vanished is not None:
        return vanished, True
    if not (s.virtual and budget.numerics and s.stability_mode and _promising(s, measurement)):
        return None
    if s.mode == s.stability_mode:
        return None
    full = yield from s.run(
        Phase.numerics,
        s.at_batch(variant, s.emulated_batch),
        numerics=s.stability_mode,
        why="is it stable at this precision?",
    )
    if full.outcome in UNCHECKED_OUTCOMES:
        s.caveats.append(
            f"numerics of {variant.precision()} were not emulated to the end: "
            f"{full.outcome}: {full.reason or 'no reason recorded'}"
        )
        return None
    stand = standing(full, memory_limit_bytes=None)
    # A numerics run need not time anything: only its outcome and stability count.
    wrong = (stand.reason if not full.ok else None) or instability(full)
    return None if wrong is None else (wrong, True)


def _promising(s: Session, measurement: Measurement) -> bool:
    reference = s.fp32.throughput_samples_per_s if s.fp32 is not None else None
    mine = measurement.throughput_samples_per_s
    return reference is None or mine is None or mine >= NOT_PROMISING * reference


def _rescues(s: Session, plain: Setting, precision: Precision) -> tuple[Setting, ...]:
    """Variants that may cure an unstable precision, by what the scan saw; likeliest first."""
    if precision.dtype is not Dtype.float16:
        # bfloat16 has float32's range: neither lists nor scales change what overflows.
        return ()
    out = []
    ops = tuple(sorted(s.scan.overflow_ops)) if s.scan is not None else ()
    if ops:
        out.append(replace(plain, custom_black_list=ops))
    if precision.level is Level.O2:
        # Gradients that are unscaled in float16 underflow a second time; float32 ones do not.
        out.append(replace(plain, custom_black_list=ops, master_grad=True))
    for scale in s.window.candidates() if s.window is not None else (1024.0,):
        if scale != plain.init_loss_scaling:
            out.append(replace(plain, custom_black_list=ops, init_loss_scaling=scale))
    return tuple(out)


def _climb(s: Session, budget: Budget) -> Steps:
    """Raise the batch of each precision (or the most promising one) as far as it pays."""
    order = _by_own_speed(s)
    if not budget.all_ceilings:
        order = order[:1]
    allowance = budget.climbing(s.left)
    for index, setting in enumerate(order):
        share = math.ceil(allowance / (len(order) - index))
        before = s.left
        why = "the trials for ceilings are used up"
        while before - s.left < share:
            step = next_step(s.curve(setting), s.leader_curve())
            why = step.why
            if step.batch is None:
                break
            yield from s.run(Phase.ceiling, s.at_batch(setting, step.batch), why=step.why)
            why = "the trials for ceilings are used up"
        allowance -= before - s.left
        s.ceilings[recipe(setting).key()] = ceiling(s.curve(setting), why)


def _by_own_speed(s: Session) -> list[Setting]:
    """FP32 and each carried-on variant, the fastest at the script's batch first."""
    settings = [x for x in (s.fp32_setting, *s.bases.values()) if x is not None]

    def speed(setting: Setting) -> float:
        fastest = s.curve(setting).fastest
        return fastest.throughput or 0.0 if fastest is not None else 0.0

    return sorted(settings, key=speed, reverse=True)


def _finish_ceilings(s: Session) -> None:
    if not s.has_space or not s.space.batch_free:
        return
    for setting in _by_own_speed(s):
        key = recipe(setting).key()
        s.ceilings.setdefault(
            key, ceiling(s.curve(setting), "not climbed: trials or time used up")
        )


def _search(s: Session, budget: Budget) -> Steps:
    dimensions = _dimensions(s, budget)
    if dimensions is None:
        return
    asker = Asker(dimensions, seed=s.options.seed)
    limit = s.space.memory_limit_bytes
    for setting in asker.grid:
        known = s.known(setting)
        if known is not None:
            seen = point(s.batch_of(setting), known, limit)
            asker.learn(setting, value=seen.throughput, failed=seen.failed)
    asker.enqueue(_obvious(s, dimensions))
    best = max((c.throughput for c in s.candidates()), default=0.0)
    idle = 0
    while s.left > 0 and idle < PATIENCE:
        wanted = asker.ask(s.left, s.doomed)
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
    if free and masters:
        masters += [None, True]
    promotes: list[bool | None] = [b.use_promote for b in o2]
    if budget.variants and o2:
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


def _refine_lists(s: Session) -> Steps:
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
