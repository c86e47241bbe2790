"""The verdict in words, each sentence derived from something that was measured."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from autoamp.settings import Setting
from autoamp.studies.causes import evidence, host_bound, slower_in_fp32
from autoamp.studies.confirm import Interval
from autoamp.studies.prior import limits
from autoamp.studies.proposal import Choice
from autoamp.studies.space import TF32, Precision

if TYPE_CHECKING:
    from autoamp.studies.picking import Picks
    from autoamp.studies.session import Candidate, Session

TF32_MEANS = (
    "matrix products and convolutions round their float32 inputs to 10 bits of mantissa; "
    "weights, memory and all other work stay float32"
)


def explain(
    s: Session, verdict: str, best: Choice, mixed: Choice | None, stopped: str | None
) -> tuple[str, tuple[str, ...]]:
    """The headline and the sentences below it."""
    why: list[str] = []
    name = best.setting.describe()
    if verdict == "use":
        ratio = best.against_fp32 or best.against_as_written
        against = "FP32" if best.against_fp32 is not None else "the script as written"
        headline = f"use {name}"
        if ratio is not None:
            headline += f": {ratio.ratio:.2f}x the throughput of {against}"
        why.append(best.reason)
        if not best.setting.is_mixed:
            why.append(TF32_MEANS)
            if not s.as_written_is_fp32:
                why.append("the script's own AMP is switched off")
            why += _what_failed(s)
        if mixed is not None and mixed.setting.is_mixed and not best.setting.is_mixed:
            why.append(_best_mixed(mixed, best))
        if s.fp32_reason is not None:
            why.append(s.fp32_reason)
    elif verdict == "keep_as_written":
        headline = "keep the script as written"
        why.append(best.reason)
        if mixed is not None and mixed.against_as_written is not None:
            ratio = mixed.against_as_written
            kind = "best other mixed precision" if mixed.setting.is_mixed else "best other"
            why.append(f"{kind}: {mixed.setting.precision()}, {ratio_text(ratio)} its throughput")
        if s.as_written is not None and not slower_in_fp32(s):
            why += host_bound(s, s.as_written, "the script's own AMP")
        why += _what_failed(s)
    else:
        headline, found = _keep_fp32(s, best, mixed, stopped)
        why.extend(found)
        why += _faster_fp32_that_ties(s, best)
    if verdict == "use" and best.setting.is_mixed:
        why += _not_looked_at(s)
    why += _what_fp32_is(s)
    if verdict == "use":
        why += limits(s.prior, s.fp32, best.setting)
    if s.prior is not None:
        why.append(s.prior.sentence())
    if stopped is not None:
        why.append(f"{stopped}: chosen from what was measured so far")
    return headline, tuple(dict.fromkeys(w for w in why if w))


def _what_fp32_is(s: Session) -> list[str]:
    """FP32 is what Paddle does by itself, and on Ampere and later that is partly TF32."""
    knob = s.machine.knob("tf32")
    if s.fp32 is None or knob is None or not knob.available:
        return []
    called = {c.op for c in s.fp32.op_calls}
    convolves = not called or any("conv" in op for op in called)
    parts = {
        "matrix products": s.fp32.tf32_matmul,
        "convolutions": s.fp32.tf32_conv and convolves,
    }
    found = [name for name, on in parts.items() if on]
    return [f"FP32 ran its {' and '.join(found)} in TF32, as set or by default"] if found else []


def _best_mixed(mixed: Choice, best: Choice) -> str:
    """The fastest mixed precision beside a winner that is none."""
    text = f"best mixed precision: {mixed.setting.describe()}"
    if mixed.against_fp32 is not None:
        return f"{text}, {ratio_text(mixed.against_fp32)} of FP32's throughput"
    ours, theirs = best.first.throughput_samples_per_s, mixed.first.throughput_samples_per_s
    return f"{text}, {theirs / ours:.2f}x its throughput" if ours and theirs else text


def _keep_fp32(
    s: Session, best: Choice, mixed: Choice | None, stopped: str | None
) -> tuple[str, list[str]]:
    why: list[str] = []
    batch = best.setting.batch_size
    own = s.script_batch or s.space.own_batch
    other_batch = batch is not None and batch != own
    word = "keep FP32" if s.as_written_is_fp32 else "switch the script's AMP off, use FP32"
    keep = f"{word}, batch {batch}" if other_batch else word
    kind = "mixed precision" if s.space.mixed else "TF32"
    if not s.space.reduced:
        refused = [x for x in s.space.exclusions if "batch" not in x.what]
        why += [f"{x.what}: {x.reason}" for x in refused]
        headline = f"{keep}: mixed precision is not available here"
        if all(x.what == TF32.name for x in refused):
            headline = f"{keep}: no mixed precision was asked for"
            if s.options.tf32:
                headline = f"{keep}: it has TF32 already"
    elif mixed is None:
        why += _what_failed(s)
        tried = any(t.proposal.setting.is_reduced for t in s.trials)
        headline = f"{keep}: no {kind} {'worked here' if tried else 'was tried'}"
        if tried and _only_lacks_headroom(s):
            headline = f"{keep}: {kind} works, but leaves less than the headroom"
        if not why or not tried:
            why.append(s.spent or stopped or "the trials went to FP32")
    else:
        pays = "AMP" if mixed.setting.is_mixed else "TF32"
        headline = f"{keep}: {pays} does not pay here: {_beside(s, best, mixed)}"
        why += evidence(s, mixed)
        why += _tf32_beside(s, mixed)
        why += _what_failed(s)
    if s.script_batch is not None and other_batch:
        why.append(f"the script's own batch size {own} does not fit this device")
    compared = s.fp32_setting is not None and best.setting.key() != s.fp32_setting.key()
    if other_batch and compared and s.fp32_setting is not None and best.against_fp32 is not None:
        why.append(
            f"batch {batch} instead of {s.batch_of(s.fp32_setting)} in FP32: "
            f"{ratio_text(best.against_fp32)}"
        )
    return headline, why


def _tf32_beside(s: Session, mixed: Choice) -> list[str]:
    """What TF32 brought where FP32 is kept and the headline speaks of AMP."""
    found = [c for c in s.candidates() if not c.setting.is_mixed and c.setting.is_reduced]
    if not found or not mixed.setting.is_mixed or s.fp32 is None or s.fp32_setting is None:
        return []
    batch = s.batch_of(s.fp32_setting)
    same = [c for c in found if s.batch_of(c.setting) == batch]
    if not same:
        return []
    ratio = s.first_ratio(s.candidate(s.fp32_setting, s.fp32), same[0])
    return [f"FP32 with TF32 products at batch {batch}: {ratio_text(ratio)}"]


def _beside(s: Session, best: Choice, mixed: Choice) -> str:
    """The best mixed precision against the FP32 that is recommended. A batch that FP32 has
    gone beyond is compared with FP32 there: the rest is not the precision's doing."""
    name = f"best {mixed.setting.precision()}"
    ours, theirs = s.batch_of(best.setting), s.batch_of(mixed.setting)
    is_fp32 = s.fp32_setting is not None and best.setting.key() == s.fp32_setting.key()
    if is_fp32 and mixed.against_fp32 is not None and theirs >= ours:
        at = "" if theirs == ours else f" at batch {theirs}"
        return f"{name}{at} is {ratio_text(mixed.against_fp32)}"
    if theirs < ours:
        fp32, other = s.curve(best.setting), s.curve(mixed.setting)
        both = [p for p in other.fitting if (q := fp32.at(p.batch)) and q.failed is None]
        if both:
            last = both[-1]
            there = fp32.at(last.batch)
            assert there is not None
            share = _share(last.throughput, there.throughput)
            return (
                f"{name} at batch {last.batch}, the largest that both ran, has {share} FP32's "
                f"throughput, and FP32 goes on to batch {ours}"
            )
        share = _share(mixed.first.throughput_samples_per_s, best.first.throughput_samples_per_s)
        return f"{name} at batch {theirs} has {share} the throughput of FP32 at batch {ours}"
    share = _share(mixed.first.throughput_samples_per_s, best.first.throughput_samples_per_s)
    return f"{name} at batch {theirs} has {share} its throughput"


