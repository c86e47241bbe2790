"""Connections: how a database is opened, and how its tables come about.

Alembic is imported only when an older schema must be upgraded.
"""

import os
import sqlite3
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa

from autoamp.studies import migrations, models, storage_errors
from autoamp.studies.storage_url import StorageUrl, is_network_path

# PostgreSQL: two tuners that start at once must not both create the tables.
SCHEMA_LOCK = 0x6175746F


def make(where: StorageUrl, *, create: bool) -> sa.Engine:
    """An engine that opens a connection for each transaction.

    ``create`` lets SQLite make the file. The execution options ``autoamp_write`` and
    ``autoamp_schema`` of a connection say what its transaction is for. Raises ImportError for a
    missing driver, SQLAlchemy's errors or ValueError for a bad address.
    """
    if where.sqlite_path is None:
        return sa.create_engine(where.url, poolclass=sa.NullPool)
    # Absolute: the program may change its folder.
    path = quote(os.path.abspath(where.sqlite_path))
    address = f"file:{path}?mode={'rwc' if create else 'rw'}"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            address,
            uri=True,
            timeout=storage_errors.BUSY_TIMEOUT_S,
            # The sqlite3 module's own BEGIN comes too late for what is read before a write.
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    engine = sa.create_engine("sqlite://", creator=connect, poolclass=sa.NullPool)

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        options = connection.get_execution_options()
        if options.get("autoamp_schema"):
            # A revision changes a table by copying and dropping it, which would cascade.
            connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
        write = options.get("autoamp_write", True)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def bring_up_to_date(connection: sa.Connection) -> None:
    """Create the tables, or run the revisions that are missing, in the caller's transaction."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(SCHEMA_LOCK)))
    # Another process may have done it while we waited for the lock.
    found = revision_of(connection)
    if found == migrations.HEAD:
        return
    if found is not None:
        from autoamp.studies.migrations.upgrade import upgrade

        upgrade(connection)
        return
    models.metadata.create_all(connection)
    connection.exec_driver_sql(
        f"CREATE TABLE {migrations.VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, "
        f"CONSTRAINT {migrations.VERSION_TABLE}_pkc PRIMARY KEY (version_num))"
    )
    connection.exec_driver_sql(
        f"INSERT INTO {migrations.VERSION_TABLE} VALUES ('{migrations.HEAD}')"
    )


def revision_of(connection: sa.Connection) -> str | None:
    """The schema's revision, None if the tables are not there."""
    if not sa.inspect(connection).has_table(migrations.VERSION_TABLE):
        return None
    found = connection.scalar(sa.text(f"SELECT version_num FROM {migrations.VERSION_TABLE}"))
    return None if found is None else str(found)


def set_journal(engine: sa.Engine, path: str) -> None:
    """Write-ahead logging, so that readers and the writer do not wait for each other.

    Only once the file is known to be ours: the mode is kept in the file.
    """
    network = is_network_path(os.path.dirname(os.path.realpath(path)))
    wanted = "delete" if network else "wal"
    try:
        with engine.connect() as connection:
            # The driver's own cursor: SQLAlchemy would begin a transaction first.
            cursor: Any = connection.connection.cursor()
            cursor.execute("PRAGMA journal_mode")
            if cursor.fetchall() != [(wanted,)]:
                cursor.execute(f"PRAGMA journal_mode = {wanted}")
            cursor.close()
    except sqlite3.Error:
        # In use just now, or in a read-only place: it works in the mode it has.
        return
