"""Databases for the storage tests: an SQLite file each time, PostgreSQL where there is one."""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autoamp.measurement import Label, Measurement, Outcome
from autoamp.probes.facts import Identity
from autoamp.studies.records import NewStudy
from autoamp.studies.script_identity import ScriptIdentity, identify

POSTGRES = "AUTOAMP_TEST_POSTGRES_URL"


def postgres_url() -> str:
    """The server to test with; skips without one, or fails where services are required."""
    url = os.environ.get(POSTGRES)
    if not url:
        reason = f"no PostgreSQL: set {POSTGRES}=postgresql://USER@HOST/NAME to test with one"
        if os.environ.get("AUTOAMP_REQUIRE_SERVICES") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return url


@pytest.fixture
def postgres_schema() -> Iterator[str]:
    """Address of an empty schema of its own, dropped afterwards."""
    url = postgres_url()
    import psycopg

    name = f"autoamp_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    yield url + ("&" if "?" in url else "?") + f"options=-csearch_path%3D{name}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA {name} CASCADE")


@pytest.fixture(params=["sqlite", "postgresql"])
def storage_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/autoamp.db"
    url: str = request.getfixturevalue("postgres_schema")
    return url


@pytest.fixture
def machine() -> Identity:
    return Identity(device="Tesla T4", memory_gib=16, mig=None, paddle="3.3", cuda="12.6")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a script, a module of its own and a config."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("import net\n")
    (folder / "net.py").write_text("size = 1\n")
    (folder / "c.yml").write_text("lr: 0.1\n")
    return folder


@pytest.fixture
def script(project: Path) -> ScriptIdentity:
    return identify("train.py", is_module=False, arguments=("-c", "c.yml"), cwd=str(project))


@pytest.fixture
def new_study(machine: Identity, script: ScriptIdentity) -> Callable[..., NewStudy]:
    def make(name: str = "train-3f2a", **values: object) -> NewStudy:
        fields: dict[str, object] = {
            "name": name,
            "script_path": "train.py",
            "arguments": ("-c", "c.yml"),
            "device": "Tesla T4",
            "machine": machine,
            "script": script,
            "options_json": '{"trials": 24}',
        }
        return NewStudy(**{**fields, **values})  # type: ignore[arg-type]  # fields by name

    return make


@pytest.fixture
def measured() -> Callable[[float], Measurement]:
    def make(throughput: float) -> Measurement:
        return Measurement(
            outcome=Outcome.ok,
            throughput_samples_per_s=throughput,
            time_label=Label.modelled,
            batch_size=32,
            memory_reserved_peak_bytes=3 * 2**30,
        )

    return make
