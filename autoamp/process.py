"""The one door to child processes: supervised trials, and short questions to an interpreter."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from autoamp import guard

TERMINATE_GRACE_S = 2.0
"""Between SIGTERM and SIGKILL: long enough for a handler to flush, short beside a trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedText:
    """A short command that ended by itself."""

    returncode: int
    stdout: str
    stderr: str


def run_quick(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
    cwd: str | Path | None = None,
) -> CompletedText:
    """Run a short command to its end in a session of its own.

    Raises OSError if it cannot be started, TimeoutError (the group is killed) past ``timeout_s``.
    """
    child = subprocess.Popen(
        list(argv),
        env=None if env is None else dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, err = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{argv[0]} took longer than {timeout_s:g} s") from None
    finally:
        if child.poll() is None:
            for pid in [child.pid, *guard.descendants(child.pid)]:
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:
                    pass
            child.communicate()
    return CompletedText(returncode=child.returncode, stdout=out, stderr=err)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a supervised child ended: an exit code or a signal, and who ended it."""

    code: int | None
    signal: int | None
    killed_by_us: bool
    left_behind: int
    """Descendants that were still alive at its end and were killed."""


class Supervised:
    """One child process under a guard that outlives the tuner.

    The child runs in its own session; its whole process tree is gone when ``wait`` has
    returned an Exit, when ``kill`` returned, or shortly after the tuner itself died.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | Path,
        log_path: str | Path,
    ) -> None:
        """Start ``argv``; stdout and stderr go to ``log_path``. Raises OSError if it cannot."""
        ours, theirs = socket.socketpair()
        self._channel = ours
        self._buffer = b""
        self._exit: Exit | None = None
        self._killed = False
        with theirs, open(log_path, "ab") as log:
            self._guard = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    guard.__file__,
                    str(theirs.fileno()),
                    str(TERMINATE_GRACE_S),
                    *argv,
                ],
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        first = self._message(None)
        if first is None or "pid" not in first:
            self._guard.wait()
            ours.close()
            raise OSError((first or {}).get("error") or "the guard process did not start")
        self.pid = int(first["pid"])

    def wait(self, timeout_s: float | None = None) -> Exit | None:
        """The Exit, or None if the child still runs after ``timeout_s`` seconds."""
        if self._exit is not None:
            return self._exit
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        message = self._message(deadline)
        if message is None and self._guard.poll() is None and not self._closed():
            return None
        self._guard.wait()
        self._channel.close()
        if message is None or "exit" not in message:
            # The guard was killed by someone; PR_SET_PDEATHSIG has taken the child with it.
            self._exit = Exit(code=None, signal=9, killed_by_us=self._killed, left_behind=0)
            return self._exit
        status = int(message["exit"])
        code = os.waitstatus_to_exitcode(status)
        self._exit = Exit(
            code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            killed_by_us=self._killed,
            left_behind=int(message["left"]),
        )
        return self._exit

    def terminate(self) -> None:
        """Ask the child to end (SIGTERM); the guard kills it after a grace period."""
        self._order(b"T")

    def kill(self) -> Exit:
        """SIGKILL the whole tree and wait for it."""
        self._order(b"K")
        while True:
            done = self.wait()
            if done is not None:
                return done

    def __enter__(self) -> "Supervised":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._exit is None:
            self.kill()

    def _order(self, order: bytes) -> None:
        if self._exit is None:
            self._killed = True
            try:
                self._channel.sendall(order)
            except OSError:
                pass

    def _closed(self) -> bool:
        ready, _, _ = select.select([self._channel], [], [], 0)
        return bool(ready) and self._channel.recv(1, socket.MSG_PEEK) == b""

    def _message(self, deadline: float | None) -> dict[str, str] | None:
        while b"\n" not in self._buffer:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self._channel], [], [], left)
            if not ready:
                return None
            try:
                data = self._channel.recv(4096)
            except ConnectionError:
                data = b""
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, str] = json.loads(line)
        return message


def run_foreground(argv: Sequence[str], *, env: Mapping[str, str], cwd: str | Path) -> Exit:
    """Run a command on our own terminal and wait for it, passing signals on to it.

    Ctrl-C reaches the child from the terminal by itself; SIGTERM and SIGHUP are forwarded. The
    child keeps our standard streams. Raises OSError if it cannot be started.
    """
    child = subprocess.Popen(list(argv), env=dict(env), cwd=cwd)

    def forward(number: int, frame: object) -> None:
        try:
            child.send_signal(number)
        except ProcessLookupError:
            pass

    before = {number: signal.signal(number, forward) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return Exit(
        code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        killed_by_us=False,
        left_behind=0,
    )
