"""NVML: every query gives a value or its reason, and no failure hides another."""

import copy
import importlib.util
import json
from dataclasses import fields
from typing import Any

import fake_nvml
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoamp.probes import nvml
from autoamp.probes.facts import NvmlGpu

MIB = 2**20
MACHINES = pytest.mark.parametrize("name", fake_nvml.names())


def read(monkeypatch: pytest.MonkeyPatch, machine: dict[str, Any]) -> nvml.NvmlReading:
    fake_nvml.install(monkeypatch, machine)
    return nvml.read()


def absent_fields(gpu: NvmlGpu) -> set[str]:
    return {f.name for f in fields(gpu) if getattr(gpu, f.name) is None}


def test_there_are_machines_of_every_kind() -> None:
    machines = [fake_nvml.load(name) for name in fake_nvml.names()]
    assert len(machines) >= 20
    for machine in machines:
        origin = machine["origin"]
        assert origin["kind"] in ("recorded", "from_public_log", "constructed")
        if origin["kind"] == "from_public_log":
            assert origin["address"].startswith("https://") and origin["taken"]
        if origin["kind"] == "constructed":
            assert "address" not in origin and origin["note"]
    assert {m["package"] for m in machines} == {
        "nvidia-ml-py",
        "nvidia-ml-py3",
        "stranger",
        "broken",
    }


