"""From gradient exponents to loss scales."""

import math

from hypothesis import given
from hypothesis import strategies as st

from autoamp.measurement import Scan
from autoamp.studies.loss_scale import DEFAULT_EXPONENT, scale_window


def test_no_gradients_no_window() -> None:
    assert scale_window(Scan()) is None


def test_the_default_is_kept_where_it_does_no_harm() -> None:
    found = scale_window(Scan(grad_exponent_min=-20, grad_exponent_max=-3))
    assert found is not None and found.chosen == DEFAULT_EXPONENT
    assert found.chosen_scale == 32768.0


def test_large_gradients_pull_the_scale_down() -> None:
    found = scale_window(Scan(grad_exponent_min=-10, grad_exponent_max=6))
    assert found is not None and found.high == 8 and found.chosen == 8


def test_tiny_gradients_push_it_up() -> None:
    found = scale_window(Scan(grad_exponent_min=-42, grad_exponent_max=-12))
    assert found is not None and found.low == 18 and found.chosen == 18


def test_a_range_wider_than_float16_protects_the_large_end() -> None:
    found = scale_window(
        Scan(grad_exponent_min=-60, grad_exponent_max=10, grad_exponents=((-60, 30), (10, 70)))
    )
    assert found is not None
    assert found.low > found.high and found.chosen <= found.high
    assert found.kept_share == 0.7


def test_kept_share_counts_what_survives() -> None:
    scan = Scan(
        grad_exponent_min=-38, grad_exponent_max=-20, grad_exponents=((-38, 25), (-20, 75))
    )
    found = scale_window(scan)
    assert found is not None
    assert found.kept_share == 1.0 and found.kept_share_unscaled == 0.75


@given(a=st.integers(-120, 60), b=st.integers(-120, 60))
def test_every_candidate_is_a_safe_power_of_two(a: int, b: int) -> None:
    low, high = sorted((a, b))
    found = scale_window(Scan(grad_exponent_min=low, grad_exponent_max=high))
    assert found is not None
    candidates = found.candidates()
    assert candidates[0] == found.chosen_scale
    assert len(set(candidates)) == len(candidates)
    for scale in candidates:
        exponent = math.log2(scale)
        assert exponent == int(exponent) and scale >= 1
        # Scaled by it, the largest gradient seen stays below 65504, where 1 is not too much.
        assert high + exponent <= 15 or exponent == 0
