"""The whole probe over every machine of tests/machines."""

import copy
import io
from dataclasses import fields, replace
from typing import Any

import fake_nvml
import machine_files
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from autoamp.errors import MachineError, UsageError
from autoamp.probes import machine as probe_machine
from autoamp.probes.facts import DeviceKind, Machine, Severity
from autoamp.report import machine as report
from autoamp.settings import Dtype, Level

MIB, GIB = 2**20, 2**30
MACHINES = pytest.mark.parametrize("name", fake_nvml.names())
TUNED = ("O0 float32", "O1 float16", "O1 bfloat16", "O2 float16", "O2 bfloat16")


def assembled(monkeypatch: pytest.MonkeyPatch, name: str, **how: Any) -> Machine:
    return machine_files.assembled(monkeypatch, fake_nvml.load(name), **how)


def slugs(machine: Machine, severity: Severity | None = None) -> set[str]:
    return {p.slug for p in machine.problems if severity in (None, p.severity)}


def printed(machine: Machine) -> str:
    console = Console(file=io.StringIO(), width=400, color_system=None)
    report.print_machine(console, machine)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@MACHINES
def test_expectations(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expect = fake_nvml.load(name)["expect"]
    found = assembled(monkeypatch, name)
    if "alias" in expect:
        model = None if found.device.kind is DeviceKind.virtual else found.device.model
        assert (model.alias if model else None) == expect["alias"]
    if "mig" in expect:
        assert found.device.mig == expect["mig"]
    if "allowed" in expect:
        verdicts = {f"{v.level} {v.dtype}": v for v in found.verdicts}
        assert [v for v in TUNED if verdicts[v].allowed] == expect["allowed"]
        forcible = [v for v in TUNED if verdicts[v].forcible]
        assert forcible == expect.get("forcible", [])
    if "problems" in expect:
        assert set(expect["problems"]) <= slugs(found)
    blockers = slugs(found, Severity.blocker)
    assert blockers == set(expect.get("blockers", ())), blockers


@MACHINES
def test_json_and_text_of_every_machine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = assembled(monkeypatch, name)
    assert msgspec.json.decode(report.as_json(found).encode(), type=Machine) == found
    text = printed(found)
    for problem in found.problems:
        assert f"{problem.sentence} [{problem.slug}]" in text and problem.remedy in text
    for device in (found.device, *found.devices):
        assert device.name in text
    for verdict in found.verdicts:
        assert verdict.reason in text


@MACHINES
def test_problems_are_whole_and_in_order(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problems = assembled(monkeypatch, name).problems
    order = [Severity.blocker, Severity.warning, Severity.note]
    ranks = [order.index(p.severity) for p in problems]
    assert ranks == sorted(ranks)
    assert len({p.slug for p in problems}) == len(problems)
    for problem in problems:
        assert problem.sentence.endswith(".") and len(problem.sentence) > 20
        assert problem.remedy and not problem.remedy.startswith(" ")


def without_reason(thing: Any) -> set[str]:
    return {
        f.name
        for f in fields(thing)
        if getattr(thing, f.name) is None and f.name not in thing.absent
    }


@MACHINES
@pytest.mark.parametrize("device", [None, "cpu", "virtual:t4"])
def test_nothing_is_absent_without_a_reason(
    name: str, device: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = assembled(monkeypatch, name, device=device)
    for seen in (found.device, *found.devices):
        assert not without_reason(seen)
        assert seen.nvml is None or not without_reason(seen.nvml)
    assert not without_reason(found.paddle)
    host = replace(found.host, absent={**found.host.absent, "jetson": "not one of the file"})
    assert not without_reason(host) - {"driver_version", "driver_cuda_version"}


FIELDS = (
    "name",
    "uuid",
    "bus_id",
    "architecture",
    "compute_capability",
    "memory_mib",
    "ecc",
    "mig_mode",
    "power_w",
    "power_limit_w",
    "power_limit_default_w",
    "sm_clock_mhz",
    "throttle_bits",
    "pcie_width",
    "pcie_width_max",
    "compute_mode",
    "processes",
)


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    name=st.sampled_from(fake_nvml.names()),
    missing=st.sets(st.sampled_from(FIELDS)),
    error=st.sampled_from(["NOT_SUPPORTED", "UNKNOWN", "GPU_IS_LOST", "FUNCTION_NOT_FOUND"]),
    no_driver_facts=st.booleans(),
    without_paddle=st.sets(
        st.sampled_from(["installed", "full_version", "cuda_version", "cudnn_version", "found"])
    ),
    setting=st.sampled_from([None, "", "0", "1", "GPU-1", "MIG-f"]),
)
def test_no_combination_of_absent_facts_raises(
    name: str,
    missing: set[str],
    error: str,
    no_driver_facts: bool,
    without_paddle: set[str],
    setting: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = copy.deepcopy(fake_nvml.load(name))
    for gpu in machine["gpus"]:
        for device in (gpu, *gpu.get("mig_instances", ())):
            for field in missing & set(device):
                device[field] = {"error": error}
    if no_driver_facts:
        machine["driver_version"] = machine["cuda_driver_version"] = {"error": error}
    for field in without_paddle:
        machine["paddle"].pop(field, None)
    environment = {} if setting is None else {"CUDA_VISIBLE_DEVICES": setting}
    found = machine_files.assembled(monkeypatch, machine, environment=environment)
    printed(found)
    assert msgspec.json.decode(report.as_json(found).encode(), type=Machine) == found


def test_auto_without_a_gpu_plans_for_the_calibrated_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = assembled(monkeypatch, "no-gpu")
    assert found.device.kind is DeviceKind.virtual
    assert found.identity.device == "virtual:v100-32gb"
    assert "virtual" in found.device_reason


def test_an_idle_gpu_of_the_same_model_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fake_nvml.load("gpu-lost")
    machine["gpus"][0]["processes"] = [{"pid": 4194000, "mib": 9000}]
    found = machine_files.assembled(monkeypatch, machine)
    assert found.device.paddle_name == "gpu:1" and "gpu-busy" not in slugs(found)


def test_a_device_asked_for_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MachineError) as caught:
        assembled(monkeypatch, "t4", device="gpu:3")
    assert caught.value.slug == "device-not-found" and "Tesla T4" in caught.value.message
    with pytest.raises(MachineError) as caught:
        assembled(monkeypatch, "no-gpu", device="gpu:0")
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("name", ["cpu-paddle-on-gpu", "driver-too-old", "gpu-lost-later"])
@pytest.mark.parametrize("device", ["virtual:t4", "cpu"])
def test_another_device_asked_for_by_name_is_not_blocked(
    name: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = assembled(monkeypatch, name, device=device)
    assert not slugs(found, Severity.blocker) and slugs(found, Severity.note)


def test_virtual_pascal_refuses_on_any_laptop(monkeypatch: pytest.MonkeyPatch) -> None:
    found = assembled(monkeypatch, "no-gpu", device="virtual:gtx1080")
    verdict = found.verdict(Level.O1, Dtype.float16)
    assert verdict is not None and not verdict.allowed and not verdict.forcible
    assert "6.1" in verdict.reason and "1/64" in verdict.reason
    assert "FP32" in (verdict.instead or "")


def test_visible_devices_number_the_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    by_index = assembled(
        monkeypatch, "mixed-generations", environment={"CUDA_VISIBLE_DEVICES": "1,0"}
    )
    assert [d.name for d in by_index.devices] == [
        "NVIDIA GeForce RTX 3090",
        "NVIDIA GeForce GTX 1080",
    ]
    assert by_index.device.model is not None and by_index.device.model.alias == "rtx3090"
    uuid = "MIG-50f1c4c9-1508-5e8d-bb06-d08145b22e01"
    mig = assembled(monkeypatch, "a100-mig", environment={"CUDA_VISIBLE_DEVICES": uuid})
    assert [d.uuid for d in mig.devices] == [uuid]
    hidden = assembled(monkeypatch, "t4", environment={"CUDA_VISIBLE_DEVICES": ""})
    assert hidden.devices == () and "gpus-hidden" in slugs(hidden)
    assert hidden.device.kind is DeviceKind.virtual


def test_unified_memory_is_the_hosts_and_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    device = assembled(monkeypatch, "jetson-orin").device
    assert device.memory_total_bytes == 62841 * MIB
    assert any("shared" in reason for reason in device.absent.values())


def test_memory_that_nvml_does_not_give_is_the_data_sheets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = assembled(monkeypatch, "wsl-no-memory").device
    assert device.memory_total_bytes == 24 * GIB
    assert any("catalogue" in reason for reason in device.absent.values())


def test_an_unknown_gpu_is_judged_by_its_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    found = assembled(monkeypatch, "unknown-new-gpu")
    assert found.device.model is None and found.device.tensor_core_generation == 5
    assert "not in the catalogue" in found.device.absent["model"]


@pytest.mark.parametrize("name", ["gtx1660-ti", "wsl"])
def test_advice_is_overridden_loudly(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = assembled(monkeypatch, name, allow_unsupported=True).verdict(Level.O1, Dtype.float16)
    assert verdict is not None and verdict.allowed and verdict.forcible
    assert "--allow-unsupported" in verdict.reason and "against this advice" in verdict.reason


@pytest.mark.parametrize("name", ["p100", "gtx1080", "k80"])
def test_paddles_own_gate_stays_closed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = assembled(monkeypatch, name, allow_unsupported=True).verdict(Level.O1, Dtype.float16)
    assert verdict is not None and not verdict.allowed
    assert "--allow-unsupported cannot" in verdict.reason


def test_a_broken_name_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(UsageError):
        probe_machine.probe("virtual:")


@pytest.mark.parametrize(
    ("environment", "chosen"),
    [
        # CUDA's own numbering begins with the fastest: plain python would train there.
        ({}, "rtx3090"),
        ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, "rtx3090"),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "gtx1080"),
        # The user's own order holds.
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, "gtx1080"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, "rtx3090"),
    ],
)
def test_auto_takes_the_gpu_that_a_program_without_choice_would_get(
    environment: dict[str, str], chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = assembled(monkeypatch, "mixed-generations", environment=environment)
    assert found.device.model is not None and found.device.model.alias == chosen
    assert ("CUDA begins with it" in found.device_reason) == (
        chosen == "rtx3090" and "CUDA_VISIBLE_DEVICES" not in environment
    )
