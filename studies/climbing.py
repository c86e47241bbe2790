"""Raising the batch size of each precision as far as it pays and fits."""

from __future__ import annotations

import math
from collections.abc import Generator

from autoamp.measurement import Measurement, Phase
from autoamp.settings import Setting
from autoamp.studies.budget import Budget
from autoamp.studies.ceilings import NOT_CLIMBED, OUT_OF_TRIALS, ceiling, next_step
from autoamp.studies.proposal import Proposal, recipe
from autoamp.studies.session import Session

Steps = Generator[Proposal, Measurement, None]

LEADERS_SHARE = 2 / 3
"""Of the trials left for ceilings, as much as this goes to each precision, the fastest first."""


def climb(s: Session, budget: Budget) -> Steps:
    """Raise the batch of each precision (or the most promising one) as far as it pays.

    Equal shares would stop the leader half way for the sake of precisions that cannot win.
    """
    order = by_own_speed(s)
    if not budget.all_ceilings:
        order = order[:1]
    allowance = budget.climbing(s.left)
    for index, setting in enumerate(order):
        share = allowance if index == len(order) - 1 else math.ceil(allowance * LEADERS_SHARE)
        before = s.left
        why = OUT_OF_TRIALS
        while before - s.left < share:
            step = next_step(s.curve(setting), s.leader_curve())
            why = step.why
            if step.batch is None:
                break
            yield from s.run(Phase.ceiling, s.at_batch(setting, step.batch), why=step.why)
            why = OUT_OF_TRIALS
        allowance -= before - s.left
        s.ceilings[recipe(setting).key()] = ceiling(s.curve(setting), why)


def by_own_speed(s: Session) -> list[Setting]:
    """FP32 and each carried-on variant, the fastest at the script's batch first."""
    settings = [x for x in (s.fp32_setting, *s.bases.values()) if x is not None]

    def speed(setting: Setting) -> float:
        fastest = s.curve(setting).fastest
        return fastest.throughput or 0.0 if fastest is not None else 0.0

    return sorted(settings, key=speed, reverse=True)


def finish_ceilings(s: Session) -> None:
    """Note how far each precision got whose climb had no turn."""
    if not s.has_space or not s.space.batch_free:
        return
    for setting in by_own_speed(s):
        key = recipe(setting).key()
        s.ceilings.setdefault(key, ceiling(s.curve(setting), NOT_CLIMBED))
