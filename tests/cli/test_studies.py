"""``autoamp studies`` as a user runs it: a real process, its output and its exit code."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from autoamp.measurement import Label, LossScale, Measurement, Outcome, Phase
from autoamp.probes.facts import Identity
from autoamp.report import history
from autoamp.settings import AS_WRITTEN, Dtype, Level, Setting
from autoamp.studies.lease import acquire
from autoamp.studies.records import NewStudy, StudySummary
from autoamp.studies.script_identity import FileHash, ScriptIdentity
from autoamp.studies.store import open_store

MAIN = "from autoamp.cli.main import main; main()"
O2 = Setting(
    batch_size=192,
    amp_level=Level.O2,
    dtype=Dtype.float16,
    init_loss_scaling=32768.0,
    custom_black_list=("softmax",),
)
OK = Measurement(
    outcome=Outcome.ok,
    time_label=Label.modelled,
    memory_label=Label.counted,
    batch_size=192,
    throughput_samples_per_s=250.0,
    memory_reserved_peak_bytes=12 * 2**30,
    skipped_steps=1,
    loss_scales=(LossScale(step=0, value=32768.0),),
    losses=(1.0, float("nan")),
)


def autoamp(
    *arguments: str, cwd: Path, columns: int | None = None, **environment: str
) -> "subprocess.CompletedProcess[str]":
    env = {k: v for k, v in os.environ.items() if k not in ("AUTOAMP_STORAGE", "COLUMNS")}
    if columns is not None:
        env["COLUMNS"] = str(columns)
    return subprocess.run(
        [sys.executable, "-c", MAIN, *arguments],
        cwd=cwd,
        env={**env, **environment},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def test_rows_of_an_older_database_name_the_device_with_its_options(tmp_path: Path) -> None:
    full = Identity(
        device="virtual:t4,memory=2GiB,numerics=off", memory_gib=2, mig=None, paddle="3", cuda=None
    )
    with open_store(f"sqlite:///{tmp_path}/autoamp.db") as store:
        store.create_study(new("old", "train.py", device="virtual:t4", machine=full))
        assert store.study("old").device == full.device
    assert full.device in autoamp("studies", "list", cwd=tmp_path).stdout
    page = autoamp("studies", "show", "old", cwd=tmp_path).stdout
    assert full.device in page and " GiB" not in page


def new(name: str, script_path: str, **values: object) -> NewStudy:
    script = ScriptIdentity(
        entry=Path(script_path).name,
        is_module=False,
        arguments=("--epochs", "90", "a b"),
        files=(FileHash(path=Path(script_path).name, sha256="0" * 64),),
        folder="/home/user/project",
    )
    fields: dict[str, object] = {
        "name": name,
        "script_path": script_path,
        "arguments": script.arguments,
        "device": "virtual:a100-40gb",
        "machine": Identity(
            device="virtual:a100-40gb", memory_gib=40, mig=None, paddle="3.3", cuda=None
        ),
        "script": script,
        "options_json": '{"trials": 24, "timeout_s": 1800.0, "levels": ["O1", "O2"], "x": null}',
    }
    return NewStudy(**{**fields, **values})  # type: ignore[arg-type]  # fields by name


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose ``autoamp.db`` holds a finished study, an empty one and a killed one."""
    folder = tmp_path_factory.mktemp("history")
    with open_store(f"sqlite:///{folder}/autoamp.db") as store:
        study = store.create_study(new("train-3f2a", "训练 脚本/train.py"))
        for phase, setting, measurement in (
            (Phase.baseline, AS_WRITTEN, replace(OK, batch_size=32)),
            (Phase.baseline, Setting(amp_level=Level.O0), replace(OK, batch_size=32)),
            (Phase.ceiling, replace(O2, batch_size=512), None),
            (Phase.search, O2, replace(OK, throughput_samples_per_s=400.0)),
        ):
            trial = store.start_trial(study.id, phase, setting, "planning")
            failed = Measurement(outcome=Outcome.out_of_memory, reason="needs 41.0 GiB\nof 40")
            store.finish_trial(trial.id, measurement or failed)
        store.set_state(study.id, "done")
        store.set_state(store.create_study(new("empty", "empty.py")).id, "failed")
        store.create_study(new("killed", "killed.py"))
    return folder


@pytest.fixture
def copy(filled: Path, tmp_path: Path) -> Path:
    shutil.copy(filled / "autoamp.db", tmp_path)
    return tmp_path


def test_list(filled: Path) -> None:
    done = autoamp("studies", "list", cwd=filled)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].split() == [
        *("study", "script", "device", "trials", "best", "vs", "FP32", "state", "when")
    ]
    assert [line.split()[0] for line in lines[1:4]] == ["killed", "empty", "train-3f2a"]
    assert "训练 脚本/train.py" in lines[3]
    assert "O2 fp16 192" in lines[3] and "1.60x m" in lines[3] and lines[3].endswith("just now")
    assert "stopped (killed)" in lines[1]
    assert lines[-1] == "m = modelled"


