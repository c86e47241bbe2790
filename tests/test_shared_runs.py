"""Emulated runs that several studies share."""

from dataclasses import fields, replace

import pytest

from autoamp.measurement import Label, Measurement, Outcome, Utilisation
from autoamp.shared_runs import OF_THE_GPU, OF_THE_SCRIPT, SHAREABLE, SharedRuns

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


def test_every_field_is_of_the_script_or_of_the_gpu() -> None:
    names = {field.name for field in fields(Measurement)}
    assert set(OF_THE_SCRIPT) | set(OF_THE_GPU) == names
    assert not set(OF_THE_SCRIPT) & set(OF_THE_GPU)


def test_nothing_of_the_other_gpu_comes_along() -> None:
    """Filled to the brim, a run leaves its script's facts and not one of its GPU's."""
    full = replace(
        run(),
        time_label=Label.modelled,
        numerics_label=Label.emulated,
        steps_done=20,
        steps_timed=20,
        samples_timed=640,
        timed_s=0.5,
        throughput_samples_per_s=1280.0,
        throughput_spread=0.1,
        block_throughputs=(1280.0,),
        data_wait_share=0.2,
        modelled_busy_share=0.7,
        loader_s_per_step=0.01,
        loader_workers=2,
        memory_overhead_bytes=123,
        memory_workspace_bytes=456,
        utilisation=Utilisation(gpu_percent=50.0),
        tf32_matmul=True,
        tf32_conv=True,
        losses=(1.0, 0.5),
    )
    shared = SharedRuns()
    shared.offer("key", "train-a100", 5, full)
    taken = shared.take("key", 16 * GIB, 789)
    assert taken is not None
    blank = Measurement(outcome=Outcome.ok)
    left = {
        name
        for name in OF_THE_GPU
        if getattr(taken, name) != getattr(blank, name) and not name.endswith("reason")
    }
    assert left == {"time_label", "memory_overhead_bytes", "taken_from"}
    assert taken.memory_overhead_bytes == 789
    assert all(getattr(taken, name) == getattr(full, name) for name in OF_THE_SCRIPT)


def test_the_workspaces_of_the_other_gpu_count_when_asking_whether_it_fits() -> None:
    shared = SharedRuns()
    shared.offer("key", "train-a100", 5, replace(run(), memory_workspace_bytes=GIB))
    assert shared.take("key", 2 * GIB, 1) is None
    assert shared.take("key", 2 * GIB + 1, 1) is not None
