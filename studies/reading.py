"""Reading the history: the queries, and a door to SQLite files that needs no SQLAlchemy.

The SQL is plain enough for SQLite and PostgreSQL alike. ``Store`` answers the same questions
for any database; ``open_reader`` is the quick way for commands that only look.
"""

import difflib
import os
import sqlite3
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote

from autoamp.errors import StorageError, UsageError
from autoamp.probes.facts import Identity
from autoamp.studies import codec, history, migrations, storage_errors
from autoamp.studies.lease import is_alive
from autoamp.studies.records import (
    LeaseRow,
    Study,
    StudyState,
    StudySummary,
    Trial,
    TrialScalars,
)
from autoamp.studies.script_identity import ScriptIdentity
from autoamp.studies.storage_url import StorageUrl, parse

Rows = list[dict[str, Any]]
R = TypeVar("R", bound="Reader")
T = TypeVar("T")

_STUDY = (
    "SELECT id, name, script_path, arguments, device, machine, script, options, space, state, "
    "autoamp_version, created_at, updated_at FROM autoamp_study"
)
_SUMMARY = (
    "SELECT id, name, script_path, device, machine, state, created_at, updated_at, "
    "recommendation FROM autoamp_study ORDER BY id"
)
_TRIAL = (
    "SELECT id, number, phase, setting, numerics, state, measurement, started_at, finished_at "
    "FROM autoamp_trial"
)
_SCALARS = (
    "SELECT study_id, number, phase, setting, numerics, outcome, throughput_samples_per_s, "
    "memory_allocated_peak_bytes, memory_reserved_peak_bytes, time_label FROM autoamp_trial"
)
_LEASE = (
    "SELECT study_id, token, host, host_id, pid, process_started, acquired_at, heartbeat_at_s, "
    "beats FROM autoamp_lease"
)


class Reader:
    """The questions one can ask of a history. Errors: StorageError as ``storage_errors`` has
    them; ``study`` also raises UsageError ``unknown-study``."""

    def __init__(self, where: StorageUrl) -> None:
        self.where = where

    @property
    def url(self) -> str:
        """The database's address as SQLAlchemy and Optuna take it."""
        return self.where.url

    def rows(self, sql: str, **values: Any) -> Rows:
        """Answers of one query with ``:name`` parameters."""
        raise NotImplementedError

    def close(self) -> None:
        """Give the database free."""
        raise NotImplementedError

    def __enter__(self: R) -> R:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def study(self, name: str) -> Study:
        """The study of that name; raises UsageError ``unknown-study``."""
        found = self.rows(f"{_STUDY} WHERE name = :name", name=name)
        if not found:
            raise self._unknown(name)
        return self._read("study", name, codec.study_from_row, found[0])

    def all_studies(self) -> tuple[Study, ...]:
        """Every study in full, oldest first."""
        found = self.rows(f"{_STUDY} ORDER BY id")
        return tuple(self._read("study", r["name"], codec.study_from_row, r) for r in found)

    def studies(self) -> tuple[StudySummary, ...]:
        """One summary a study, oldest first."""
        trials: defaultdict[int, list[TrialScalars]] = defaultdict(list)
        for row in self.rows(f"{_SCALARS} WHERE state <> 'running' ORDER BY study_id, number"):
            read = self._read("trial", row["number"], codec.scalars_from_row, row)
            trials[read.study_id].append(read)
        alive = {row["study_id"]: is_alive(codec.lease_from_row(row)) for row in self.rows(_LEASE)}
        return tuple(
            _summary(row, trials[row["id"]], alive.get(row["id"], False))
            for row in self.rows(_SUMMARY)
        )

    def find_matching(self, machine: Identity, script: ScriptIdentity) -> Study | None:
        """The latest study of this machine and script, None if there is none."""
        for study in reversed(self.all_studies()):
            if not history.study_differences(study, machine, script):
                return study
        return None

    def trials(self, study_id: int) -> tuple[Trial, ...]:
        """Every trial of a study, by number."""
        found = self.rows(f"{_TRIAL} WHERE study_id = :id ORDER BY number", id=study_id)
        return tuple(self._read("trial", r["number"], codec.trial_from_row, r) for r in found)

    def recommendation(self, study_id: int) -> str | None:
        """The recommendation's JSON, None if the study has none yet."""
        found = self.rows("SELECT recommendation FROM autoamp_study WHERE id = :id", id=study_id)
        return found[0]["recommendation"] if found else None

    def lease(self, study_id: int) -> LeaseRow | None:
        """Who holds the study, alive or dead; None if nobody does."""
        found = self.rows(f"{_LEASE} WHERE study_id = :id", id=study_id)
        return codec.lease_from_row(found[0]) if found else None

    def name_of(self, study_id: int) -> str:
        """The study's name, its number if it was deleted meanwhile."""
        found = self.rows("SELECT name FROM autoamp_study WHERE id = :id", id=study_id)
        return str(found[0]["name"]) if found else str(study_id)

    def free_name(self, wanted: str) -> str:
        """``wanted``, or with ``-2``, ``-3``, … appended if a study has that name."""
        taken = {row["name"] for row in self.rows("SELECT name FROM autoamp_study")}
        name, count = wanted, 1
        while name in taken:
            count += 1
            name = f"{wanted}-{count}"
        return name

    def _unknown(self, name: str) -> UsageError:
        names = [row["name"] for row in self.rows("SELECT name FROM autoamp_study ORDER BY id")]
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        if not names:
            there = "it holds no study yet"
        elif len(names) <= 10:
            there = "it holds " + ", ".join(names)
        else:
            there = f"it holds {len(names)}, the latest {', '.join(reversed(names[-10:]))}"
        return UsageError(
            f"no study {name!r} in {self.where.shown}: {there}",
            slug="unknown-study",
            remedy="did you mean " + " or ".join(near) + "?" if near else "autoamp studies list",
        )

    def _read(
        self, what: str, key: object, read: Callable[[codec.Row], T], row: dict[str, Any]
    ) -> T:
        try:
            return read(row)
        except (ValueError, TypeError, KeyError) as e:
            raise storage_errors.corrupt(self.where, f"{what} {key} does not fit: {e}") from e


