"""What the database said, turned into a sentence with a cure; works for sqlite3 and SQLAlchemy."""

import os

from autoamp.errors import StorageError
from autoamp.studies.storage_url import StorageUrl

BUSY_TIMEOUT_S = 30.0
"""How long a write waits for another program's; the longest of ours is a few milliseconds."""


def translate(error: Exception, where: StorageUrl) -> StorageError:
    """The StorageError for ``error``, a database driver's exception (or SQLAlchemy's)."""
    found = str(getattr(error, "orig", None) or error).strip()
    text = found.lower()
    name = where.shown
    if "is locked" in text or "lock timeout" in text or "deadlock" in text:
        return StorageError(
            f"{name} was locked by another program for over {BUSY_TIMEOUT_S:.0f} s ({found})",
            slug="storage-locked",
            remedy="close programs that keep it open (a database browser, another tuner)",
        )
    if any(s in text for s in ("not a database", "malformed", "file is encrypted", "corrupt")):
        return corrupt(where, found)
    if "no such table" in text or "no such column" in text:
        return corrupt(where, found)
    if where.sqlite_path is not None:
        return unwritable(where, found)
    if "permission denied" in text or "read-only" in text:
        return StorageError(
            f"{name} lets us not write: {found}",
            slug="storage-unwritable",
            remedy="use a database user who may create and change tables there",
        )
    if any(s in text for s in ("connect", "connection", "authentication", "does not exist")):
        return StorageError(
            f"cannot reach the database {name}: {found}",
            slug="storage-unreachable",
            remedy="check that the server runs, its address, user, password and database name",
        )
    return StorageError(
        f"the database {name} failed: {found}",
        slug="storage-failed",
        remedy="run again; if it repeats, this is worth a bug report",
    )


def corrupt(where: StorageUrl, found: str) -> StorageError:
    """The content cannot be read; the file is left as it is."""
    return StorageError(
        f"{where.shown} is not a database autoamp can read: {found}. It was left as it is.",
        slug="storage-corrupt",
        remedy="restore a copy, or move the file away; or name another with --storage",
    )


def unwritable(where: StorageUrl, found: str) -> StorageError:
    """An SQLite file cannot be opened, created or written; looks at the disk for the cause."""
    path = os.path.abspath(where.sqlite_path or "")
    folder = os.path.dirname(path)
    if os.path.isdir(path):
        why = f"{where.shown} is a folder, expected a file"
    elif not os.path.isdir(folder):
        why = f"the folder {folder} does not exist"
    elif "full" in found.lower():
        why = f"the disk of {folder} is full"
    elif os.path.exists(path) and not os.access(path, os.W_OK):
        why = f"{where.shown} may not be written by this user"
    elif not os.path.exists(path) and "unable to open" in found and os.access(folder, os.W_OK):
        why = f"{where.shown} is gone: it was deleted or moved while in use"
    elif not os.access(folder, os.W_OK):
        why = f"the folder {folder} may not be written by this user"
    else:
        why = f"{where.shown} cannot be opened for writing"
    return StorageError(
        f"{why} ({found})",
        slug="storage-unwritable",
        remedy="choose a place you can write with --storage sqlite:////path/to/autoamp.db",
    )


def missing(where: StorageUrl, why: str = "does not exist") -> StorageError:
    """There is no history to read."""
    return StorageError(
        f"no history: {where.shown} {why}",
        slug="storage-missing",
        remedy="run `autoamp tune` first, go to the folder where you ran it, or name the "
        "database with --storage",
    )


def newer(where: StorageUrl, revision: str, writer: str | None) -> StorageError:
    """The schema is one this autoamp does not know."""
    by = f"autoamp {writer}" if writer else "a newer autoamp"
    return StorageError(
        f"{where.shown} was written by {by} (schema {revision}), which this autoamp cannot read",
        slug="storage-newer",
        remedy="upgrade autoamp (pip install -U autoamp), or name another --storage",
    )


def foreign(where: StorageUrl, tables: tuple[str, ...]) -> StorageError:
    """The file is some other program's database; the file is left as it is."""
    return StorageError(
        f"{where.shown} is another program's database (tables {', '.join(tables[:5])}…); "
        "it was left as it is",
        slug="storage-foreign",
        remedy="name a new file with --storage sqlite:///autoamp.db",
    )
