"""Puts the merged view behind ``open``, ``io.open`` and the functions of ``os``.

The standard library's own users of these (shutil, pathlib, tempfile, zipfile, logging, glob)
call them through ``os`` and ``io`` and need nothing more; names that were copied before are
replaced in the modules that are known to copy them.
"""

import _io
import builtins
import io
import os
import posix
import sys
from _thread import _local
from collections.abc import Callable
from types import ModuleType
from typing import Any

from autoamp.child.files_changes import WRITE_FLAGS, Changes
from autoamp.child.files_reading import Reading, with_name
from autoamp.child.files_view import View

# Modules that copy functions of os or open at import and may be loaded before a
# sitecustomize runs (.pth files of editable installs load pathlib and glob).
_COPIERS = (
    "bz2",
    "glob",
    "genericpath",
    "pathlib",
    "pathlib._local",
    "posixpath",
    "shutil",
    "tarfile",
    "tempfile",
    "tokenize",
    "zipfile",
)


class Permit(_local):
    """The path whose ``open`` event the audit hook lets pass: the opener diverts it."""

    path: object = None


class Patches(Reading):
    """Builds the replacements; ``install`` puts them in place."""

    def __init__(self, view: View, changes: Changes, permit: Permit) -> None:
        super().__init__(view)
        self.changes = changes
        self.permit = permit
        self.replaced: dict[int, Any] = {}

    # Opening

    def os_open(
        self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        if not flags & WRITE_FLAGS:
            if not self.view.sync():
                return posix.open(path, flags, mode, dir_fd=dir_fd)
            real, _found = self.existing(path, not flags & os.O_NOFOLLOW, dir_fd)
            fd: int = with_name(path, posix.open, real, flags, mode)
            return fd
        self.view.sync()
        exclusive = flags & os.O_CREAT and flags & os.O_EXCL
        found = self.find(path, not (flags & os.O_NOFOLLOW or exclusive), dir_fd)
        temporary = sys._getframe(1).f_globals.get("__name__") == "tempfile"
        fd = with_name(path, self.changes.open, found, flags, mode, path, temporary=temporary)
        return fd

    def io_open(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Callable[[Any, int], int] | None = None,
    ) -> Any:
        reads = mode in ("r", "rb", "rt") or not set("wax+").intersection(mode)
        if isinstance(file, int) or (reads and (opener is not None or not self.view.sync())):
            return _io.open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        # By an opener, so that the file object keeps the name the script gave it.
        name = os.fspath(file)
        permit = self.permit
        before, permit.path = permit.path, name
        try:
            return _io.open(
                name, mode, buffering, encoding, errors, newline, closefd, opener or self._opener
            )
        finally:
            permit.path = before

    def _opener(self, path: Any, flags: int) -> int:
        return self.os_open(path, flags, 0o666)

    # Changing

    def remove(self, path: Any, *, dir_fd: int | None = None) -> None:
        self.view.sync()
        found = self.find(path, False, dir_fd)
        with_name(path, self.changes.remove, found, path)

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        self.view.sync()
        found = self.find(path, False, dir_fd)
        with_name(path, self.changes.rmdir, found, path)

    def rename(
        self,
        src: Any,
        dst: Any,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
    ) -> None:
        self.view.sync()
        source = self.find(src, False, src_dir_fd)
        target = self.find(dst, False, dst_dir_fd)
        with_name(src, self.changes.rename, source, target, (src, dst))

    def link(
        self,
        src: Any,
        dst: Any,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        self.view.sync()
        # os.link follows only where it calls linkat(2), that is with a folder descriptor.
        follow = follow_symlinks and (src_dir_fd, dst_dir_fd) != (None, None)
        _real, source = self.existing(src, follow, src_dir_fd, dst)
        target = self.find(dst, False, dst_dir_fd)
        with_name(src, self.changes.link, source, target, (src, dst))

    def symlink(
        self,
        src: Any,
        dst: Any,
        target_is_directory: bool = False,
        *,
        dir_fd: int | None = None,
    ) -> None:
        self.view.sync()
        found = self.find(dst, False, dir_fd)
        try:
            self.changes.make(found, dst, lambda real: posix.symlink(os.fsdecode(src), real))
        except OSError as error:
            error.filename, error.filename2 = src, dst
            raise

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self.view.sync()
        found = self.find(path, False, dir_fd)
        temporary = sys._getframe(1).f_globals.get("__name__") == "tempfile"
        self.changes.make(found, path, lambda real: posix.mkdir(real, mode), temporary=temporary)

    def maker(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """mkfifo, mknod: path first, the rest handed on."""

        def call(path: Any, *args: Any, dir_fd: int | None = None, **kwargs: Any) -> None:
            self.view.sync()
            found = self.find(path, False, dir_fd)
            self.changes.make(found, path, lambda at: real(at, *args, **kwargs))

        return call

    def changer(self, real: Callable[..., Any], follows: bool) -> Callable[..., Any]:
        """chmod, chown, utime, truncate, setxattr: the entry is copied up, then changed."""

        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(path, int):
                return real(path, *args, **kwargs)
            self.view.sync()
            dir_fd = kwargs.pop("dir_fd", None)
            _real, found = self.existing(path, kwargs.get("follow_symlinks", follows), dir_fd)
            upper = with_name(path, self.changes.upper.copy_up, found)
            return with_name(path, real, upper, *args, **kwargs)

        return call

    # Putting in place

    def install(self) -> None:
        calls: dict[str, Callable[..., Any]] = {
            "access": self.access,
            "readlink": self.readlink,
            "listdir": self.listdir,
            "scandir": self.scandir,
            "chdir": self.chdir,
            "getcwd": self.getcwd,
            "getcwdb": self.getcwdb,
            "open": self.os_open,
            "remove": self.remove,
            "unlink": self.remove,
            "rmdir": self.rmdir,
            "rename": self.rename,
            "replace": self.rename,
            "link": self.link,
            "symlink": self.symlink,
            "mkdir": self.mkdir,
        }
        for name, follows in (
            ("stat", True),
            ("lstat", False),
            ("statvfs", True),
            ("pathconf", True),
            ("getxattr", True),
            ("listxattr", True),
        ):
            calls[name] = self.reader(getattr(posix, name), follows)
        for name, follows in (
            ("chmod", True),
            ("chown", True),
            ("lchown", False),
            ("utime", True),
            ("truncate", True),
            ("setxattr", True),
            ("removexattr", True),
        ):
            calls[name] = self.changer(getattr(posix, name), follows)
        for name in ("mkfifo", "mknod"):
            calls[name] = self.maker(getattr(posix, name))
        for name, call in calls.items():
            self._replace(os, name, call)
        made = self._replace(io, "open", self.io_open)
        builtins.open = made
        # What os says of its functions (shutil asks) holds for their replacements.
        for told in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            told |= {self.replaced[id(f)] for f in told if id(f) in self.replaced}
        for module in _COPIERS:
            if module in sys.modules:
                self.rebind(sys.modules[module])

    def _replace(self, module: ModuleType, name: str, call: Callable[..., Any]) -> Any:
        real = getattr(module, name)
        made = _callable(real, module.__name__, name, call)
        self.replaced[id(real)] = made
        setattr(module, name, made)
        return made

    def rebind(self, module: ModuleType) -> None:
        """Replace what ``module``, its classes and their defaults copied before."""
        owners: list[Any] = [module]
        owners += [v for v in vars(module).values() if isinstance(v, type)]
        for owner in owners:
            for name, value in list(vars(owner).items()):
                plain = value.__func__ if isinstance(value, staticmethod) else value
                made = self.replaced.get(id(plain))
                if made is not None:
                    setattr(owner, name, staticmethod(made) if plain is not value else made)
                defaults = getattr(value, "__defaults__", None)
                if isinstance(defaults, tuple) and any(id(d) in self.replaced for d in defaults):
                    value.__defaults__ = tuple(self.replaced.get(id(d), d) for d in defaults)


def _callable(real: Callable[..., Any], module: str, name: str, call: Callable[..., Any]) -> Any:
    """An object called like the builtin it replaces.

    Not a function: a class that keeps ``os.stat`` as an attribute (pathlib of Python 3.10 does)
    would turn it into a method.
    """
    kind = type(name, (), {"__call__": staticmethod(call), "__reduce__": lambda self: name})
    made = kind()
    made.__name__ = made.__qualname__ = name
    made.__module__ = module
    made.__doc__ = real.__doc__
    made.__wrapped__ = real
    return made
