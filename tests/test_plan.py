"""``autoamp plan`` as a user starts it."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import asked
import pytest
from real_trials import SCRIPTS
from simulated_device import Simulated, drive, virtual

from autoamp import errors
from autoamp import plan as plans
from autoamp.cli.main import main
from autoamp.launch import Target
from autoamp.opening import Prepared
from autoamp.request import Interrupted, Request, Stops
from autoamp.studies import plan_table, recommend
from autoamp.studies.records import Study
from autoamp.studies.script_identity import identify
from autoamp.tune import Tuned


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


class Heard:
    """A view that notes the rows."""

    def __init__(self) -> None:
        self.rows: list[plan_table.PlanRow] = []

    def device_finished(self, row: plan_table.PlanRow) -> None:
        self.rows.append(row)

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


class FakeTune:
    """``tune`` that ends as it is told for each device; None: with a recommendation."""

    def __init__(self, folder: Path, ends: dict[str, BaseException | None]) -> None:
        self.ends, self.asked = ends, list[str]()
        (folder / "train.py").write_text("pass\n")
        self.script = identify("train.py", is_module=False, arguments=(), cwd=str(folder))
        self.target = Target(
            entry="train.py", is_module=False, arguments=(), python="python", cwd=str(folder)
        )
        self.finished = drive(Simulated(virtual=True), virtual()).result

    def prepare(self, request: Request) -> Prepared:
        return Prepared(
            machine=self.finished.machine, script=self.script, ratio_band=0.1, band_note=""
        )

    def __call__(self, request: Request, *rest: Any) -> Tuned:
        self.asked.append(request.device)
        end = self.ends.get(request.device)
        if end is not None:
            raise end
        found = recommend.build(
            self.finished, study="s", script=self.script, command="train.py", wall_s=1.0
        )
        study: Study = None  # type: ignore[assignment]  # a plan does not look at it
        return Tuned(
            study=study, result=self.finished, recommendation=found, path=None, wall_s=1.0
        )


@pytest.fixture
def run_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def start(
        ends: dict[str, BaseException | None], stops: Stops | None = None
    ) -> tuple[plans.Planned, Heard]:
        fake, view = FakeTune(tmp_path, ends), Heard()
        monkeypatch.setattr(plans, "tune", fake)
        monkeypatch.setattr(plans, "prepare", fake.prepare)
        request = asked.request(fake.target, device="")
        return plans.plan(request, list(ends), view, stops or Stops()), view

    return start


A, B, C = "virtual:t4", "virtual:v100-32gb", "virtual:a100-40gb"


@pytest.mark.parametrize("kind", [errors.MachineError, errors.ScriptError, errors.AutoampError])
def test_what_fails_on_one_gpu_is_its_row_and_the_others_go_on(
    kind: type[errors.AutoampError], run_plan: Any
) -> None:
    planned, view = run_plan({A: None, B: kind("boom\nlog", slug="any", remedy="cure"), C: None})
    rows = planned.table.rows
    assert [row.problem is None for row in rows] == [True, False, True]
    assert rows[1].problem.message == "boom" and rows[1].problem.slug == "any"
    assert planned.error is None and not planned.interrupted
    assert view.rows == list(rows)


@pytest.mark.parametrize("kind", plans.OF_THE_PLAN)
def test_what_ends_a_plan_leaves_the_finished_rows(
    kind: type[errors.AutoampError], run_plan: Any
) -> None:
    planned, _ = run_plan({A: None, B: kind("boom", slug="any"), C: None})
    assert [row.device for row in planned.table.rows] == [A]
    assert planned.table.stopped == "boom"
    assert isinstance(planned.error, kind)
    with pytest.raises(kind):
        run_plan({A: kind("boom", slug="any"), B: None})


def test_if_all_fail_the_first_error_is_the_plans(run_plan: Any) -> None:
    first = errors.ScriptError("one", slug="one")
    with pytest.raises(errors.ScriptError, match="one"):
        run_plan({A: first, B: errors.MachineError("two", slug="two")})


def test_stopped_at_once_with_a_row_is_told_apart(run_plan: Any) -> None:
    planned, _ = run_plan({A: None, B: Interrupted()})
    assert planned.interrupted and len(planned.table.rows) == 1
    with pytest.raises(Interrupted):
        run_plan({A: Interrupted(), B: None})


def test_stopped_after_a_trial_ends_before_the_next_gpu(run_plan: Any) -> None:
    planned, _ = run_plan({A: None, B: None}, Stops(after_trial=True))
    assert len(planned.table.rows) == 1 and not planned.interrupted
    assert planned.table.stopped == plans.STOPPED


def test_one_gpu_is_planned_for_once_however_it_is_spelt(run_plan: Any) -> None:
    names = (A, "virtual:T4", " virtual:t4", "virtual:t4,memory=16GiB", "virtual:t4,memory=8GiB")
    planned, _ = run_plan(dict.fromkeys(names))
    assert [row.device for row in planned.table.rows] == [A, "virtual:t4,memory=8GiB"]


def test_a_script_that_changes_between_two_gpus_ends_the_plan(
    run_plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Editor(FakeTune):
        def __call__(self, request: Request, *rest: Any) -> Tuned:
            (tmp_path / "train.py").write_text("changed\n")
            return super().__call__(request, *rest)

    monkeypatch.setattr(sys.modules[__name__], "FakeTune", Editor)
    planned, _ = run_plan({A: None, B: None})
    assert len(planned.table.rows) == 1
    assert planned.error is not None and planned.error.slug == "script-changed"


def test_labels_are_those_of_the_rows(run_plan: Any) -> None:
    planned, _ = run_plan({A: None})
    assert {"counted", "modelled", "emulated"} <= set(planned.table.labels)
    assert set(planned.table.labels) <= set(recommend.LABELS)


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ({}, 0),
        ({"interrupted": True}, errors.EXIT_INTERRUPTED),
        ({"error": errors.MismatchError("boom", slug="any")}, errors.EXIT_MISMATCH),
    ],
    ids=["to the end", "Ctrl-C twice", "error"],
)
def test_rows_are_printed_before_the_exit_code(
    ending: dict[str, Any],
    code: int,
    as_json: bool,
    run_plan: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended = replace(run_plan({A: None})[0], **ending)
    monkeypatch.setattr(plans, "plan", lambda *rest: ended)
    words = ["--json"] if as_json else []
    script = str(tmp_path / "train.py")
    monkeypatch.setattr(sys, "argv", ["autoamp", "plan", "--device", A, *words, script])
    with pytest.raises(SystemExit) as caught:
        main()
    assert (caught.value.code or 0) == code
    said = capsys.readouterr()
    assert A in said.out
    if as_json:
        assert json.loads(said.out)["rows"][0]["device"] == A
    else:
        assert f"autoamp tune --device {A} {script}" in said.out
    assert ("boom [any]" in said.err) == ("error" in ending)


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
        assert "samples/s modelled" in done.stdout
        # Nine trials do not end the climb of so small a script.
        assert "no fastest GPU is named" in done.stdout
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
