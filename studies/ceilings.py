"""How far one precision's batch size is worth raising: the next batch to run, or why to stop.

Doubling finds where throughput stops growing and gives the memory line its points; the line
then says which batch should just fit, a run verifies it, and bisection settles the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autoamp.measurement import Measurement, Outcome
from autoamp.settings import Setting
from autoamp.studies.memory_model import MemoryModel, fit
from autoamp.studies.score import peak_memory_bytes, standing

GROWTH_PER_DOUBLING = 0.02
"""Less than this for twice the batch: the device is full, and a larger batch only costs."""

BEHIND = 0.15
"""So much slower than the leader at the same batch, a precision is not climbed further."""

ALIGNMENT = 8
"""Tensor Cores want multiples of 8 halves (NVIDIA's matmul guide)."""

RESOLUTION = 8
"""Bisection ends when the bracket is narrower than an eighth of the batch that fits."""

OUT_OF_TRIALS = "the trials for ceilings are used up"
NOT_CLIMBED = "not climbed: trials or time used up"
"""Ends of a climb that say nothing about what fits."""

MEMORY_OUTCOMES = (Outcome.out_of_memory, Outcome.host_memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One run at one batch size. ``failed`` says why it cannot win; None if it can."""

    batch: int
    memory_bytes: int | None = None
    throughput: float | None = None
    failed: str | None = None
    for_memory: bool = False
    """True if it failed for want of memory, or left less than the headroom."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """All runs of one recipe over the batch size, and the limits they live under."""

    recipe: Setting
    points: tuple[Point, ...]
    limit_bytes: float | None
    own_batch: int
    max_batch: int
    max_batch_reason: str
    batches: tuple[int, ...] = ()
    """The only batch sizes allowed; empty: any up to ``max_batch``."""

    @property
    def fitting(self) -> tuple[Point, ...]:
        return tuple(sorted((p for p in self.points if p.failed is None), key=lambda p: p.batch))

    @property
    def failing(self) -> tuple[Point, ...]:
        return tuple(
            sorted((p for p in self.points if p.failed is not None), key=lambda p: p.batch)
        )

    @property
    def fastest(self) -> Point | None:
        fitting = self.fitting
        return max(fitting, key=lambda p: (p.throughput or 0.0, -p.batch)) if fitting else None

    @property
    def model(self) -> MemoryModel | None:
        return fit([(p.batch, p.memory_bytes) for p in self.points if p.memory_bytes is not None])

    def at(self, batch: int) -> Point | None:
        for point in self.points:
            if point.batch == batch:
                return point
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Run this batch next, or (``batch`` None) stop, and why."""

    batch: int | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """Where the climb of one recipe ended."""

    recipe: Setting
    largest_fitting: int | None
    fastest: int | None
    smallest_failing: int | None
    predicted_largest: int | None
    """What the memory line gives for the limit; advice only, it was not run."""
    why: str


def point(batch: int, measurement: Measurement, limit_bytes: float | None) -> Point:
    """A measurement as a point of its recipe's curve."""
    stand = standing(measurement, memory_limit_bytes=limit_bytes)
    memory = peak_memory_bytes(measurement)
    over = memory is not None and limit_bytes is not None and memory > limit_bytes
    return Point(
        batch=batch,
        # The peak of a run that ended out of memory is where it died, not what it needs.
        memory_bytes=memory if measurement.ok else None,
        throughput=measurement.throughput_samples_per_s if measurement.ok else None,
        failed=stand.reason,
        for_memory=measurement.outcome in MEMORY_OUTCOMES or (measurement.ok and over),
    )


def align(batch: float) -> int:
    """``batch`` rounded down to a multiple of 8, below 16 to a whole number."""
    whole = int(batch)
    return whole if whole < 2 * ALIGNMENT else whole - whole % ALIGNMENT


def next_step(curve: Curve, leader: Curve | None = None) -> Step:
    """The batch size to run next for this recipe, or the reason to stop."""
    fitting, failing = curve.fitting, curve.failing
    if not fitting:
        return _downwards(curve)
    low = fitting[-1]
    above = [p for p in failing if p.batch > low.batch]
    flat = _flat(fitting)
    if flat is not None:
        return Step(batch=None, why=flat)
    behind = _behind(curve, leader)
    if behind is not None:
        return Step(batch=None, why=behind)
    if curve.batches:
        return _next_listed(curve, low, above)
    if above:
        return _between(curve, low, above[0])
    return _upwards(curve, low, len(fitting))


def ceiling(curve: Curve, why: str) -> Ceiling:
    """The outcome of a climb that ended for the reason ``why``."""
    fitting = curve.fitting
    top = fitting[-1].batch if fitting else None
    above = [p.batch for p in curve.failing if top is None or p.batch > top]
    model = curve.model
    predicted = None
    if model is not None and curve.limit_bytes is not None:
        predicted = model.largest_batch(curve.limit_bytes)
    fastest = curve.fastest
    return Ceiling(
        recipe=curve.recipe,
        largest_fitting=top,
        fastest=None if fastest is None else fastest.batch,
        smallest_failing=min(above) if above else None,
        predicted_largest=predicted,
        why=why,
    )


def doomed(curve: Curve, batch: int) -> str | None:
    """Why a run of this recipe at ``batch`` cannot succeed; None if it may."""
    known = [p for p in curve.failing if p.batch <= batch]
    if known:
        return f"batch {known[0].batch} of the same precision failed: {known[0].failed}"
    if batch > curve.max_batch and not curve.batches:
        return curve.max_batch_reason
    model = curve.model
    if model is not None and curve.limit_bytes is not None:
        need = model.predict_bytes(batch)
        if need > curve.limit_bytes:
            return (
                f"the memory line predicts {need / 2**30:.2f} GiB, the limit is "
                f"{curve.limit_bytes / 2**30:.2f} GiB"
            )
    return None


def _downwards(curve: Curve) -> Step:
    failing = curve.failing
    if not failing:
        return Step(batch=curve.own_batch, why="at the script's own batch")
    lowest = failing[0]
    if not lowest.for_memory:
        return Step(batch=None, why=f"fails at batch {lowest.batch}: {lowest.failed}")
    if curve.batches:
        smaller = [b for b in curve.batches if b < lowest.batch]
        want = smaller[-1] if smaller else 0
    else:
        want = align(lowest.batch / 2)
    if want < 1:
        return Step(batch=None, why=f"nothing fits: batch {lowest.batch} {lowest.failed}")
    return Step(batch=want, why=f"batch {lowest.batch} does not fit")


def _flat(fitting: Sequence[Point]) -> str | None:
    if len(fitting) < 2:
        return None
    before, last = fitting[-2], fitting[-1]
    if not before.throughput or not last.throughput:
        return None
    doublings = math.log2(last.batch / before.batch)
    growth = last.throughput / before.throughput - 1
    # Below half a doubling the growth asked for drowns in noise.
    if doublings < 0.5 or growth >= GROWTH_PER_DOUBLING * doublings:
        return None
    return f"throughput no longer grows: {growth:+.1%} from batch {before.batch} to {last.batch}"


def _behind(curve: Curve, leader: Curve | None) -> str | None:
    if leader is None or leader.recipe == curve.recipe or len(curve.fitting) < 2:
        return None
    for mine in reversed(curve.fitting):
        theirs = leader.at(mine.batch)
        if theirs is None or theirs.failed is not None:
            continue
        if not theirs.throughput or not mine.throughput:
            return None
        gap = 1 - mine.throughput / theirs.throughput
        if gap > BEHIND:
            return f"{gap:.0%} slower than {leader.recipe.precision()} at batch {mine.batch}"
        return None
    return None


def _next_listed(curve: Curve, low: Point, above: Sequence[Point]) -> Step:
    bound = above[0].batch if above else math.inf
    for batch in curve.batches:
        if low.batch < batch < bound and curve.at(batch) is None:
            reason = doomed(curve, batch)
            if reason is not None:
                return Step(batch=None, why=reason)
            return Step(batch=batch, why="next of --batch-sizes")
    return Step(batch=None, why="the end of --batch-sizes")


def _predicted(curve: Curve) -> int | None:
    model = curve.model
    if model is None or curve.limit_bytes is None:
        return None
    largest = model.largest_batch(curve.limit_bytes)
    return None if largest is None else align(largest)


def _upwards(curve: Curve, low: Point, fitting: int) -> Step:
    limit, need = curve.limit_bytes, low.memory_bytes
    if limit is not None and need is not None and need >= limit:
        return Step(batch=None, why=f"batch {low.batch} takes all the memory that may be used")
    predicted = _predicted(curve)
    # With room for three doublings and a line to trust, two steps are taken at once.
    far = predicted is not None and fitting >= 2 and predicted >= 8 * low.batch
    want = low.batch * (4 if far else 2)
    why = f"{'four times' if far else 'twice'} batch {low.batch}"
    if want > curve.max_batch:
        want, why = align(curve.max_batch), curve.max_batch_reason
        if want < _worth(low.batch):
            return Step(batch=None, why=why)
    if predicted is not None and want > predicted:
        if predicted < _worth(low.batch):
            return Step(
                batch=None,
                why=f"the memory line ends at batch {predicted}, just above"
                if predicted > low.batch
                else f"the memory line ends at batch {low.batch}",
            )
        want, why = predicted, "largest batch by the memory line"
    return Step(batch=want, why=why)


def _between(curve: Curve, low: Point, high: Point) -> Step:
    step = ALIGNMENT if low.batch >= 2 * ALIGNMENT else 1
    found = f"batch {low.batch} works, batch {high.batch} does not: {high.failed}"
    if high.batch - low.batch <= max(step, low.batch / RESOLUTION):
        return Step(batch=None, why=found)
    predicted = _predicted(curve)
    middle = align((low.batch + high.batch) / 2)
    useful = predicted is not None and _worth(low.batch) <= predicted < high.batch
    if useful and predicted is not None and curve.at(predicted) is None:
        return Step(batch=predicted, why="largest batch by the memory line")
    if predicted is not None and predicted < _worth(low.batch):
        return Step(batch=None, why=found)
    if middle <= low.batch:
        return Step(batch=None, why=found)
    return Step(batch=middle, why=f"between {low.batch} and {high.batch}")


def _worth(batch: int) -> float:
    return batch * (1 + 1 / RESOLUTION)
