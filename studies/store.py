"""The store: every study and trial, committed at once. Our tables are the truth.

Each call opens its own connection and closes it again, so that nothing is held between trials
and threads need no care.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from autoamp import __version__
from autoamp.errors import StorageError, UsageError
from autoamp.measurement import Measurement, Outcome, Phase
from autoamp.settings import Setting
from autoamp.studies import codec, engine, migrations, models, storage_errors
from autoamp.studies.reading import Reader, Rows, check_schema, check_sqlite_file
from autoamp.studies.records import (
    NUMERICS,
    LeaseRow,
    NewStudy,
    Study,
    StudyState,
    Trial,
    TrialState,
)
from autoamp.studies.script_identity import ScriptIdentity
from autoamp.studies.storage_url import StorageUrl, parse

LOST_REASON = "the tuner ended while this trial ran"


class Store(Reader):
    """A database that is read and written. Every writing call commits before it returns."""

    def __init__(self, where: StorageUrl, made: sa.Engine) -> None:
        super().__init__(where)
        self._engine = made

    def rows(self, sql: str, **values: Any) -> Rows:
        with self._transaction(write=False) as connection:
            return [dict(row) for row in connection.execute(sa.text(sql), values).mappings()]

    def close(self) -> None:
        self._engine.dispose()

    def create_study(self, new: NewStudy) -> Study:
        """Store a study in state running; raises UsageError ``study-exists``."""
        now = codec.now_text()
        values = {
            "name": codec.storable(new.name),
            "script_path": codec.storable(new.script_path),
            "arguments": codec.encode(new.arguments),
            "device": new.device,
            "machine": codec.encode(new.machine),
            "script": codec.encode(new.script),
            "options": codec.storable(new.options_json),
            "state": str(StudyState.running),
            "autoamp_version": __version__,
            "created_at": now,
            "updated_at": now,
        }
        try:
            with self._transaction() as connection:
                connection.execute(sa.insert(models.study).values(**values))
        except sa.exc.IntegrityError as e:
            raise UsageError(
                f"there is a study {new.name!r} in {self.where.shown} already",
                slug="study-exists",
                remedy="choose another name with --study",
            ) from e
        return self.study(values["name"])

    def set_state(self, study_id: int, state: StudyState | str) -> None:
        """Store how the study stands: running, done, stopped or failed."""
        self._update_study(study_id, state=str(StudyState(state)))

    def save_space(self, study_id: int, json_text: str) -> None:
        """Store what the study may vary, as JSON."""
        self._update_study(study_id, space=codec.storable(json_text))

    def save_options(self, study_id: int, json_text: str) -> None:
        """Store what the user asked for, as JSON."""
        self._update_study(study_id, options=codec.storable(json_text))

    def save_script(self, study_id: int, script: ScriptIdentity) -> None:
        """Store the script's identity again, with the modules its baseline was seen to load."""
        self._update_study(study_id, script=codec.encode(script))

    def save_recommendation(self, study_id: int, json_text: str) -> None:
        """Store the recommendation, in place of an earlier one."""
        self._update_study(study_id, recommendation=codec.storable(json_text))

    def start_trial(self, study_id: int, phase: Phase, setting: Setting, numerics: str) -> Trial:
        """Store a running trial under the study's next number; ``numerics`` is one of NUMERICS."""
        if numerics not in NUMERICS:
            raise ValueError(f"numerics {numerics!r}, expected one of {NUMERICS}")
        table = models.trial
        with self._transaction() as connection:
            # Locks the study's row where the database locks rows; SQLite has locked it all.
            held = sa.select(models.study.c.id).where(models.study.c.id == study_id)
            if connection.execute(held.with_for_update()).first() is None:
                raise self._no_study(study_id)
            last = connection.scalar(
                sa.select(sa.func.max(table.c.number)).where(table.c.study_id == study_id)
            )
            number = 0 if last is None else last + 1
            connection.execute(
                sa.insert(table).values(
                    study_id=study_id,
                    number=number,
                    phase=str(Phase(phase)),
                    state=str(TrialState.running),
                    numerics=numerics,
                    started_at=codec.now_text(),
                    **codec.setting_columns(setting),
                )
            )
            self._touch(connection, study_id)
        return self._trial("study_id = :study AND number = :number", study=study_id, number=number)

    def finish_trial(self, trial_id: int, measurement: Measurement) -> Trial:
        """Store what a running trial showed.

        Raises StorageError ``study-in-use`` if the trial runs no more: another tuner took the
        study over and called it lost.
        """
        table = models.trial
        with self._transaction() as connection:
            changed = connection.execute(
                sa.update(table)
                .where(table.c.id == trial_id, table.c.state == str(TrialState.running))
                .values(
                    state=str(TrialState.finished),
                    finished_at=codec.now_text(),
                    **codec.measurement_columns(measurement),
                )
            )
            if changed.rowcount:
                study_id = sa.select(table.c.study_id).where(table.c.id == trial_id)
                self._touch(connection, connection.execute(study_id).scalar_one())
        if not changed.rowcount:
            raise StorageError(
                f"trial {trial_id} of {self.where.shown} is not running: it was ended, or its "
                "study taken over or deleted, while it ran",
                slug="study-in-use",
                remedy="start one tuner a study",
            )
        return self._trial("id = :id", id=trial_id)

    def mark_lost(self, study_id: int, reason: str = LOST_REASON) -> int:
        """Call every running trial of the study lost; returns how many there were.

        Only the holder of the study's lease may say so.
        """
        lost = Measurement(outcome=Outcome.interrupted, reason=reason)
        table = models.trial
        with self._transaction() as connection:
            changed = connection.execute(
                sa.update(table)
                .where(table.c.study_id == study_id, table.c.state == str(TrialState.running))
                .values(
                    state=str(TrialState.lost),
                    finished_at=codec.now_text(),
                    **codec.measurement_columns(lost),
                )
            )
        return changed.rowcount

    def take_lease(self, row: LeaseRow, *, instead_of: LeaseRow | None) -> bool:
        """Store ``row`` if the lease still is ``instead_of``; False if somebody was quicker."""
        values = {
            "token": row.token,
            "host": row.host,
            "host_id": row.host_id,
            "pid": row.pid,
            "process_started": row.process_started,
            "acquired_at": row.acquired_at.isoformat(timespec="microseconds"),
            "heartbeat_at_s": row.heartbeat_at_s,
            "beats": row.beats,
        }
        table = models.lease
        try:
            with self._transaction() as connection:
                if instead_of is None:
                    connection.execute(sa.insert(table).values(study_id=row.study_id, **values))
                    return True
                changed = connection.execute(
                    sa.update(table)
                    .where(
                        table.c.study_id == row.study_id,
                        table.c.token == instead_of.token,
                        table.c.beats == instead_of.beats,
                    )
                    .values(**values)
                )
                return changed.rowcount == 1
        except sa.exc.IntegrityError:
            return False

    def beat(self, study_id: int, token: str, now_s: float) -> bool:
        """Renew the lease; False if it is not ours any more."""
        table = models.lease
        with self._transaction() as connection:
            changed = connection.execute(
                sa.update(table)
                .where(table.c.study_id == study_id, table.c.token == token)
                .values(heartbeat_at_s=now_s, beats=table.c.beats + 1)
            )
        return changed.rowcount == 1

    def drop_lease(self, study_id: int, token: str) -> None:
        """Give the lease free if it is ours."""
        table = models.lease
        with self._transaction() as connection:
            connection.execute(
                sa.delete(table).where(table.c.study_id == study_id, table.c.token == token)
            )

    @contextmanager
    def _transaction(self, *, write: bool = True, schema: bool = False) -> Iterator[sa.Connection]:
        """One transaction; database errors leave as StorageError, IntegrityError as it is."""
        try:
            with self._engine.connect() as connection:
                connection = connection.execution_options(
                    autoamp_write=write, autoamp_schema=schema
                )
                with connection.begin():
                    yield connection
        except sa.exc.IntegrityError:
            raise
        except (sa.exc.SQLAlchemyError, OSError) as e:
            raise storage_errors.translate(e, self.where) from e

    def _prepare(self, create: bool) -> None:
        """Make or upgrade the tables; raises what ``open_store`` lists."""
        revision = check_schema(self)
        if revision is None and not create:
            raise storage_errors.missing(self.where, "holds nothing that autoamp wrote")
        if revision != migrations.HEAD:
            with self._transaction(schema=True) as connection:
                engine.bring_up_to_date(connection)

    def _trial(self, condition: str, **values: Any) -> Trial:
        found = self.rows(
            "SELECT id, number, phase, setting, numerics, state, measurement, started_at, "
            f"finished_at FROM autoamp_trial WHERE {condition}",
            **values,
        )
        return codec.trial_from_row(found[0])

    def _update_study(self, study_id: int, **values: Any) -> None:
        with self._transaction() as connection:
            self._touch(connection, study_id, **values)

    def _touch(self, connection: sa.Connection, study_id: int, **values: Any) -> None:
        changed = connection.execute(
            sa.update(models.study)
            .where(models.study.c.id == study_id)
            .values(updated_at=codec.now_text(), autoamp_version=__version__, **values)
        )
        if not changed.rowcount:
            raise self._no_study(study_id)

    def _no_study(self, study_id: int) -> StorageError:
        return StorageError(
            f"study {study_id} is not in {self.where.shown} any more",
            slug="study-deleted",
            remedy="somebody deleted it while it was in use; start again",
        )


