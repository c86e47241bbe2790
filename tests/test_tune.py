"""The whole of ``autoamp tune`` as a user starts it, on the virtual accelerator."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import psutil
import pytest
from real_trials import SCRIPTS

from autoamp.settings import Setting
from autoamp.studies import recommendation

pytestmark = [pytest.mark.slow, pytest.mark.needs_paddle, pytest.mark.needs_compiler]

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
FAST = ("--trials", "6", "--steps", "8", "--confirm", "1", "--device", "virtual:v100-32gb")


def autoamp(
    folder: Path, *words: str | Path, timeout_s: float = 280.0, **env: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "autoamp.cli.main", *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, **env},
    )


def result_of(folder: Path) -> recommendation.Recommendation:
    path = next(folder.glob("autoamp-*.json"))
    schema = json.loads((ROOT / "docs" / "recommended-config.schema.json").read_text())
    jsonschema.validate(json.loads(path.read_text()), schema)
    return recommendation.load(path)


def rows(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(folder / "autoamp.db") as db:
        return db.execute(sql).fetchall()


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        (EXAMPLES / "digits_cnn.py", ()),
        (SCRIPTS / "plain_fp32.py", ()),
        (SCRIPTS / "hapi_plain.py", ()),
    ],
    ids=["raw loop with AMP", "no AMP", "hapi"],
)
def test_tune_to_the_end(script: Path, arguments: tuple[str, ...], tmp_path: Path) -> None:
    shutil.copy(script, tmp_path)
    for extra in EXAMPLES.glob("digits_cnn.py"):
        shutil.copy(extra, tmp_path)
    before = (tmp_path / script.name).read_bytes()
    done = autoamp(tmp_path, "tune", *FAST, script.name, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    found = result_of(tmp_path)
    assert found.as_written.throughput.label == "modelled"
    assert found.best.measured.memory.label == "counted"
    assert found.machine.device_kind == "virtual"
    assert found.headline.split(":")[0].lower() in done.stdout.lower()
    assert "modelled" in done.stdout and "studies show" in done.stdout
    assert (tmp_path / script.name).read_bytes() == before
    # Only measured settings are recommended.
    stored = rows(tmp_path, "SELECT setting FROM autoamp_trial")
    settings = {Setting.from_json(json.loads(text)).key() for (text,) in stored}
    for recommended in (found.best, found.at_your_batch):
        assert recommended.setting.key() in settings or recommended.setting.is_as_written
    # The same command again is answered from the history: no new trial.
    count = rows(tmp_path, "SELECT count(*) FROM autoamp_trial")
    again = autoamp(tmp_path, "tune", *FAST, script.name, *arguments)
    assert again.returncode == 0, again.stderr
    assert rows(tmp_path, "SELECT count(*) FROM autoamp_trial") == count
    assert "from the history" in again.stdout
    # And the result can be run: output and exit code are the script's own.
    config = next(tmp_path.glob("autoamp-*.json"))
    run = autoamp(tmp_path, "run", "--config", config, script.name, *arguments)
    assert run.returncode == 0, run.stderr
    assert "steps" in run.stderr and "virtual" in run.stderr


def test_amp_that_pays_is_recommended(tmp_path: Path) -> None:
    """Wide matrix products in planning mode: Tensor Cores win clearly by the model."""
    script = tmp_path / "wide.py"
    script.write_text(
        "import numpy as np, paddle, paddle.nn as nn\n"
        "class D(paddle.io.Dataset):\n"
        "    def __len__(self): return 65536\n"
        "    def __getitem__(self, i): return np.zeros([4096], 'float32')\n"
        "net = nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(6)])\n"
        "opt = paddle.optimizer.SGD(1e-3, parameters=net.parameters())\n"
        "for x in paddle.io.DataLoader(D(), batch_size=512):\n"
        "    loss = (net(x) ** 2).mean()\n"
        "    loss.backward(); opt.step(); opt.clear_grad()\n"
    )
    device = ("--device", "virtual:v100-32gb,numerics=off", "--keep-batch")
    done = autoamp(tmp_path, "tune", *FAST[:-2], *device, script.name)
    assert done.returncode == 0, done.stdout + done.stderr
    found = result_of(tmp_path)
    assert found.verdict == "use"
    assert found.best.setting.is_mixed and found.best.setting.batch_size in (None, 512)
    assert found.best.against_fp32.low is not None and found.best.against_fp32.low > 2
    assert any("numerics" in c for c in found.caveats)


def test_killed_tuner_loses_one_trial_and_leaves_no_process(tmp_path: Path) -> None:
    shutil.copy(SCRIPTS / "plain_fp32.py", tmp_path)
    marker = str(tmp_path)
    command = [sys.executable, "-m", "autoamp.cli.main", "tune", *FAST, "plain_fp32.py"]
    tuner = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "AUTOAMP_TEST_MARKER": marker},
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        time.sleep(0.3)
        if (tmp_path / "autoamp.db").exists():
            try:
                states = [s for (s,) in rows(tmp_path, "SELECT state FROM autoamp_trial")]
            except sqlite3.Error:
                continue
            if states.count("finished") >= 2 and "running" in states:
                break
    tuner.kill()
    tuner.wait()
    query = "SELECT number, measurement FROM autoamp_trial WHERE state='finished'"
    finished = rows(tmp_path, query)
    assert len(finished) >= 2
    for _ in range(100):
        left = [
            p
            for p in psutil.process_iter(["environ"])
            if (p.info["environ"] or {}).get("AUTOAMP_TEST_MARKER") == marker
        ]
        if not left:
            break
        time.sleep(0.1)
    assert left == []
    done = autoamp(tmp_path, "tune", *FAST, "plain_fp32.py")
    assert done.returncode == 0, done.stdout + done.stderr
    kept = rows(tmp_path, query)
    assert kept[: len(finished)] == finished
    assert len(rows(tmp_path, "SELECT 1 FROM autoamp_trial WHERE state='lost'")) == 1
    assert len(rows(tmp_path, "SELECT 1 FROM autoamp_study")) == 1
    assert "from the history" in done.stdout
    result_of(tmp_path)


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c(times: int, tmp_path: Path) -> None:
    """Once: recommend from what is there (0). Twice: stop now, nothing lost (130)."""
    shutil.copy(SCRIPTS / "plain_fp32.py", tmp_path)
    command = [sys.executable, "-u", "-m", "autoamp.cli.main", "tune", *FAST, "plain_fp32.py"]
    tuner = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert tuner.stdout is not None
    for line in tuner.stdout:
        if " scan " in line or " ceiling " in line:
            break
    # The next trial has begun by then and lasts some seconds.
    time.sleep(1.5)
    tuner.send_signal(signal.SIGINT)
    if times == 2:
        time.sleep(0.2)
        tuner.send_signal(signal.SIGINT)
    out, err = tuner.communicate(timeout=120)
    if times == 1:
        assert tuner.returncode == 0, out + err
        assert result_of(tmp_path).search.stopped
    else:
        assert tuner.returncode == 130, out + err
        assert not list(tmp_path.glob("autoamp-*.json"))
        assert "goes on from there" in err
    assert rows(tmp_path, "SELECT state FROM autoamp_study") == [("stopped",)]


def test_dry_run_starts_and_writes_nothing(tmp_path: Path) -> None:
    shutil.copy(SCRIPTS / "plain_fp32.py", tmp_path)
    done = autoamp(tmp_path, "tune", "--dry-run", *FAST, "plain_fp32.py")
    assert done.returncode == 0, done.stderr
    assert "baseline" in done.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plain_fp32.py"]
    asked = ("--levels", "O1,OD")
    for gpu, words, told in (("t4", (), True), ("t4", asked, False), ("gtx1080", (), False)):
        done = autoamp(
            tmp_path, "tune", "--dry-run", "--device", f"virtual:{gpu}", *words, "plain_fp32.py"
        )
        assert ("left out    level OD" in done.stdout) == told, done.stdout + done.stderr


def test_changed_script_starts_a_new_study_and_says_why(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    shutil.copy(SCRIPTS / "plain_fp32.py", script)
    quick = ("--trials", "1", "--steps", "4", "--device", "virtual:gtx1080", "--confirm", "1")
    first = autoamp(tmp_path, "tune", *quick, "--study", "mine", "train.py")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "Pascal" in first.stdout
    script.write_text(script.read_text() + "\n# changed\n")
    refused = autoamp(tmp_path, "tune", *quick, "--study", "mine", "train.py")
    assert refused.returncode == 6
    assert "[study-mismatch]" in refused.stderr and "train.py" in refused.stderr
    new = autoamp(tmp_path, "tune", *quick, "train.py")
    assert new.returncode == 0, new.stderr
    assert "not continuing mine" in new.stdout
    config = tmp_path / "autoamp-mine.json"
    run = autoamp(tmp_path, "run", "--config", config, "train.py")
    assert run.returncode == 0, run.stderr
    assert "changed since it was tuned" in run.stderr
    over = autoamp(tmp_path, "tune", *quick, "--output", config, "train.py")
    assert over.returncode == 2 and "[output-exists]" in over.stderr


def test_a_batch_that_does_not_fit_is_halved(tmp_path: Path) -> None:
    (tmp_path / "wide.py").write_text(
        "import numpy as np, paddle\n"
        "class Rows(paddle.io.Dataset):\n"
        "    def __len__(self): return 4096\n"
        "    def __getitem__(self, i): return np.ones(4096, 'float32')\n"
        "layer = paddle.nn.Sequential(*[paddle.nn.Linear(4096, 64), paddle.nn.ReLU(),\n"
        "    paddle.nn.Linear(64, 4096)])\n"
        "optimizer = paddle.optimizer.SGD(0.01, parameters=layer.parameters())\n"
        "for x in paddle.io.DataLoader(Rows(), batch_size=512):\n"
        "    loss = ((layer(x) - x) ** 2).mean()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
        "    optimizer.clear_grad()\n"
    )
    words = ("--trials", "7", "--confirm", "1", "--device", "virtual:t4,memory=760MiB")
    words += ("--headroom", "1%")
    early = autoamp(tmp_path, "tune", *words, "--timeout", "1s", "wide.py")
    assert early.returncode == 4 and "[stopped-too-early]" in early.stderr, early.stderr
    assert "out of memory" in early.stderr and "Traceback" not in early.stderr
    done = autoamp(tmp_path, "tune", *words, "wide.py")
    assert done.returncode == 0, done.stdout + done.stderr
    found = result_of(tmp_path)
    assert "out of memory" in done.stdout and "own batch size 512" in done.stdout
    assert found.script_batch == 512
    batch = found.as_written.setting.batch_size
    assert batch is not None and batch < 512 and 512 % batch == 0
    assert found.as_written.throughput.samples_per_s
    assert any("does not fit this device" in text for text in found.caveats)
    assert found.best.setting.batch_size is not None
