"""The same script is the same by content, wherever it lies; what changed is named."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from autoamp.errors import AutoampError, ScriptError, UsageError
from autoamp.studies import script_identity as si
from autoamp.studies.script_identity import (
    ScriptIdentity,
    changes_since,
    default_name,
    differences,
    identify,
    refresh,
    with_files,
)


def of(
    project: Path, *arguments: str, entry: str = "train.py", cwd: Path | None = None
) -> ScriptIdentity:
    return identify(entry, is_module=False, arguments=arguments, cwd=str(cwd or project))


def paths(identity: ScriptIdentity) -> list[str]:
    return [f.path for f in identity.files]


@pytest.mark.parametrize(
    "arguments",
    [
        ("c.yml",),
        ("-c", "c.yml"),
        ("--config=c.yml",),
        ("-o", "config=c.yml"),
        ("-o", "Global.config=./c.yml"),
        ("c=c.yml",),
    ],
)
def test_files_named_in_arguments_count(project: Path, arguments: tuple[str, ...]) -> None:
    before = of(project, *arguments)
    assert paths(before) == ["c.yml", "train.py"]
    (project / "c.yml").write_text("lr: 0.2\n")
    assert differences(before, of(project, *arguments)) == ("c.yml has changed",)
    assert differences(before, refresh(before)) == ("c.yml has changed",)


@pytest.mark.parametrize(
    "arguments",
    [
        *[("--epochs", "3"), ("{batch_size}",), ("--data", "."), ("no/such/file.yml",), ("",)],
        *[("--x=",), ("a" * 5000,), ("nul\0byte",), ("--log=train.log",), ("train.log",)],
    ],
)
def test_what_is_no_input_file_does_not_count(project: Path, arguments: tuple[str, ...]) -> None:
    (project / "train.log").write_text("step 1\n")
    assert paths(of(project, *arguments)) == ["train.py"]


@pytest.mark.parametrize("name", ["my config.yml", "配置.yml", 'it\'s "q".yml'])
def test_odd_names(project: Path, name: str) -> None:
    (project / name).write_text("x")
    assert set(paths(of(project, f"--config={name}"))) == {name, "train.py"}


def test_a_moved_project_is_the_same_script(project: Path, tmp_path: Path) -> None:
    for folder in ("tools", "configs"):
        (project / folder).mkdir()
    (project / "tools" / "train.py").write_text("pass\n")
    (project / "configs" / "x.yml").write_text("a: 1\n")

    def at(root: Path) -> ScriptIdentity:
        return of(root, "-c", "configs/x.yml", entry="tools/train.py")

    before = at(project)
    assert paths(before) == ["../configs/x.yml", "train.py"]
    moved = shutil.copytree(project, tmp_path / "else" / "where" / "p")
    assert differences(before, at(moved)) == ()
    assert changes_since(before, at(moved)) == ()
    (moved / "configs" / "x.yml").write_text("a: 2\n")
    assert changes_since(before, at(moved)) == ("../configs/x.yml has changed",)


def test_files_far_away_are_known_by_their_full_path(project: Path, tmp_path: Path) -> None:
    far = tmp_path / "a" / "list.txt"
    far.parent.mkdir()
    far.write_text("1")
    deep = project / "x" / "y" / "z"
    deep.mkdir(parents=True)
    (deep / "train.py").write_text("pass")
    assert str(far) in paths(of(deep, str(far)))


@pytest.mark.parametrize("change", ["entry", "argument", "module", "gone", "new"])
def test_any_change_is_seen_and_named(project: Path, change: str) -> None:
    before = with_files(of(project, "-c", "c.yml"), [str(project / "net.py")])
    assert paths(before) == ["c.yml", "net.py", "train.py"]
    arguments = ["-c", "c.yml"]
    if change == "entry":
        (project / "train.py").write_text("import net, os\n")
        said = "train.py has changed"
    elif change == "argument":
        arguments.append("--amp")
        said = "argument new: --amp"
    elif change == "module":
        (project / "net.py").write_text("size = 2\n")
        said = "net.py has changed"
    elif change == "gone":
        (project / "net.py").unlink()
        said = "net.py is gone"
    else:
        (project / "extra.yml").write_text("x")
        before = replace(before, arguments=("-c", "c.yml", "extra.yml"))
        arguments.append("extra.yml")
        said = "extra.yml is new"
    assert changes_since(before, of(project, *arguments)) == (said,)


def test_nothing_changed(project: Path) -> None:
    before = with_files(of(project, "-c", "c.yml"), [str(project / "net.py")])
    assert changes_since(before, of(project, "-c", "c.yml")) == ()
    assert differences(before, refresh(before)) == ()


def test_arguments_gone_new_and_reordered(project: Path) -> None:
    before = of(project, "--lr", "0.1", "--amp")
    assert differences(before, of(project, "--lr", "0.2")) == (
        "argument no longer given: 0.1 --amp",
        "argument new: 0.2",
    )
    assert differences(before, of(project, "--amp", "--lr", "0.1")) == (
        "the arguments stand in another order",
    )
    assert differences(of(project, "a", "a"), of(project, "a")) == ("argument no longer given: a",)


def test_another_script_is_one_sentence(project: Path) -> None:
    (project / "eval.py").write_text("pass\n")
    assert differences(of(project), of(project, entry="eval.py")) == (
        "the script was train.py, now it is eval.py",
    )


def test_only_modules_of_its_own_project_belong_to_it(project: Path, tmp_path: Path) -> None:
    inside = project / "pkg" / "a.py"
    # A suite's library lies beside the folder of its tools/train.py.
    beside = tmp_path / "library" / "net.py"
    installed = project / ".venv" / "lib" / "site-packages" / "lib.py"
    outside = tmp_path.parent.parent / f"{tmp_path.name}-far" / "deep" / "other.py"
    for path in (inside, beside, installed, outside):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("pass")
    given = [str(p) for p in (inside, beside, installed, outside, project / "missing.py")]
    expected = ["../library/net.py", "pkg/a.py", "train.py"]
    assert paths(with_files(of(project), given)) == expected
    assert (
        paths(
            identify(
                "train.py", is_module=False, arguments=(), cwd=str(project), extra_files=given
            )
        )
        == expected
    )


@pytest.mark.parametrize("position", [0, 50, -1])
def test_large_files_are_known_by_size_and_ends(
    project: Path, monkeypatch: pytest.MonkeyPatch, position: int
) -> None:
    monkeypatch.setattr(si, "WHOLE_FILE_BYTES", 64)
    monkeypatch.setattr(si, "END_BYTES", 16)
    data = bytearray(range(100))
    (project / "data.bin").write_bytes(data)
    before = of(project, "data.bin")
    assert [f.sha256.startswith("ends-100-") for f in before.files] == [True, False]
    data[position] ^= 1
    (project / "data.bin").write_bytes(data)
    seen = differences(before, of(project, "data.bin"))
    assert seen == (() if position == 50 else ("data.bin has changed",))
    (project / "data.bin").write_bytes(data + b"x")
    assert differences(before, of(project, "data.bin")) == ("data.bin has changed",)


def test_identity_survives_json(project: Path) -> None:
    identity = of(project, "-c", "c.yml", "名 字")
    stored = msgspec.json.encode(identity)
    assert msgspec.json.decode(stored, type=ScriptIdentity) == identity


class TestModules:
    @pytest.fixture
    def package(self, project: Path) -> Path:
        for path in ("app/__init__.py", "app/__main__.py", "app/sub/__init__.py", "app/sub/go.py"):
            (project / path).parent.mkdir(parents=True, exist_ok=True)
            (project / path).write_text("raise SystemExit('imported')\n")
        (project / "app/sub/go.py").write_text("print(__file__)\n")
        (project / "app/__init__.py").write_text("")
        (project / "app/sub/__init__.py").write_text("")
        (project / "app/__main__.py").write_text("print(__file__)\n")
        return project

    @pytest.mark.parametrize("module", ["app", "app.sub.go", "net"])
    def test_the_file_python_would_run(self, package: Path, module: str) -> None:
        (package / "net.py").write_text("print(__file__)\n")
        said = subprocess.run(
            [sys.executable, "-m", module], cwd=package, capture_output=True, text=True, check=True
        ).stdout.strip()
        assert os.path.samefile(si.module_file(module, str(package)), package / said)

    def test_identity(self, package: Path) -> None:
        found = identify("app.sub.go", is_module=True, arguments=(), cwd=str(package))
        assert (found.entry, found.is_module) == ("app.sub.go", True)
        assert paths(found) == ["app/sub/go.py"]
        assert found.folder == str(package)
        main = identify("app", is_module=True, arguments=(), cwd=str(package))
        assert paths(main) == ["app/__main__.py"]
        assert differences(found, main)[0] == "the script was -m app.sub.go, now it is -m app"

    @pytest.mark.parametrize("module", ["nope", "app.nope", "", "app/sub", "app..sub", "-x"])
    def test_missing(self, package: Path, module: str) -> None:
        with pytest.raises(UsageError) as e:
            identify(module, is_module=True, arguments=(), cwd=str(package))
        assert e.value.slug == "module-missing"

    def test_nothing_is_imported(self, package: Path) -> None:
        (package / "app" / "__init__.py").write_text("raise SystemExit('imported')\n")
        assert paths(identify("app", is_module=True, arguments=(), cwd=str(package)))
        assert "app" not in sys.modules


@pytest.mark.parametrize("entry", ["nope.py", ".", "no/such/folder/x.py"])
def test_a_missing_script(project: Path, entry: str) -> None:
    with pytest.raises(ScriptError) as e:
        of(project, entry=entry)
    assert e.value.slug == "script-missing"
    assert e.value.exit_code == 4


def test_a_script_that_may_not_be_read(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> str:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(si, "_hash", refuse)
    with pytest.raises(AutoampError) as e:
        of(project)
    assert e.value.slug == "script-unreadable"


class TestDefaultName:
    def test_stable_and_readable(self) -> None:
        name = default_name("tools/train.py", ("--lr", "1"), "Tesla T4")
        assert name == default_name("tools/train.py", ("--lr", "1"), "Tesla T4")
        stem, _, digest = name.rpartition("-")
        assert stem == "train" and len(digest) == 4 and int(digest, 16) >= 0

    @pytest.mark.parametrize(
        "other",
        [
            ("tools/train.py", ("--lr", "2"), "Tesla T4"),
            ("tools/train.py", ("--lr 1",), "Tesla T4"),
            ("tools/train.py", ("--lr", "1"), "Tesla V100"),
            ("tools/train.py", ("--lr", "1", "Tesla T4")),
            ("other/train.py", ("--lr", "1"), "Tesla T4"),
        ],
    )
    def test_anything_else_has_another(self, other: tuple[str, ...]) -> None:
        assert default_name(*other) != default_name("tools/train.py", ("--lr", "1"), "Tesla T4")

    @pytest.mark.parametrize(
        ("entry", "stem"),
        [
            ("训练.py", "训练"),
            ("my script.py", "my-script"),
            ("a/.py", "py"),
            ("/x/...", "script"),
        ],
    )
    def test_stems(self, entry: str, stem: str) -> None:
        assert default_name(entry, ()).rpartition("-")[0] == stem

    def test_module(self) -> None:
        assert default_name("app.train", (), is_module=True).startswith("train-")
