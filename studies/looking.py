"""A first look at each precision: the numerics scan, a run at the script's own batch, cures."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from autoamp.measurement import Measurement, Phase
from autoamp.settings import Dtype, Level, Setting
from autoamp.studies.budget import Budget
from autoamp.studies.ceilings import MEMORY_OUTCOMES
from autoamp.studies.drift import UNCHECKED_OUTCOMES
from autoamp.studies.loss_scale import scale_window
from autoamp.studies.prior import slow
from autoamp.studies.proposal import Proposal, Skipped
from autoamp.studies.score import NUMERIC_OUTCOMES, gradients_vanished, instability, standing
from autoamp.studies.session import Session
from autoamp.studies.space import TF32, Precision

Steps = Generator[Proposal, Measurement, None]


MAX_RESCUES = 2
"""Variants tried for a precision whose plain form is not stable."""

TOO_FEW = "too few trials to look at it"

NOT_PROMISING = 0.9
"""A precision below this share of FP32's modelled speed gets no emulated numerics run of its
own: those are the slow ones, and the drift check looks at it anyway before it could win."""


def precisions_to_look_at(s: Session, budget: Budget) -> tuple[Precision, ...]:
    """As many precisions beside FP32 as the budget has room for; the others are noted as
    skipped."""
    every = s.space.reduced
    left = s.left - (budget.scan and any(p.dtype is Dtype.float16 for p in every))
    chosen = _by_promise(s)[: budget.looks(left, climbs=s.space.batch_free)]
    for precision in every:
        if precision not in chosen:
            s.skipped.append(Skipped(what=precision.name, reason=_too_few(s, precision)))
    return tuple(p for p in every if p in chosen)


def _too_few(s: Session, precision: Precision) -> str:
    in_tf32 = bool(s.as_written is not None and s.as_written.tf32_matmul)
    why = slow(s.prior, precision.setting(None), fp32_in_tf32=in_tf32)
    return TOO_FEW + (f", and {why}" if why else "")


def _by_promise(s: Session) -> list[Precision]:
    """As they stand in the space, where a kept roofline has put slow ones last. TF32 pushes out
    no 16-bit type: it stands last, but second if it was asked for by name."""
    order = list(s.space.mixed)
    if TF32 in s.space.precisions:
        order.insert(1 if s.options.tf32 else len(order), TF32)
    return order


def scan(s: Session) -> Steps:
    """One FP32 run that shows the gradients' range and what overflows float16."""
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


def look_at_the_rest(s: Session, budget: Budget) -> Steps:
    """Precisions that found no room before, with trials that no climb had a use for: what was
    never run says more than another variant of what was."""
    for precision in _unlooked(s):
        if s.left <= 0:
            return
        _forget_too_few(s, precision)
        yield from look(s, precision, budget)


def look_at_stored(s: Session) -> Steps:
    """Precisions that a longer search of this study has looked at: its answers cost no trial."""
    if not s.has_space:
        return
    batch = s.space.setting_batch
    for precision in _unlooked(s):
        stored = [
            p.setting
            for p in s.stored.values()
            if p.phase is Phase.ceiling
            and p.numerics == s.mode
            and precision.is_of(p.setting)
            and p.setting.batch_size == batch
        ]
        if stored:
            _forget_too_few(s, precision)
            yield from look(s, precision, Budget(trials=s.options.trials), tuple(stored))


def _unlooked(s: Session) -> list[Precision]:
    noted = {x.what for x in s.skipped if x.reason.startswith(TOO_FEW)}
    return [p for p in _by_promise(s) if p.name in noted]


def _forget_too_few(s: Session, precision: Precision) -> None:
    s.skipped = [
        x for x in s.skipped if x.what != precision.name or not x.reason.startswith(TOO_FEW)
    ]


def look(
    s: Session, precision: Precision, budget: Budget, variants: tuple[Setting, ...] = ()
) -> Steps:
    """The precision at the script's own batch; if unstable, a few variants that may cure it.
    ``variants``: those that were run before."""
    plain = precision.setting(s.space.setting_batch)
    if precision.dtype is Dtype.float16 and s.window is not None:
        plain = replace(plain, init_loss_scaling=s.window.chosen_scale)
    reason = ""
    tried = variants or (plain, *_rescues(s, plain, precision)[:MAX_RESCUES])
    for number, variant in enumerate(tried):
        # A cure is worth a run only while enough is left to use it.
        if number and s.left < 3 and not variants:
            break
        why = "at the script's batch" if number == 0 else f"unstable before ({reason})"
        measurement = yield from s.run(Phase.ceiling, variant, why=why)
        if measurement.outcome in MEMORY_OUTCOMES:
            # A smaller batch of it may do.
            s.bases[precision] = variant
            reason = standing(measurement, memory_limit_bytes=None).reason or "does not fit"
            what = precision.setting(variant.batch_size).describe()
            s.skipped.append(Skipped(what=what, reason=reason))
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
    if s.mode == s.stability_mode or not variant.is_mixed:
        # Float32 has nothing to look at in full, and TF32's rounding is not emulated.
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
    if not full.ok:
        return stand.reason or "failed", full.outcome in NUMERIC_OUTCOMES
    wrong = instability(full)
    return None if wrong is None else (wrong, True)


def _promising(s: Session, measurement: Measurement) -> bool:
    if s.options.all_numerics:
        return True
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
    if precision.level is Level.O2 and s.has_knob("master_grad"):
        # Gradients that are unscaled in float16 underflow a second time; float32 ones do not.
        out.append(replace(plain, custom_black_list=ops, master_grad=True))
    for scale in s.window.candidates() if s.window is not None else (1024.0,):
        if scale != plain.init_loss_scaling:
            out.append(replace(plain, custom_black_list=ops, init_loss_scaling=scale))
    return tuple(out)
