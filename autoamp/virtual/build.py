"""Builds the plug-in against an installed paddle on first use, and keeps it in a cache.

The cache is keyed by paddle's version and place, the sources, the machine and the compiler's
flags; an entry is trusted only if the library's size and SHA-256 are those written beside it.
"""

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autoamp.errors import MachineError
from autoamp.virtual.library import LIBRARY

SOURCES = Path(__file__).parent / "csrc"
MANIFEST = "manifest.json"
COMPILERS = ("g++", "c++", "clang++")
BUILD_TIMEOUT_S = 600
"""A build takes about 20 s on two cores; a machine that swaps may need minutes."""

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

_FIND_PADDLE = """
import importlib.metadata, importlib.util, json, os
spec = importlib.util.find_spec("paddle")
out = {"folder": None, "version": None}
if spec is not None and spec.origin:
    out["folder"] = os.path.dirname(os.path.abspath(spec.origin))
    for name in ("paddlepaddle", "paddlepaddle-gpu"):
        try:
            out["version"] = importlib.metadata.version(name)
            break
        except importlib.metadata.PackageNotFoundError:
            pass
print(json.dumps(out))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddleBuild:
    """Where an interpreter's paddle lies, and which version it is."""

    folder: Path
    version: str

    @property
    def major(self) -> int:
        head = self.version.split(".")[0]
        return int(head) if head.isdigit() else 3

    def link_options(self) -> list[str]:
        """Libraries to link; 2.x keeps everything in the Python extension itself."""
        names = (
            ["libpaddle.so", "libcommon.so"]
            if self.major == 2
            else ["libphi.so", "libphi_core.so", "libcommon.so"]
        )
        folders = [self.folder / "libs", self.folder / "base"]
        return [
            *[f"-L{folder}" for folder in folders],
            *[f"-l:{name}" for name in names],
            *[f"-Wl,-rpath,{folder}" for folder in folders],
        ]


def cache_root() -> Path:
    """``$AUTOAMP_CACHE_DIR``, else ``$XDG_CACHE_HOME/autoamp``, else ``~/.cache/autoamp``."""
    own = os.environ.get("AUTOAMP_CACHE_DIR")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "autoamp"


def find_paddle(python: str) -> PaddleBuild:
    """The paddle that ``python`` would import, found without importing it.

    Raises MachineError ``virtual-no-paddle``.
    """
    remedy = f"Install it for that interpreter: {python} -m pip install paddlepaddle"
    try:
        # An empty folder: a script's own paddle.py must not be taken for the package.
        with tempfile.TemporaryDirectory() as empty:
            done = subprocess.run(
                [python, "-c", _FIND_PADDLE],
                cwd=empty,
                capture_output=True,
                text=True,
                timeout=60,
            )
        found = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        raise MachineError(
            f"The virtual device needs PaddlePaddle, and {python} could not be asked for it: "
            f"{error}",
            slug="virtual-no-paddle",
            remedy=remedy,
        ) from error
    if not found["folder"] or not (Path(found["folder"]) / "include" / "paddle").is_dir():
        raise MachineError(
            f"The virtual device needs PaddlePaddle with its C++ headers; {python} has "
            + ("no paddle." if not found["folder"] else f"none below {found['folder']}."),
            slug="virtual-no-paddle",
            remedy=remedy,
        )
    return PaddleBuild(folder=Path(found["folder"]), version=found["version"] or "unknown")


def find_compiler() -> str:
    """The C++ compiler to use; ``$CXX`` first. Raises MachineError ``virtual-no-compiler``."""
    own = os.environ.get("CXX")
    for name in (own, *COMPILERS) if own else COMPILERS:
        path = shutil.which(name) if name else None
        if path:
            return path
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
            _build(compiler, paddle, entry)
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
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _unwritable(folder: Path, error: OSError) -> MachineError:
    return MachineError(
        f"The virtual device is built into a cache, and {folder} cannot be written: {error}",
        slug="virtual-cache-unwritable",
        remedy="Set AUTOAMP_CACHE_DIR to a folder that can be written.",
    )


def _build(compiler: str, paddle: PaddleBuild, entry: Path) -> None:
    try:
        work = Path(tempfile.mkdtemp(prefix=f"{entry.name}.", dir=entry.parent))
    except OSError as error:
        raise _unwritable(entry.parent, error) from error
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
            compiler,
            *_flags(paddle),
            f"-I{SOURCES}",
            f"-I{paddle.folder / 'include'}",
            f"-I{paddle.folder / 'include' / 'third_party'}",
            str(unit),
            "-o",
            str(work / LIBRARY),
            *paddle.link_options(),
        ]
        _compile(command, entry)
        library = (work / LIBRARY).read_bytes()
        manifest = {
            "size": len(library),
            "sha256": hashlib.sha256(library).hexdigest(),
            "paddle": paddle.version,
            "compiler": compiler,
        }
        (work / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        unit.unlink()
        # A rename within one folder is atomic: other processes see all of it or nothing.
        if entry.exists():
            os.rename(entry, damaged)
        os.rename(work, entry)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(damaged, ignore_errors=True)


def _compile(command: list[str], entry: Path) -> None:
    log = entry.parent / f"{entry.name}.log"
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, errors="replace"
        )
        output, code = done.stdout + done.stderr, str(done.returncode)
    except subprocess.TimeoutExpired:
        output, code = "", f"no end within {BUILD_TIMEOUT_S} s"
    except OSError as error:
        output, code = str(error), "it could not be started"
    if code == "0":
        return
    log.write_text(" ".join(command) + "\n" + output, encoding="utf-8")
    tail = "\n".join(output.strip().splitlines()[-8:])
    raise MachineError(
        f"The virtual device could not be built ({Path(command[0]).name}: {code}).\n{tail}",
        slug="virtual-build-failed",
        remedy=f"The full log is {log}.",
    )