def _share(part: float | None, whole: float | None) -> str:
    return f"{part / whole:.2f}x" if part and whole else "an unknown share of"


def _not_looked_at(s: Session) -> list[str]:
    """Precisions that nothing is known about."""
    noted = {x.what: x.reason for x in s.skipped}
    return [f"{p.name}: {noted.get(p.name, 'not tried')}" for p in _never_ran(s)]


def _never_ran(s: Session) -> list[Precision]:
    seen = {t.proposal.setting.arithmetic for t in s.trials}
    return [p for p in s.space.reduced if p.setting(None).arithmetic not in seen]


def _what_failed(s: Session) -> list[str]:
    """What became of each precision that is not to be had: failed, or never tried."""
    out = []
    won = {c.setting.arithmetic for c in s.candidates()}
    never = _never_ran(s)
    for p in s.space.reduced:
        without = p.setting(None).arithmetic not in won
        for skipped in s.skipped:
            # With its batch, it is out of the running there, and maybe not at another one.
            there = without and skipped.what.startswith(f"{p.setting(None).describe()}, ")
            if skipped.what == p.name or there:
                out.append(f"{skipped.what}: {skipped.reason}")
        if p in never and not any(x.what == p.name for x in s.skipped):
            out.append(f"{p.name}: not tried")
        if without and not any(x.startswith(p.name) for x in out):
            out += _ran_and_may_not_win(s, p)
    for check in s.drift.values():
        if check.passed is False:
            out.append(f"{check.setting.precision()}: {check.why}")
    for key, reason in s.ruled_out.items():
        setting = Setting.from_json(json.loads(key))
        if setting.is_reduced and key not in s.drift and not any(reason in x for x in out):
            out.append(f"{setting.precision()}: {reason}")
    return list(dict.fromkeys(out))


