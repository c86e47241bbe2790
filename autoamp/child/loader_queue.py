"""Waits until a loader has made all it makes ahead, so that counted memory is repeatable.

Paddle's buffered reader copies the next batch to the device from a thread of its own. On a virtual
device steps pass faster than on a GPU (in planning mode hardly any time at all), so how much of
that batch is there at the step's peak, and which block of the pool it got, would be chance. The
device's clock stands still meanwhile.
"""

import time
from collections.abc import Callable
from typing import Any

LIMIT_S = 20.0
"""A loader that needs longer for what it makes ahead is not waited for."""
POLL_S = 0.001
STEADY_POLLS = 3
"""A batch taken from the queue is on its way to the device for a moment that nothing shows."""


def fill(iterator: Any, live_bytes: Callable[[], int], limit_s: float = LIMIT_S) -> bool:
    """Wait for ``iterator``, a batch of which was just drawn; False if it took too long."""
    deadline = time.monotonic() + limit_s
    steady, seen = 0, live_bytes()
    while steady < STEADY_POLLS:
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
        now = live_bytes()
        steady = steady + 1 if is_full(iterator) and now == seen else 0
        seen = now
    return True


def is_full(iterator: Any) -> bool:
    """True if nothing more is made before the next batch is drawn."""
    queue = iterator._blocking_queue
    if queue is None:
        return True
    made, queued = len(iterator._structure_infos), int(queue.size())
    ahead = reader_ahead(iterator)
    outstanding = getattr(iterator, "_batches_outstanding", None)
    if outstanding is not None:
        all_made = made >= outstanding
    else:
        # The thread stands with one batch in its hands before a full queue.
        thread = iterator._thread
        alive = thread is not None and thread.is_alive()
        all_made = not alive or made > queue.capacity() + ahead
    return bool(all_made and queued <= max(0, made - ahead))


def reader_ahead(iterator: Any) -> int:
    """Batches on the device beside the one drawn last: that one's buffer is filled again only
    when the next is drawn."""
    if not getattr(iterator, "_use_buffer_reader", True):
        return 0
    return max(0, int(getattr(iterator, "_reader_buffer_size", 2) or 2) - 1)
