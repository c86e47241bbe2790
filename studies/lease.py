"""The lease on a study: one tuner at a time, and a dead tuner's study is free at once.

The row names host, process and its start time, and beats every few seconds. On the same host
the process table decides, so a tuner ended by ``kill -9`` is seen as dead without waiting.
Elsewhere only the heartbeat can be judged.
"""

import os
import socket
import threading
import time
import uuid
from datetime import datetime, timezone
from types import TracebackType
from typing import TYPE_CHECKING

from autoamp.errors import StorageError
from autoamp.studies.records import LeaseRow

if TYPE_CHECKING:
    from autoamp.studies.store import Store

BEAT_S = 5.0
DEAD_AFTER_S = 60.0
"""Twelve missed beats: a laptop's pause or a slow disk is shorter, a person waits no longer."""


def host_id() -> str:
    """Names the process table we live in: the boot, and the PID namespace (container)."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as f:
            boot = f.read().strip()
        return f"{boot}:{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"host:{socket.gethostname()}"


def process_started(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot; None if it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            # The command's name may hold spaces and brackets: count from the last bracket.
            fields = f.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def is_alive(row: LeaseRow, *, now_s: float | None = None) -> bool:
    """Whether the holder of ``row`` still lives, as far as can be told from here."""
    if row.host_id == host_id():
        return process_started(row.pid) == row.process_started
    age_s = (time.time() if now_s is None else now_s) - row.heartbeat_at_s
    return age_s <= DEAD_AFTER_S


class Lease:
    """A held lease; use as a context manager, or call ``release``."""

    def __init__(self, store: "Store", row: LeaseRow, beat_s: float) -> None:
        self._store = store
        self._row = row
        self._beat_s = beat_s
        self._stop = threading.Event()
        self._lost: str | None = None
        self._thread = threading.Thread(target=self._beat, name="autoamp-lease", daemon=True)
        self._thread.start()

    @property
    def study_id(self) -> int:
        return self._row.study_id

    def check(self) -> None:
        """Raise StorageError ``study-in-use`` if another tuner has taken the study over.

        That can happen to a tuner whose machine slept while one on another host looked.
        """
        if self._lost:
            raise StorageError(
                f"the study is no longer ours: {self._lost}",
                slug="study-in-use",
                remedy="its finished trials are stored; start again when the other tuner is done",
            )

    def release(self) -> None:
        """Give the study free; safe to call twice."""
        self._stop.set()
        self._thread.join(timeout=self._beat_s + 35.0)
        self._store.drop_lease(self.study_id, self._row.token)

    def __enter__(self) -> "Lease":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except StorageError:
            # The row names a process that is about to be gone: it frees itself. What ended the
            # block matters more than a database that failed meanwhile.
            if error is None:
                raise

    def _beat(self) -> None:
        while not self._stop.wait(self._beat_s):
            try:
                if self._store.beat(self.study_id, self._row.token, time.time()):
                    continue
                other = self._store.lease(self.study_id)
            except StorageError:
                # Locked or briefly away: the next beat tries again, the lease has time to spare.
                continue
            self._lost = "it was taken over" + (f" by {_holder(other)}" if other else "")
            return


def acquire(
    store: "Store",
    study_id: int,
    *,
    beat_s: float = BEAT_S,
) -> Lease:
    """Take the study's lease, from a dead holder too; its running trial is then marked lost.

    Raises StorageError ``study-in-use`` while another tuner lives.
    """
    for _ in range(5):
        held = store.lease(study_id)
        if held is not None and (is_alive(held) or _beats_on(store, held, beat_s)):
            raise _in_use(store, held)
        row = _ours(study_id)
        if store.take_lease(row, instead_of=held):
            store.mark_lost(study_id)
            return Lease(store, row, beat_s)
    held = store.lease(study_id)
    raise StorageError(
        "several tuners want this study at once" if held is None else str(_in_use(store, held)),
        slug="study-in-use",
        remedy="start one tuner a study",
    )


def _beats_on(store: "Store", held: LeaseRow, beat_s: float) -> bool:
    """Whether a holder on another host that seems dead still beats: clocks may disagree."""
    if held.host_id == host_id():
        return False
    time.sleep(2.5 * beat_s)
    again = store.lease(held.study_id)
    return again is not None and (again.token, again.beats) != (held.token, held.beats)


def _ours(study_id: int) -> LeaseRow:
    pid = os.getpid()
    return LeaseRow(
        study_id=study_id,
        token=uuid.uuid4().hex,
        host=socket.gethostname(),
        host_id=host_id(),
        pid=pid,
        process_started=process_started(pid) or "",
        acquired_at=datetime.now(timezone.utc),
        heartbeat_at_s=time.time(),
        beats=0,
    )


def _holder(row: LeaseRow) -> str:
    since = row.acquired_at.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    return f"process {row.pid} on {row.host}, since {since}"


def _in_use(store: "Store", held: LeaseRow) -> StorageError:
    return StorageError(
        f"another tuner works on study {store.name_of(held.study_id)}: {_holder(held)}",
        slug="study-in-use",
        remedy="wait for it or stop it with Ctrl-C; or tune into another study with --study NAME",
    )