def _ran_and_may_not_win(s: Session, precision: Precision) -> list[str]:
    """Why a precision that ran is out of the running: at its smallest batch, the likeliest."""
    points = [
        (found.batch, found)
        for base in s.recipes()
        if precision.is_of(base)
        for found in s.curve(base).failing
    ]
    if not points:
        return []
    batch, found = min(points, key=lambda x: x[0])
    works = "works, but " if found.throughput else ""
    return [f"{precision.setting(batch).describe()}: {works}{found.failed}"]


def _only_lacks_headroom(s: Session) -> bool:
    """True if something less exact than FP32 ran well and needs too much memory alone."""
    reduced = [base for base in s.recipes() if base.is_reduced]
    return any(p.for_memory and p.throughput for base in reduced for p in s.curve(base).failing)


def why_this_one(s: Session, candidate: Candidate, picks: Picks, *, same_batch: bool) -> str:
    """Why this setting and not the next; ``same_batch``: of those at its batch size."""
    if candidate.setting.key() == picks.reference.setting.key():
        return "nothing riskier showed a gain over it"
    rivals = [
        c
        for c in s.candidates()
        if c.throughput > candidate.throughput
        and (not same_batch or s.batch_of(c.setting) == s.batch_of(candidate.setting))
    ]
    if not rivals:
        return "the fastest setting that works, fits and trains"
    fastest = max(rivals, key=lambda c: c.throughput)
    ratio = fastest.throughput / candidate.throughput
    if candidate.setting.is_as_written:
        # What its author ran is kept in a tie, and is not therefore the safer precision.
        return (
            f"the script's own setting stays: {fastest.setting.describe()} is only {ratio:.2f}x, "
            f"{_inside(s, s.first_ratio(candidate, fastest))}"
        )
    return f"ties with {fastest.setting.describe()} ({ratio:.2f}x), and is the safer of the two"


def _inside(s: Session, ratio: Interval) -> str:
    """What a difference that is no gain is lost in."""
    if not s.virtual or ratio.high is None:
        return "no gain beyond what runs differ by"
    return f"inside the model's ±{ratio.high / ratio.ratio - 1:.0%}"


def _faster_fp32_that_ties(s: Session, best: Choice) -> list[str]:
    """A larger batch that FP32 gained by, and not enough: the table shows it as faster."""
    if best.setting.is_reduced or best.setting.is_as_written or s.fp32_setting is None:
        return []
    kept = s.candidate(best.setting, best.first)
    found = [c for c in s.candidates() if not c.setting.is_reduced and not c.setting.is_as_written]
    fastest = max(found, key=lambda c: c.throughput, default=kept)
    ratio = fastest.throughput / kept.throughput
    if ratio < 1 + s.options.min_gain or s.options.keep_batch:
        return []
    check = ": a tie; check it on the GPU" if s.virtual else ": a tie"
    inside = _inside(s, s.first_ratio(kept, fastest))
    return [f"batch {s.batch_of(fastest.setting)} in FP32: {ratio:.2f}x, {inside}{check}"]


def ratio_text(ratio: Interval) -> str:
    """``1.80x (95 % interval 1.71 to 1.89)``."""
    if ratio.low is None or ratio.high is None:
        return f"{ratio.ratio:.2f}x ({ratio.basis})"
    return f"{ratio.ratio:.2f}x ({ratio.low:.2f} to {ratio.high:.2f}, {ratio.basis})"
