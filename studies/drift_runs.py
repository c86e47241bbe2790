"""The runs of the drift check, and what follows from them for the search."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace

from autoamp.measurement import Measurement, Phase
from autoamp.settings import Setting
from autoamp.studies.drift import (
    DRIFT_STEPS,
    FP32_SEEDS,
    UNCHECKED_OUTCOMES,
    DriftCheck,
    compare,
    trains,
)
from autoamp.studies.picking import Picks
from autoamp.studies.proposal import Proposal, recipe
from autoamp.studies.session import Candidate, Session
from autoamp.studies.space import FP32

MAX_EMULATED_DRIFT_S = 300.0
"""A drift check that the CPU would emulate for longer is left to the GPU, and said so."""


def check_drift(s: Session, picks: Picks) -> Generator[Proposal, Measurement, bool]:
    """Check every recipe less exact than FP32 that may win; True if one failed and the pick must
    be redone."""
    mixed = []
    for candidate in picks.to_win():
        if s.virtual and candidate.setting.is_reduced and not candidate.setting.is_mixed:
            s.drift.setdefault(recipe(candidate.setting).key(), _not_emulated(s, candidate))
        elif candidate.setting.is_reduced:
            mixed.append(candidate)
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


def _not_emulated(s: Session, candidate: Candidate) -> DriftCheck:
    """A virtual device computes float32 products in float32: comparing would compare nothing."""
    setting, batch = candidate.setting, s.batch_of(candidate.setting)
    plain = s.at_batch(recipe(setting), batch)
    blank = compare(plain, candidate.measurement, [], batch=batch, max_drift=s.options.max_drift)
    why = "not compared: a virtual device does not emulate TF32's rounding; check it on the GPU"
    return replace(blank, passed=None, why=why)


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
            if t.proposal.phase is Phase.drift and not t.proposal.setting.is_reduced
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
