"""Events: what the child tells the tuner, one JSON object a line, a file per process."""

import json
import os
import sys
import time
import traceback
from types import TracebackType
from typing import Any, TextIO

from autoamp import wire

MAX_TEXT = 4000
"""Characters kept of a message or traceback tail: an error's end says what it was."""


class Events:
    """Appends events; forked children get a file of their own. Never raises into user code."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._file: TextIO | None = None
        self._pid = 0

    def emit(self, kind: str, **values: Any) -> None:
        """Write one event and flush it: it must survive a SIGKILL a moment later."""
        try:
            if self._pid != os.getpid():
                self._open()
            if self._file is not None:
                line = {"kind": kind, "t": time.monotonic(), **values}
                self._file.write(json.dumps(line, default=str) + "\n")
                self._file.flush()
        except (OSError, ValueError, RuntimeError):
            pass

    def _open(self) -> None:
        self._pid = os.getpid()
        name = f"{wire.EVENTS_PREFIX}{self._pid}{wire.EVENTS_SUFFIX}"
        self._file = open(os.path.join(self._folder, name), "a", encoding="utf-8")  # noqa: SIM115 - kept open for the life of the process

    def fault(self, where: str, error: BaseException) -> None:
        """One of our own hooks failed; the user's program goes on without it."""
        self.emit("fault", where=where, error=f"{type(error).__name__}: {error}"[:MAX_TEXT])

    def watch_exceptions(self) -> None:
        """Record an uncaught exception, then let Python report it as it would have."""
        before = sys.excepthook

        def hook(
            kind: type[BaseException], value: BaseException, trace: TracebackType | None
        ) -> None:
            text = "".join(traceback.format_exception(kind, value, trace))
            self.emit(
                "exception",
                type=kind.__name__,
                message=str(value)[-MAX_TEXT:],
                traceback=text[-MAX_TEXT:],
            )
            before(kind, value, trace)

        sys.excepthook = hook
