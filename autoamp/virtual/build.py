"""Builds the plug-in against an installed paddle on first use, and keeps it in a cache.

The cache is keyed by paddle's version and place, the sources, the machine and the compiler's
flags; an entry is trusted only if the library's size and SHA-256 are those written beside it.
"""

import fcntl
import hashlib
import json
import os
import platform
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from autoamp.errors import MachineError
from autoamp.process import Supervised
from autoamp.virtual.installed_paddle import PaddleBuild, find_paddle
from autoamp.virtual.library import LIBRARY

SOURCES = Path(__file__).parent / "csrc"
MANIFEST = "manifest.json"
COMPILERS = ("g++", "c++", "clang++")
BUILD_TIMEOUT_S = 600
"""A build takes about 20 s on two cores; a machine that swaps may need minutes."""

ROOM_BYTES = 64 << 20
"""Less than this left on the cache's disk explains a failed build: library and objects need 10
MB."""

# Optimised as far as compile time allows: the vector loops live on -O3, the rest does not care.
FLAGS = (
    "-std=c++17",
    "-O2",
    "-ftree-vectorize",
    "-fPIC",
    "-shared",
    "-w",
    "-D_GLIBCXX_USE_CXX11_ABI=1",
    "-DPADDLE_WITH_CUSTOM_DEVICE",
    # Kernels stay registered until the process ends, so the code must stay as well.
    "-Wl,-z,nodelete",
)


def cache_root() -> Path:
    """``$AUTOAMP_CACHE_DIR``, else ``$XDG_CACHE_HOME/autoamp``, else ``~/.cache/autoamp``.

    Raises MachineError ``virtual-cache-unwritable`` where there is no home folder.
    """
    own = os.environ.get("AUTOAMP_CACHE_DIR")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "autoamp"
    except RuntimeError as error:
        raise _unwritable("a home folder", error) from error


def find_compiler() -> list[str]:
    """The C++ compiler's command; ``$CXX`` first, which may hold arguments ("ccache g++").

    Raises MachineError ``virtual-no-compiler``.
    """
    own = os.environ.get("CXX", "")
    try:
        words = shlex.split(own)
    except ValueError:
        words = own.split()
    # A path with spaces in it, unquoted.
    for command in ([own], words, *([name] for name in COMPILERS)):
        path = shutil.which(command[0]) if command and command[0] else None
        if path:
            return [path, *command[1:]]
    raise MachineError(
        "The virtual device is built on first use and needs a C++ compiler; none of "
        f"{', '.join(COMPILERS)} was found.",
        slug="virtual-no-compiler",
        remedy="Debian, Ubuntu: apt-get install g++ (or build-essential). "
        "Fedora: dnf install gcc-c++.",
    )


def ensure_built(python: str, say: Callable[[str], None]) -> Path:
    """The folder that holds the plug-in for ``python``'s paddle, building it if need be.

    ``say`` gets one line before a build and one after. Raises MachineError with the slugs
    ``virtual-no-paddle``, ``virtual-no-compiler``, ``virtual-build-failed`` and
    ``virtual-cache-unwritable``.
    """
    paddle = find_paddle(python)
    entry = cache_root() / "virtual" / f"paddle-{paddle.version}-{_key(paddle)}"
    if is_intact(entry):
        return entry
    compiler = find_compiler()
    with _locked(entry):
        # Another process may have built it while this one waited for the lock.
        if not is_intact(entry):
            say(
                f"Building the virtual device for PaddlePaddle {paddle.version} (once, about 20 s)"
            )
            try:
                _build(compiler, paddle, entry)
            except OSError as error:
                raise _unwritable(entry.parent, error) from error
            say(f"Built: {entry}")
    return entry


def is_intact(entry: Path) -> bool:
    """True if the entry's library is there and is what was built."""
    try:
        manifest = json.loads((entry / MANIFEST).read_text(encoding="utf-8"))
        library = (entry / LIBRARY).read_bytes()
    except (OSError, ValueError):
        return False
    return (
        isinstance(manifest, dict)
        and manifest.get("size") == len(library)
        and manifest.get("sha256") == hashlib.sha256(library).hexdigest()
    )


def _source_files() -> list[Path]:
    return sorted(p for p in SOURCES.rglob("*") if p.is_file())


def _flags(paddle: PaddleBuild) -> list[str]:
    if paddle.major != 2:
        return list(FLAGS)
    # 2.6's wheel lacks a header that its others include; compat has a stand-in. And its own
    # null-reference idiom for absent inputs must survive the optimiser.
    return [
        *FLAGS,
        "-DAUTOAMP_PADDLE_2",
        f"-I{SOURCES / 'compat_2_6'}",
        "-fno-delete-null-pointer-checks",
    ]


