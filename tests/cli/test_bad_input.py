"""Each bad input: one clear message on stderr, the right exit code, no traceback, nothing lost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autoamp.cli import script
from autoamp.cli.main import SCRIPT_COMMANDS, end_options, take_debug
from autoamp.errors import UsageError

TRAIN = "import paddle\n"


def autoamp(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "autoamp.cli.main", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=120,
    )


CASES = {
    "no script": (("tune",), 2, "no-script"),
    "memory of a virtual GPU": (
        ("probe", "--device", "virtual:t4,memory=1MiB"),
        2,
        "virtual-memory-too-small",
    ),
    "more memory than the board's": (
        ("probe", "--device", "virtual:t4,memory=64GiB"),
        2,
        "virtual-memory-too-large",
    ),
    "missing script": (("tune", "nowhere.py"), 4, "script-missing"),
    "folder": (("tune", "."), 4, "script-is-folder"),
    "not Python": (("tune", "poem.txt"), 4, "script-not-python"),
    "binary": (("tune", "image.bin"), 4, "script-not-python"),
    "no interpreter": (("tune", "--python", "/nowhere/python", "train.py"), 3, "no-interpreter"),
    "interpreter is no Python": (
        ("tune", "--python", "/bin/cat", "train.py"),
        3,
        "interpreter-broken",
    ),
    "unknown device": (("tune", "--device", "virtual:nope", "train.py"), 2, "unknown-device"),
    "ambiguous device": (("tune", "--device", "virtual:v100", "train.py"), 2, "ambiguous-device"),
    "bad device": (("tune", "--device", "virtual:t4,size=3", "train.py"), 2, "bad-device"),
    "no such GPU": (("tune", "--device", "gpu:9", "train.py"), 3, "device-not-found"),
    "refused dtype": (
        ("tune", "--device", "virtual:gtx1080", "--dtypes", "float16", "train.py"),
        3,
        "refused-precision",
    ),
    "refused tf32": (
        ("tune", "--device", "virtual:t4", "--dtypes", "tf32,float16", "train.py"),
        3,
        "refused-precision",
    ),
    "unknown dtype": (("tune", "--dtypes", "tf32,int8", "train.py"), 2, "bad-option"),
    "unknown level": (("tune", "--levels", "O7", "train.py"), 2, "bad-option"),
    "bad batch sizes": (("tune", "--batch-sizes", "8,x", "train.py"), 2, "bad-option"),
    "bad duration": (("tune", "--timeout", "soon", "train.py"), 2, "bad-duration"),
    "bad share": (("tune", "--headroom", "much", "train.py"), 2, "bad-share"),
    "bad objective": (("tune", "--objective", "fun", "train.py"), 2, "bad-objective"),
    "too few trials": (("tune", "--trials", "0", "train.py"), 2, "bad-option"),
    "template without start": (
        ("tune", "--device", "cpu", "train.py", "--bs={batch_size}"),
        2,
        "template-needs-start",
    ),
    "study name with a path": (
        ("tune", "--device", "cpu", "--study", "../mine", "train.py"),
        2,
        "bad-study-name",
    ),
    "study name of dots": (
        ("tune", "--device", "cpu", "--study", "..", "train.py"),
        2,
        "bad-study-name",
    ),
    "output folder missing": (
        ("tune", "--device", "cpu", "--output", "nowhere/best.json", "train.py"),
        2,
        "output-unwritable",
    ),
    "unwritable storage": (
        ("tune", "--device", "cpu", "--storage", "sqlite:////nowhere/a.db", "train.py"),
        5,
        "storage-unwritable",
    ),
    "corrupt database": (
        ("tune", "--device", "cpu", "--storage", "sqlite:///broken.db", "train.py"),
        5,
        "storage-corrupt",
    ),
    "unknown storage": (
        ("tune", "--device", "cpu", "--storage", "what://ever", "train.py"),
        5,
        "storage-unknown-url",
    ),
    "config missing": (("run", "--config", "none.json", "train.py"), 125, "config-missing"),
    "config broken": (("run", "--config", "broken.json", "train.py"), 125, "config-broken"),
    "config newer": (("run", "--config", "newer.json", "train.py"), 125, "config-newer"),
    "unknown study": (("studies", "show", "nobody"), 5, "storage-missing"),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name: str, tmp_path: Path) -> None:
    words, code, slug = CASES[name]
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "poem.txt").write_text("Roses are red,\n  violets are blue\n")
    (tmp_path / "image.bin").write_bytes(bytes(range(256)))
    (tmp_path / "broken.db").write_bytes(b"SQLite format 3\0 and then rubbish" * 99)
    (tmp_path / "broken.json").write_text('{"schema_version": 1, ')
    (tmp_path / "newer.json").write_text('{"schema_version": 99}')
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
    done = autoamp(tmp_path, *words)
    assert done.returncode == code, done.stdout + done.stderr
    assert f"[{slug}]" in done.stderr
    assert "Traceback" not in done.stderr
    after = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
    assert {k: after[k] for k in before} == before


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = autoamp(tmp_path, "--debug", "tune", "nowhere.py")
    assert "Traceback" in done.stderr and "script-missing" not in done.stdout


@pytest.mark.slow
@pytest.mark.needs_paddle
@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("import paddle\nraise SystemExit('give --data')\n", "give --data"),
        ("import paddle\nimport nothing_like_it\n", "nothing_like_it"),
        ("import paddle\n", "optimizer step"),
        ("print('no paddle here')\n", "without importing paddle"),
    ],
)
def test_a_script_that_cannot_be_tuned(code: str, text: str, tmp_path: Path) -> None:
    """The baseline fails: exit 4, the reason, the script's own last lines, history kept."""
    script = tmp_path / "with space 训练.py"
    script.write_text(code, encoding="utf-8")
    done = autoamp(tmp_path, "tune", "--device", "cpu", script.name, "an 'argument'")
    assert done.returncode == 4, done.stdout + done.stderr
    assert text in done.stderr and "[baseline-failed]" in done.stderr
    assert "Traceback (most recent call last)" not in done.stderr.split("[baseline-failed]")[1]
    shown = autoamp(tmp_path, "studies", "list")
    assert shown.returncode == 0 and "failed" in shown.stdout