def test_list_json(filled: Path) -> None:
    done = autoamp("studies", "list", "--json", cwd=filled)
    found = json.loads(done.stdout)
    assert found["schema"] == history.SCHEMA
    (first, _, killed) = found["studies"]
    assert first["name"] == "train-3f2a"
    assert first["best"]["custom_black_list"] == ["softmax"]
    assert first["best_against_fp32"] == 1.6
    assert first["time_label"] == "modelled"
    assert killed["state"] == "stopped (killed)"
    assert killed["best"] is None


def test_trials(filled: Path) -> None:
    done = autoamp("studies", "trials", "train-3f2a", cwd=filled)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 1 + 4 + 2
    assert lines[3].endswith("out of memory: needs 41.0 GiB")
    search = lines[4].split()
    assert search[:7] == ["3", "search", "O2", "float16", "192", "2^15", "-softmax"]
    assert search[7:] == [*("400", "m", "1.60x", "m", "12.0", "GiB", "c", "1", "ok")]
    assert lines[-1] == "m = modelled   c = counted"


def test_trials_json_is_strict_json(filled: Path) -> None:
    done = autoamp("studies", "trials", "train-3f2a", "--json", cwd=filled)
    found = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert found["study"] == "train-3f2a"
    assert [t["number"] for t in found["trials"]] == [0, 1, 2, 3]
    last = found["trials"][3]
    assert last["setting"]["amp_level"] == "O2"
    assert last["measurement"]["throughput_samples_per_s"] == 400.0
    assert last["measurement"]["losses"] == [1.0, "nan"]
    assert datetime.fromisoformat(last["finished_at"]).utcoffset() == timedelta(0)


def test_show(filled: Path) -> None:
    done = autoamp("studies", "show", "train-3f2a", cwd=filled)
    assert (done.returncode, done.stderr) == (0, "")
    text = done.stdout
    for part in (
        "train-3f2a   done",
        "virtual:a100-40gb, 40 GiB, paddle 3.3",
        "训练 脚本/train.py --epochs 90 'a b'",
        "trials 24, timeout_s 1800.0, levels O1,O2",
        "no recommendation yet",
    ):
        assert part in text
    table = [line.split() for line in text.splitlines()[-4:]]
    assert table == [
        ["trials", "ok", "out", "of", "memory"],
        ["baseline", "2", "-"],
        ["ceiling", "-", "1"],
        ["search", "1", "-"],
    ]


def test_show_json(filled: Path) -> None:
    found = json.loads(autoamp("studies", "show", "train-3f2a", "--json", cwd=filled).stdout)
    assert found["machine"]["paddle"] == "3.3"
    assert found["script"]["files"][0]["path"] == "train.py"
    assert found["options"]["levels"] == ["O1", "O2"]
    assert found["trials_by_phase"] == {
        "baseline": {"ok": 2},
        "ceiling": {"out_of_memory": 1},
        "search": {"ok": 1},
    }
    assert found["recommendation"] is None


def test_show_names_a_recommendation_it_cannot_read(copy: Path) -> None:
    with open_store(f"sqlite:///{copy}/autoamp.db") as store:
        store.save_recommendation(store.study("train-3f2a").id, '{"schema_version": 99}')
    done = autoamp("studies", "show", "train-3f2a", cwd=copy)
    assert done.returncode == 0
    assert "expected schema 1 or older, found 99" in done.stdout


def test_a_live_tuner_is_shown(copy: Path) -> None:
    with open_store(f"sqlite:///{copy}/autoamp.db") as store:
        study = store.study("killed")
        with acquire(store, study.id):
            running = autoamp("studies", "show", "killed", cwd=copy).stdout
    killed = autoamp("studies", "show", "killed", cwd=copy).stdout
    assert "killed   running" in running
    assert f"process {os.getpid()} on " in running
    assert "killed   stopped (killed)" in killed
    assert f"process {os.getpid()}" not in killed


@pytest.mark.parametrize("command", [("show", "nope"), ("trials", "nope")])
def test_unknown_study(filled: Path, command: tuple[str, ...]) -> None:
    done = autoamp("studies", *command, cwd=filled)
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown-study" in done.stderr and "train-3f2a" in done.stderr