def open_store(url: str, *, create: bool = True) -> Store:
    """Open the database at ``url`` (as SQLAlchemy writes it), for reading and writing.

    The tables are created if ``create``, and brought up to date. Raises StorageError:
    ``storage-unknown-url``, ``storage-driver-missing``, ``storage-unreachable``,
    ``storage-unwritable``, ``storage-corrupt``, ``storage-foreign``, ``storage-newer``,
    ``storage-locked``; without ``create`` also ``storage-missing``.
    """
    where = parse(url)
    if where.sqlite_path is not None:
        check_sqlite_file(where, where.sqlite_path, must_exist=not create)
    try:
        made = engine.make(where, create=create)
    except ImportError as e:
        raise StorageError(
            f"{where.shown} needs the Python package {e.name}",
            slug="storage-driver-missing",
            remedy='pip install "autoamp[postgres]"',
        ) from e
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ValueError) as e:
        raise StorageError(
            f"cannot use {where.shown} as a database: {e}",
            slug="storage-unknown-url",
            remedy="write postgresql://USER@HOST/NAME, or sqlite:///FILE",
        ) from e
    try:
        with Store(where, made) as opening:
            opening._prepare(create)
        if where.sqlite_path is None:
            return Store(where, made)
        engine.set_journal(made, where.sqlite_path)
        # From here on a file that vanishes is an error and not a new, empty file.
        return Store(where, engine.make(where, create=False))
    except BaseException:
        made.dispose()
        raise
