"""Listings of the merged view in the shape of ``os.scandir``."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from autoamp.child.files_view import Found, View, refusal


class Entries:
    """What ``os.scandir`` gives: an iterator that can be closed and used with ``with``."""

    def __init__(self, view: View, folder: str, path: Any) -> None:
        self._entries = self._walk(view, folder, path)

    @staticmethod
    def _walk(view: View, folder: str, path: Any) -> "Iterator[Entry]":
        for name in view.names(folder):
            found = view.find(f"{folder}/{name}", False)
            if found.real is not None:
                shown: Any = os.fsencode(name) if isinstance(path, bytes) else name
                joined = shown if isinstance(path, int) else os.path.join(path, shown)
                yield Entry(view, found, shown, joined)

    def __iter__(self) -> "Iterator[Entry]":
        return self._entries

    def __next__(self) -> "Entry":
        return next(self._entries)

    def close(self) -> None:
        self._entries = iter(())

    def __enter__(self) -> "Entries":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Entry:
    """An ``os.DirEntry`` of the merged view."""

    def __init__(self, view: View, found: Found, name: Any, path: Any) -> None:
        self._view = view
        self._found = found
        self.name = name
        self.path = path

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        found = self._view.find(self._found.place, follow_symlinks)
        if found.real is None or found.status is None:
            raise refusal(errno.ENOENT, self.path)
        return found.status

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(stat.S_ISDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(stat.S_ISREG, follow_symlinks)

    def _is(self, kind: Callable[[int], bool], follow: bool) -> bool:
        found = self._found
        if found.is_link and follow:
            found = self._view.find(found.place, True)
        return found.status is not None and kind(found.status.st_mode)

    def is_symlink(self) -> bool:
        return self._found.is_link

    def is_junction(self) -> bool:
        return False

    def inode(self) -> int:
        assert self._found.status is not None
        return self._found.status.st_ino

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"