@pytest.mark.parametrize("command", [("list",), ("show", "x"), ("trials", "x")])
def test_looking_creates_no_database(tmp_path: Path, command: tuple[str, ...]) -> None:
    done = autoamp("studies", *command, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (5, "")
    assert "storage-missing" in done.stderr and "autoamp tune" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_looking_changes_nothing(copy: Path) -> None:
    before = (copy / "autoamp.db").read_bytes()
    for command in (("list",), ("show", "train-3f2a"), ("trials", "train-3f2a")):
        assert autoamp("studies", *command, cwd=copy).returncode == 0
    assert (copy / "autoamp.db").read_bytes() == before
    assert [p.name for p in copy.iterdir()] == ["autoamp.db"]


def test_storage_by_option_and_environment(filled: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{filled}/autoamp.db"
    by_option = autoamp("studies", "list", "--storage", url, cwd=tmp_path)
    by_variable = autoamp("studies", "list", cwd=tmp_path, AUTOAMP_STORAGE=url)
    assert by_option.returncode == by_variable.returncode == 0
    assert "train-3f2a" in by_option.stdout and "train-3f2a" in by_variable.stdout


def test_a_bad_file_is_exit_5_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "autoamp.db").write_text("hello")
    done = autoamp("studies", "list", cwd=tmp_path)
    assert done.returncode == 5
    assert "storage-corrupt" in done.stderr and "Traceback" not in done.stderr


def test_a_terminal_that_knows_no_chinese(filled: Path) -> None:
    done = autoamp("studies", "list", cwd=filled, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "?? ??/train.py" in done.stdout


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 200])
def test_narrow_terminals(filled: Path, columns: int) -> None:
    done = autoamp("studies", "list", cwd=filled, columns=columns)
    assert done.returncode == 0
    widest = max(map(history.cells, done.stdout.splitlines()))
    natural = max(map(history.cells, autoamp("studies", "list", cwd=filled).stdout.splitlines()))
    # Numbers and states are never cut: below 80 columns the terminal wraps.
    assert widest <= max(columns, 80) or widest == natural <= columns
    assert "1.60x m" in done.stdout


def test_a_reader_that_leaves_early(filled: Path) -> None:
    done = subprocess.run(
        f"'{sys.executable}' -c '{MAIN}' studies list | true",
        shell=True,
        cwd=filled,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""


def test_imports_of_list_stay_few(filled: Path) -> None:
    """The heavy ones take longer than the whole command may."""
    body = (
        "import atexit, sys\n"
        "heavy = 'sqlalchemy alembic optuna numpy paddle'.split()\n"
        "atexit.register(lambda: print([m for m in heavy if m in sys.modules], file=sys.stderr))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", body + MAIN, "studies", "list"],
        cwd=filled,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.strip() == "[]"


class TestWords:
    NOW = datetime(2026, 7, 15, 12, 0, tzinfo=timezone.utc)

    @pytest.mark.parametrize(
        ("seconds", "words"),
        [
            *[(-5, "just now"), (0, "just now"), (59, "just now"), (60, "1 min ago")],
            *[(3599, "60 min ago"), (3600, "1 h ago"), (86400 * 1.4, "yesterday")],
            *[(86400 * 5, "5 days ago"), (86400 * 40, "2026-06-05")],
        ],
    )
    def test_ago(self, seconds: float, words: str, utc: None) -> None:
        assert history.ago(self.NOW - timedelta(seconds=seconds), self.NOW) == words

    @pytest.fixture
    def utc(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        import time

        monkeypatch.setenv("TZ", "UTC")
        time.tzset()
        yield
        monkeypatch.undo()
        time.tzset()

    @pytest.mark.parametrize("text", ["", "abc", "训练.py", "é", "a训b练c"])
    @pytest.mark.parametrize("width", [1, 2, 3, 5, 40])
    def test_cut_fits(self, text: str, width: int) -> None:
        for keep_end in (False, True):
            cut = history.cut(text, width, keep_end=keep_end)
            assert history.cells(cut) <= width
            assert (cut == text) == (history.cells(text) <= width)

    def test_columns_align_by_cells(self) -> None:
        text = history.columns(
            [("a", "bb", "1"), ("训练", "b", "22")], right={2}, shrink=(), width=None
        )
        assert text == "a     bb   1\n训练  b   22\n"

    def test_a_study_without_anything(self) -> None:
        summary = StudySummary(
            id=1,
            name="x",
            script_path="x.py",
            device="cpu",
            state="failed",
            trials=0,
            best=None,
            best_throughput_samples_per_s=None,
            best_against_fp32=None,
            time_label=None,
            has_recommendation=False,
            created_at=self.NOW,
            updated_at=self.NOW,
        )
        text = history.studies_table([summary], now=self.NOW, width=None)
        assert text.splitlines()[1].split() == [
            *("x", "x.py", "cpu", "0", "-", "-", "failed", "just", "now")
        ]


def test_a_run_of_another_study_shows_its_source_and_no_rate(tmp_path: Path) -> None:
    amp = replace(O2, batch_size=32)
    with open_store(f"sqlite:///{tmp_path}/autoamp.db") as store:
        study = store.create_study(new("train-3f2a", "train.py"))
        for setting, numerics, measurement in (
            (Setting(amp_level=Level.O0), "planning", replace(OK, batch_size=32)),
            (amp, "full", replace(OK, throughput_samples_per_s=777.0)),
            (amp, "full", replace(OK, throughput_samples_per_s=None, taken_from="a100, trial 4")),
        ):
            trial = store.start_trial(study.id, Phase.numerics, setting, numerics)
            store.finish_trial(trial.id, measurement)
    done = autoamp("studies", "trials", "train-3f2a", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    planned, own, taken = done.stdout.splitlines()[1:4]
    assert " 250 m " in planned
    assert "777" not in own and own.endswith("ok")
    assert taken.endswith("ok (from a100, trial 4)")
