"""Watches one child process for the tuner; run as a script, standard library only.

The tuner cannot clean up after itself when it is killed with SIGKILL, so a process of its own
does: it starts the child in a new session, adopts whatever the child's descendants orphan
(PR_SET_CHILD_SUBREAPER, Linux), and kills all of them when its socket to the tuner closes. It
works for children that never load our hooks (``python -I``), too.

Socket, line by line. To the tuner: ``{"pid": n}`` after the start, ``{"error": text}`` if the
start failed, ``{"exit": status, "left": n}`` at the end, ``exit`` as ``os.waitpid`` gives it.
From the tuner: ``T`` for SIGTERM with a grace period, ``K`` for SIGKILL now.
"""

import ctypes
import json
import os
import select
import signal
import socket
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# Descendants are killed in rounds because a process may fork while it is being listed.
KILL_ROUNDS = 200
KILL_PAUSE_S = 0.01


def prctl(option: int, value: int) -> None:
    """Linux prctl; silent elsewhere, where the guard still kills the process group."""
    try:
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
    except (OSError, AttributeError):
        pass


def descendants(root: int) -> list[int]:
    """Every live process below ``root``, from /proc; zombies are left out."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as f:
                stat = f.read()
        except OSError:
            continue
        # The name in parentheses may hold spaces and parentheses itself.
        state, ppid = stat[stat.rindex(b")") + 2 :].split()[:2]
        if state != b"Z":
            parents.setdefault(int(ppid), []).append(int(entry))
    found: list[int] = []
    todo = [root]
    while todo:
        for pid in parents.get(todo.pop(), ()):
            found.append(pid)
            todo.append(pid)
    return found


def kill_all(root: int) -> int:
    """SIGKILL every descendant of ``root``; returns how many were met."""
    seen: set[int] = set()
    for _ in range(KILL_ROUNDS):
        alive = descendants(root)
        if not alive:
            break
        seen.update(alive)
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        reap_others(None)
        time.sleep(KILL_PAUSE_S)
    return len(seen)


def reap_others(child: int | None) -> int | None:
    """Collect zombies; returns the exit status of ``child`` if it was among them."""
    status = None
    while True:
        try:
            pid, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == child:
            status = code


def start(argv: list[str], grandparent: int) -> int:
    """Fork and exec ``argv`` in a session of its own, to die with this process."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != grandparent:
                os._exit(127)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.execvpe(argv[0], argv, os.environ)
        except BaseException as error:
            os.write(write_end, f"{argv[0]}: {error}".encode())
            os._exit(127)
    os.close(write_end)
    problem = os.read(read_end, 4096)
    os.close(read_end)
    if problem:
        os.waitpid(pid, 0)
        raise OSError(problem.decode(errors="replace"))
    return pid


def main() -> int:
    channel = socket.socket(fileno=int(sys.argv[1]))
    grace_s = float(sys.argv[2])
    argv = sys.argv[3:]

    def tell(message: dict[str, object]) -> None:
        try:
            channel.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            pass

    os.set_inheritable(channel.fileno(), False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    os.set_blocking(wake_read, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        child = start(argv, os.getpid())
    except OSError as error:
        tell({"error": str(error)})
        return 1
    tell({"pid": child})

    deadline: float | None = None
    status: int | None = None
    while status is None:
        wait = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready, _, _ = select.select([channel.fileno(), wake_read], [], [], wait)
        if wake_read in ready:
            try:
                os.read(wake_read, 4096)
            except BlockingIOError:
                pass
        status = reap_others(child)
        if status is not None:
            break
        if channel.fileno() in ready:
            try:
                order = channel.recv(16)
            except OSError:
                order = b""
            if order == b"" or b"K" in order:
                deadline = time.monotonic()
            elif b"T" in order and deadline is None:
                deadline = time.monotonic() + grace_s
                try:
                    os.kill(child, signal.SIGTERM)
                except ProcessLookupError:
                    pass
        if deadline is not None and time.monotonic() >= deadline:
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                pass
            _, status = os.waitpid(child, 0)
    left = kill_all(os.getpid())
    tell({"exit": status, "left": left})
    return 0


if __name__ == "__main__":
    sys.exit(main())