@MACHINES
def test_reading_never_raises_and_explains_itself(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = fake_nvml.load(name)
    reading = read(monkeypatch, machine)
    if machine.get("init_error") or machine["package"] in ("stranger", "broken"):
        assert reading.problem and reading.problem_slug and reading.remedy
        assert reading.gpus == ()
    for gpu in reading.gpus:
        # The contract of facts: None only with a reason beside it.
        assert absent_fields(gpu) <= set(gpu.absent)
        assert all(reason.strip() for reason in gpu.absent.values())


def test_values_in_their_units(monkeypatch: pytest.MonkeyPatch) -> None:
    (gpu,) = read(monkeypatch, fake_nvml.load("h100-busy")).gpus
    assert gpu.name == "NVIDIA H100 80GB HBM3" and gpu.compute_capability == (9, 0)
    assert gpu.architecture == "Hopper"
    assert gpu.memory_total_bytes == 81559 * MIB and gpu.memory_used_bytes == 72459 * MIB
    assert gpu.memory_free_bytes == (81559 - 72459) * MIB
    assert (gpu.power_w, gpu.power_limit_w) == (113.0, 700.0)
    assert (gpu.sm_clock_mhz, gpu.sm_clock_max_mhz) == (1980, 1980)
    assert (gpu.pcie_generation, gpu.pcie_width) == (5, 16)
    assert gpu.ecc is True and gpu.mig_enabled is False and gpu.persistence is True
    assert gpu.compute_mode == "default" and gpu.throttle_reasons == ()
    assert gpu.processes is not None
    assert [(p.pid, p.memory_bytes) for p in gpu.processes] == [(4194000, 72400 * MIB)]


@pytest.mark.parametrize(
    ("number", "text"), [(12040, "12.4"), (11000, "11.0"), (10020, "10.2"), (13030, "13.3")]
)
def test_cuda_version_of_the_driver(
    number: int, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = {**fake_nvml.load("t4"), "cuda_driver_version": number}
    assert read(monkeypatch, machine).driver_cuda_version == text


QUERIES = [
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
    "temperature_c",
    "sm_clock_mhz",
    "sm_clock_max_mhz",
    "memory_clock_mhz",
    "memory_clock_max_mhz",
    "throttle_bits",
    "pcie_generation",
    "pcie_generation_max",
    "pcie_width",
    "pcie_width_max",
    "persistence",
    "compute_mode",
    "gpu_percent",
    "processes",
]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("error", ["NOT_SUPPORTED", "UNKNOWN", "NO_PERMISSION"])
def test_one_failing_query_hides_no_other(
    query: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fake_nvml.load("h100-idle")
    (before,) = read(monkeypatch, whole).gpus
    broken = copy.deepcopy(whole)
    broken["gpus"][0][query] = {"error": error}
    (after,) = read(monkeypatch, broken).gpus
    changed = {
        f.name
        for f in fields(before)
        if f.name != "absent" and getattr(before, f.name) != getattr(after, f.name)
    }
    assert len(changed) <= (3 if query == "memory_mib" else 1), changed
    reasons = set(after.absent) - set(before.absent)
    assert reasons and all(after.absent[r].endswith(fake_nvml.ERRORS[error][1]) for r in reasons)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    missing=st.sets(st.sampled_from(QUERIES)),
    error=st.sampled_from(sorted(fake_nvml.ERRORS)),
    name=st.sampled_from(["h100-idle", "a100-mig", "a100-mig-beside-whole", "abandoned-pynvml"]),
)
def test_no_combination_of_failing_queries_raises(
    missing: set[str], error: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = copy.deepcopy(fake_nvml.load(name))
    for gpu in machine["gpus"]:
        for field in missing:
            gpu[field] = {"error": error}
        for instance in gpu.get("mig_instances", ()):
            for field in missing & {"name", "uuid", "memory_mib", "processes"}:
                instance[field] = {"error": error}
    reading = read(monkeypatch, machine)
    lost = len(reading.lost)
    assert lost + len({g.index for g in reading.gpus}) <= len(machine["gpus"])
    if error != "GPU_IS_LOST":
        assert not lost
    for gpu in reading.gpus:
        assert absent_fields(gpu) <= set(gpu.absent)


@pytest.mark.parametrize(
    ("init_error", "slug"),
    [
        ("LIBRARY_NOT_FOUND", "nvml-missing"),
        ("DRIVER_NOT_LOADED", "nvml-driver-not-loaded"),
        ("LIB_RM_VERSION_MISMATCH", "nvml-version-mismatch"),
        ("FUNCTION_NOT_FOUND", "nvml-too-old"),
        ("NO_PERMISSION", "nvml-no-permission"),
        ("GPU_IS_LOST", "nvml-gpu-lost"),
        ("TIMEOUT", "nvml-failed"),
    ],
)
def test_an_nvml_that_does_not_start(
    init_error: str, slug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = {**fake_nvml.load("nvml-missing-on-gpu-build"), "init_error": init_error}
    reading = read(monkeypatch, machine)
    assert reading.problem_slug == slug and reading.remedy


def test_a_missing_module_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = read(monkeypatch, {"package": "missing"})
    assert reading.problem_slug == "nvml-wrong-package"
    assert "nvidia-ml-py" in (reading.remedy or "")


def test_a_stranger_is_named_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = read(monkeypatch, fake_nvml.load("wrong-pynvml"))
    assert reading.problem_slug == "nvml-wrong-package"
    assert "/stranger/pynvml.py" in (reading.problem or "")


def test_an_abandoned_package_still_tells_what_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = read(monkeypatch, fake_nvml.load("abandoned-pynvml"))
    assert reading.problem_slug == "nvml-wrong-package"
    (gpu,) = reading.gpus
    assert gpu.name == "Tesla T4" and gpu.memory_total_bytes == 15360 * MIB
    assert gpu.compute_capability is None
    assert "no such query" in gpu.absent["compute_capability"]


def test_a_lost_gpu_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = read(monkeypatch, fake_nvml.load("gpu-lost"))
    assert [g.index for g in reading.gpus] == [0, 2, 3]
    assert len(reading.lost) == 1 and reading.lost[0].startswith("GPU 1")


def test_a_gpu_lost_behind_its_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = read(monkeypatch, fake_nvml.load("gpu-lost-later"))
    assert reading.gpus == () and "GPU is lost" in reading.lost[0]


def test_mig_instances_are_devices_of_their_own_size(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = read(monkeypatch, fake_nvml.load("a100-mig")).gpus
    assert len(gpus) == 7
    assert {g.mig_profile for g in gpus} == {"1g.10gb"}
    assert {g.memory_total_bytes for g in gpus} == {9728 * MIB}
    assert len({g.uuid for g in gpus}) == 7
    assert {g.compute_capability for g in gpus} == {(8, 0)}
    # Utilisation and power of an instance do not exist, and that is said.
    assert all("utilisation_percent" in g.absent and "power_w" in g.absent for g in gpus)


def test_an_instance_runs_on_its_gpus_clocks_and_link(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = read(monkeypatch, fake_nvml.load("a100-mig")).gpus[0]
    assert (gpu.temperature_c, gpu.sm_clock_mhz, gpu.pcie_width) == (35, 1275, 16)
    assert gpu.persistence is True
    # What its GPU does not tell, an instance cannot: for the same reason.
    assert "Not Supported" in gpu.absent["memory_clock_mhz"]
    assert "whole GPU" in gpu.absent["power_w"]


@pytest.mark.parametrize("error", sorted(set(fake_nvml.ERRORS)))
@pytest.mark.parametrize("place", ["max_mig_instances", "mig_instances", "one slot"])
def test_only_an_empty_slot_is_an_empty_slot(
    error: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = fake_nvml.load("a100-mig")
    gpu = machine["gpus"][0]
    if place == "one slot":
        gpu["mig_instances"][2] = {"handle_error": error}
    else:
        gpu[place] = {"error": error}
    reading = read(monkeypatch, machine)
    empty = error in ("NOT_FOUND", "INVALID_ARGUMENT") and place != "max_mig_instances"
    lost = error == "GPU_IS_LOST"
    left = 6 if place == "one slot" and not lost else 0
    assert len(reading.gpus) == left
    assert bool(reading.lost) == lost
    assert bool(reading.unreadable) == (not empty and not lost)
    assert reading.mig_empty == ((0,) if empty and not left else ())
    for said in (*reading.lost, *reading.unreadable):
        assert "GPU 0" in said and fake_nvml.ERRORS[error][1] in said


def test_an_instance_lost_behind_its_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fake_nvml.load("a100-mig")
    machine["gpus"][0]["mig_instances"][3]["memory_mib"] = {"error": "GPU_IS_LOST"}
    reading = read(monkeypatch, machine)
    assert reading.gpus == () and "GPU is lost" in reading.lost[0]


def test_a_gpu_of_somebody_else_is_not_called_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fake_nvml.load("gpu-lost")
    machine["gpus"][1]["handle_error"] = "NO_PERMISSION"
    reading = read(monkeypatch, machine)
    assert not reading.lost and reading.unreadable == ("GPU 1: Insufficient Permissions",)


@pytest.mark.parametrize(
    ("error", "slug"),
    [
        ("UNKNOWN", "nvml-failed"),
        ("NO_PERMISSION", "nvml-no-permission"),
        ("GPU_IS_LOST", "nvml-gpu-lost"),
    ],
)
def test_gpus_that_are_not_counted_hide_no_driver(
    error: str, slug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = read(monkeypatch, {**fake_nvml.load("t4"), "count_error": error})
    assert reading.problem_slug == slug and reading.remedy
    assert "count" in (reading.problem or "") and "not start" not in (reading.problem or "")
    assert reading.driver_version and reading.driver_cuda_version


def test_an_architecture_from_the_future_has_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fake_nvml.load("t4")
    machine["gpus"][0]["architecture"] = 99
    (gpu,) = read(monkeypatch, machine).gpus
    assert gpu.architecture is None and "99" in gpu.absent["architecture"]


def test_empty_mig_slots_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fake_nvml.load("a100-mig")
    machine["gpus"][0]["mig_instances"][2] = None
    assert len(read(monkeypatch, machine).gpus) == 6


def test_whole_gpus_beside_a_divided_one(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = read(monkeypatch, fake_nvml.load("a100-mig-beside-whole")).gpus
    assert [g.mig_profile for g in gpus] == ["1g.20gb"] * 4 + [None] * 3
    assert [g.index for g in gpus] == [0, 0, 0, 0, 1, 2, 3]


def test_throttling_is_named_and_idle_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    (gpu,) = read(monkeypatch, fake_nvml.load("throttled")).gpus
    assert set(gpu.throttle_reasons) == {
        "software power cap",
        "software thermal slowdown",
        "hardware thermal slowdown",
    }
    machine = fake_nvml.load("h100-idle")
    # Idle, application clocks, sync boost and display clocks hold a GPU back from nothing.
    machine["gpus"][0]["throttle_bits"] = 0x1 | 0x2 | 0x10 | 0x100
    (idle,) = read(monkeypatch, machine).gpus
    assert idle.throttle_reasons == ()


def test_the_older_name_of_the_throttle_query(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fake_nvml.load("throttled")
    module = fake_nvml.install(monkeypatch, machine)
    assert module is not None

    def missing(handle: object) -> int:
        raise fake_nvml.NVMLError("FUNCTION_NOT_FOUND")

    monkeypatch.setattr(module, "nvmlDeviceGetCurrentClocksEventReasons", missing)
    (gpu,) = nvml.read().gpus
    assert gpu.throttle_reasons


def test_nvml_is_closed_after_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake_nvml.install(monkeypatch, fake_nvml.load("t4"))
    assert module is not None
    nvml.read()
    with pytest.raises(fake_nvml.NVMLError):
        module.nvmlShutdown()


@pytest.mark.parametrize(
    "name", [n for n in fake_nvml.names() if fake_nvml.load(n)["package"] == "nvidia-ml-py"]
)
def test_the_recorder_writes_what_the_fake_reads(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recorded machine read again is the same machine: the format loses nothing we ask."""
    machine = fake_nvml.load(name)
    spec = importlib.util.spec_from_file_location("record", fake_nvml.MACHINES / "record.py")
    assert spec is not None and spec.loader is not None
    recorder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recorder)
    first = read(monkeypatch, machine)
    again = read(monkeypatch, json.loads(json.dumps(recorder.record())))
    assert (again.gpus, again.lost, again.problem_slug) == (
        first.gpus,
        first.lost,
        first.problem_slug,
    )
