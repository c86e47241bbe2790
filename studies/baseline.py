"""The first runs: the script as written, and FP32 at its own batch size."""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import replace

from autoamp.errors import ScriptError
from autoamp.measurement import Measurement, Outcome, Phase, ScriptFacts
from autoamp.settings import AS_WRITTEN, Level, Setting
from autoamp.studies.ceilings import MEMORY_OUTCOMES, align, point
from autoamp.studies.memory_model import fit
from autoamp.studies.proposal import NUMERICS_FULL, NUMERICS_PLANNING, Proposal
from autoamp.studies.score import NUMERIC_OUTCOMES
from autoamp.studies.session import Session
from autoamp.studies.space import FP32, build_space, memory_of, tunable_loaders

Steps = Generator[Proposal, Measurement, None]

NATIVE = re.compile(r"\d+ {2,}.*(::|\()|-{5,}$|C\+\+ Traceback \(|Error Message Summary:")
"""``12  phi::Allocator::Allocate(unsigned long)``, and the headings of such a list."""

HOPELESS_PEAKS = 3
"""Two peaks make a line, and the allocator's blocks may bend it; a third has to agree."""


def baseline(s: Session) -> Steps:
    """Run them and build the space. Raises ScriptError ``baseline-failed`` or
    ``baseline-out-of-memory``; Spent and Stopped pass through."""
    first = yield from s.run(Phase.baseline, AS_WRITTEN, why="the script as written")
    stumbled = not first.ok and first.outcome not in MEMORY_OUTCOMES
    if stumbled and s.mode == NUMERICS_PLANNING and s.machine.device.numerics and s.left > 0:
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
    failed = None if first.ok else first
    if first.outcome is Outcome.out_of_memory:
        first = yield from _smaller(s, first)
    if not first.ok:
        raise baseline_failed(first, "as written")
    s.as_written = first
    s.facts = first.facts or ScriptFacts()
    s.space = build_space(s.machine, first, s.facts, s.options)
    s.caveats.extend(s.space.caveats)
    setting = FP32.setting(s.space.setting_batch)
    if not _amp_works(s) or not s.facts.amp_in_effect:
        s.as_written_is_fp32 = True
        s.remember(setting, s.mode, first)
        s.fp32, s.fp32_setting = first, setting
        return
    s.fp32_reason = "no run was left for FP32"
    yield from _fp32(s, setting)
    if failed is not None and s.fp32 is None:
        # Neither what runs today nor FP32 fits: there is nothing to compare with.
        reason = f"{failed.reason}; {s.fp32_reason}"
        raise baseline_failed(replace(failed, reason=reason), "as written")


def nothing_found(s: Session, stopped: str | None) -> ScriptError:
    """The error for a search that ended before it had anything to compare with."""
    if stopped is None:
        failed = s.known(AS_WRITTEN)
        assert failed is not None
        reason = f"{failed.reason}; {s.fp32_reason or 'no run was left for FP32'}"
        return baseline_failed(replace(failed, reason=reason), "as written", "more --trials")
    last = "nothing was run"
    log = None
    if s.trials:
        trial = s.trials[-1]
        found = trial.measurement
        last = f"the last run ({trial.proposal.setting.describe()}) ended {found.outcome}"
        last += f": {found.reason}" if found.reason else ""
        log = found.log_path
    return ScriptError(
        f"there is nothing to recommend yet: {stopped}, and {last}",
        slug="stopped-too-early",
        remedy="let it run for longer (--timeout); the same command goes on from what is stored."
        + (f" Full log: {log}" if log else ""),
    )


