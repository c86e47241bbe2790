import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from autoamp.process import Supervised, run_quick

TREE = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleeper = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
kids = [subprocess.Popen(sleeper), subprocess.Popen(sleeper, start_new_session=True)]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
print("ready", os.getpid(), flush=True)
{end}
"""


def start(tmp_path: Path, code: str) -> Supervised:
    return Supervised(
        [sys.executable, "-S", "-c", code],
        env=dict(os.environ),
        cwd=tmp_path,
        log_path=tmp_path / "log.txt",
    )


def wait_for(text: str, path: Path) -> None:
    for _ in range(500):
        if path.exists() and text in path.read_text():
            return
        time.sleep(0.02)
    raise AssertionError(f"{text!r} never came: {path.read_text()!r}")


def session_members(marker: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        if (process.info["environ"] or {}).get("AUTOAMP_TEST_MARKER") == marker:
            found.append(process)
    return found


@pytest.mark.parametrize(("code", "expected"), [("raise SystemExit(7)", 7), ("pass", 0)])
def test_exit_code(tmp_path: Path, code: str, expected: int) -> None:
    with start(tmp_path, code) as child:
        done = child.wait(30)
    assert done is not None
    assert (done.code, done.signal, done.killed_by_us) == (expected, None, False)


def test_signal_of_the_child_itself(tmp_path: Path) -> None:
    with start(tmp_path, "import os; os.kill(os.getpid(), 11)") as child:
        done = child.wait(30)
    assert done is not None
    assert (done.code, done.signal, done.killed_by_us) == (None, 11, False)


def test_output_goes_to_the_log(tmp_path: Path) -> None:
    with start(tmp_path, "import sys; print('one'); print('two', file=sys.stderr)") as child:
        child.wait(30)
    assert sorted((tmp_path / "log.txt").read_text().split()) == ["one", "two"]


def test_wait_times_out_and_goes_on(tmp_path: Path) -> None:
    with start(tmp_path, "import time; time.sleep(600)") as child:
        assert child.wait(0.2) is None
        assert psutil.pid_exists(child.pid)


def test_unstartable_command_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no-such-program"):
        Supervised(
            ["/no-such-program"], env=dict(os.environ), cwd=tmp_path, log_path=tmp_path / "l"
        )


@pytest.mark.parametrize("end", ["time.sleep(600)", ""])
def test_whole_tree_is_gone(tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = str(tmp_path)
    monkeypatch.setenv("AUTOAMP_TEST_MARKER", marker)
    with start(tmp_path, TREE.format(end=end)) as child:
        wait_for("ready", tmp_path / "log.txt")
        done = child.kill() if end else child.wait(30)
    assert done is not None
    assert done.left_behind >= 3 or done.killed_by_us
    assert session_members(marker) == []


def test_terminate_then_kill_after_the_grace_period(tmp_path: Path) -> None:
    with start(tmp_path, TREE.format(end="time.sleep(600)")) as child:
        wait_for("ready", tmp_path / "log.txt")
        child.terminate()
        done = child.wait(30)
    assert done is not None
    assert (done.signal, done.killed_by_us) == (9, True)


def test_terminate_lets_a_handler_run(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(15, lambda *a: sys.exit(3))\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    with start(tmp_path, code) as child:
        wait_for("ready", tmp_path / "log.txt")
        child.terminate()
        done = child.wait(30)
    assert done is not None and done.code == 3


@pytest.mark.parametrize("victim", ["tuner", "guard"])
def test_nothing_is_left_when_tuner_or_guard_is_killed(tmp_path: Path, victim: str) -> None:
    marker = f"{tmp_path}-{victim}"
    tuner_code = (
        "import os, sys, time\n"
        "from autoamp.process import Supervised\n"
        "child = Supervised([sys.executable, '-S', '-c', os.environ['CODE']], "
        "env=dict(os.environ), cwd='.', log_path='log.txt')\n"
        "child.wait()\ntime.sleep(600)\n"
    )
    env = dict(os.environ, AUTOAMP_TEST_MARKER=marker, CODE=TREE.format(end="time.sleep(600)"))
    tuner = subprocess.Popen([sys.executable, "-c", tuner_code], cwd=tmp_path, env=env)
    try:
        wait_for("ready", tmp_path / "log.txt")
        script = int((tmp_path / "log.txt").read_text().split()[1])
        assert psutil.pid_exists(script)
        if victim == "tuner":
            tuner.kill()
            tuner.wait()
        else:
            guards = [p for p in session_members(marker) if "guard.py" in " ".join(p.cmdline())]
            guards[0].kill()
        for _ in range(250):
            left = [p for p in session_members(marker) if p.pid != tuner.pid]
            if victim == "guard":
                # Without a guard only the script itself is certain to die with it.
                left = [p for p in left if p.pid == script]
            if not left:
                break
            time.sleep(0.02)
        assert left == []
    finally:
        tuner.kill()
        tuner.wait()
        for process in session_members(marker):
            process.kill()


def test_run_quick(tmp_path: Path) -> None:
    done = run_quick([sys.executable, "-c", "import sys; print('a'); sys.exit(4)"])
    assert (done.returncode, done.stdout, done.stderr) == (4, "a\n", "")


def test_run_quick_kills_at_timeout() -> None:
    with pytest.raises(TimeoutError):
        run_quick([sys.executable, "-c", "import time; time.sleep(600)"], timeout_s=0.3)
    assert not [p for p in psutil.Process().children() if "time.sleep(600)" in p.cmdline()]
