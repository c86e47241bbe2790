"""Nothing that Paddle offers ends the user's process by a signal: it works or says why not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.needs_paddle, pytest.mark.needs_compiler]

Run = Callable[..., dict[str, Any]]

BODY = f"""
sys.path.insert(0, {str(Path(__file__).parent)!r})
import hazards, scenarios
give(found=hazards.run(), refused=scenarios.REFUSED)
"""


def test_each_works_or_is_refused_by_name(run: Run, devices: Any) -> None:
    got = run(BODY, device=devices.a100)
    assert len(got["found"]) >= 40
    wrong = []
    for name, outcome in got["found"].items():
        wanted, error = got["refused"].get(name), outcome["error"]
        right = error is None if wanted is None else error is not None and wanted in error
        if outcome["code"] != 0 or not right:
            wrong.append(f"{name}: exit {outcome['code']}, {error}")
    assert not wrong, "\n".join(wrong)


def test_nothing_ends_by_a_signal_in_planning_mode(run: Run, devices: Any) -> None:
    """Values may be missing there, so that only the way the process ends is looked at."""
    got = run(BODY, device=devices.a100, numerics=False)
    ended = {name: x["code"] for name, x in got["found"].items() if x["code"] != 0}
    assert not ended