def _key(paddle: PaddleBuild) -> str:
    digest = hashlib.sha256()
    for path in _source_files():
        digest.update(path.relative_to(SOURCES).as_posix().encode() + b"\0")
        digest.update(path.read_bytes())
    for text in (platform.machine(), str(paddle.folder), *_flags(paddle)):
        digest.update(text.encode() + b"\0")
    # A library put in place of another one under the same version number changes the key.
    for name in ("libs/libphi.so", "base/libpaddle.so"):
        path = paddle.folder / name
        if path.exists():
            digest.update(str(path.stat().st_size).encode())
    return digest.hexdigest()[:16]


@contextmanager
def _locked(entry: Path) -> Iterator[None]:
    """One build at a time; the kernel drops the lock when its holder dies."""
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        lock = open(entry.parent / f"{entry.name}.lock", "w", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise _unwritable(entry.parent, error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            # Some network file systems have no locks: two builds at once then cost time only,
            # since the finished folder is put in place by one rename.
            pass
        yield


def _unwritable(folder: Path | str, error: Exception) -> MachineError:
    return MachineError(
        f"The virtual device is built into a cache, and {folder} cannot be written: {error}",
        slug="virtual-cache-unwritable",
        remedy="Set AUTOAMP_CACHE_DIR to a folder that can be written.",
    )


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        # Whatever took the rights to look into it must not keep it here for ever.
        try:
            path.chmod(0o700)
        except OSError:
            pass
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _clear_leftovers(entry: Path) -> None:
    """Work folders of builds that were killed. Called under the lock: none of them is at work."""
    for left in entry.parent.glob(f"{entry.name}.*.build*"):
        _remove(left)


def _build(compiler: list[str], paddle: PaddleBuild, entry: Path) -> None:
    """Raises MachineError ``virtual-build-failed``; OSError if the cache cannot be written."""
    _clear_leftovers(entry)
    work = Path(tempfile.mkdtemp(prefix=f"{entry.name}.", suffix=".build", dir=entry.parent))
    damaged = work.parent / f"{work.name}.damaged"
    try:
        # One translation unit: reading paddle's headers is most of the work, so once is
        # faster than in parallel.
        unit = work / "all.cc"
        unit.write_text(
            "".join(f'#include "{p.name}"\n' for p in _source_files() if p.suffix == ".cc"),
            encoding="utf-8",
        )
        command = [
            *compiler,
            *_flags(paddle),
            f"-I{SOURCES}",
            f"-I{paddle.folder / 'include'}",
            f"-I{paddle.folder / 'include' / 'third_party'}",
            str(unit),
            "-o",
            str(work / LIBRARY),
            *paddle.link_options(),
        ]
        _compile(command, work, entry.parent / f"{entry.name}.log")
        library = (work / LIBRARY).read_bytes()
        manifest = {
            "size": len(library),
            "sha256": hashlib.sha256(library).hexdigest(),
            "paddle": paddle.version,
            "compiler": shlex.join(compiler),
        }
        (work / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        unit.unlink()
        # A rename within one folder is atomic: other processes see all of it or nothing.
        if os.path.lexists(entry):
            os.rename(entry, damaged)
        os.rename(work, entry)
    finally:
        _remove(work)
        _remove(damaged)


def _compile(command: list[str], work: Path, log: Path) -> None:
    """Run the compiler; its output stays in ``log`` if it fails. It dies with this process."""
    log.write_text(" ".join(command) + "\n", encoding="utf-8")
    # Objects and assembly in the work folder, which goes when the build ends or the next begins.
    env = {**os.environ, "TMPDIR": str(work)}
    try:
        with Supervised(command, env=env, cwd=work, log_path=log) as compiler:
            ended = compiler.wait(BUILD_TIMEOUT_S)
    except OSError as error:
        # The compiler itself: it is there, and cannot be started.
        raise _failed(command, f"it could not be started: {error}", log) from error
    if ended is None:
        raise _failed(command, f"no end within {BUILD_TIMEOUT_S} s", log)
    if ended.code == 0:
        log.unlink(missing_ok=True)
        return
    raise _failed(
        command, f"signal {ended.signal}" if ended.code is None else str(ended.code), log
    )


def _failed(command: list[str], how: str, log: Path) -> MachineError:
    output = log.read_text(encoding="utf-8", errors="replace").splitlines()[1:]
    free = shutil.disk_usage(log.parent).free
    if free < ROOM_BYTES:
        how += f"; only {free >> 20} MiB are free in {log.parent}"
    text = f"The virtual device could not be built ({Path(command[0]).name}: {how})."
    tail = "\n".join(output[-8:]).strip()
    return MachineError(
        f"{text}\n{tail}" if tail else text,
        slug="virtual-build-failed",
        remedy=f"The full log is {log}.",
    )
