"""Every optimizer of Paddle's at O2: master weights move as float32 parameters would."""

from collections.abc import Callable
from typing import Any

import pytest
from optimizer_steps import STEPS, judge

from autoamp.probes.knobs import MASTER_WEIGHT_OPTIMIZERS, NO_MASTER_WEIGHT_OPTIMIZERS

pytestmark = [pytest.mark.needs_paddle, pytest.mark.needs_compiler]

Run = Callable[..., dict[str, Any]]


def test_masters_move_as_single_precision_does_and_parameters_are_their_rounding(
    run: Run, devices: Any
) -> None:
    out = run(STEPS, device=devices.a100)["out"]
    judge(out)
    # The rule table that probes and the tuner go by.
    known = {*MASTER_WEIGHT_OPTIMIZERS, *NO_MASTER_WEIGHT_OPTIMIZERS}
    assert {case for case in out if case.isalpha()} == known - set(NO_MASTER_WEIGHT_OPTIMIZERS)