@pytest.mark.slow
@pytest.mark.needs_paddle
def test_a_hanging_script_ends_at_the_limit(tmp_path: Path) -> None:
    (tmp_path / "hang.py").write_text("import time\ntime.sleep(600)\n")
    done = autoamp(tmp_path, "tune", "--device", "cpu", "--trial-timeout", "5s", "hang.py")
    assert done.returncode == 4
    assert "no end within 5 s" in done.stderr


def test_no_paddle_in_the_interpreter(tmp_path: Path) -> None:
    env = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(env)], check=True)
    (tmp_path / "train.py").write_text(TRAIN)
    done = autoamp(tmp_path, "tune", "--python", "env/bin/python", "train.py")
    assert done.returncode == 3
    assert "[no-paddle]" in done.stderr and "--python" in done.stderr


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["tune", "train.py", "-m", "x"], ["tune", "train.py", "-m", "x"]),
        (["tune", "-m", "pkg.mod", "--lr", "1"], ["tune", "-m", "pkg.mod", "--", "--lr", "1"]),
        (
            ["tune", "--trials", "3", "--keep-batch", "-m", "pkg", "a"],
            ["tune", "--trials", "3", "--keep-batch", "-m", "pkg", "--", "a"],
        ),
        (
            ["tune", "--device=cpu", "-m", "pkg", "--help"],
            ["tune", "--device=cpu", "-m", "pkg", "--", "--help"],
        ),
        (["studies", "list", "-m"], ["studies", "list", "-m"]),
    ],
)
def test_what_follows_a_module_is_the_scripts(argv: list[str], expected: list[str]) -> None:
    assert end_options(argv) == expected


@pytest.mark.parametrize(
    ("argv", "rest", "debug"),
    [
        (["--debug", "tune", "a.py"], ["tune", "a.py"], True),
        (["tune", "--debug", "a.py"], ["tune", "a.py"], True),
        (["tune", "a.py", "--debug"], ["tune", "a.py", "--debug"], False),
        (["studies", "list", "--debug"], ["studies", "list"], True),
    ],
)
def test_debug_is_ours_only_before_the_script(
    argv: list[str], rest: list[str], debug: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AUTOAMP_DEBUG", raising=False)
    assert take_debug(argv) == (rest, debug)


@pytest.mark.parametrize("command", SCRIPT_COMMANDS)
def test_a_missing_script_is_asked_for_in_the_commands_own_words(command: str) -> None:
    with pytest.raises(UsageError) as caught:
        script.target(None, [], None, command=command)
    assert caught.value.slug == "no-script"
    assert (caught.value.remedy or "").startswith(f"autoamp {command} ")
