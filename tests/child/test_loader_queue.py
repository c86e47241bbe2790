"""When a loader has made all that it makes ahead."""

from typing import Any

import pytest

from autoamp.child.loader_queue import fill, is_full, reader_ahead


class Queue:
    def __init__(self, size: int, capacity: int) -> None:
        self._size, self._capacity = size, capacity

    def size(self) -> int:
        return self._size

    def capacity(self) -> int:
        return self._capacity


class Thread:
    def __init__(self, alive: bool) -> None:
        self._alive = alive

    def is_alive(self) -> bool:
        return self._alive


class Iterator:
    """The attributes of Paddle's iterators that are read."""

    def __init__(self, made: int, queued: int, *, capacity: int = 2, **attributes: Any) -> None:
        self._structure_infos = [None] * made
        self._blocking_queue = Queue(queued, capacity)
        self._thread = Thread(True)
        self._use_buffer_reader = True
        self._reader_buffer_size = 2
        for name, value in attributes.items():
            setattr(self, name, value)


@pytest.mark.parametrize(
    ("iterator", "full"),
    [
        (Iterator(4, 2), True),
        # The queue is full, but the buffered reader has not taken its batch yet.
        (Iterator(3, 2), False),
        (Iterator(1, 1), False),
        (Iterator(3, 2, _use_buffer_reader=False), True),
        # The data set ended: what is left lies on the device and in the queue.
        (Iterator(2, 1, _thread=Thread(False)), True),
        (Iterator(2, 2, _thread=Thread(False)), False),
        (Iterator(0, 0, _thread=None), True),
        (Iterator(0, 0, _blocking_queue=None), True),
        # Workers: everything that was asked for has come, and the reader holds its share.
        (Iterator(4, 3, capacity=4, _batches_outstanding=4), True),
        (Iterator(4, 4, capacity=4, _batches_outstanding=4), False),
        (Iterator(3, 2, capacity=4, _batches_outstanding=4), False),
        (Iterator(0, 0, capacity=4, _batches_outstanding=0), True),
    ],
)
def test_full(iterator: Iterator, full: bool) -> None:
    assert is_full(iterator) == full


def test_a_reader_of_four_buffers_holds_three() -> None:
    assert reader_ahead(Iterator(0, 0, _reader_buffer_size=4)) == 3


def test_a_copy_under_way_is_waited_for() -> None:
    sizes = iter([1, 1, 2])
    assert fill(Iterator(4, 2), lambda: next(sizes, 2))
    assert next(sizes, None) is None


def test_a_loader_that_takes_too_long_is_given_up() -> None:
    assert not fill(Iterator(1, 1), lambda: 0, limit_s=0.02)
