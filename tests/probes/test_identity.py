"""What a study belongs to: stable over reboots, indexes and drivers; what drifts is said."""

import copy
from dataclasses import replace
from typing import Any

import fake_nvml
import machine_files
import pytest

from autoamp.probes.facts import Identity
from autoamp.probes.identity import conditions, drift, minor


def identity_of(monkeypatch: pytest.MonkeyPatch, machine: dict[str, Any], **how: Any) -> Identity:
    return machine_files.assembled(monkeypatch, machine, **how).identity


def test_it_survives_reboot_slot_driver_and_power_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fake_nvml.load("a100-exclusive")
    after = copy.deepcopy(before)
    after["driver_version"] = "580.200.01"
    after["host"]["hostname"] = "renamed"
    for gpu in after["gpus"]:
        gpu.update(power_limit_w=250.0, sm_clock_mhz=210, bus_id="00000000:99:00.0", processes=[])
        gpu["memory_mib"] = {"total": gpu["memory_mib"]["total"] - 300, "used": 9000}
    after["gpus"].reverse()
    assert identity_of(monkeypatch, before) == identity_of(monkeypatch, after)
    # Equal GPUs of one machine share results.
    assert identity_of(monkeypatch, before, device="gpu:0") == identity_of(
        monkeypatch, before, device="gpu:1"
    )


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"full_version": "3.2.0"}, "paddle"),
        ({"cuda_version": "12.9"}, "cuda"),
    ],
)
def test_it_changes_with_paddle_and_cuda(
    change: dict[str, str], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = fake_nvml.load("h100-idle")
    before = identity_of(monkeypatch, machine)
    after = identity_of(monkeypatch, {**machine, "paddle": {**machine["paddle"], **change}})
    (said,) = after.differences(before)
    assert said.startswith(f"{field}: ")


def test_a_patch_release_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fake_nvml.load("h100-idle")
    patched = {**machine, "paddle": {**machine["paddle"], "full_version": "3.1.7"}}
    assert identity_of(monkeypatch, machine) == identity_of(monkeypatch, patched)


def test_mig_shape_and_virtual_options_are_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    mig = identity_of(monkeypatch, fake_nvml.load("a100-mig"))
    assert mig.mig == "1g.10gb" and mig.memory_gib == 10
    no_gpu = fake_nvml.load("no-gpu")
    names = {
        identity_of(monkeypatch, no_gpu, device=device).device
        for device in (
            "virtual:t4",
            "virtual:t4,memory=4GiB",
            "virtual:t4,numerics=off",
            "virtual:v100-16gb",
            "cpu",
        )
    }
    assert len(names) == 5


def test_a_size_is_named_as_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    no_gpu = fake_nvml.load("no-gpu")
    for device in ("virtual:t4,memory=900MiB", "virtual:t4,memory=2GiB,numerics=off"):
        assert identity_of(monkeypatch, no_gpu, device=device).device == device


def test_an_instance_uuid_is_no_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """MIG instances get new UUIDs at every reboot."""
    machine = fake_nvml.load("a100-mig")
    before = identity_of(monkeypatch, machine)
    for number, instance in enumerate(machine["gpus"][0]["mig_instances"]):
        instance["uuid"] = f"MIG-new-{number}"
    assert identity_of(monkeypatch, machine) == before


def test_drifts_are_said_and_do_not_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fake_nvml.load("h100-idle")
    before = machine_files.assembled(monkeypatch, machine)
    changed = copy.deepcopy(machine)
    changed["driver_version"] = "550.90.07"
    changed["gpus"][0]["power_limit_w"] = 500.0
    after = machine_files.assembled(monkeypatch, changed)
    assert after.identity == before.identity
    said = drift(conditions(before), conditions(after))
    assert len(said) == 2
    assert any("550.54.15" in s and "550.90.07" in s for s in said)
    assert any("700" in s and "500" in s for s in said)
    assert drift(conditions(before), conditions(before)) == ()
    # What is unknown on one side is no drift.
    unknown = replace(conditions(before), driver=None, power_limit_w=None)
    assert drift(unknown, conditions(after)) == ()


@pytest.mark.parametrize(
    ("version", "text"),
    [("3.3.1", "3.3"), ("2.6.2.post120", "2.6"), ("12.6", "12.6"), (None, None), ("dev", "dev")],
)
def test_minor(version: str | None, text: str | None) -> None:
    assert minor(version) == text
