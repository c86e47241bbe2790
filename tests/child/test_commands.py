"""Programs that a script starts in a trial: nothing of the user's may change."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autoamp.child import commands

CONTAINS = subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0 or (
    subprocess.run(["unshare", "-Urm", "true"], capture_output=True).returncode == 0
)

RUN = """
import json, os, subprocess, sys
from autoamp.child import commands
refused = []
hooks = commands.Commands(sys.argv[1], refused.append)
if sys.argv[2] == "no":
    hooks._contains = False
hooks.install()
result = {}
for name, call in json.loads(sys.argv[3]).items():
    try:
        result[name] = eval(call)
    except Exception as error:
        result[name] = type(error).__name__
print(json.dumps({"result": result, "refused": refused, "contains": hooks._contains}))
"""


def run(folder: Path, contains: str, **calls: str) -> dict[str, object]:
    trial = folder / ".autoamp" / "trial"
    (trial / "scratch").mkdir(parents=True, exist_ok=True)
    (folder / "keep").mkdir(exist_ok=True)
    (folder / "keep" / "best").write_text("precious")
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(trial), contains, json.dumps(calls)],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    out: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return out


WRITERS = {
    "system": "os.system('rm -rf keep && mkdir keep')",
    "shell": "subprocess.run('echo gone > keep/best', shell=True).returncode",
    "list": "subprocess.run(['rm', '-r', 'keep']).returncode",
    "popen": "os.popen('mv keep elsewhere').close()",
    "other python": "subprocess.run([sys.executable, '-S', '-c', "
    "'open(\\'keep/best\\', \\'w\\')']).returncode",
    "executable": "subprocess.run(['x', '-r', 'keep'], executable='/bin/rm').returncode",
    "positional": "subprocess.call('rm -r keep', -1, None, None, None, None, None, True, True)",
}


@pytest.mark.skipif(not CONTAINS, reason="this system allows no mount namespaces")
def test_contained_writers_change_nothing(tmp_path: Path) -> None:
    seen = run(tmp_path, "ask", **WRITERS)
    assert seen["contains"] is True
    assert (tmp_path / "keep" / "best").read_text() == "precious"
    assert not (tmp_path / "elsewhere").exists()
    # To the script they succeeded.
    assert seen["result"] == dict.fromkeys(WRITERS, 0) | {"popen": None}


def test_writers_are_refused_where_nothing_can_be_contained(tmp_path: Path) -> None:
    shell = {k: v for k, v in WRITERS.items() if k != "other python"}
    seen = run(tmp_path, "no", **shell)
    assert (tmp_path / "keep" / "best").read_text() == "precious"
    assert len(seen["refused"]) == len(shell)  # type: ignore[arg-type]
    assert seen["result"] == dict.fromkeys(shell, "PermissionError") | {"system": 126 << 8}


@pytest.mark.parametrize("contains", ["ask", "no"])
def test_harmless_programs_run_as_ever(contains: str, tmp_path: Path) -> None:
    seen = run(
        tmp_path,
        contains,
        code="os.system('exit 3')",
        output="subprocess.check_output(['cat', 'keep/best']).decode()",
        piped="subprocess.run(['cat'], input=b'x', capture_output=True).stdout.decode()",
        missing="subprocess.run(['no-such-program'])",
        failed="subprocess.run('exit 4', shell=True, check=True)",
        cwd="subprocess.check_output('pwd', shell=True, cwd='keep').decode().strip()[-4:]",
    )
    assert seen["result"] == {
        "code": 3 << 8,
        "output": "precious",
        "piped": "x",
        "missing": "FileNotFoundError",
        "failed": "CalledProcessError",
        "cwd": "keep",
    }
    assert seen["refused"] == []


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        ([sys.executable, "train.py"], True),
        (["python3", "-u", "-m", "pkg"], True),
        (["python3.11", "-c", "print(1)"], True),
        ([sys.executable, "-I", "x.py"], False),
        ([sys.executable, "-S", "x.py"], False),
        ([sys.executable, "-uE", "x.py"], False),
        (["bash", "run.sh"], False),
        (["pythonic-tool"], False),
    ],
)
def test_which_programs_carry_our_hooks(words: list[str], ours: bool) -> None:
    hooks = commands.Commands("/nowhere", lambda path: None)
    assert hooks._is_ours(words, None) is ours
    assert hooks._is_ours(words, {"PATH": os.defpath}) is False
