"""From the search's candidates to what is recommended: drift check, fresh runs, choice."""

from __future__ import annotations

from collections.abc import Generator

from autoamp.measurement import Measurement
from autoamp.studies.confirm_runs import confirm, measure_split
from autoamp.studies.drift_runs import check_drift
from autoamp.studies.outcome import result_of
from autoamp.studies.picking import pick
from autoamp.studies.proposal import Proposal, Result
from autoamp.studies.session import Session, Stopped

MAX_FALLBACKS = 12
"""How often a leader that fails its proof is replaced before the safest is taken."""


def prove(s: Session, stopped: str | None) -> Generator[Proposal, Measurement, Result]:
    """Check drift and confirm in fresh runs, falling to the next leader where one fails."""
    picks = pick(s)
    if stopped is None:
        try:
            for _ in range(MAX_FALLBACKS):
                picks = pick(s)
                if (yield from check_drift(s, picks)):
                    continue
                yield from measure_split(s, picks.leader)
                if not (yield from confirm(s, picks)):
                    break
            picks = pick(s)
        except Stopped as exc:
            stopped = str(exc)
            picks = pick(s)
    return result_of(s, picks, stopped)
