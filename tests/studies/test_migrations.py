"""Schemas: the tables we create are those the revisions make, and old files still open."""

import importlib.util
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from autoamp.errors import StorageError
from autoamp.studies import migrations, models
from autoamp.studies.migrations import upgrade as upgrading
from autoamp.studies.reading import Reader, open_reader
from autoamp.studies.records import TrialState
from autoamp.studies.store import Store, open_store

OLD = Path(__file__).parents[1] / "data" / "old-databases"
FILES = sorted(OLD.glob("*.db"))


DOCS = Path(__file__).parents[2] / "docs" / "files.md"


@pytest.mark.parametrize("table", models.metadata.sorted_tables, ids=lambda t: t.name)
def test_every_column_is_explained(table: sa.Table) -> None:
    section = DOCS.read_text(encoding="utf-8").split(f"\n### {table.name}\n")[1].split("\n#")[0]
    explained = [
        name.strip()
        for line in section.splitlines()
        if line.startswith("| ") and not line.startswith(("| column |", "|---"))
        for name in line.split("|")[1].split(",")
    ]
    assert sorted(explained) == sorted(column.name for column in table.columns)


def make_module() -> ModuleType:
    """The script that made the kept files: it knows what is in them."""
    spec = importlib.util.spec_from_file_location("make_old_database", OLD / "make.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def open_old_store(url: str) -> Store:
    return open_store(url, create=False)


def test_the_list_of_revisions_is_alembics() -> None:
    found = [r.revision for r in ScriptDirectory.from_config(upgrading.config()).walk_revisions()]
    assert tuple(reversed(found)) == migrations.REVISIONS
    assert found[0] == migrations.HEAD


def test_a_file_is_kept_for_every_revision() -> None:
    assert [path.stem for path in FILES] == list(migrations.REVISIONS)


def test_new_tables_are_those_of_the_revisions(storage_url: str) -> None:
    with open_store(storage_url) as store:
        created = shape(store._engine)
        assert store.rows(f"SELECT version_num FROM {migrations.VERSION_TABLE}") == [
            {"version_num": migrations.HEAD}
        ]
        with store._engine.begin() as connection:
            models.metadata.drop_all(connection)
            connection.exec_driver_sql(f"DROP TABLE {migrations.VERSION_TABLE}")
        with store._engine.begin() as connection:
            upgrading.upgrade(connection)
            context = MigrationContext.configure(
                connection,
                opts={
                    "version_table": migrations.VERSION_TABLE,
                    "compare_type": True,
                    "target_metadata": models.metadata,
                },
            )
            assert compare_metadata(context, models.metadata) == []
        assert shape(store._engine) == created


def shape(engine: sa.Engine) -> dict[str, Any]:
    """Everything a table is, by name."""
    inspector = sa.inspect(engine)
    return {
        table: {
            "columns": [
                (c["name"], str(c["type"]), c["nullable"], c.get("autoincrement"))
                for c in inspector.get_columns(table)
            ],
            "key": inspector.get_pk_constraint(table)["constrained_columns"],
            "unique": sorted(
                tuple(u["column_names"]) for u in inspector.get_unique_constraints(table)
            ),
            "references": [
                (f["constrained_columns"], f["referred_table"], f["options"])
                for f in inspector.get_foreign_keys(table)
            ],
            "indexes": sorted(str(i["name"]) for i in inspector.get_indexes(table)),
        }
        for table in inspector.get_table_names()
    }


@pytest.mark.parametrize("opener", [open_old_store, open_reader])
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_an_old_file_opens_and_reads(
    tmp_path: Path, path: Path, opener: Callable[[str], Reader]
) -> None:
    made = make_module()
    shutil.copy(path, tmp_path / "autoamp.db")
    with opener(f"sqlite:///{tmp_path}/autoamp.db") as reader:
        check_content(reader, made)


def check_content(reader: Reader, made: ModuleType) -> None:
    study = reader.study("train-3f2a")
    assert (study.machine, study.script, study.state) == (made.MACHINE, made.SCRIPT, "done")
    assert study.space_json == '{"levels": ["O1", "O2"]}'
    assert reader.recommendation(study.id) == '{"schema": 1}'
    trials = reader.trials(study.id)
    assert [repr(t.measurement) for t in trials[:3]] == [
        repr(m) for m in (made.OK, made.OOM, made.OK)
    ]
    assert [t.setting for t in trials[1:]] == [made.O2] * 3
    assert [t.state for t in trials] == [TrialState.finished] * 3 + [TrialState.lost]
    assert reader.studies()[0].trials == 4


NEXT = """
import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("autoamp_trial", sa.Column("joules", sa.Float))
    # Copies the table that trials refer to, as SQLite must for such a change.
    with op.batch_alter_table("autoamp_study") as batch:
        batch.alter_column("device", new_column_name="device", type_=sa.String(99))
"""


@pytest.fixture
def next_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A revision after the present one, as a later autoamp will have; returns its file."""
    folder = tmp_path / "migrations"
    shutil.copytree(Path(migrations.__file__).parent, folder)
    script = folder / "versions" / "v0002_next.py"
    script.write_text(NEXT.replace('"0001"', f'"{migrations.HEAD}"').replace("0002", "9998"))
    config = upgrading.config()
    config.set_main_option("script_location", str(folder))
    monkeypatch.setattr(upgrading, "config", lambda: config)
    monkeypatch.setattr(migrations, "REVISIONS", (*migrations.REVISIONS, "9998"))
    monkeypatch.setattr(migrations, "HEAD", "9998")
    return script


@pytest.mark.parametrize("opener", [open_old_store, open_reader])
def test_a_later_revision_upgrades_and_loses_nothing(
    tmp_path: Path, next_revision: Path, opener: Callable[[str], Reader]
) -> None:
    made = make_module()
    path = tmp_path / "autoamp.db"
    shutil.copy(FILES[-1], path)
    with opener(f"sqlite:///{path}") as reader:
        check_content(reader, made)
        (row,) = reader.rows("SELECT joules FROM autoamp_trial WHERE number = 0")
        assert row == {"joules": None}
        assert reader.rows(f"SELECT version_num AS v FROM {migrations.VERSION_TABLE}") == [
            {"v": "9998"}
        ]


def test_an_upgrade_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, next_revision: Path
) -> None:
    with next_revision.open("a") as f:
        f.write('    op.execute("SELECT no_such_function()")\n')
    path = tmp_path / "autoamp.db"
    shutil.copy(FILES[-1], path)

    def content() -> list[str]:
        with sqlite3.connect(path) as connection:
            dump = list(connection.iterdump())
        connection.close()
        return dump

    before = content()
    with pytest.raises(StorageError):
        open_store(f"sqlite:///{path}")
    assert content() == before