def _smaller(s: Session, failed: Measurement) -> Generator[Proposal, Measurement, Measurement]:
    """The script as written at the first halved batch that leaves the headroom; ``failed``, and
    what came of the halved ones, if none does."""
    loaders = tunable_loaders(failed.facts) if failed.facts is not None else ()
    own = loaders[0].batch_size if loaders else None
    if own is None or s.options.keep_batch:
        return failed
    batch = own
    _, limit = memory_of(s.machine, s.options)
    peaks: list[tuple[int, int]] = []
    first = failed
    while s.left > 1 and (batch := align(batch / 2)) >= 1:
        setting = replace(AS_WRITTEN, batch_size=batch)
        run = yield from s.run(Phase.baseline, setting, why="its own batch does not fit")
        found = point(batch, run, limit)
        if found.for_memory or not run.ok:
            reason = f"{first.reason}; halved down to batch {batch}: {found.failed}"
            failed = replace(first, reason=reason)
        if found.for_memory:
            if found.memory_bytes is not None:
                peaks.append((batch, found.memory_bytes))
            if _never_fits(peaks, limit):
                return failed
            continue
        if not run.ok:
            return failed
        s.script_batch, s.as_written_setting = own, setting
        reason = f"its own batch size {own} does not fit this device"
        s.rule_out(AS_WRITTEN, reason)
        s.caveats.append(
            f"as written: {reason}; it was run at batch {batch} instead, and that is what "
            "everything is compared with"
        )
        return run
    return failed


def _never_fits(peaks: list[tuple[int, int]], limit: float | None) -> bool:
    """True where the peaks of ever smaller batches point above the limit at a single sample."""
    model = fit(peaks) if len(peaks) >= HOPELESS_PEAKS else None
    return model is not None and limit is not None and model.predict_bytes(1) > limit


def _amp_works(s: Session) -> bool:
    """False where Paddle's AMP does nothing: what the script writes about it is FP32 then."""
    return any(v.allowed or v.forcible for v in s.machine.verdicts if v.level is not Level.O0)


def _fp32(s: Session, setting: Setting) -> Steps:
    """FP32 of a script that uses AMP itself: at its own batch, or the largest that fits."""
    measurement = yield from s.run(Phase.baseline, setting, why="FP32 at the script's batch")
    own = setting
    limit = s.memory_limit_bytes
    while True:
        found = point(s.batch_of(setting), measurement, limit)
        # Beside a script that fits, FP32 at the same batch is the comparison wanted, headroom or
        # not. What nobody runs today has to leave it.
        wanted = measurement.ok and setting == own and s.script_batch is None
        if wanted or not found.for_memory:
            break
        if setting == own:
            why = found.failed if measurement.ok else measurement.reason
            s.fp32_reason = f"FP32 does not fit at batch {s.batch_of(own)}: {why}"
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
    if setting == own:
        s.fp32_reason = None


def without_frames(text: str) -> str:
    """The script's output without Paddle's native frames and the headings around them."""
    return "\n".join(x for x in text.splitlines() if not NATIVE.match(x.strip()))


def baseline_failed(measurement: Measurement, how: str, give: str | None = None) -> ScriptError:
    """The error for a script that does not run: outcome, reason, and the log's tail. ``give``:
    what else may help where memory is short."""
    reason = measurement.reason or "no reason recorded"
    # What a device refuses or has no room for is said in the reason; the traceback above it in
    # the log is not the script's fault.
    refused = measurement.outcome is Outcome.unsupported_on_device
    no_room = measurement.outcome in MEMORY_OUTCOMES
    tail = "" if refused or no_room else without_frames(measurement.log_tail).rstrip()
    log = f"\nThe last lines of its output:\n{tail}" if tail else ""
    where = f" Full log: {measurement.log_path}" if measurement.log_path else ""
    message = f"the script does not run {how}: {measurement.outcome}: {reason}{log}"
    if measurement.outcome is Outcome.out_of_memory:
        if give is None and "headroom" in reason:
            give = "a smaller --headroom"
        return ScriptError(
            message,
            slug="baseline-out-of-memory",
            remedy=f"give {f'{give}, or ' if give else ''}the script a smaller batch size, or use "
            f"a device with more memory.{where}",
        )
    remedy = "make it run on this device without autoamp first."
    if refused:
        remedy = "change that in the script, or use a device that can do it."
    if measurement.outcome in NUMERIC_OUTCOMES:
        remedy = (
            "its numerics break before autoamp changes anything: turn the script's own AMP off "
            "(autoamp adds it from outside where it pays), or cure the loss in FP32 first."
        )
    return ScriptError(message, slug="baseline-failed", remedy=remedy + where)
