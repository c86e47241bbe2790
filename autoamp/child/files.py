"""A trial changes nothing of the user's: a copy-on-write view of the disk, in Python.

Writes go to the trial's scratch folder, reads look there first, deletions are remembered there,
and the script, its child processes and the libraries above ``open`` and ``os`` see one disk that
behaves as usual. Real files keep their bytes and times. Three layers: the patches of ``open``,
``io`` and ``os``; wrappers of known writers in C and C++ (sqlite3, paddle's savers); an audit
hook that refuses what is left. Other programs (``os.system("cp ...")``) see the real disk only.
"""

import os
from collections.abc import Callable

from autoamp.child.files_audit import watch
from autoamp.child.files_c_writers import CWriters
from autoamp.child.files_changes import Changes
from autoamp.child.files_paddle import PaddleSavers
from autoamp.child.files_patches import Patches, Permit
from autoamp.child.files_upper import Upper
from autoamp.child.files_view import View

_writers: CWriters | None = None


def install(scratch_dir: str, trial_dir: str, on_refusal: Callable[[str], None]) -> None:
    """Divert this process's file changes to ``scratch_dir``; child processes share it.

    Called once, before user code. ``trial_dir`` (the events and the log) is written for real.
    ``on_refusal`` is called with each path whose change the last line refused.
    """
    global _writers
    if _writers is not None:
        return
    view = View(scratch_dir, trial_dir)
    changes = Changes(view, Upper(view), _cache_prefixes(), _temporary_folders())
    permit = Permit()
    Patches(view, changes, permit).install()
    _writers = CWriters(view, changes)
    _writers.install()
    watch(view, permit, on_refusal)


def paddle_savers(paddle: object) -> None:
    """Divert Paddle's C++ savers and loaders; nothing where ``install`` was not called."""
    if _writers is not None:
        PaddleSavers(_writers).install(paddle)


def _cache_prefixes() -> tuple[str, ...]:
    """Where libraries keep what they download or compute once: new files there are kept."""
    home = os.path.expanduser("~")
    folders = [
        # Both: paddle's to_static writes below ~/.cache whatever XDG_CACHE_HOME says.
        f"{home}/.cache",
        os.environ.get("XDG_CACHE_HOME") or f"{home}/.cache",
        os.environ.get("MPLCONFIGDIR") or f"{home}/.config/matplotlib",
    ]
    prefixes = [os.path.realpath(folder) + "/" for folder in folders]
    # ~/.paddleocr, ~/.paddlenlp, ~/.paddlex and their like.
    return (*prefixes, os.path.realpath(home) + "/.paddle")


def _temporary_folders() -> tuple[str, ...]:
    named = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    return tuple({os.path.realpath(f) for f in (*named, "/tmp", "/var/tmp", "/usr/tmp") if f})
