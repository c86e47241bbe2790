"""The merged view: the user's disk as it was, with what the trial changed laid over it.

What the trial writes lies under ``scratch + absolute path`` (the *upper* side). What it deletes
stays on the user's disk (the *lower* side) and is *hidden*. All of that state is on disk, in the
upper tree and in one append-only journal, because the script's child processes share it.

``posix`` is used throughout: unlike ``os`` it is never patched.
"""

import errno
import os
import posix
import stat
from typing import NamedTuple

OWN_FOLDER = ".autoamp"
_DIVERTED, _HIDDEN, _CREATED, _STARTED = "D", "H", "C", "S"
# Not files of anybody's: devices, process and kernel interfaces.
_VIRTUAL = ("/dev/", "/proc/", "/sys/")
_VIRTUAL_ROOTS = frozenset(folder[:-1] for folder in _VIRTUAL)
_MAX_LINKS = 40  # Linux's own limit for one look-up (path_resolution(7))


def refusal(code: int, path: object) -> OSError:
    """The error the kernel would give."""
    return OSError(code, posix.strerror(code), path)


class Found(NamedTuple):
    """Where one path of the merged view lies."""

    place: str
    """Absolute, links in its folders resolved; the root is the empty string."""
    real: str | None
    """The path to hand to the kernel; None when nothing is there."""
    status: os.stat_result | None
    """``lstat`` of ``real``."""

    @property
    def is_folder(self) -> bool:
        return self.status is not None and stat.S_ISDIR(self.status.st_mode)

    @property
    def is_link(self) -> bool:
        return self.status is not None and stat.S_ISLNK(self.status.st_mode)


