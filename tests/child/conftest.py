"""A user's project with an age, and a way to run code in it under the merged view."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Snapshot = dict[str, tuple[str, int, bytes]]
Run = Callable[..., str]

PRELUDE = """\
import os
from autoamp.child import files
files.install(os.environ["SCRATCH"], os.environ["TRIAL"],
              lambda path: print("REFUSED", os.path.basename(path)))
"""


def snapshot(folder: Path) -> Snapshot:
    """Type, mtime and bytes of everything below ``folder``."""
    seen: Snapshot = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        if path.is_symlink():
            seen[str(path.relative_to(folder))] = ("link", 0, os.readlink(path).encode())
        elif path.is_dir():
            seen[str(path.relative_to(folder))] = ("folder", status.st_mtime_ns, b"")
        else:
            seen[str(path.relative_to(folder))] = ("file", status.st_mtime_ns, path.read_bytes())
    return seen


@pytest.fixture
def snapshot_of() -> Callable[[Path], Snapshot]:
    return snapshot


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """What a user has: checkpoints, a config, a log, a linked folder, odd names."""
    root = tmp_path / "project"
    (root / "output" / "epoch_1").mkdir(parents=True)
    (root / "output" / "epoch_2").mkdir()
    (root / "output" / "epoch_1" / "model.pdparams").write_bytes(b"one")
    (root / "output" / "epoch_2" / "model.pdparams").write_bytes(b"two")
    (root / "empty").mkdir()
    (root / "config.json").write_text('{"lr": 0.1}')
    (root / "train.log").write_text("old line\n")
    (root / "训练 数据").mkdir()
    (root / "训练 数据" / "标签 1.txt").write_text("猫", encoding="utf-8")
    (tmp_path / "big disk").mkdir()
    (tmp_path / "big disk" / "kept.bin").write_bytes(b"kept")
    (root / "linked").symlink_to(tmp_path / "big disk")
    (root / "latest").symlink_to("output/epoch_2")
    # Age everything: what is younger than the trial counts as the trial's own.
    for path in (root, *root.rglob("*"), tmp_path / "big disk", tmp_path / "big disk/kept.bin"):
        os.utime(path, (1_600_000_000, 1_600_000_000), follow_symlinks=False)
    return root


@pytest.fixture
def run(tmp_path: Path, project: Path) -> Iterator[Run]:
    """Run a body in the project under the view; afterwards nothing there has changed."""
    trial = tmp_path / "trial"
    trial.mkdir()
    before = {p: snapshot(p) for p in (project, tmp_path / "big disk")}

    def start(body: str, *, early: str = "", env: dict[str, str] | None = None) -> str:
        script = tmp_path / "body.py"  # a file: to_static wants the source
        script.write_text(early + PRELUDE + textwrap.dedent(body), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, script],
            cwd=project,
            env={
                **os.environ,
                "SCRATCH": str(trial / "scratch"),
                "TRIAL": str(trial),
                "PYTHONDONTWRITEBYTECODE": "1",
                **(env or {}),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    yield start
    for folder, was in before.items():
        assert snapshot(folder) == was
