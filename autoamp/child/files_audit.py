"""The last line: refuses changes to the user's files that reach the interpreter undiverted.

Code that holds a function from before the patches, or calls ``posix`` itself, ends here. C++
code does not pass by the interpreter and is not seen.
"""

import errno
import os
import posix
import stat
import sys
from collections.abc import Callable
from typing import Any

from autoamp.child.files_changes import WRITE_FLAGS
from autoamp.child.files_patches import Permit
from autoamp.child.files_view import View

_FIRST_PATH = frozenset(
    (
        "os.remove",
        "os.rmdir",
        "os.truncate",
        "os.chmod",
        "os.chown",
        "os.utime",
        "os.setxattr",
        "os.removexattr",
    )
)
_BOTH_PATHS = frozenset(("os.rename", "os.link"))
_WATCHED = _FIRST_PATH | _BOTH_PATHS | {"open"}
_REASON = "autoamp: a trial may not change what existed before it"


def watch(view: View, permit: Permit, on_refusal: Callable[[str], None]) -> None:
    """Add the hook. It cannot be removed again, so it stays for the life of the process."""

    def refuse_if_older(path: Any, opened: bool) -> None:
        if path is None or isinstance(path, int):
            return
        name = os.fsdecode(path)
        if not _is_older(view, name, opened):
            return
        # importlib replaces a stale .pyc by itself and takes the refusal silently.
        if not name.endswith(".pyc"):
            on_refusal(name)
        raise PermissionError(errno.EACCES, _REASON, name)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        # Called for every audit event there is (each import, each id()): out at once.
        if event not in _WATCHED:
            return
        if event == "open":
            path, _mode, flags = args
            if flags & WRITE_FLAGS and path is not permit.path:
                refuse_if_older(path, opened=True)
            return
        refuse_if_older(args[0], opened=False)
        if event in _BOTH_PATHS:
            refuse_if_older(args[1], opened=False)

    sys.addaudithook(hook)


def _is_older(view: View, path: str, opened: bool) -> bool:
    """Something of the user's that was there, unchanged, when the trial began.

    A folder's ctime says when something in it changed, so every folder that the trial did not
    make counts as older; opening one for writing fails by itself.
    """
    if not path.startswith("/"):
        path = f"{posix.getcwd()}/{path}"
    place = os.path.normpath(path)
    if view.is_free(place) or view.is_upper(place):
        return False
    try:
        status = posix.stat(path) if opened else posix.lstat(path)
    except (OSError, ValueError):
        return False
    if stat.S_ISDIR(status.st_mode):
        return not opened
    if opened and not stat.S_ISREG(status.st_mode):
        return False
    return status.st_ctime_ns < view.started_ns
