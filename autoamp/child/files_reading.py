"""The functions of ``os`` that only look: they are pointed to where the merged view has it."""

import errno
import os
import posix
from collections.abc import Callable
from typing import Any

from autoamp.child.files_listing import Entries
from autoamp.child.files_view import Found, View, refusal


class Reading:
    """The replacements that change nothing. ``view.sync()`` is their fast way out."""

    def __init__(self, view: View) -> None:
        self.view = view

    def find(self, path: Any, follow: bool, dir_fd: int | None = None) -> Found:
        try:
            return self.view.find(os.fsdecode(path), follow, dir_fd)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None

    def existing(
        self, path: Any, follow: bool, dir_fd: int | None = None, second: Any = None
    ) -> tuple[str, Found]:
        found = self.find(path, follow, dir_fd)
        if found.real is None:
            raise OSError(errno.ENOENT, posix.strerror(errno.ENOENT), path, None, second)
        return found.real, found

    def reader(self, real: Callable[..., Any], follows: bool) -> Callable[..., Any]:
        """For functions whose first argument is a path and that change nothing."""
        view = self.view

        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            if not view.sync() or isinstance(path, int):
                return real(path, *args, **kwargs)
            dir_fd = kwargs.pop("dir_fd", None)
            place, _found = self.existing(path, kwargs.get("follow_symlinks", follows), dir_fd)
            return with_name(path, real, place, *args, **kwargs)

        return call

    def access(self, path: Any, mode: int, **kwargs: Any) -> bool:
        if not self.view.sync() or isinstance(path, int):
            return posix.access(path, mode, **kwargs)
        dir_fd = kwargs.pop("dir_fd", None)
        try:
            found = self.find(path, kwargs.get("follow_symlinks", True), dir_fd)
        except OSError:
            return False
        return found.real is not None and posix.access(found.real, mode, **kwargs)

    def readlink(self, path: Any, *, dir_fd: int | None = None) -> Any:
        if not self.view.sync():
            target = posix.readlink(path, dir_fd=dir_fd)
        else:
            real, _found = self.existing(path, False, dir_fd)
            target = with_name(path, posix.readlink, real)
            if isinstance(path, bytes):
                return os.fsencode(target)
        if isinstance(target, str) and target.startswith("/"):
            # /proc/self/fd and the like name real paths.
            return self.view.logical(target)
        return target

    def listdir(self, path: Any = ".") -> Any:
        if path is None:
            path = "."
        if not self.view.sync():
            return posix.listdir(path)
        found = self._folder(path)
        if found is None:
            return posix.listdir(path)
        names = self.view.names(found.place)
        return [os.fsencode(n) for n in names] if isinstance(path, bytes) else names

    def scandir(self, path: Any = ".") -> Any:
        if path is None:
            path = "."
        if not self.view.sync():
            return posix.scandir(path)
        found = self._folder(path)
        if found is None:
            return posix.scandir(path)
        return Entries(self.view, found.place, path)

    def _folder(self, path: Any) -> Found | None:
        """The folder to be listed by the view; None where the real call gives the answer."""
        if isinstance(path, int):
            found = self.view.find(posix.readlink(f"/proc/self/fd/{path}"), False)
        else:
            found = self.existing(path, True)[1]
            if not found.is_folder:
                raise refusal(errno.ENOTDIR, path)
        if self.view.is_mixed(found.place):
            return found
        return None if isinstance(path, int) or _kernel_agrees(path, found) else found

    def chdir(self, path: Any) -> None:
        if not self.view.sync() or isinstance(path, int):
            posix.chdir(path)
        else:
            with_name(path, posix.chdir, self.existing(path, True)[0])

    def getcwd(self) -> str:
        return self.view.logical(posix.getcwd())

    def getcwdb(self) -> bytes:
        return os.fsencode(self.view.logical(posix.getcwd()))


def with_name(path: Any, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Errors name the path that the script gave, not the one in scratch."""
    try:
        return call(*args, **kwargs)
    except OSError as error:
        if error.filename is not None:
            error.filename = path
        raise


def _kernel_agrees(path: Any, found: Found) -> bool:
    """The kernel reaches the same folder by ``path``: no link of the view is on the way."""
    try:
        status = posix.stat(path)
    except OSError:
        return False
    ours = found.status
    return ours is not None and (status.st_ino, status.st_dev) == (ours.st_ino, ours.st_dev)
