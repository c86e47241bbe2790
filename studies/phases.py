"""The search as a generator: it asks for runs one at a time and ends with what to recommend.

Pure: it starts nothing, stores nothing and prints nothing. The caller runs each proposal (or
answers it from history) and sends the measurement back. Given the same machine, options and
measurements it asks the same questions in the same order, which is how a search is resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from autoamp.measurement import Measurement
from autoamp.probes.facts import Machine
from autoamp.settings import Dtype
from autoamp.studies.baseline import baseline, nothing_found
from autoamp.studies.budget import TINY, Budget, plan_line
from autoamp.studies.climbing import climb, finish_ceilings
from autoamp.studies.confirm import HostBound
from autoamp.studies.looking import (
    look,
    look_at_stored,
    look_at_the_rest,
    precisions_to_look_at,
    scan,
)
from autoamp.studies.proposal import Options, Proposal, Result, Trial
from autoamp.studies.proving import prove
from autoamp.studies.refining import refine_lists, search_below
from autoamp.studies.session import Session, Spent, Stopped
from autoamp.studies.space import allowed_precisions

__all__ = ["Options", "Proposal", "Result", "Trial", "plan_line", "search"]


def search(
    machine: Machine,
    options: Options,
    *,
    clock: Callable[[], float],
    ratio_band: float | None = None,
    host_bound: HostBound | None = None,
    stop: Callable[[], bool],
    stored: Sequence[Proposal] = (),
) -> Generator[Proposal, Measurement, Result]:
    """Ask for runs (``yield`` a Proposal, ``send`` its Measurement); returns the Result.

    ``clock`` gives the seconds used so far; ``ratio_band`` is the relative half-width of the
    virtual device's error for a ratio of times (None: uncalibrated), ``host_bound`` what holds
    instead for steps that wait for the host; ``stop`` True ends the
    search after the run at hand; ``stored`` are runs that the history answers at no cost.
    Raises ScriptError ``baseline-failed``, ``baseline-out-of-memory`` and
    ``stopped-too-early``, and MachineError ``refused-precision``.
    """
    # Refused precisions are an answer before the first run, not after it.
    allowed_precisions(machine, options)
    session = Session(
        machine,
        options,
        clock=clock,
        ratio_band=ratio_band,
        host_bound=host_bound,
        stop=stop,
        stored=stored,
    )
    stopped: str | None = None
    try:
        try:
            yield from baseline(session)
            yield from _explore(session)
        except Spent as exc:
            session.spent = str(exc)
        try:
            yield from look_at_stored(session)
        except Spent:
            # A run beside the stored one was never made: what is known stands.
            pass
        finish_ceilings(session)
    except Stopped as exc:
        stopped = str(exc)
    if not session.has_reference:
        raise nothing_found(session, stopped)
    result = yield from prove(session, stopped)
    return result


def _explore(s: Session) -> Generator[Proposal, Measurement, None]:
    budget = Budget(trials=s.options.trials)
    looks = precisions_to_look_at(s, budget)
    if any(p.dtype is Dtype.float16 for p in looks) and budget.scan:
        yield from scan(s)
    for precision in looks:
        yield from look(s, precision, budget)
    if s.space.batch_free:
        yield from climb(s, budget)
    yield from look_at_the_rest(s, budget)
    if s.options.trials > TINY:
        yield from search_below(s, budget)
    if budget.list_refinement:
        yield from refine_lists(s)
