"""The build cache: one build for many first users, damage noticed, errors that name the cure."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from autoamp.errors import MachineError
from autoamp.virtual import build
from autoamp.virtual.library import LIBRARY


@pytest.fixture
def fake_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that takes its time, notes each call and writes the file after ``-o``."""
    path = tmp_path / "bin" / "g++"
    path.parent.mkdir()
    path.write_text(
        textwrap.dedent(
            f"""\
            #!{sys.executable}
            import pathlib, sys, time
            with open({str(tmp_path / "calls")!r}, "a") as f:
                f.write("call\\n")
            time.sleep(0.3)
            if pathlib.Path({str(tmp_path / "broken")!r}).exists():
                sys.exit("all.cc:1: error: something is wrong")
            pathlib.Path(sys.argv[sys.argv.index("-o") + 1]).write_bytes(b"library" * 100)
            """
        )
    )
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    return path


@pytest.fixture
def fake_paddle(tmp_path: Path) -> Path:
    """An interpreter's path whose paddle is an empty package with headers."""
    site = tmp_path / "site"
    (site / "paddle" / "include" / "paddle").mkdir(parents=True)
    (site / "paddle" / "__init__.py").write_text("raise SystemExit('must not be imported')")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOAMP_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def calls(tmp_path: Path) -> int:
    return len((tmp_path / "calls").read_text().splitlines())


def test_built_once_then_taken_from_the_cache(
    tmp_path: Path, fake_compiler: Path, fake_paddle: Path
) -> None:
    said: list[str] = []
    first = build.ensure_built(str(fake_paddle), said.append)
    assert (first / LIBRARY).exists() and len(said) == 2
    assert build.ensure_built(str(fake_paddle), said.append) == first
    assert calls(tmp_path) == 1 and len(said) == 2


@pytest.mark.parametrize("damage", ["truncated", "missing", "changed", "manifest"])
def test_a_damaged_entry_is_rebuilt(
    tmp_path: Path, fake_compiler: Path, fake_paddle: Path, damage: str
) -> None:
    entry = build.ensure_built(str(fake_paddle), lambda line: None)
    library = entry / LIBRARY
    whole = library.read_bytes()
    if damage == "truncated":
        library.write_bytes(whole[:-1])
    elif damage == "changed":
        library.write_bytes(whole[:-1] + b"X")
    elif damage == "missing":
        library.unlink()
    else:
        (entry / build.MANIFEST).write_text("{")
    assert build.ensure_built(str(fake_paddle), lambda line: None) == entry
    assert library.read_bytes() == whole
    assert calls(tmp_path) == 2
    assert sorted(p.name for p in entry.parent.iterdir() if p.is_dir()) == [entry.name]


def test_concurrent_first_uses_build_once(
    tmp_path: Path, fake_compiler: Path, fake_paddle: Path
) -> None:
    code = (
        "from autoamp.virtual.build import ensure_built\n"
        f"print(ensure_built({str(fake_paddle)!r}, str))"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    folders = {p.communicate()[0].strip() for p in running}
    assert len(folders) == 1 and all(p.returncode == 0 for p in running)
    assert calls(tmp_path) == 1


def test_a_failed_build_shows_the_compilers_words_and_the_log(
    tmp_path: Path, fake_compiler: Path, fake_paddle: Path, cache: Path
) -> None:
    (tmp_path / "broken").touch()
    with pytest.raises(MachineError) as caught:
        build.ensure_built(str(fake_paddle), lambda line: None)
    assert caught.value.slug == "virtual-build-failed"
    assert "something is wrong" in caught.value.message
    log = Path(str(caught.value.remedy).removeprefix("The full log is ").removesuffix("."))
    assert "something is wrong" in log.read_text()
    # What is mended builds, and leaves nothing of the failure behind.
    (tmp_path / "broken").unlink()
    assert build.is_intact(build.ensure_built(str(fake_paddle), lambda line: None))


def test_no_compiler_names_the_package(
    fake_paddle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(empty))
    with pytest.raises(MachineError) as caught:
        build.ensure_built(str(fake_paddle), lambda line: None)
    assert caught.value.slug == "virtual-no-compiler"
    assert "build-essential" in str(caught.value.remedy)


def test_no_paddle_is_said_for_the_interpreter(tmp_path: Path) -> None:
    python = tmp_path / "bare"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    for interpreter in (str(python), str(tmp_path / "nowhere")):
        with pytest.raises(MachineError) as caught:
            build.ensure_built(interpreter, lambda line: None)
        assert caught.value.slug == "virtual-no-paddle"
        assert interpreter in caught.value.message + str(caught.value.remedy)


def test_an_unwritable_cache_is_said(
    fake_compiler: Path, fake_paddle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file where the folder should be: refused for every user, root included.
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("AUTOAMP_CACHE_DIR", str(blocked))
    with pytest.raises(MachineError) as caught:
        build.ensure_built(str(fake_paddle), lambda line: None)
    assert caught.value.slug == "virtual-cache-unwritable"


def test_cache_place_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOAMP_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert build.cache_root() == Path("/x/autoamp")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert build.cache_root() == Path("/home/someone/.cache/autoamp")


@pytest.mark.slow
@pytest.mark.needs_paddle
@pytest.mark.needs_compiler
def test_the_real_build_from_a_read_only_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install = tmp_path / "install"
    shutil.copytree(build.SOURCES, install)
    for folder, _, files in os.walk(install):
        for name in files:
            os.chmod(Path(folder) / name, 0o444)
        os.chmod(folder, 0o555)
    monkeypatch.setattr(build, "SOURCES", install)
    entry = build.ensure_built(sys.executable, lambda line: None)
    assert build.is_intact(entry)
    assert build.ensure_built(sys.executable, lambda line: pytest.fail(line)) == entry
