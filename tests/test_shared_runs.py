"""Emulated runs that several studies share."""

import pytest

from autoamp.measurement import Measurement, Outcome
from autoamp.shared_runs import SHAREABLE, SharedRuns

GIB = 2**30


def run(outcome: Outcome = Outcome.ok, peak: int | None = GIB) -> Measurement:
    return Measurement(outcome=outcome, reason="why", memory_reserved_peak_bytes=peak, wall_s=9.0)


def test_a_run_stands_for_another_study_and_says_so() -> None:
    shared = SharedRuns()
    assert shared.take("key", 16 * GIB) is None
    shared.offer("key", "train-t4", 5, run())
    taken = shared.take("key", 16 * GIB)
    assert taken is not None
    assert taken.taken_from == "train-t4, trial 5"
    assert shared.take("another key", 16 * GIB) is None


@pytest.mark.parametrize("outcome", list(Outcome))
def test_only_what_speaks_about_the_numbers_is_shared(outcome: Outcome) -> None:
    shared = SharedRuns()
    shared.offer("key", "train-t4", 5, run(outcome))
    assert (shared.take("key", 16 * GIB) is not None) == (outcome in SHAREABLE)


@pytest.mark.parametrize(
    ("peak", "capacity"),
    [(GIB, GIB - 1), (None, GIB), (GIB, None)],
    ids=["does not fit", "peak unknown", "capacity unknown"],
)
def test_a_run_that_may_not_have_fitted_is_made_anew(
    peak: int | None, capacity: int | None
) -> None:
    shared = SharedRuns()
    shared.offer("key", "train-a100", 5, run(peak=peak))
    assert shared.take("key", capacity) is None


def test_what_was_taken_keeps_its_first_source() -> None:
    shared, later = SharedRuns(), SharedRuns()
    shared.offer("key", "train-t4", 5, run())
    taken = shared.take("key", 16 * GIB)
    assert taken is not None
    later.offer("key", "train-a100", 3, taken)
    assert later.take("key", 16 * GIB) is None
