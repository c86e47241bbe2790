"""The build cache: one build for many first users, damage noticed, errors that name the cure."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
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
            time.sleep(60 if pathlib.Path({str(tmp_path / "slow")!r}).exists() else 0.3)
            if pathlib.Path({str(tmp_path / "broken")!r}).exists():
                sys.exit("all.cc:1: error: something is wrong")
            pathlib.Path(sys.argv[sys.argv.index("-o") + 1]).write_bytes(b"library" * 20000)
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


@pytest.mark.parametrize(
    "damage",
    [
        "truncated",
        "empty",
        "missing",
        "changed",
        "a folder",
        "manifest",
        "all a file",
        "all empty",
    ],
)
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
    elif damage == "empty":
        library.write_bytes(b"")
    elif damage == "missing":
        library.unlink()
    elif damage == "a folder":
        library.unlink()
        library.mkdir()
    elif damage == "all a file":
        shutil.rmtree(entry)
        entry.write_bytes(whole)
    elif damage == "all empty":
        shutil.rmtree(entry)
        entry.mkdir()
    else:
        (entry / build.MANIFEST).write_text("{")
    assert build.ensure_built(str(fake_paddle), lambda line: None) == entry
    assert library.read_bytes() == whole
    assert calls(tmp_path) == 2
    assert left_in(entry.parent) == [entry.name]


def left_in(folder: Path) -> list[str]:
    """What lies in the cache beside the lock."""
    return sorted(p.name for p in folder.iterdir() if p.suffix != ".lock")


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


def alive_with(text: str) -> list[int]:
    """Live processes whose command line holds ``text``."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if text.encode() in words:
            found.append(int(entry.name))
    return found


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_stopped_build_leaves_nothing_that_matters(
    tmp_path: Path, fake_compiler: Path, fake_paddle: Path, cache: Path, number: int
) -> None:
    (tmp_path / "slow").touch()
    code = (
        f"from autoamp.virtual.build import ensure_built; ensure_built({str(fake_paddle)!r}, str)"
    )
    building = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    until(lambda: (tmp_path / "calls").exists())
    building.send_signal(number)
    assert building.wait(30) != 0
    until(lambda: not alive_with(str(fake_compiler)))
    (tmp_path / "slow").unlink()
    entry = build.ensure_built(str(fake_paddle), lambda line: None)
    assert build.is_intact(entry)
    assert left_in(entry.parent) == [entry.name]


def test_a_full_disk_is_said(
    tmp_path: Path, fake_compiler: Path, fake_paddle: Path, cache: Path
) -> None:
    """Simulated by a limit on the size of files; nothing of the attempt is kept."""
    code = (
        "from autoamp.errors import MachineError\n"
        "from autoamp.virtual.build import ensure_built\n"
        "try:\n"
        f"    ensure_built({str(fake_paddle)!r}, str)\n"
        "except MachineError as error:\n"
        "    print(error.slug, error.message)\n"
    )
    # Room for the log, not for the library; then room for nothing at all.
    for room, slug in ((50_000, "virtual-build-failed"), (10, "virtual-cache-unwritable")):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            preexec_fn=lambda room=room: resource.setrlimit(  # type: ignore[misc]
                resource.RLIMIT_FSIZE, (room, room)
            ),
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(slug), done.stdout
        assert "File too large" in done.stdout
    (folder,) = cache.iterdir()
    assert [name for name in left_in(folder) if not name.endswith(".log")] == []
    assert build.is_intact(build.ensure_built(str(fake_paddle), lambda line: None))


def test_a_cache_that_cannot_be_written_serves_what_it_holds(
    fake_compiler: Path, fake_paddle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a user who may read only: root is nobody for the occasion."""
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        base.chmod(0o755)
        monkeypatch.setenv("AUTOAMP_CACHE_DIR", str(base / "cache"))
        monkeypatch.setattr(build, "find_paddle", lambda python: installed)
        installed = build.PaddleBuild(folder=base, version="9.9")
        entry = build.ensure_built("python", lambda line: None)
        for folder, _, files in os.walk(base / "cache"):
            for file in files:
                os.chmod(Path(folder) / file, 0o444)
            os.chmod(folder, 0o555)
        said = []
        for version in ("9.9", "9.8"):
            code = (
                "import os\n"
                "from autoamp.errors import MachineError\n"
                "from autoamp.virtual import build\n"
                "if os.geteuid() == 0:\n"
                "    os.setegid(65534); os.seteuid(65534)\n"
                "build.find_paddle = lambda python: build.PaddleBuild(\n"
                f"    folder=build.Path({name!r}), version={version!r})\n"
                "build.find_compiler = lambda: ['never started']\n"
                "try:\n"
                "    print(build.ensure_built('python', str))\n"
                "except MachineError as error:\n"
                "    print(error.slug, error.remedy)\n"
            )
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            said.append(done.stdout.strip())
        for folder, _, _ in os.walk(base / "cache"):
            os.chmod(folder, 0o755)
    assert said[0] == str(entry)
    assert said[1].startswith("virtual-cache-unwritable") and "AUTOAMP_CACHE_DIR" in said[1]


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
    entry = build.ensure_built(str(fake_paddle), lambda line: None)
    assert build.is_intact(entry)
    assert left_in(entry.parent) == [entry.name]


def test_a_compiler_that_cannot_be_started_is_said(
    fake_compiler: Path, fake_paddle: Path, cache: Path
) -> None:
    fake_compiler.write_text("#!/nowhere/interpreter\n")
    with pytest.raises(MachineError) as caught:
        build.ensure_built(str(fake_paddle), lambda line: None)
    assert caught.value.slug == "virtual-build-failed"
    assert "could not be started" in caught.value.message


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


def test_the_compilers_variable_may_hold_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "two words"
    folder.mkdir()
    for name in ("ccache", "g++", "c++"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    for text, found in {
        "": ["g++"],
        "c++": ["c++"],
        "ccache c++ -pipe": ["ccache", "c++", "-pipe"],
        "'ccache' \"c++\"": ["ccache", "c++"],
        f"{folder}/c++": ["c++"],
        f"'{folder}/c++' -pipe": ["c++", "-pipe"],
        "missing c++": ["g++"],
        "it's": ["g++"],
    }.items():
        monkeypatch.setenv("CXX", text)
        command = build.find_compiler()
        assert [command[0], *command[1:]] == [str(folder / found[0]), *found[1:]], text


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

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(MachineError) as caught:
        build.cache_root()
    assert caught.value.slug == "virtual-cache-unwritable"


@pytest.mark.slow
@pytest.mark.needs_paddle
@pytest.mark.needs_compiler
def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """A file that came and went again shows in its folder's time."""
    paths = [folder, *folder.rglob("*")]
    return {str(p): (p.stat().st_mtime_ns, p.stat().st_size) for p in paths}


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
    # Root may write there all the same, so that nothing there may have changed either.
    before = snapshot(install)
    entry = build.ensure_built(sys.executable, lambda line: None)
    assert build.is_intact(entry)
    assert build.ensure_built(sys.executable, lambda line: pytest.fail(line)) == entry
    assert snapshot(install) == before
