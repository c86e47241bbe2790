"""Ratios with intervals."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoamp.studies.confirm import (
    UNCALIBRATED_RATIO_BAND,
    Interval,
    is_gain,
    modelled_ratio,
    paired_ratio,
    single_runs_ratio,
    t95,
)


@pytest.mark.parametrize("degrees", [*range(1, 31), 31, 100])
def test_t_points(degrees: int) -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy is no dependency of autoamp")
    exact = float(stats.t.ppf(0.975, min(degrees, 30)))
    assert t95(degrees) == pytest.approx(exact, abs=6e-4)
    assert t95(degrees) >= float(stats.t.ppf(0.975, degrees)) - 6e-4, "never too narrow"


def test_t_needs_a_degree_of_freedom() -> None:
    with pytest.raises(ValueError, match="found 0"):
        t95(0)


def test_known_interval() -> None:
    # Log ratios ln 2 - d, ln 2, ln 2 + d: mean ln 2, deviation d, half-width t(2) d / sqrt 3.
    d = 0.05
    found = paired_ratio([(1.0, 2 * math.exp(-d)), (1.0, 2.0), (1.0, 2 * math.exp(d))])
    half = t95(2) * d / math.sqrt(3)
    assert found.ratio == pytest.approx(2.0)
    assert found.low == pytest.approx(2 * math.exp(-half))
    assert found.high == pytest.approx(2 * math.exp(half))
    assert "3 alternating pairs" in found.basis


def test_one_pair_has_no_interval_and_none_is_an_error() -> None:
    one = paired_ratio([(10.0, 15.0)])
    assert one.ratio == pytest.approx(1.5) and not one.known
    with pytest.raises(ValueError, match="found none"):
        paired_ratio([])
    assert not single_runs_ratio(10.0, 15.0).known


rates = st.floats(0.1, 1e6)


@given(pairs=st.lists(st.tuples(rates, rates), min_size=2, max_size=8))
def test_turning_the_pairs_round_inverts_the_interval(pairs: list[tuple[float, float]]) -> None:
    there = paired_ratio(pairs)
    back = paired_ratio([(b, a) for a, b in pairs])
    assert there.low is not None and there.high is not None
    assert back.low is not None and back.high is not None
    assert there.low <= there.ratio * (1 + 1e-9) and there.ratio <= there.high * (1 + 1e-9)
    assert back.ratio == pytest.approx(1 / there.ratio)
    if there.high < 1e100:
        assert back.low == pytest.approx(1 / there.high, rel=1e-6)


@given(common=st.lists(rates, min_size=2, max_size=6), ratio=st.floats(0.5, 3))
def test_what_acts_on_both_of_a_pair_cancels(common: list[float], ratio: float) -> None:
    found = paired_ratio([(c, c * ratio) for c in common])
    assert found.low == pytest.approx(ratio, rel=1e-6)
    assert found.high == pytest.approx(ratio, rel=1e-6)


def test_modelled_interval_is_the_models_band() -> None:
    found = modelled_ratio(100.0, 150.0, band=0.2)
    assert (found.ratio, found.low, found.high) == pytest.approx((1.5, 1.25, 1.8))
    unknown = modelled_ratio(100.0, 150.0, band=None)
    assert unknown.low == pytest.approx(1.5 / (1 + UNCALIBRATED_RATIO_BAND))
    assert "uncalibrated" in unknown.basis


@given(
    first=st.floats(1, 1e6),
    second=st.floats(1, 1e6),
    band=st.one_of(st.none(), st.floats(0.01, 3.0)),
)
def test_who_is_asked_about_first_does_not_decide_a_tie(
    first: float, second: float, band: float | None
) -> None:
    """0.77x lay below 1 with its whole interval, and 1.30x, its inverse, was called a tie."""
    there = modelled_ratio(first, second, band=band)
    back = modelled_ratio(second, first, band=band)
    assert there.low is not None and there.high is not None
    assert back.low is not None and back.high is not None
    assert back.low == pytest.approx(1 / there.high)
    assert back.high == pytest.approx(1 / there.low)


@pytest.mark.parametrize(
    ("ratio", "low", "high", "gain"),
    [
        (1.10, 1.05, 1.15, True),
        (1.10, 0.99, 1.22, False),
        (1.02, 1.01, 1.03, False),
        (0.90, 0.85, 0.95, False),
        (1.10, None, None, True),
        (1.02, None, None, False),
    ],
)
def test_when_a_gain_is_a_gain(
    ratio: float, low: float | None, high: float | None, gain: bool
) -> None:
    interval = Interval(ratio=ratio, low=low, high=high, basis="test")
    assert is_gain(interval, min_gain=0.03) is gain
