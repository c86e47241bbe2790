"""The line of peak memory over the batch size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoamp.studies.memory_model import fit


def test_needs_two_batch_sizes() -> None:
    assert fit([]) is None
    assert fit([(8, 100), (8, 120)]) is None


@given(
    fixed=st.integers(0, 10**10),
    slope=st.integers(0, 10**8),
    batches=st.sets(st.integers(1, 4096), min_size=2, max_size=5),
    asked=st.integers(1, 8192),
)
def test_a_true_line_is_found(fixed: int, slope: int, batches: set[int], asked: int) -> None:
    model = fit([(b, fixed + slope * b) for b in batches])
    assert model is not None and model.points == len(batches)
    assert model.predict_bytes(asked) == pytest.approx(fixed + slope * asked, rel=1e-6, abs=1)
    assert model.worst_error < 1e-6


def test_largest_batch() -> None:
    model = fit([(32, 1000 + 32 * 10), (64, 1000 + 64 * 10)])
    assert model is not None
    assert model.largest_batch(2000) == 100
    assert model.largest_batch(10) == 0


def test_a_falling_line_is_taken_as_flat() -> None:
    model = fit([(32, 1000), (64, 900)])
    assert model is not None
    assert model.bytes_per_sample == 0 and model.largest_batch(5000) is None
    assert model.worst_error > 0
