"""Opening a study: a machine that drifts keeps it, and what changed is said."""

from dataclasses import replace
from pathlib import Path

import asked
import pytest
from simulated_device import machine as simulated

from autoamp import opening
from autoamp.launch import Target
from autoamp.probes.facts import Machine, NvmlGpu
from autoamp.request import Request
from autoamp.studies.script_identity import identify
from autoamp.studies.store import open_store


def t4(driver: str = "550.54", power_limit_w: float = 70.0) -> Machine:
    found = simulated()
    gpu = NvmlGpu(index=0, power_limit_w=power_limit_w, sm_clock_max_mhz=1590, ecc=True)
    return replace(
        found,
        device=replace(found.device, nvml=gpu),
        host=replace(found.host, driver_version=driver),
    )


@pytest.fixture
def request_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Request:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("pass\n")
    target = Target(
        entry="train.py", is_module=False, arguments=(), python="python", cwd=str(tmp_path)
    )
    return asked.request(target, storage=f"sqlite:///{tmp_path}/autoamp.db")


def prepared(request: Request, machine: Machine) -> opening.Prepared:
    script = identify("train.py", is_module=False, arguments=(), cwd=request.target.cwd)
    return opening.Prepared(machine=machine, script=script, ratio_band=None, band_note="")


def test_drift_is_said_and_the_study_continues(request_: Request) -> None:
    with open_store(request_.storage) as store:
        first = opening.open_study(store, request_, prepared(request_, t4()))
        again = opening.open_study(store, request_, prepared(request_, t4()))
        later = t4(driver="550.90", power_limit_w=60.0)
        drifted = opening.open_study(store, request_, prepared(request_, later))
        named = replace(request_, study=first.study.name)
        asked_for = opening.open_study(store, named, prepared(request_, later))
    assert first.new and first.notes == ()
    assert (again.new, again.notes) == (False, ())
    assert drifted.study.name == first.study.name and not drifted.new
    assert drifted.notes == (
        "since this study began: NVIDIA driver was 550.54, is 550.90 now",
        "since this study began: power limit (W) was 70.0, is 60.0 now",
    )
    assert asked_for.notes == drifted.notes


@pytest.mark.parametrize("options", ["{}", "[]", '{"conditions": {"hostname": 3}}'])
def test_a_study_without_conditions_has_no_drift(request_: Request, options: str) -> None:
    with open_store(request_.storage) as store:
        opened = opening.open_study(store, request_, prepared(request_, t4()))
    assert opening.drifted(replace(opened.study, options_json=options), t4(driver="1.0")) == ()