class View:
    """Look-ups. ``sync`` first: it brings in what other processes of the trial did."""

    def __init__(self, scratch_dir: str, trial_dir: str) -> None:
        posix_makedirs(os.path.join(scratch_dir, OWN_FOLDER))
        self.scratch = os.path.realpath(scratch_dir)
        trial = os.path.realpath(trial_dir)
        self.own_folder = f"{self.scratch}/{OWN_FOLDER}"
        self._free = (*_VIRTUAL, f"{self.scratch}/", f"{trial}/")
        self._free_exactly = frozenset((self.scratch, trial))
        self.diverted: set[str] = set()
        """Folders that have an upper side: nowhere else can an upper file be."""
        self._hidden: set[str] = set()
        self._hidden_names: dict[str, set[str]] = {}
        self._created: set[str] = set()
        self._folders: dict[str, str] = {}
        self._journal = f"{self.own_folder}/journal"
        self._read_bytes = 0
        self.touched = False
        self.started_ns = self._open_journal()

    # The journal

    def _open_journal(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            fd = posix.open(self._journal, flags, 0o600)
        except FileExistsError:
            pass
        else:
            # The file system's clock, not ours: it is compared with ctimes later.
            started_ns = posix.fstat(fd).st_ctime_ns
            posix.write(fd, f"{_STARTED}{started_ns}\0".encode())
            posix.close(fd)
        self._started_ns = posix.lstat(self._journal).st_ctime_ns
        self.sync()
        return self._started_ns

    def sync(self) -> bool:
        """Read what was added to the journal; True if anything is diverted or hidden."""
        try:
            size = posix.stat(self._journal).st_size
        except FileNotFoundError:
            # The tuner cleared the trial's folder while a straggler still runs.
            return self.touched
        if size > self._read_bytes:
            self._read_on(size)
        return self.touched

    def _read_on(self, size: int) -> None:
        fd = posix.open(self._journal, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = posix.pread(fd, size - self._read_bytes, self._read_bytes)
        finally:
            posix.close(fd)
        complete = data[: data.rfind(b"\0") + 1]
        self._read_bytes += len(complete)
        for record in complete.split(b"\0")[:-1]:
            self._apply(record[:1].decode(), os.fsdecode(record[1:]))

    def _apply(self, kind: str, place: str) -> None:
        if kind == _STARTED:
            self._started_ns = int(place)
            return
        if kind == _DIVERTED:
            self.diverted.add(place)
        elif kind == _HIDDEN:
            self._hidden.add(place)
            parent, _, name = place.rpartition("/")
            self._hidden_names.setdefault(parent, set()).add(name)
        elif kind == _CREATED:
            self._created.add(place)
            return
        self.touched = True
        self._folders.clear()

    def _record(self, kind: str, place: str) -> None:
        fd = posix.open(self._journal, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            # One write of a short record: appends of several processes do not mix.
            posix.write(fd, kind.encode() + os.fsencode(place) + b"\0")
        finally:
            posix.close(fd)
        self.sync()

    def record_diverted(self, folder: str) -> None:
        if folder not in self.diverted:
            self._record(_DIVERTED, folder)
        self._folders.clear()

    def record_hidden(self, place: str) -> None:
        if place not in self._hidden:
            self._record(_HIDDEN, place)

    def record_created(self, place: str) -> None:
        """``place`` was made for real by the trial: it may change it and all below it."""
        if not self.is_created(place):
            self._record(_CREATED, place)

    def forget_folders(self) -> None:
        """A link or an upper folder was made or went away: resolved folders may differ."""
        self._folders.clear()
        if self.touched:
            # An empty record tells the other processes to forget theirs.
            self._record(_DIVERTED, "")

    # Look-ups

    def logical(self, path: str) -> str:
        """The user's name for a real path: the scratch folder's prefix taken off."""
        if path == self.scratch:
            return "/"
        if path.startswith(self.scratch + "/"):
            return path[len(self.scratch) :]
        return path

    def absolute(self, path: str, dir_fd: int | None = None) -> str:
        """``path`` as an absolute one, from the working folder or an open folder."""
        if not path:
            raise refusal(errno.ENOENT, path)
        if path[0] == "/":
            return path
        base = posix.getcwd() if dir_fd is None else posix.readlink(f"/proc/self/fd/{dir_fd}")
        return f"{self.logical(base)}/{path}"

    def find(self, path: str, follow: bool, dir_fd: int | None = None) -> Found:
        """Locate ``path``; a missing folder above it is FileNotFoundError."""
        path = self.absolute(path, dir_fd)
        if path.startswith(self.scratch + "/"):
            # The script holds a scratch path (a subprocess's answer, a C library's name).
            path = path if path.startswith(self.own_folder) else self.logical(path)
        head, _, tail = path.rstrip("/").rpartition("/")
        if tail in ("", ".", ".."):
            place = self._resolve(path)
        else:
            parent = self._folders.get(head)
            if parent is None:
                parent = self._resolve_folder(head, path)
            place = f"{parent}/{tail}"
        found = self._at(place)
        if found.is_link and not place.startswith(_VIRTUAL) and (follow or path.endswith("/")):
            found = self._at(self._resolve(place))
        return found

    def _resolve_folder(self, head: str, path: str) -> str:
        parent = self._resolve(head)
        if parent.startswith(_VIRTUAL):
            return parent
        found = self._at(parent)
        if not found.is_folder:
            code = errno.ENOENT if found.real is None else errno.ENOTDIR
            raise refusal(code, path)
        self._folders[head] = parent
        return parent

    def _at(self, place: str) -> Found:
        if place.rpartition("/")[0] in self.diverted:
            upper = self.scratch + place
            try:
                return Found(place, upper, posix.lstat(upper))
            except (FileNotFoundError, NotADirectoryError):
                pass
        return Found(place, *(self.lower(place) or (None, None)))

    def lower(self, place: str) -> tuple[str, os.stat_result] | None:
        """The user's own entry at ``place`` unless it is hidden or missing."""
        if self.is_hidden(place):
            return None
        try:
            return place or "/", posix.lstat(place or "/")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _resolve(self, path: str) -> str:
        """Every link on the way followed, in the merged view; the end may be missing."""
        place = ""
        links = 0
        waiting = path.split("/")[::-1]
        while waiting:
            name = waiting.pop()
            if name in ("", "."):
                continue
            if name == "..":
                place = place.rpartition("/")[0]
                continue
            if place in _VIRTUAL_ROOTS:
                # Links there (/proc/self/fd/1) may lead to no name at all.
                return "/".join((place, name, *reversed(waiting)))
            found = self._at(f"{place}/{name}")
            if waiting and not found.is_folder and not found.is_link:
                code = errno.ENOENT if found.real is None else errno.ENOTDIR
                raise refusal(code, path)
            if found.real is not None and found.is_link:
                links += 1
                if links > _MAX_LINKS:
                    raise refusal(errno.ELOOP, path)
                target = posix.readlink(found.real)
                if target.startswith("/"):
                    place = ""
                    target = self.logical(target)
                waiting.extend(target.split("/")[::-1])
            else:
                place = found.place
        return place

    def is_hidden(self, place: str) -> bool:
        """Deleted or replaced by the trial, itself or a folder above it."""
        return bool(self._hidden) and _within(place, self._hidden)

    def is_created(self, place: str) -> bool:
        return bool(self._created) and _within(place, self._created)

    def is_free(self, place: str) -> bool:
        """Written for real: no file of the user's, or one that this trial made."""
        return (
            place.startswith(self._free) or place in self._free_exactly or self.is_created(place)
        )

    def is_upper(self, real: str) -> bool:
        return real == self.scratch or real.startswith(self.scratch + "/")

    def is_mixed(self, folder: str) -> bool:
        """A listing of this folder differs from the user's own."""
        return folder in self.diverted or folder in self._hidden_names or self.is_hidden(folder)

    def names(self, folder: str) -> list[str]:
        """The names in a folder of the merged view, the user's own first."""
        names: list[str] = []
        if not self.is_hidden(folder):
            hidden = self._hidden_names.get(folder, ())
            try:
                names = [name for name in posix.listdir(folder or "/") if name not in hidden]
            except (FileNotFoundError, NotADirectoryError):
                pass
        if folder in self.diverted:
            known = set(names)
            try:
                upper = posix.listdir(self.scratch + folder)
            except (FileNotFoundError, NotADirectoryError):
                upper = []
            names += [name for name in upper if name not in known]
            if not folder:
                names = [name for name in names if name != OWN_FOLDER]
        return names


def _within(place: str, places: set[str]) -> bool:
    while place:
        if place in places:
            return True
        place = place.rpartition("/")[0]
    return False


def posix_makedirs(path: str) -> None:
    """``os.makedirs(exist_ok=True)`` on the real disk."""
    try:
        posix.mkdir(path)
    except FileNotFoundError:
        posix_makedirs(os.path.dirname(path))
        posix_makedirs(path)
    except FileExistsError:
        pass
