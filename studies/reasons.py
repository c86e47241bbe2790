"""The verdict in words, each sentence derived from something that was measured."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

from autoamp.measurement import Label, Measurement, OpCalls
from autoamp.settings import Dtype, Level, Setting
from autoamp.studies.ceilings import NOT_CLIMBED, OUT_OF_TRIALS
from autoamp.studies.confirm import Interval, is_gain
from autoamp.studies.prior import limits
from autoamp.studies.proposal import Choice, recipe
from autoamp.studies.score import standing
from autoamp.studies.space import TF32

if TYPE_CHECKING:
    from autoamp.studies.picking import Picks
    from autoamp.studies.session import Candidate, Session

DATA_WAIT_SHARE = 0.3
"""From here on waiting for data is named as the cause: no precision makes data arrive faster."""

LAUNCH_BOUND_GROWTH = 1.7
"""Twice the batch gives this much throughput: the step takes hardly longer, so the device idles
between kernels."""

FEW_LOW_CALLS = 0.2

TF32_MEANS = (
    "matrix products and convolutions round their float32 inputs to 10 bits of mantissa; "
    "weights, memory and all other work stay float32"
)

FLOAT16_PROBLEMS = ("paddle-numpy-scaler",)
"""Problems of the machine that bite whoever trains in float16, with autoamp or without."""

TRUST_PROBLEMS = ("gpu-busy", "gpu-throttled", "gpu-low-memory")
"""Problems of the machine that the numbers themselves may have suffered from."""


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
    else:
        headline, found = _keep_fp32(s, best, mixed, stopped)
        why.extend(found)
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


def evidence(s: Session, mixed: Choice) -> list[str]:
    """Why mixed precision brings little, from what the runs showed."""
    out: list[str] = []
    ratio = mixed.against_fp32
    assert ratio is not None and s.fp32 is not None
    if is_gain(ratio, min_gain=s.options.min_gain):
        out.append(
            f"it gains over FP32 with batch {s.batch_of(s.fp32_setting or Setting())}, and "
            "so does FP32 with another batch"
        )
    elif ratio.ratio >= 1 + s.options.min_gain:
        out.append("the gain is inside its own interval, so it may be none")
    elif ratio.ratio >= 1:
        out.append(f"the gain is below the least asked for ({s.options.min_gain:.0%}, --min-gain)")
    wait = s.fp32.data_wait_share
    # A virtual device's throughput leaves the loader out, so it cannot be the loader's doing.
    measured = s.fp32.time_label is Label.measured
    if wait is not None and wait >= DATA_WAIT_SHARE and measured:
        out.append(f"data wait is {wait:.0%} of each step; try a larger num_workers")
    device = s.machine.device
    if device.tensor_core_generation == 0:
        out.append(f"{device.name} has no Tensor Cores")
    if launch_bound(s):
        out.append(
            "twice the batch takes hardly more time: the step is bound by kernel launches, not "
            "by arithmetic"
        )
    out += limits(s.prior, s.fp32, mixed.setting)
    busy = s.fp32.utilisation.gpu_percent
    if busy is not None and busy < 50:
        out.append(f"the GPU is busy only {busy:.0f} % of the time in FP32")
    if not mixed.setting.is_mixed:
        return out or ["too little of a step is float32 products for TF32 to shorten it"]
    share = low_precision_share(mixed.first.op_calls)
    if share is not None and share < FEW_LOW_CALLS:
        out.append(f"only {share:.0%} of the operator calls ran in {mixed.setting.dtype}")
    if not out:
        out.append(
            "no single cause was seen: casts between float32 and the 16-bit type cost what the "
            "faster operators save"
            if share is None
            else f"{share:.0%} of the operator calls ran in {mixed.setting.dtype}, and casts cost "
            "what they save"
        )
    return out


def launch_bound(s: Session) -> bool:
    """True if doubling FP32's batch nearly doubled its throughput at the script's batch."""
    if s.fp32_setting is None:
        return False
    fitting = s.curve(s.fp32_setting).fitting
    for low, high in pairwise(fitting):
        if low.batch == s.batch_of(s.fp32_setting) and low.throughput and high.throughput:
            growth = high.throughput / low.throughput
            return growth >= LAUNCH_BOUND_GROWTH * (high.batch / low.batch) / 2
    return False


def low_precision_share(calls: tuple[OpCalls, ...]) -> float | None:
    """Share of operator calls that ran in a 16-bit type; None without statistics."""
    low = sum(c.float16 + c.bfloat16 for c in calls)
    total = low + sum(c.float32 for c in calls)
    return low / total if total else None


def _what_failed(s: Session) -> list[str]:
    """What became of each precision that is not to be had: failed, or never tried."""
    out = []
    won = {c.setting.arithmetic for c in s.candidates()}
    seen = {t.proposal.setting.arithmetic for t in s.trials}
    for p in s.space.reduced:
        without = p.setting(None).arithmetic not in won
        for skipped in s.skipped:
            # With its batch, it is out of the running there, and maybe not at another one.
            there = without and skipped.what.startswith(f"{p.setting(None).describe()}, ")
            if skipped.what == p.name or there:
                out.append(f"{skipped.what}: {skipped.reason}")
        if p.setting(None).arithmetic not in seen and not any(x.what == p.name for x in s.skipped):
            out.append(f"{p.name}: not tried")
    for check in s.drift.values():
        if check.passed is False:
            out.append(f"{check.setting.precision()}: {check.why}")
    for key, reason in s.ruled_out.items():
        setting = Setting.from_json(json.loads(key))
        if setting.is_reduced and key not in s.drift and not any(reason in x for x in out):
            out.append(f"{setting.precision()}: {reason}")
    return list(dict.fromkeys(out))


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
    return f"ties with {fastest.setting.describe()} ({ratio:.2f}x), and is the safer of the two"


def ratio_text(ratio: Interval) -> str:
    """``1.80x (95 % interval 1.71 to 1.89)``."""
    if ratio.low is None or ratio.high is None:
        return f"{ratio.ratio:.2f}x ({ratio.basis})"
    return f"{ratio.ratio:.2f}x ({ratio.low:.2f} to {ratio.high:.2f}, {ratio.basis})"


def caveats(s: Session, best: Choice, stopped: str | None) -> list[str]:
    """What a reader must know before trusting the recommendation."""
    out: list[str] = []
    today = s.runs_today(best.setting)
    if not best.confirmed and not today:
        out.append("not confirmed: the recommended setting rests on a single run")
    if stopped is not None:
        out.append(f"the search did not run to its end: {stopped}")
    if s.cut_short is not None:
        out.append(f"fewer trials than asked for: {s.cut_short}")
    climbed = s.ceilings.get(recipe(best.setting).key())
    if (
        climbed is not None
        and climbed.why in (OUT_OF_TRIALS, NOT_CLIMBED)
        and climbed.smallest_failing is None
        and best.setting.batch_size == climbed.largest_fitting
        and best.setting.batch_size != s.space.largest_batch
    ):
        out.append(
            f"batch {best.setting.batch_size} is the largest that was tried in this precision, "
            "not the largest that fits: more --trials may find a faster one"
        )
    stand = standing(best.first, memory_limit_bytes=s.space.memory_limit_bytes)
    if not stand.can_win:
        out.append(
            f"kept although {stand.reason}: it is what runs today"
            if today
            else f"recommended although {stand.reason}"
        )
    check = s.drift.get(recipe(best.setting).key())
    if best.setting.is_reduced:
        if check is None:
            out.append("the loss was not compared with FP32's")
        elif check.passed is None:
            out.append(f"loss drift: {check.why}")
        if check is not None and check.own_batch_why is not None and s.virtual:
            out.append(check.own_batch_why)
    if s.virtual:
        out.append(
            "planned on a virtual device: check on the real one (autoamp tune there, or autoamp "
            "run watches memory and the loss scale)"
        )
    if best.setting.amp_level is Level.O2 and s.facts.optimizer_has_master_weights is None:
        out.append("whether the optimizer keeps master weights at O2 was not seen")
    for problem in s.machine.problems:
        float16 = best.setting.is_mixed and best.setting.dtype is Dtype.float16
        if problem.slug in TRUST_PROBLEMS or (problem.slug in FLOAT16_PROBLEMS and float16):
            out.append(f"{problem.sentence.rstrip('.')}: {problem.remedy}")
    for measurement in (best.first, s.as_written):
        if measurement is not None:
            out.extend(_measurement_caveats(measurement))
    return out


def _measurement_caveats(measurement: Measurement) -> list[str]:
    out = list(measurement.caveats)
    if measurement.dataset_restarts:
        count = measurement.dataset_restarts
        times = "once" if count == 1 else f"{count} times"
        out.append(f"the dataset is shorter than a trial: it was restarted {times}")
    return out
