"""Database addresses: parsed, normalised and shown without passwords; stdlib only.

SQLAlchemy takes longer to import than ``autoamp studies list`` may last, so reading an SQLite
file must get by without it.
"""

import re
from dataclasses import dataclass
from urllib.parse import unquote

from autoamp.errors import StorageError

NETWORK_FILESYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "lustre", "gpfs", "beegfs"}
    | {"ceph", "fuse.ceph", "fuse.glusterfs", "afs", "drvfs", "v9fs", "virtiofs"}
)
"""SQLite's write-ahead log needs shared memory, which these do not give to all their users
(https://www.sqlite.org/wal.html, section 1)."""

_SCHEME = re.compile(r"^([A-Za-z][\w+.-]*)://")


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageUrl:
    """A database address. ``url`` is what SQLAlchemy takes; ``shown`` has no password."""

    url: str
    shown: str
    sqlite_path: str | None
    """Path of the file, relative as given; None if the database is a server's."""


def parse(url: str) -> StorageUrl:
    """Check and normalise ``url``; raises StorageError ``storage-unknown-url``."""
    match = _SCHEME.match(url)
    if match is None:
        raise _unknown(url, f"write sqlite:///{url.lstrip()}" if url.strip() else None)
    dialect, _, driver = match[1].lower().partition("+")
    rest = url[match.end() :]
    if dialect == "sqlite" and driver in ("", "pysqlite"):
        path, _, query = rest.partition("?")
        if not path.startswith("/"):
            raise _unknown(url, "an SQLite file takes three slashes: sqlite:///autoamp.db")
        path = path[1:]
        if path in ("", ":memory:") or path.startswith("file:") or "mode=memory" in query:
            raise _unknown(url, "name a file: a database in memory would keep no history")
        return StorageUrl(url=f"sqlite:///{path}", shown=path, sqlite_path=path)
    if dialect in ("postgresql", "postgres"):
        # Plain "postgresql" would mean psycopg2 to SQLAlchemy; the extra installs psycopg 3.
        return StorageUrl(
            url=f"postgresql+{driver or 'psycopg'}://{rest}",
            shown=_without_password(f"{dialect}://{rest}"),
            sqlite_path=None,
        )
    raise _unknown(url, None)


def address(url: str) -> str:
    """``url`` as it may be printed: as given, without its password."""
    found = parse(url)
    return found.shown if found.sqlite_path is None else url


def is_network_path(folder: str) -> bool:
    """True if ``folder`` lies on a file system shared over a network."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as f:
            lines = f.read().splitlines()
    except OSError:
        return False
    best, kind = "", ""
    for line in lines:
        fields = line.split(" ")
        if "-" not in fields[6:] or len(fields) < 8:
            continue
        mount = _unescape(fields[4])
        inside = folder == mount or folder.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, fields[fields.index("-", 6) + 1]
    return kind in NETWORK_FILESYSTEMS


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text)


def _without_password(url: str) -> str:
    head, sep, tail = url.partition("://")
    where, at, host = tail.rpartition("@")
    if not at:
        return re.sub(r"(?i)(password=)[^&]*", r"\1***", url)
    user, colon, _ = where.partition(":")
    shown = unquote(user) + (":***" if colon else "")
    return re.sub(r"(?i)(password=)[^&]*", r"\1***", f"{head}{sep}{shown}@{host}")


def _unknown(url: str, remedy: str | None) -> StorageError:
    return StorageError(
        f"cannot use {_without_password(url)!r} as a database: expected sqlite:///FILE or "
        "postgresql://USER@HOST/NAME",
        slug="storage-unknown-url",
        remedy=remedy or "the default is sqlite:///autoamp.db",
    )
