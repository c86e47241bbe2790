"""The recommended-config file: reading, writing, refusing, and its schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from simulated_device import Simulated, drive

from autoamp.cli.schema import schema
from autoamp.errors import EXIT_USAGE, UsageError
from autoamp.settings import Dtype, Level, Setting
from autoamp.studies import recommend
from autoamp.studies.recommendation import (
    SCHEMA_VERSION,
    Recommendation,
    SettingRecord,
    json_schema,
    json_schema_text,
    load,
    save,
    study_of,
)
from autoamp.studies.script_identity import ScriptIdentity

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def found() -> Recommendation:
    script = ScriptIdentity(entry="train.py", is_module=False, arguments=(), files=())
    done = drive(Simulated())
    return recommend.build(
        done.result, study="train-3f2a", script=script, command="train.py", wall_s=1.0
    )


@pytest.fixture
def path(found: Recommendation, tmp_path: Path) -> Path:
    target = tmp_path / "最好 config.json"
    save(found, target)
    return target


def test_round_trip(found: Recommendation, path: Path) -> None:
    assert load(path) == found
    assert study_of(path) == "train-3f2a"
    assert list(path.parent.iterdir()) == [path], "no half-written file is left"


def test_a_file_from_before_script_batch_is_read(found: Recommendation, path: Path) -> None:
    raw = json.loads(path.read_bytes())
    assert raw.pop("script_batch") == 32
    path.write_text(json.dumps(raw), encoding="utf-8")
    jsonschema.Draft202012Validator(json_schema()).validate(raw)
    old = load(path)
    assert old.script_batch is None and old.own_batch == old.as_written.batch_size == 32


def test_writing_again_replaces(found: Recommendation, path: Path) -> None:
    save(msgspec.structs.replace(found, study="other"), path)
    assert study_of(path) == "other"


def test_missing(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(UsageError) as caught:
            load(path)
        assert caught.value.slug == "config-missing"
        assert caught.value.exit_code == EXIT_USAGE
        assert str(path) in caught.value.message and caught.value.remedy
        assert study_of(path) is None


BROKEN = (
    b"",
    b"{",
    b"[]",
    b"{}",
    b"null",
    b"\xff\xfe",
    b'{"schema_version": "1"}',
    b'{"schema_version": 0}',
    b'{"schema_version": true}',
    b'{"schema_version": 1}',
)


@pytest.mark.parametrize("text", BROKEN)
def test_broken(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(text)
    with pytest.raises(UsageError) as caught:
        load(path)
    assert caught.value.slug == "config-broken"
    assert "broken.json" in caught.value.message


def test_newer_names_both_versions(found: Recommendation, path: Path) -> None:
    raw = json.loads(path.read_bytes())
    raw.update(schema_version=SCHEMA_VERSION + 1, autoamp_version="9.9", something_new=1)
    path.write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        load(path)
    assert caught.value.slug == "config-newer"
    assert f"found {SCHEMA_VERSION + 1}" in caught.value.message
    assert "9.9" in caught.value.message and "upgrade" in (caught.value.remedy or "")


def objects(value: Any, where: str = "$") -> list[tuple[str, dict[str, Any]]]:
    """Every object within a JSON value that has fixed keys."""
    free = (".trials_by_phase", ".outcomes", ".labels")
    out = []
    if isinstance(value, dict) and not where.endswith(free):
        out.append((where, value))
        for key, item in value.items():
            out += objects(item, f"{where}.{key}")
    elif isinstance(value, list):
        for item in value:
            out += objects(item, where + "[]")
    return out


def test_an_unknown_key_anywhere_is_refused(path: Path) -> None:
    places = objects(json.loads(path.read_bytes()))
    assert len(places) > 20
    validator = jsonschema.Draft202012Validator(json_schema())
    for number, (where, _) in enumerate(places):
        raw = json.loads(path.read_bytes())
        assert validator.is_valid(raw)
        objects(raw)[number][1]["typo"] = 1
        assert not validator.is_valid(raw), where
        broken = path.with_name("typo.json")
        broken.write_text(json.dumps(raw), encoding="utf-8")
        with pytest.raises(UsageError) as caught:
            load(broken)
        assert caught.value.slug == "config-broken" and "typo" in caught.value.message


def test_setting_record_is_the_setting() -> None:
    for setting in (
        Setting(),
        Setting(batch_size=8, amp_level=Level.O0, dtype=Dtype.float32),
        Setting(
            batch_size=8,
            amp_level=Level.O2,
            dtype=Dtype.float16,
            init_loss_scaling=1024.0,
            dynamic_loss_scaling=False,
            custom_white_list=("a",),
            custom_black_list=("b", "c"),
            use_promote=False,
            master_grad=True,
            accumulate_steps=2,
        ),
    ):
        record = SettingRecord.of(setting)
        assert record.setting() == setting
        assert json.loads(msgspec.json.encode(record)) == setting.to_json()


def test_the_schema_is_kept_in_docs_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    kept = (ROOT / "docs" / "recommended-config.schema.json").read_text(encoding="utf-8")
    assert kept == json_schema_text(), "run: autoamp schema > docs/recommended-config.schema.json"
    schema()
    assert capsys.readouterr().out == kept
    jsonschema.Draft202012Validator.check_schema(json.loads(kept))


def test_every_key_is_explained_in_docs(found: Recommendation) -> None:
    text = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    start = text.index("## The recommended config")
    end = text.find("\n## ", start + 5)
    section = text[start : end if end > 0 else None]
    keys = {
        key
        for definition in json_schema()["$defs"].values()
        for key in definition.get("properties", {})
    }
    missing = sorted(key for key in keys if f"`{key}`" not in section)
    assert not missing, f"docs/files.md does not explain {missing}"
