"""``autoamp plan`` as a user starts it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from real_trials import SCRIPTS


def autoamp(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "autoamp.cli.main", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
    )


TINY = "virtual:t4,memory=729MiB"
"""A fraction of a MiB beside the context: less than the script's parameters."""


def write_script(folder: Path) -> None:
    text = (SCRIPTS / "plain_fp32.py").read_text()
    (folder / "train.py").write_text(
        text.replace("Linear(16, 64)", "Linear(16, 8192)").replace(
            "Linear(64, 4)", "Linear(8192, 4)"
        )
    )


@pytest.mark.parametrize(
    ("words", "slug"),
    [
        ((), "plan-no-device"),
        (("--device", "gpu:0"), "plan-not-virtual"),
        (("--device", "auto"), "plan-not-virtual"),
        (("--device", "virtual:t4", "--device", "cpu"), "plan-not-virtual"),
        (("--device", "virtual:nonesuch"), "unknown-device"),
        (("--device", "virtual:t4,memory=lots"), "bad-device"),
        (("--device", "virtual:t4,memory=500MiB"), "virtual-memory-too-small"),
        (("--device", "virtual:t4", "--trials", "0"), "bad-option"),
        (("--device", "virtual:t4", "--timeout", "soon"), "bad-duration"),
    ],
)
def test_bad_words_end_before_anything_runs(
    words: tuple[str, ...], slug: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('never run')\n")
    done = autoamp(tmp_path, "plan", *words, "train.py")
    assert done.returncode == 2, done.stderr
    assert f"[{slug}]" in done.stderr and "Traceback" not in done.stderr
    assert "never run" not in done.stdout
    assert not (tmp_path / "autoamp.db").exists()


def test_a_script_is_needed(tmp_path: Path) -> None:
    done = autoamp(tmp_path, "plan", "--device", "virtual:t4")
    assert done.returncode == 2 and "[no-script]" in done.stderr


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    """Three GPUs: one that has everything, one without bfloat16, one that is too small."""
    folder = tmp_path_factory.mktemp("plan")
    write_script(folder)
    done = autoamp(
        folder, "plan", "--json", "--trials", "9", "--levels", "O1",
        "--device", "virtual:a100-40gb", "--device", "virtual:t4",
        "--device", TINY, "train.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout), done.stderr


@pytest.mark.slow
@pytest.mark.needs_paddle
@pytest.mark.needs_compiler
class TestPlanned:
    def test_one_row_a_gpu_in_the_order_asked_for(
        self, planned: tuple[Path, dict[str, Any], str]
    ) -> None:
        rows = planned[1]["rows"]
        assert [row["device"] for row in rows] == [
            "virtual:a100-40gb",
            "virtual:t4",
            TINY,
        ]
        for row in rows[:2]:
            assert row["samples_per_s"] > 0 and row["band"]["throughput"] > 0
            assert row["memory"]["label"] == "counted"
            assert row["float16"]["state"] in ("stable", "unstable")

    def test_refusals_and_a_gpu_too_small_are_rows_with_reasons(
        self, planned: tuple[Path, dict[str, Any], str]
    ) -> None:
        a100, t4, tiny = planned[1]["rows"]
        assert a100["bfloat16"]["state"] == "stable"
        assert t4["bfloat16"]["state"] == "refused" and "8.0" in t4["bfloat16"]["reason"]
        assert tiny["problem"]["slug"] == "baseline-out-of-memory"
        assert tiny["samples_per_s"] is None

    def test_emulated_runs_are_made_once(self, planned: tuple[Path, dict[str, Any], str]) -> None:
        folder, table, _ = planned
        done = autoamp(folder, "studies", "trials", "--json", table["rows"][1]["study"])
        trials = json.loads(done.stdout)
        trials = trials["trials"] if isinstance(trials, dict) else trials
        sources = [t["measurement"]["taken_from"] for t in trials if t["numerics"] == "full"]
        assert sources and any(source for source in sources)
        assert all(
            t["measurement"]["taken_from"] is None for t in trials if t["numerics"] != "full"
        )

    def test_a_second_plan_is_answered_from_the_history(
        self, planned: tuple[Path, dict[str, Any], str]
    ) -> None:
        folder, table, _ = planned
        done = autoamp(
            folder, "plan", "--trials", "9", "--levels", "O1",
            "--device", "virtual:t4", "--device", "virtual:a100-40gb", "train.py",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        listed = json.loads(autoamp(folder, "studies", "list", "--json").stdout)
        listed = listed["studies"] if isinstance(listed, dict) else listed
        assert len(listed) == 3
        assert "samples/s modelled" in done.stdout and "fastest by the model" in done.stdout
        assert table["rows"][1]["recipe"] in done.stdout

    def test_the_folder_holds_nothing_but_the_history(
        self, planned: tuple[Path, dict[str, Any], str]
    ) -> None:
        names = {path.name for path in planned[0].iterdir()}
        assert names <= {"train.py", ".autoamp", "autoamp.db", "autoamp.db-wal", "autoamp.db-shm"}


@pytest.mark.slow
@pytest.mark.needs_paddle
@pytest.mark.needs_compiler
def test_no_gpu_that_fits_is_an_error(tmp_path: Path) -> None:
    write_script(tmp_path)
    done = autoamp(tmp_path, "plan", "--device", TINY, "train.py")
    assert done.returncode == 4 and "[baseline-out-of-memory]" in done.stderr
    assert "Traceback" not in done.stderr
