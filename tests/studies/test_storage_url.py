"""Database addresses: what is taken, what is refused, and no password is ever shown."""

import pytest

from autoamp.errors import StorageError
from autoamp.studies import storage_url
from autoamp.studies.store import open_store


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///autoamp.db", "autoamp.db"),
        ("sqlite:////var/lib/a.db", "/var/lib/a.db"),
        ("sqlite+pysqlite:///a b/中.db", "a b/中.db"),
        ("SQLITE:///a.db", "a.db"),
    ],
)
def test_sqlite(url: str, path: str) -> None:
    assert storage_url.parse(url).sqlite_path == path


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_postgresql_uses_the_driver_we_install(scheme: str) -> None:
    found = storage_url.parse(f"{scheme}://me@host/db")
    assert found.url == "postgresql+psycopg://me@host/db"
    assert found.sqlite_path is None


@pytest.mark.parametrize(
    "url",
    [
        *("", "autoamp.db", "/var/a.db", "sqlite:", "sqlite://", "sqlite:///", "sqlite://a.db"),
        *("sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true", "mysql://a@b/c"),
        *("sqlite+aiosqlite:///a.db", "http://example.org", "nonsense://", "://", "oracle://x"),
    ],
)
def test_the_rest_is_refused(url: str) -> None:
    with pytest.raises(StorageError) as e:
        open_store(url)
    assert e.value.slug == "storage-unknown-url"
    assert e.value.remedy


def test_a_bare_path_is_told_how_to_write_it() -> None:
    with pytest.raises(StorageError) as e:
        storage_url.parse("runs/autoamp.db")
    assert e.value.remedy == "write sqlite:///runs/autoamp.db"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@host/db",
        "postgres://me:hunter2@host/db",
        "postgresql://me:p@hunter2@host/db",
        "postgresql://host/db?user=me&password=hunter2",
        "mysql://me:hunter2@host/db",
    ],
)
def test_no_password_is_shown(url: str) -> None:
    try:
        shown = storage_url.parse(url).shown
    except StorageError as e:
        shown = f"{e.message} {e.remedy}"
    assert "hunter2" not in shown
    assert "host/db" in shown


def test_an_unknown_driver_is_a_storage_error() -> None:
    with pytest.raises(StorageError) as e:
        open_store("postgresql+nosuch://me@127.0.0.1/db")
    assert e.value.slug == "storage-unknown-url"


def test_a_server_that_is_not_there() -> None:
    pytest.importorskip("psycopg", reason="the postgres extra is not installed")
    with pytest.raises(StorageError) as e:
        open_store("postgresql://me:hunter2@127.0.0.1:1/db")
    assert e.value.slug == "storage-unreachable"
    assert "hunter2" not in f"{e.value.message} {e.value.remedy}"


def test_network_file_systems(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    assert storage_url.is_network_path("/proc") is False
    table = f"{tmp_path}/mountinfo"
    with open(table, "w", encoding="utf-8") as f:
        f.write("22 1 0:1 / / rw - ext4 /dev/sda rw\n")
        f.write("23 22 0:2 / /my\\040home rw shared:1 - nfs4 host:/x rw\n")
        f.write("24 23 0:3 / /my\\040home/scratch rw - tmpfs none rw\n")
    real = open

    def fake(path: str, *args: object, **kwargs: object) -> object:
        return real(table if path == "/proc/self/mountinfo" else path, *args, **kwargs)  # type: ignore[call-overload]  # passes on what it was given

    monkeypatch.setattr("builtins.open", fake)
    found = [
        storage_url.is_network_path(p)
        for p in ("/", "/my home", "/my home/a", "/my home/scratch", "/my homeless")
    ]
    assert found == [False, True, True, False, False]


@pytest.mark.parametrize(
    ("url", "printed"),
    [
        ("sqlite:///autoamp.db", "sqlite:///autoamp.db"),
        ("postgresql://me:secret@db/x", "postgresql://me:***@db/x"),
        ("postgresql+psycopg://me@db/x?password=secret", "postgresql://me@db/x?password=***"),
    ],
)
def test_an_address_is_printed_without_its_password(url: str, printed: str) -> None:
    assert storage_url.address(url) == printed
