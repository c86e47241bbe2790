"""A script that changes while it is tuned is seen, whatever file of it changed."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autoamp import tune
from autoamp.errors import MismatchError
from autoamp.measurement import Outcome, Phase
from autoamp.probes.facts import Identity
from autoamp.script_watch import ScriptWatch, digest
from autoamp.settings import AS_WRITTEN
from autoamp.studies.records import NewStudy, TrialState
from autoamp.studies.script_identity import identify
from autoamp.studies.store import open_store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("train.py", "config.yml", "model.py", "late.py"):
        (tmp_path / name).write_text("1\n")
    return tmp_path


@pytest.fixture
def watch(folder: Path) -> ScriptWatch:
    """The script, a file among its arguments, and a module that a trial loaded."""
    found = ScriptWatch(
        identify("train.py", is_module=False, arguments=("config.yml",), cwd=str(folder))
    )
    found.learn([str(folder / "model.py")])
    return found


def test_nothing_changed_is_nothing_said(watch: ScriptWatch, folder: Path) -> None:
    (folder / "unrelated.txt").write_text("new")
    (folder / "train.py").write_text("1\n")
    watch.check()


@pytest.mark.parametrize("name", ["train.py", "config.yml", "model.py"])
@pytest.mark.parametrize("how", ["changed", "gone"])
def test_each_file_counts(watch: ScriptWatch, folder: Path, name: str, how: str) -> None:
    if how == "gone":
        (folder / name).unlink()
    else:
        (folder / name).write_text("2\n")
    with pytest.raises(MismatchError, match=name) as caught:
        watch.check()
    assert caught.value.slug == "script-changed"


def test_what_was_seen_first_stays(watch: ScriptWatch, folder: Path) -> None:
    (folder / "model.py").write_text("2\n")
    watch.learn([str(folder / "model.py"), str(folder / "late.py")])
    assert watch.changes() == ("model.py has changed",)


def test_files_of_a_stored_study_are_watched_from_the_start(folder: Path) -> None:
    plain = identify("train.py", is_module=False, arguments=(), cwd=str(folder))
    stored = ScriptWatch(plain)
    stored.learn([str(folder / "model.py")])
    watch = ScriptWatch(plain)
    watch.cover(replace(stored.script, folder="/elsewhere"))
    watch.check()
    (folder / "model.py").write_text("2\n")
    assert watch.changes() == ("model.py has changed",)


def test_the_digest_is_of_files_and_arguments(folder: Path) -> None:
    def now(*arguments: str) -> str:
        return digest(identify("train.py", is_module=False, arguments=arguments, cwd=str(folder)))

    first = now()
    assert now() == first and now("--epochs", "2") != first
    (folder / "train.py").write_text("2\n")
    assert now() != first


def test_a_trial_on_a_changed_script_is_thrown_away(watch: ScriptWatch, folder: Path) -> None:
    runner: Any = SimpleNamespace(watch=watch, modules=())
    with open_store(f"sqlite:///{folder}/autoamp.db") as store:
        study = store.create_study(
            NewStudy(
                name="train-1",
                script_path="train.py",
                arguments=(),
                device="virtual:t4",
                machine=Identity(
                    device="virtual:t4", memory_gib=16, mig=None, paddle="3.3", cuda=None
                ),
                script=watch.script,
            )
        )
        store.start_trial(study.id, Phase.baseline, AS_WRITTEN, "planning")
        tune.same_script(store, study, runner)
        (folder / "train.py").write_text("2\n")
        with pytest.raises(MismatchError):
            tune.same_script(store, study, runner)
        (trial,) = store.trials(study.id)
    assert trial.state is TrialState.lost and trial.measurement is not None
    assert trial.measurement.outcome is Outcome.interrupted
    assert "changed" in (trial.measurement.reason or "")