def _summary(row: dict[str, Any], trials: list[TrialScalars], alive: bool) -> StudySummary:
    best = history.best_of(trials, row["recommendation"])
    return StudySummary(
        id=row["id"],
        name=row["name"],
        script_path=row["script_path"],
        device=history.device_of(row["device"], row["machine"]),
        state=history.shown_state(StudyState(row["state"]), holder_alive=alive),
        trials=len(trials),
        best=best.setting if best else None,
        best_throughput_samples_per_s=best.throughput_samples_per_s if best else None,
        best_against_fp32=best.against_fp32 if best else None,
        time_label=best.time_label if best else None,
        has_recommendation=row["recommendation"] is not None,
        created_at=datetime.fromisoformat(row["created_at"]),
        updated_at=datetime.fromisoformat(row["updated_at"]),
    )


class SqliteReader(Reader):
    """Reads one SQLite file; neither creates nor changes it."""

    def __init__(self, where: StorageUrl, path: str) -> None:
        super().__init__(where)
        self._connection = _connect(where, path)

    def rows(self, sql: str, **values: Any) -> Rows:
        try:
            cursor = self._connection.execute(sql, values)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]
        except sqlite3.Error as e:
            raise storage_errors.translate(e, self.where) from e

    def close(self) -> None:
        self._connection.close()


def open_reader(url: str) -> Reader:
    """Open a history for looking only.

    Raises StorageError: ``storage-missing`` (no file, or none of our tables in it), and those
    of ``open_store``. A database that an older autoamp made is upgraded first.
    """
    where = parse(url)
    path = where.sqlite_path
    if path is not None:
        check_sqlite_file(where, path, must_exist=True)
        reader = SqliteReader(where, path)
        try:
            revision = check_schema(reader)
        except StorageError:
            reader.close()
            raise
        if revision == migrations.HEAD:
            return reader
        reader.close()
        if revision is None:
            raise storage_errors.missing(where, "holds nothing that autoamp wrote")
    # SQLAlchemy takes longer to import than listing studies may last.
    from autoamp.studies.store import open_store

    return open_store(url, create=False)


def check_sqlite_file(where: StorageUrl, path: str, *, must_exist: bool) -> None:
    """Look at the file before SQLite does: it treats anything short as an empty database."""
    try:
        with open(path, "rb") as f:
            head = f.read(16)
    except FileNotFoundError:
        if must_exist:
            raise storage_errors.missing(where) from None
        if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
            raise storage_errors.unwritable(where, "no such folder") from None
        return
    except OSError as e:
        raise storage_errors.unwritable(where, e.strerror or str(e)) from e
    if head and head != b"SQLite format 3\0":
        raise storage_errors.corrupt(where, "it is no SQLite file")


def check_schema(reader: Reader) -> str | None:
    """The schema revision, None if none of our tables is there.

    Raises StorageError ``storage-newer``, or ``storage-foreign`` for an SQLite file that is
    another program's.
    """
    tables = _tables(reader)
    if migrations.VERSION_TABLE in tables:
        found = reader.rows(f"SELECT version_num FROM {migrations.VERSION_TABLE}")
        if found:
            revision = str(found[0]["version_num"])
            if revision not in migrations.REVISIONS:
                raise storage_errors.newer(reader.where, revision, _writer(reader))
            return revision
    if reader.where.sqlite_path is not None and tables and not _is_optunas(tables):
        raise storage_errors.foreign(reader.where, tuple(sorted(tables)))
    return None


def _tables(reader: Reader) -> frozenset[str]:
    if reader.where.sqlite_path is not None:
        found = reader.rows("SELECT name FROM sqlite_master WHERE type = 'table'")
    else:
        found = reader.rows(
            "SELECT table_name AS name FROM information_schema.tables "
            "WHERE table_schema = current_schema()"
        )
    return frozenset(row["name"] for row in found)


def _is_optunas(tables: frozenset[str]) -> bool:
    """Optuna's tables are welcome beside ours: we mirror into them."""
    return {"studies", "trials", "version_info"} <= tables


def _writer(reader: Reader) -> str | None:
    """The autoamp version that wrote last, if the newer schema still says so."""
    try:
        found = reader.rows(
            "SELECT autoamp_version FROM autoamp_study ORDER BY updated_at DESC LIMIT 1"
        )
    except StorageError:
        return None
    return str(found[0]["autoamp_version"]) if found else None


def _connect(where: StorageUrl, path: str) -> sqlite3.Connection:
    try:
        # Not mode=ro: such a connection would leave its log files lying beside the database.
        return _open(path, "mode=rw")
    except sqlite3.Error as first:
        # In a folder we may not write, a file in write-ahead mode opens only as immutable: safe
        # when no log lies beside it, that is when nobody writes.
        if _has_log(path):
            raise storage_errors.translate(first, where) from first
    try:
        return _open(path, "mode=ro&immutable=1")
    except sqlite3.Error as e:
        raise storage_errors.translate(e, where) from e


def _open(path: str, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(os.path.abspath(path))}?{mode}",
        uri=True,
        timeout=storage_errors.BUSY_TIMEOUT_S,
    )
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _has_log(path: str) -> bool:
    try:
        return os.path.getsize(path + "-wal") > 0
    except OSError:
        return False
