"""Statistics of the confirm runs: ratio with interval, and when a gain is a gain."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95

# Two-sided 95 % points of Student's t for 1 to 30 degrees of freedom (any table of the
# distribution); the tests compare them with scipy's where that is installed.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip

UNCALIBRATED_RATIO_BAND = 0.5
"""Half-width taken for a modelled ratio on a GPU without a published row to check against:
published errors of a roofline for one training iteration are 12 to 53 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBound:
    """The model's error bands for steps that wait for the host; see ``virtual/calibration.py``."""

    throughput: float
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A ratio of throughputs with its interval; no interval: ``low`` and ``high`` are None."""

    ratio: float
    low: float | None
    high: float | None
    basis: str
    """How the interval came about, or why there is none."""

    @property
    def known(self) -> bool:
        return self.low is not None and self.high is not None


def t95(degrees_of_freedom: int) -> float:
    """Two-sided 95 % point of Student's t; above 30 the value for 30 (a little too wide)."""
    if degrees_of_freedom < 1:
        raise ValueError(f"degrees of freedom: expected 1 or more, found {degrees_of_freedom}")
    return _T95[min(degrees_of_freedom, len(_T95)) - 1]


def paired_ratio(pairs: Sequence[tuple[float, float]]) -> Interval:
    """Ratio second/first of paired throughputs, with a 95 % t interval on the log ratios.

    A round runs both settings one after the other, so that clocks, heat and a neighbour's load
    act on both and cancel in the round's ratio. Logs, because the error of a ratio is one of
    proportion: the interval of b/a is then the inverse of that of a/b. Raises ValueError for no
    pair. One pair has no spread: it gets no interval.
    """
    if not pairs:
        raise ValueError("expected at least one pair, found none")
    logs = [math.log(second / first) for first, second in pairs]
    mean = sum(logs) / len(logs)
    if len(logs) == 1:
        return Interval(
            ratio=math.exp(mean), low=None, high=None, basis="one pair of runs: no interval"
        )
    variance = sum((x - mean) ** 2 for x in logs) / (len(logs) - 1)
    half = t95(len(logs) - 1) * math.sqrt(variance / len(logs))
    return Interval(
        ratio=math.exp(mean),
        low=math.exp(mean - half),
        high=math.exp(mean + half),
        basis=f"95 % interval from {len(logs)} alternating pairs of fresh runs",
    )


def modelled_ratio(
    first: float, second: float, *, band: float | None, host_bound: HostBound | None = None
) -> Interval:
    """Ratio of two modelled throughputs. Repeats are equal, so the interval is the model's error
    band for the ratio: too high or too low by at most a factor of ``1 + band``. A factor, so
    that, as in ``paired_ratio``, the interval of b/a is the inverse of that of a/b: which of the
    two is asked about first must not decide whether they tie. ``host_bound`` where one of the two
    waits for the host."""
    ratio = second / first
    used = UNCALIBRATED_RATIO_BAND if band is None else band
    basis = (
        f"modelled times, uncalibrated GPU: ±{used:.0%} assumed for the ratio"
        if band is None
        else f"modelled times: ±{used:.0%} is the model's error band for the ratio"
    )
    if host_bound is not None and host_bound.ratio > used:
        used = host_bound.ratio
        basis = f"modelled times: ±{used:.0%} is the model's error band where the host decides"
    return Interval(ratio=ratio, low=ratio / (1 + used), high=ratio * (1 + used), basis=basis)


def single_runs_ratio(first: float, second: float) -> Interval:
    """Ratio of two single runs. The spread within a run does not hold what differs from run to
    run, so it is not made into an interval."""
    return Interval(ratio=second / first, low=None, high=None, basis="one run each: no interval")


def is_gain(interval: Interval, *, min_gain: float) -> bool:
    """True if the ratio is a gain: at least ``1 + min_gain``, and the interval, where there is
    one, lies above 1. Everything else is a tie (or a loss)."""
    if interval.ratio < 1 + min_gain:
        return False
    return interval.low is None or interval.low > 1
