"""SQLite files in every bad state: one clear error, and the file is left as it was."""

import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autoamp.errors import EXIT_STORAGE, StorageError
from autoamp.measurement import Phase
from autoamp.settings import AS_WRITTEN
from autoamp.studies.reading import open_reader
from autoamp.studies.records import NewStudy
from autoamp.studies.store import open_store

Make = Callable[..., NewStudy]


def url(path: Path) -> str:
    return f"sqlite:///{path}"


def fill(path: Path, new_study: Make) -> None:
    with open_store(url(path)) as store:
        study = store.create_study(new_study())
        for _ in range(20):
            store.start_trial(study.id, Phase.search, AS_WRITTEN, "real")


def other_application(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
        connection.execute("INSERT INTO bookmarks VALUES ('x')")
    connection.close()


def newer_schema(path: Path, new_study: Make) -> None:
    fill(path, new_study)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE autoamp_alembic_version SET version_num = '9999'")
        connection.execute("UPDATE autoamp_study SET autoamp_version = '7.5.0'")
    connection.close()


def damaged(path: Path, new_study: Make) -> None:
    """The header is right, the pages behind it are not."""
    fill(path, new_study)
    body = bytearray(path.read_bytes())
    body[100:] = b"\xff" * (len(body) - 100)
    path.write_bytes(body)


BAD: dict[str, tuple[Callable[[Path, Make], object], str]] = {
    "text": (lambda p, _: p.write_text("not a database\n"), "storage-corrupt"),
    "one byte": (lambda p, _: p.write_bytes(b"S"), "storage-corrupt"),
    "random": (lambda p, _: p.write_bytes(os.urandom(8192)), "storage-corrupt"),
    "damaged": (damaged, "storage-corrupt"),
    "other application": (lambda p, _: other_application(p), "storage-foreign"),
    "newer schema": (newer_schema, "storage-newer"),
    "folder": (lambda p, _: p.mkdir(), "storage-unwritable"),
}


@pytest.mark.parametrize("opener", [open_store, open_reader])
@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_refused_and_left_alone(
    tmp_path: Path, new_study: Make, kind: str, opener: Callable[[str], object]
) -> None:
    make, slug = BAD[kind]
    path = tmp_path / "autoamp.db"
    make(path, new_study)
    before = None if path.is_dir() else path.read_bytes()
    with pytest.raises(StorageError) as e:
        opener(url(path))
    assert e.value.slug == slug
    assert e.value.exit_code == EXIT_STORAGE
    assert str(path) in e.value.message
    assert e.value.remedy
    if before is not None:
        assert path.read_bytes() == before


def test_newer_schema_names_who_wrote_it(tmp_path: Path, new_study: Make) -> None:
    newer_schema(tmp_path / "a.db", new_study)
    with pytest.raises(StorageError, match=r"autoamp 7\.5\.0 .*schema 9999"):
        open_store(url(tmp_path / "a.db"))


def test_damage_in_a_row_is_named(tmp_path: Path, new_study: Make) -> None:
    path = tmp_path / "autoamp.db"
    fill(path, new_study)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE autoamp_trial SET setting = '{\"x\": 1}' WHERE number = 7")
    connection.close()
    with open_reader(url(path)) as reader, pytest.raises(StorageError, match="trial 7") as e:
        reader.trials(1)
    assert e.value.slug == "storage-corrupt"


def test_an_empty_file_becomes_a_database_but_is_no_history(
    tmp_path: Path, new_study: Make
) -> None:
    path = tmp_path / "autoamp.db"
    path.touch()
    for opener in (open_reader, lambda u: open_store(u, create=False)):
        with pytest.raises(StorageError) as e:
            opener(url(path))
        assert e.value.slug == "storage-missing"
    assert path.stat().st_size == 0
    fill(path, new_study)
    with open_reader(url(path)) as reader:
        assert len(reader.studies()) == 1


@pytest.mark.parametrize("opener", [open_reader, lambda u: open_store(u, create=False)])
def test_looking_creates_nothing(tmp_path: Path, opener: Callable[[str], object]) -> None:
    with pytest.raises(StorageError) as e:
        opener(url(tmp_path / "autoamp.db"))
    assert e.value.slug == "storage-missing"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="does not exist") as e:
        open_store(url(tmp_path / "no" / "autoamp.db"))
    assert e.value.slug == "storage-unwritable"


def test_a_place_nobody_may_write() -> None:
    with pytest.raises(StorageError) as e:
        open_store("sqlite:////proc/autoamp.db")
    assert e.value.slug == "storage-unwritable"


