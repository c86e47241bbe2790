"""How fast the script's loaders are by themselves, measured at the end of a trial.

On a virtual device nothing waits for the GPU, so waiting in the loop says nothing. Once the timed
steps are done, the loaders that fed them are drawn from while the device has nothing to do. That
holds for any number of workers: what they made in advance is drawn first and left out.
"""

import itertools
import threading
import time
from typing import TYPE_CHECKING, Any

from autoamp.child.ending import end_now

if TYPE_CHECKING:
    from autoamp.child.session import Session

BUDGET_S = 2.0
"""No loader is drawn from for longer, but for the batches that its workers have under way."""
LONGEST_S = 6.0
"""These are not waited for beyond this, but for one."""
LEAST_S = 0.2
LEAST_BATCHES = 8
"""A pace of fast loaders rests on at least this."""
HANG_S = 30.0
"""A loader that gives nothing for so long ends the trial, whose numbers are written already."""


def measure(session: "Session") -> None:
    """Emit ``loader_pace``: seconds a batch of each loader that fed training."""
    watch = threading.Timer(HANG_S, end_now, args=(session.paddle,))
    watch.daemon = True
    watch.start()
    paces = []
    try:
        for iterator, per_step in session.loaders.feeding():
            paces.append({**pace(iterator), "batches_per_step": per_step})
    except Exception as error:
        session.events.emit("loader_pace", loaders=[], reason=f"{type(error).__name__}: {error}")
        return
    finally:
        watch.cancel()
    reason = None if paces else "no paddle.io.DataLoader fed the training"
    session.events.emit("loader_pace", loaders=paces, reason=reason)


def pace(iterator: Any) -> dict[str, Any]:
    """Draw batches until the pace is known; raises what the loader raises."""
    ready = made_ahead(iterator)
    workers = int(getattr(iterator, "_num_workers", 0) or 0)
    moments = [time.perf_counter()]
    while True:
        batch = next(iterator)
        del batch
        moments.append(time.perf_counter())
        drawn, spent = len(moments) - 1, moments[-1] - moments[0]
        if drawn >= ready + LEAST_BATCHES and moments[-1] - moments[ready] >= LEAST_S:
            break
        if spent < BUDGET_S:
            continue
        # Workers that began together deliver together: half a round would be no pace.
        if drawn - first_made(moments, ready) >= max(1, workers) or spent >= LONGEST_S:
            break
    first = first_made(moments, ready)
    return {
        "seconds_per_batch": (moments[-1] - moments[first]) / (drawn - first),
        "batches": drawn - first,
        "workers": workers,
    }


def first_made(moments: list[float], ready: int) -> int:
    """How many of the batches drawn at ``moments`` (the first is the start) were made before.

    At most ``ready`` were. Where no more than that were drawn, the loader is slow, and those that
    were waiting are known by it: they came much faster than the slowest.
    """
    if len(moments) - 1 > ready:
        return ready
    waits = [after - before for before, after in itertools.pairwise(moments)]
    slow = max(waits) / 2
    return next(i for i, wait in enumerate(waits) if wait >= slow)


def made_ahead(iterator: Any) -> int:
    """The most batches that may be waiting: in Paddle's queues, and one in each maker's hands."""
    workers = int(getattr(iterator, "_num_workers", 0) or 0)
    queue = getattr(iterator, "_outstanding_capacity", 0) or getattr(
        iterator, "_blocking_queue_capacity", 0
    )
    on_device = int(getattr(iterator, "_reader_buffer_size", 2) or 0)
    return int(queue or 2) + on_device + max(1, workers)
