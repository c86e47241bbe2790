"""Changes to the merged view: each leaves the user's disk alone and writes to the upper side.

Errors are the ones the kernel would give: a script that relies on FileExistsError or on "folder
not empty" sees them.
"""

import errno
import os
import posix
import stat
from collections.abc import Callable
from typing import Any

from autoamp.child.files_upper import Upper
from autoamp.child.files_view import Found, View, refusal

WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Changes:
    """Everything that writes. ``view.sync()`` must have been called for the operation."""

    def __init__(
        self,
        view: View,
        upper: Upper,
        cache_prefixes: tuple[str, ...],
        temporary_folders: tuple[str, ...],
    ) -> None:
        self.view = view
        self.upper = upper
        self._caches = cache_prefixes
        self._temporary_folders = temporary_folders

    def _new_entry(self, place: str, shown: object, *, temporary: bool = False) -> str:
        """The real path for an entry to be made; its folder must exist and be writable.

        Caches of libraries and Python's temporary files are made for real: the first are wanted
        by the next trial (a download is not repeated), the second are handed to programs and
        libraries that know nothing of the view.
        """
        parent = place.rpartition("/")[0]
        folder = self.view.find(parent or "/", follow=False)
        if folder.real is None:
            raise refusal(errno.ENOENT, shown)
        if not folder.is_folder:
            raise refusal(errno.ENOTDIR, shown)
        if self.view.is_free(place):
            return place
        if not self.view.is_upper(folder.real):
            if not posix.access(folder.real, os.W_OK | os.X_OK):
                raise refusal(errno.EACCES, shown)
            for_real = (
                parent in self._temporary_folders if temporary else place.startswith(self._caches)
            )
            if for_real and not self.view.is_hidden(place):
                self.view.record_created(place)
                return place
        self.upper.folder(parent)
        return self.view.scratch + place

    # Operations

    def open(
        self, found: Found, flags: int, mode: int, shown: object, *, temporary: bool = False
    ) -> int:
        """``os.open`` with flags that write."""
        if found.real is None or found.status is None:
            if not flags & os.O_CREAT:
                raise refusal(errno.ENOENT, shown)
            target = self._new_entry(found.place, shown, temporary=temporary)
            return posix.open(target, flags, mode)
        if flags & os.O_CREAT and flags & os.O_EXCL:
            raise refusal(errno.EEXIST, shown)
        kind = stat.S_IFMT(found.status.st_mode)
        lower = not self.view.is_upper(found.real) and not self.view.is_free(found.place)
        if not lower or kind != stat.S_IFREG:
            # Upper files, folders (which give their own error or, with O_TMPFILE, no name),
            # pipes, sockets and terminals.
            return posix.open(found.real, flags, mode)
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_TRUNC) == 0 and not flags & os.O_APPEND:
            return posix.open(found.real, flags & ~os.O_CREAT)
        if not posix.access(found.real, os.W_OK):
            raise refusal(errno.EACCES, shown)
        if not flags & os.O_TRUNC:
            return posix.open(self.upper.copy_up(found), flags, mode)
        folder = found.place.rpartition("/")[0]
        self.upper.folder(folder)
        with self.upper.same_time(folder):
            fd = posix.open(self.view.scratch + found.place, flags | os.O_CREAT, 0o600)
        posix.fchmod(fd, stat.S_IMODE(found.status.st_mode))
        return fd

    def _hide_lower(self, place: str) -> None:
        if self.view.lower(place) is not None:
            folder = place.rpartition("/")[0]
            self.upper.folder(folder)
            self.view.record_hidden(place)
            posix.utime(self.view.scratch + folder)

    def _may_leave(self, found: Found, shown: object) -> None:
        parent = self.view.find(found.place.rpartition("/")[0] or "/", follow=False)
        if (
            parent.real is not None
            and not self.view.is_upper(parent.real)
            and not posix.access(parent.real, os.W_OK | os.X_OK)
        ):
            raise refusal(errno.EACCES, shown)

    def remove(self, found: Found, shown: object) -> None:
        if found.real is None:
            raise refusal(errno.ENOENT, shown)
        if found.is_folder:
            raise refusal(errno.EISDIR, shown)
        if self.view.is_free(found.place):
            posix.unlink(found.real)
            return
        if self.view.is_upper(found.real):
            posix.unlink(found.real)
        else:
            self._may_leave(found, shown)
        self._hide_lower(found.place)
        if found.is_link:
            self.view.forget_folders()

    def rmdir(self, found: Found, shown: object) -> None:
        if found.real is None:
            raise refusal(errno.ENOENT, shown)
        if not found.is_folder:
            raise refusal(errno.ENOTDIR, shown)
        if self.view.is_free(found.place):
            posix.rmdir(found.real)
            return
        if self.view.names(found.place):
            raise refusal(errno.ENOTEMPTY, shown)
        if self.view.is_upper(found.real):
            posix.rmdir(found.real)
            self.view.forget_folders()
        else:
            self._may_leave(found, shown)
        self._hide_lower(found.place)

    def make(
        self,
        found: Found,
        shown: object,
        how: Callable[[str], Any],
        *,
        temporary: bool = False,
    ) -> None:
        """A new folder, link, pipe or node: ``how`` makes it at the real path it is given."""
        if found.real is not None:
            raise refusal(errno.EEXIST, shown)
        target = self._new_entry(found.place, shown, temporary=temporary)
        how(target)
        made = posix.lstat(target)
        if self.view.is_upper(target):
            if stat.S_ISDIR(made.st_mode):
                self.view.record_diverted(found.place)
            elif stat.S_ISLNK(made.st_mode):
                self.view.forget_folders()

    def link(self, source: Found, target: Found, shown: tuple[object, object]) -> None:
        """A file of the user's is copied up first: a hard link could be written through."""
        code = 0
        if source.real is None:
            code = errno.ENOENT
        elif target.real is not None:
            code = errno.EEXIST
        elif source.is_folder:
            code = errno.EPERM
        if code:
            raise OSError(code, posix.strerror(code), shown[0], None, shown[1])
        real = self._new_entry(target.place, shown[1])
        posix.link(self.upper.copy_up(source), real, follow_symlinks=False)

    def rename(self, source: Found, target: Found, shown: tuple[object, object]) -> None:
        code = self._rename_error(source, target)
        if code:
            raise OSError(code, posix.strerror(code), shown[0], None, shown[1])
        if source.place == target.place:
            return
        assert source.real is not None
        source_free = self.view.is_free(source.place)
        if source_free and self.view.is_free(target.place):
            posix.rename(source.real, target.place)
            return
        if not source_free and not self.view.is_upper(source.real):
            self._may_leave(source, shown[0])
        if target.real is None:
            real = self._new_entry(target.place, shown[1])
        elif self.view.is_free(target.place):
            real = target.real
        else:
            self.upper.folder(target.place.rpartition("/")[0])
            real = self.view.scratch + target.place
        if source.is_folder:
            self._rename_folder(source, target, real)
        elif source_free or self.view.is_upper(source.real):
            self._move_file(source, real)
        else:
            self.upper.copy(source, real)
        if not source_free:
            self._hide_lower(source.place)
        if source.is_link or source.is_folder:
            self.view.forget_folders()

    def _rename_error(self, source: Found, target: Found) -> int:
        if source.real is None:
            return errno.ENOENT
        if target.place.startswith(source.place + "/"):
            return errno.EINVAL
        if source.place.startswith(target.place + "/"):
            return errno.ENOTEMPTY
        if target.real is None or source.place == target.place:
            return 0
        if target.is_folder and not source.is_folder:
            return errno.EISDIR
        if source.is_folder and not target.is_folder:
            return errno.ENOTDIR
        if target.is_folder and self.view.names(target.place):
            return errno.ENOTEMPTY
        return 0

    def _rename_folder(self, source: Found, target: Found, real: str) -> None:
        assert source.real is not None
        if not self.view.is_free(source.place):
            self.upper.copy_tree_up(source)
            source_real = self.view.scratch + source.place
        else:
            source_real = source.real
        if self.view.is_upper(real):
            # What the user has at the target must not shine through the new folder.
            self._hide_lower(target.place)
        posix.rename(source_real, real)
        if self.view.is_upper(real):
            self._record_tree(target.place)

    def _record_tree(self, folder: str) -> None:
        self.view.record_diverted(folder)
        with posix.scandir(self.view.scratch + folder) as entries:
            below = [e.name for e in entries if e.is_dir(follow_symlinks=False)]
        for name in below:
            self._record_tree(f"{folder}/{name}")

    def _move_file(self, source: Found, real: str) -> None:
        assert source.real is not None
        try:
            posix.rename(source.real, real)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self.upper.copy(source, real)
            posix.unlink(source.real)