def as_other_user(body: str) -> str:
    """Run Python as a user who owns nothing here; root obeys no permissions."""
    drop = "import os\nif os.geteuid() == 0:\n    os.setegid(65534)\n    os.seteuid(65534)\n"
    imports = "import sys\nfrom autoamp.errors import StorageError\n"
    imports += "from autoamp.studies.reading import open_reader\n"
    imports += "from autoamp.studies.store import open_store\n"
    done = subprocess.run(
        [sys.executable, "-c", imports + drop + textwrap.dedent(body)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user can reach (pytest's own are for their owner only)."""
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="autoamp-test-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize("there", [False, True])
def test_a_read_only_folder(open_folder: Path, new_study: Make, there: bool) -> None:
    path = open_folder / "autoamp.db"
    if there:
        fill(path, new_study)
        path.chmod(0o444)
    open_folder.chmod(0o555)
    before = sorted(open_folder.iterdir())
    said = as_other_user(
        f"""
        try:
            store = open_store("sqlite:///{path}")
            store.set_state(1, "done")
        except StorageError as e:
            print(e.slug, e.message)
        """
    )
    assert said.startswith("storage-unwritable")
    if there:
        said = as_other_user(
            f"""
            with open_reader("sqlite:///{path}") as reader:
                print(reader.studies()[0].name, len(reader.trials(1)))
            """
        )
        assert said == "train-3f2a 20"
    assert sorted(open_folder.iterdir()) == before


def test_a_file_nobody_may_read(open_folder: Path, new_study: Make) -> None:
    path = open_folder / "autoamp.db"
    fill(path, new_study)
    path.chmod(0o000)
    for opener in ("open_store", "open_reader"):
        said = as_other_user(
            f"""
            try:
                {opener}("sqlite:///{path}")
            except StorageError as e:
                print(e.slug)
            """
        )
        assert said == "storage-unwritable"


def test_a_locked_file(tmp_path: Path, new_study: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "autoamp.db"
    fill(path, new_study)
    monkeypatch.setattr("autoamp.studies.storage_errors.BUSY_TIMEOUT_S", 0.05)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    try:
        with open_store(url(path)) as store:
            assert len(store.studies()) == 1, "reading goes on beside a writer"
            with pytest.raises(StorageError) as e:
                store.set_state(1, "done")
        assert e.value.slug == "storage-locked"
    finally:
        blocker.close()


def test_optunas_file_is_shared(tmp_path: Path, new_study: Make) -> None:
    import optuna

    path = tmp_path / "optuna.db"
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    optuna.create_study(storage=url(path), study_name="theirs")
    with pytest.raises(StorageError) as e:
        open_reader(url(path))
    assert e.value.slug == "storage-missing"
    fill(path, new_study)
    assert optuna.get_all_study_names(url(path)) == ["theirs"]
    with open_reader(url(path)) as reader:
        assert [s.name for s in reader.studies()] == ["train-3f2a"]


@pytest.mark.parametrize("name", ["我的 研究.db", "a b'c\"d.db", "50%.db", "a#b?c.db", "ünï.db"])
def test_names_of_files(tmp_path: Path, new_study: Make, name: str) -> None:
    if "?" in name:
        name = name.replace("?", "")
    fill(tmp_path / name, new_study)
    assert (tmp_path / name).stat().st_size > 0
    with open_reader(url(tmp_path / name)) as reader:
        assert len(reader.studies()) == 1
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".db"] == [name]


def test_the_file_alone_is_complete_between_calls(tmp_path: Path, new_study: Make) -> None:
    path = tmp_path / "autoamp.db"
    with open_store(url(path)) as store:
        study = store.create_study(new_study())
        store.start_trial(study.id, Phase.search, AS_WRITTEN, "real")
        shutil.copy(path, tmp_path / "copy.db")
    with open_reader(url(tmp_path / "copy.db")) as reader:
        assert len(reader.trials(study.id)) == 1


@pytest.mark.parametrize("put_back", [False, True])
def test_a_file_that_vanishes_is_noticed_and_not_made_anew(
    tmp_path: Path, new_study: Make, put_back: bool
) -> None:
    path = tmp_path / "autoamp.db"
    with open_store(url(path)) as store:
        study = store.create_study(new_study())
        path.unlink()
        if put_back:
            sqlite3.connect(path).close()
            path.touch()
        with pytest.raises(StorageError) as e:
            store.start_trial(study.id, Phase.search, AS_WRITTEN, "real")
    assert e.value.slug == ("storage-corrupt" if put_back else "storage-unwritable")
    if not put_back:
        assert "is gone" in e.value.message
        assert not path.exists()


def test_another_current_folder_is_another_matter(
    tmp_path: Path, new_study: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with open_store("sqlite:///autoamp.db") as store:
        monkeypatch.chdir(tmp_path / "elsewhere")
        store.create_study(new_study())
    assert list((tmp_path / "elsewhere").iterdir()) == []
    with open_reader(url(tmp_path / "autoamp.db")) as reader:
        assert len(reader.studies()) == 1
