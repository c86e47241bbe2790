"""Libraries that open files in C: the path they are given is exchanged for the real one."""

import errno
import functools
import os
import posix
import stat
from types import ModuleType
from typing import Any

from autoamp.child.files_changes import Changes
from autoamp.child.files_view import View
from autoamp.child.import_hook import after_import

# A larger file opened "r+" as a memory map is mapped copy-on-write instead of being copied:
# numpy's default mode is "r+", so data sets that are only read are opened so.
_MEMMAP_COPY_BYTES = 64 << 20


class CWriters:
    def __init__(self, view: View, changes: Changes) -> None:
        self.view = view
        self.changes = changes

    # Paths

    def to_read(self, path: Any) -> Any:
        """Where ``path`` really lies; ``path`` itself where the view changes nothing."""
        if not isinstance(path, (str, bytes, os.PathLike)) or not self.view.sync():
            return path
        try:
            found = self.view.find(os.fsdecode(path), True)
        except OSError:
            return path
        if found.real is None or not self.view.is_upper(found.real):
            return path
        return _like(path, found.real)

    def to_write(self, path: Any, *, keep: bool) -> Any:
        """A real path to write to; with ``keep`` the present content is there."""
        if not isinstance(path, (str, bytes, os.PathLike)):
            return path
        self.view.sync()
        try:
            found = self.view.find(os.fsdecode(path), True)
        except OSError:
            return path
        if self.view.is_free(found.place):
            return path
        if found.real is not None:
            if keep and found.status is not None and stat.S_ISREG(found.status.st_mode):
                return _like(path, self.changes.upper.copy_up(found))
            if found.is_folder:
                return _like(path, self.changes.upper.copy_up(found))
        parent = self.view.find(found.place.rpartition("/")[0] or "/", True)
        if parent.real is None:
            return path
        if not self.view.is_upper(parent.real) and not posix.access(parent.real, os.W_OK):
            raise PermissionError(errno.EACCES, posix.strerror(errno.EACCES), path)
        self.changes.upper.folder(parent.place)
        return _like(path, self.view.scratch + found.place)

    # Libraries

    def install(self) -> None:
        after_import("sqlite3", self._sqlite3)
        after_import("numpy", self._numpy)
        after_import("h5py", self._h5py)
        after_import("lmdb", self._lmdb)
        after_import("cv2", self._cv2)
        after_import("subprocess", self._subprocess)

    def _sqlite3(self, sqlite3: ModuleType) -> None:
        connect = sqlite3.connect

        @functools.wraps(connect)
        def diverted(database: Any, *args: Any, **kwargs: Any) -> Any:
            return connect(self._database(database, kwargs.get("uri", False)), *args, **kwargs)

        for module in (sqlite3, getattr(sqlite3, "dbapi2", None)):
            if module is not None:
                vars(module)["connect"] = diverted

    def _database(self, database: Any, uri: bool) -> Any:
        name = os.fsdecode(database) if isinstance(database, (bytes, os.PathLike)) else database
        if not isinstance(name, str) or name in ("", ":memory:"):
            return database
        start, path, query = "", name, ""
        if uri and name.startswith("file:"):
            start = "file:"
            path, mark, query = name[len("file:") :].partition("?")
            query = mark + query
            if path in ("", ":memory:") or "mode=memory" in query:
                return database
            if "mode=ro" in query or "immutable=1" in query:
                return start + self.to_read(path) + query
        for suffix in ("-wal", "-journal"):
            if os.path.exists(path + suffix):
                self.to_write(path + suffix, keep=True)
        return start + os.fspath(self.to_write(path, keep=True)) + query

    def _numpy(self, numpy: ModuleType) -> None:
        memmap = numpy.memmap
        make = memmap.__new__

        @functools.wraps(make)
        def diverted(cls: Any, filename: Any, dtype: Any = numpy.uint8, mode: Any = "r+",
                     *args: Any, **kwargs: Any) -> Any:  # fmt: skip
            if mode in ("r+", "readwrite") and self._is_large_lower(filename):
                mode = "c"
            return make(cls, filename, dtype, mode, *args, **kwargs)

        memmap.__new__ = staticmethod(diverted)

    def _is_large_lower(self, path: Any) -> bool:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return False
        self.view.sync()
        try:
            found = self.view.find(os.fsdecode(path), True)
        except OSError:
            return False
        return (
            found.status is not None
            and found.real is not None
            and not self.view.is_upper(found.real)
            and not self.view.is_free(found.place)
            and found.status.st_size > _MEMMAP_COPY_BYTES
        )

    def _h5py(self, h5py: ModuleType) -> None:
        start = h5py.File.__init__

        @functools.wraps(start)
        def diverted(file: Any, name: Any, mode: str = "r", *args: Any, **kwargs: Any) -> None:
            if mode == "r":
                name = self.to_read(name)
            else:
                name = self.to_write(name, keep=mode in ("r+", "a"))
            start(file, name, mode, *args, **kwargs)

        h5py.File.__init__ = diverted

    def _lmdb(self, lmdb: ModuleType) -> None:
        original = lmdb.open

        def diverted(path: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("readonly"):
                return original(self.to_read(path), *args, **kwargs)
            if os.path.isdir(path):
                for name in os.listdir(path):
                    self.to_write(os.path.join(os.fsdecode(path), name), keep=True)
            return original(self.to_write(path, keep=True), *args, **kwargs)

        vars(lmdb)["open"] = diverted

    def _cv2(self, cv2: ModuleType) -> None:
        for name in ("imwrite", "imwritemulti", "VideoWriter"):
            self.wrap_path(cv2, name, 0, "filename", writes=True)
        for name in ("imread", "imreadmulti", "VideoCapture"):
            self.wrap_path(cv2, name, 0, "filename", writes=False)

    def _subprocess(self, subprocess: ModuleType) -> None:
        """A folder that exists in the view only is no working folder for the kernel."""
        start = subprocess.Popen.__init__

        @functools.wraps(start)
        def diverted(process: Any, *args: Any, **kwargs: Any) -> None:
            if kwargs.get("cwd") is not None and not posix_is_folder(kwargs["cwd"]):
                kwargs["cwd"] = self.to_read(kwargs["cwd"])
            start(process, *args, **kwargs)

        subprocess.Popen.__init__ = diverted

    def wrap_path(self, owner: Any, name: str, index: int, keyword: str, *, writes: bool) -> None:
        """Exchange one path argument of a function that ``owner`` may have."""
        original = getattr(owner, name, None)
        if original is None:
            return

        def exchange(path: Any) -> Any:
            return self.to_write(path, keep=False) if writes else self.to_read(path)

        @functools.wraps(original, updated=())
        def diverted(*args: Any, **kwargs: Any) -> Any:
            if len(args) > index:
                args = (*args[:index], exchange(args[index]), *args[index + 1 :])
            elif keyword in kwargs:
                kwargs[keyword] = exchange(kwargs[keyword])
            return original(*args, **kwargs)

        setattr(owner, name, diverted)


def posix_is_folder(path: Any) -> bool:
    try:
        return stat.S_ISDIR(posix.stat(path).st_mode)
    except OSError:
        return False


def _like(path: Any, real: str) -> Any:
    return os.fsencode(real) if isinstance(path, bytes) else real
