"""Climbing a batch size: what is tried next, and when to stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoamp.measurement import Measurement, Outcome
from autoamp.settings import Dtype, Level, Setting
from autoamp.studies.ceilings import (
    RESOLUTION,
    Curve,
    Point,
    align,
    ceiling,
    doomed,
    next_step,
    point,
)

O1 = Setting(amp_level=Level.O1, dtype=Dtype.float16)
O2 = Setting(amp_level=Level.O2, dtype=Dtype.float16)


def curve(*points: Point, own: int = 32, cap: int = 65_535, limit: float | None = 10_000) -> Curve:
    return Curve(
        recipe=O1,
        points=points,
        limit_bytes=limit,
        own_batch=own,
        max_batch=cap,
        max_batch_reason="end of the data",
    )


def ok(batch: int, throughput: float, memory: int | None = None) -> Point:
    return Point(batch=batch, throughput=throughput, memory_bytes=memory)


def oom(batch: int) -> Point:
    return Point(batch=batch, failed="out_of_memory: at step 1", for_memory=True)


def climb(
    law: Callable[[int], float],
    memory: Callable[[int], float],
    *,
    own: int,
    cap: int = 65_535,
    limit: float = 10_000.0,
    capacity: float = 11_000.0,
) -> tuple[Curve, str]:
    """Run a whole climb against two laws; a need above the capacity is out of memory."""
    found = curve(own=own, cap=cap, limit=limit)
    for _ in range(60):
        step = next_step(found)
        if step.batch is None:
            return found, step.why
        assert found.at(step.batch) is None, "asked for a batch twice"
        assert 1 <= step.batch <= max(cap, own)
        need = memory(step.batch)
        seen = (
            oom(step.batch)
            if need > capacity
            else Point(
                batch=step.batch,
                throughput=law(step.batch),
                memory_bytes=int(need),
                failed="over the headroom" if need > limit else None,
                for_memory=need > limit,
            )
        )
        found = replace(found, points=(*found.points, seen))
    raise AssertionError("the climb does not end")


def test_starts_at_the_scripts_batch_then_doubles() -> None:
    assert next_step(curve()).batch == 32
    assert next_step(curve(ok(32, 100))).batch == 64


def test_stops_where_throughput_stops_growing() -> None:
    step = next_step(curve(ok(32, 100), ok(64, 101)))
    assert step.batch is None and "no longer grows" in step.why
    assert next_step(curve(ok(32, 100), ok(64, 103))).batch == 128


def test_goes_down_when_nothing_fits_and_says_so_at_the_end() -> None:
    assert next_step(curve(oom(32))).batch == 16
    assert next_step(curve(oom(32), oom(16), own=32)).batch == 8
    last = next_step(curve(oom(1), own=1))
    assert last.batch is None and "nothing fits" in last.why


def test_a_crash_is_not_answered_with_smaller_batches() -> None:
    step = next_step(curve(Point(batch=32, failed="crashed: segmentation fault")))
    assert step.batch is None and "segmentation fault" in step.why


def test_the_cap_is_tried_and_then_ends_it() -> None:
    assert next_step(curve(ok(32, 100), cap=48)).batch == 48
    step = next_step(curve(ok(32, 100), cap=35))
    assert step.batch is None and step.why == "end of the data"


def test_the_memory_line_is_tried_and_verified() -> None:
    # 100 + 40 b: the limit of 10,000 is reached at 247.
    step = next_step(curve(ok(64, 100, 2660), ok(128, 150, 5220)))
    assert step.batch == 240 and "memory line" in step.why


def test_with_much_room_it_goes_faster() -> None:
    step = next_step(curve(ok(8, 100, 180), ok(16, 150, 260), own=8))
    assert step.batch == 64


def test_a_slower_precision_is_left_behind() -> None:
    leader = replace(curve(ok(32, 200), ok(64, 300)), recipe=O2)
    mine = curve(ok(32, 120), ok(64, 180))
    step = next_step(mine, leader)
    assert step.batch is None and "slower than O2 float16 at batch 64" in step.why
    near = curve(ok(32, 190), ok(64, 290))
    assert next_step(near, leader).batch == 128


def test_listed_batches_only() -> None:
    listed = replace(curve(ok(32, 100)), batches=(16, 48, 100))
    assert next_step(listed).batch == 48
    assert next_step(replace(listed, points=(ok(32, 100), oom(48)))).batch is None
    assert next_step(replace(listed, points=(oom(32),))).batch == 16


@settings(max_examples=300)
@given(
    own=st.integers(1, 400),
    fixed=st.floats(0, 5000),
    slope=st.floats(0.5, 500),
    overhead=st.floats(0, 1),
    per_sample=st.floats(1e-5, 1e-2),
    cap=st.integers(1, 65_535),
    bend=st.floats(0, 0.2),
)
def test_any_climb_ends_within_a_resolution_of_the_truth(
    own: int,
    fixed: float,
    slope: float,
    overhead: float,
    per_sample: float,
    cap: int,
    bend: float,
) -> None:
    def memory(batch: int) -> float:
        # The caching allocator rounds up, so the line bends.
        return (fixed + slope * batch) * (1 + bend * (batch % 3) / 3)

    def law(batch: int) -> float:
        return batch / (overhead + per_sample * batch)

    cap = max(cap, own)
    found, why = climb(law, memory, own=own, cap=cap)
    end = ceiling(found, why)
    assert len(found.points) <= 25, "a ceiling must stay cheap"
    if end.largest_fitting is None:
        assert memory(1) > 10_000 or own > 1
        return
    assert memory(end.largest_fitting) <= 10_000
    assert end.fastest in {p.batch for p in found.fitting}
    if end.smallest_failing is not None and "works" in why and bend == 0:
        gap = end.smallest_failing - end.largest_fitting
        predicted = end.predicted_largest
        near = predicted is not None and predicted < end.largest_fitting * (1 + 1 / RESOLUTION) + 8
        assert near or gap <= max(8, end.largest_fitting / RESOLUTION) + 8


def test_ceiling_reports_what_was_seen() -> None:
    found = ceiling(curve(ok(32, 100, 2000), ok(64, 90, 3000), oom(128)), "done")
    assert (found.largest_fitting, found.fastest, found.smallest_failing) == (64, 32, 128)
    assert found.predicted_largest == 288
    empty = ceiling(curve(oom(32)), "nothing fits")
    assert empty.largest_fitting is None and empty.smallest_failing == 32


def test_doomed_names_the_reason() -> None:
    known = curve(ok(32, 100, 2000), ok(64, 120, 4000), oom(200))
    assert doomed(known, 64) is None
    assert "200 of the same precision failed" in (doomed(known, 256) or "")
    assert "memory line" in (doomed(known, 190) or "")
    assert doomed(curve(cap=64), 128) == "end of the data"


@pytest.mark.parametrize(("batch", "aligned"), [(0.5, 0), (7, 7), (15, 15), (16, 16), (47.9, 40)])
def test_align(batch: float, aligned: int) -> None:
    assert align(batch) == aligned


def test_points_from_measurements() -> None:
    good = Measurement(
        outcome=Outcome.ok,
        throughput_samples_per_s=50.0,
        memory_reserved_peak_bytes=900,
    )
    assert point(8, good, 1000) == Point(batch=8, memory_bytes=900, throughput=50.0)
    over = point(8, good, 800)
    assert over.failed is not None and over.for_memory and over.memory_bytes == 900
    for outcome in (Outcome.out_of_memory, Outcome.host_memory):
        dead = replace(good, outcome=outcome, reason="no room", throughput_samples_per_s=None)
        # Where it died is not what it needs: no point for the line.
        assert point(8, dead, None) == Point(
            batch=8, failed=f"{outcome}: no room", for_memory=True
        )
