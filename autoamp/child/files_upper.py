"""The upper side of the merged view: making folders there and copying the user's files up."""

import errno
import os
import posix
import stat
from _thread import get_ident
from collections.abc import Iterator
from contextlib import contextmanager

from autoamp.child.files_view import Found, View, posix_makedirs, refusal

_COPY_CHUNK_BYTES = 1 << 24


class Upper:
    def __init__(self, view: View) -> None:
        self.view = view
        self._copies = f"{view.own_folder}/copies"
        posix_makedirs(self._copies)
        self._count = 0

    def folder(self, folder: str) -> None:
        """Give ``folder``, which exists in the view, an upper side with its mode and times."""
        upper = self.view.scratch + folder
        if folder in self.view.diverted:
            try:
                posix.lstat(upper)
                return
            except FileNotFoundError:
                pass
        if folder:
            self.folder(folder.rpartition("/")[0])
        self.view.record_diverted(folder)
        try:
            with self.same_time(folder.rpartition("/")[0] if folder else None):
                posix.mkdir(upper, 0o700)
        except FileExistsError:
            return
        lower = self.view.lower(folder)
        if lower is not None:
            posix.chmod(upper, stat.S_IMODE(lower[1].st_mode) | 0o700)
            posix.utime(upper, ns=(lower[1].st_atime_ns, lower[1].st_mtime_ns))

    @contextmanager
    def same_time(self, folder: str | None) -> Iterator[None]:
        """What only moves to the upper side leaves its folder's mtime as it is."""
        if folder is None:
            yield
            return
        upper = self.view.scratch + folder
        status = posix.lstat(upper)
        yield
        posix.utime(upper, ns=(status.st_atime_ns, status.st_mtime_ns))

    def copy_up(self, found: Found) -> str:
        """The upper path of an existing entry, copied there first if need be."""
        assert found.real is not None and found.status is not None
        if self.view.is_upper(found.real) or self.view.is_free(found.place):
            return found.real
        if found.is_folder:
            self.folder(found.place)
        else:
            folder = found.place.rpartition("/")[0]
            self.folder(folder)
            with self.same_time(folder):
                self.copy(found, self.view.scratch + found.place)
        return self.view.scratch + found.place

    def copy(self, found: Found, target: str) -> None:
        """Copy one entry with mode and times; the target appears complete or not at all."""
        assert found.real is not None and found.status is not None
        self._count += 1
        part = f"{self._copies}/{posix.getpid()}-{get_ident()}-{self._count}"
        if found.is_link:
            posix.symlink(posix.readlink(found.real), part)
            posix.rename(part, target)
            self.view.forget_folders()
            return
        if not stat.S_ISREG(found.status.st_mode):
            raise refusal(errno.EACCES, found.place)
        source = posix.open(found.real, os.O_RDONLY | os.O_CLOEXEC)
        try:
            out = posix.open(part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _copy_bytes(source, out)
                posix.fchmod(out, stat.S_IMODE(found.status.st_mode))
            finally:
                posix.close(out)
        finally:
            posix.close(source)
        posix.utime(part, ns=(found.status.st_atime_ns, found.status.st_mtime_ns))
        posix.rename(part, target)

    def copy_tree_up(self, found: Found) -> None:
        self.copy_up(found)
        if found.is_folder:
            for name in self.view.names(found.place):
                self.copy_tree_up(self.view.find(f"{found.place}/{name}", follow=False))


def _copy_bytes(source: int, out: int) -> None:
    try:
        while posix.sendfile(out, source, None, _COPY_CHUNK_BYTES):
            pass
        return
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EXDEV):
            raise
    while data := posix.read(source, 1 << 20):
        while data:
            data = data[posix.write(out, data) :]
