"""Ruff and mypy are part of the suite, so that one command says whether a change is good."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("check", [["check"], ["format", "--check"]], ids=["lint", "format"])
def test_ruff(check: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *check, "--no-cache", "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_mypy(tmp_path: Path) -> None:
    """A tree of links gives mypy the import paths that the editable install gives Python."""
    package = tmp_path / "autoamp"
    package.mkdir()
    for entry in (ROOT / "autoamp").iterdir():
        if entry.name != "__pycache__":
            (package / entry.name).symlink_to(entry)
    for name in ("probes", "studies"):
        (package / name).symlink_to(ROOT / name)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--config-file",
            str(ROOT / "pyproject.toml"),
            "--cache-dir",
            str(tmp_path / "cache"),
            "-p",
            "autoamp",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
