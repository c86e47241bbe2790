"""The pace of a loader, whatever was waiting in its queue when the clock began."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from autoamp.child import loader_pace


class Loader:
    """Makers that need ``seconds`` a batch, with ``waiting`` batches made before time 0.

    ``together``: all makers begin a batch at the same moment; else they take turns.
    """

    def __init__(self, seconds: float, workers: int, waiting: int, together: bool = True) -> None:
        self._num_workers = workers
        self._outstanding_capacity = 2 * workers
        self._blocking_queue_capacity = 2
        self.now = 0.0
        self._arrivals = self._times(seconds, max(1, workers), waiting, together)

    @staticmethod
    def _times(seconds: float, makers: int, waiting: int, together: bool) -> Iterator[float]:
        yield from [0.0] * waiting
        number = 0
        while True:
            number += 1
            yield seconds * (-(-number // makers) if together else number / makers)

    def __next__(self) -> object:
        self.now = max(self.now, next(self._arrivals)) + 1e-5
        return object()


@pytest.mark.parametrize("workers", [0, 1, 2, 4, 8])
@pytest.mark.parametrize("seconds", [0.001, 0.05, 0.3, 0.9, 1.4, 3.0])
@pytest.mark.parametrize("filled", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("together", [True, False])
def test_only_what_was_made_meanwhile_counts(
    workers: int, seconds: float, filled: float, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = loader_pace.made_ahead(Loader(seconds, workers, 0))
    loader = Loader(seconds, workers, round(filled * most), together)
    monkeypatch.setattr(
        loader_pace, "time", SimpleNamespace(perf_counter=lambda: loader.now), raising=True
    )
    found = loader_pace.pace(loader)
    real = seconds / max(1, workers)
    # A round that is cut short may make it half a round slower or faster, never a queue faster.
    assert 0.5 * real <= found["seconds_per_batch"] <= 2.0 * real + 1e-4
    assert found["workers"] == workers and found["batches"] >= 1
    assert loader.now <= loader_pace.LONGEST_S + seconds + 0.1


def test_three_waiting_batches_do_not_make_a_slow_loader_fast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loader = Loader(1.5, 0, 3)
    monkeypatch.setattr(loader_pace, "time", SimpleNamespace(perf_counter=lambda: loader.now))
    assert loader_pace.pace(loader)["seconds_per_batch"] == pytest.approx(1.5, rel=0.01)


def test_a_loader_that_raises_is_not_timed() -> None:
    class Broken:
        def __next__(self) -> object:
            raise StopIteration

    with pytest.raises(StopIteration):
        loader_pace.pace(Broken())
