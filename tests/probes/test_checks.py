"""Environment checks: severity, sentence, remedy; each fires when it should and not otherwise."""

from dataclasses import fields, replace
from typing import Any

import pytest
from devices import PADDLE, custom, gpu
from hypothesis import given
from hypothesis import strategies as st

from autoamp.probes import checks, gpu_checks, usable
from autoamp.probes.facts import (
    POWER_CAP,
    Device,
    DeviceKind,
    GpuProcess,
    Host,
    NvmlGpu,
    PaddleInstall,
    Problem,
    Severity,
)
from autoamp.probes.nvml import NvmlReading

GIB, MIB = 2**30, 2**20
HOST = Host(
    hostname="h",
    os="Linux 6",
    cpu_model="CPU",
    cpu_count=16,
    memory_total_bytes=64 * GIB,
    memory_available_bytes=60 * GIB,
    shm_free_bytes=32 * GIB,
    driver_version="550.54.15",
    driver_cuda_version="12.4",
)
READING = NvmlReading(driver_version="550.54.15", driver_cuda_version="12.4")
STATE = NvmlGpu(
    index=0,
    name="NVIDIA A10",
    uuid="GPU-1",
    memory_total_bytes=24 * GIB,
    memory_free_bytes=24 * GIB,
    power_limit_w=150.0,
    power_limit_default_w=150.0,
    pcie_width=16,
    pcie_width_max=16,
    compute_mode="default",
    processes=(),
)


def a10(**changes: Any) -> Device:
    state = replace(STATE, **changes)
    return replace(
        gpu("NVIDIA A10", (8, 6)),
        memory_total_bytes=state.memory_total_bytes,
        memory_free_bytes=state.memory_free_bytes,
        nvml=state,
    )


def by_slug(found: list[Problem], slug: str) -> Problem | None:
    return next((p for p in found if p.slug == slug), None)


def test_a_good_machine_has_no_problem() -> None:
    assert checks.paddle_problems(PADDLE) == []
    assert checks.host_problems(HOST, a10()) == []
    assert usable.unusable(a10(), READING, replace(PADDLE, cuda_version="12.3")) is None
    assert gpu_checks.gpu_problems(a10(), READING, replace(PADDLE, cuda_version="12.3")) == []
    seen = replace(READING, gpus=(STATE,))
    assert gpu_checks.nvml_problems(seen, PADDLE, HOST) == []
    assert gpu_checks.several((STATE,), (STATE,), {}) == []


@pytest.mark.parametrize("gpu_build", [True, False])
@pytest.mark.parametrize("on_pci", [None, 0, 2])
def test_a_driver_that_shows_no_gpu_is_said(gpu_build: bool, on_pci: int | None) -> None:
    paddle = replace(PADDLE, gpu_build=gpu_build)
    found = gpu_checks.nvml_problems(READING, paddle, replace(HOST, nvidia_on_pci=on_pci))
    (problem,) = found
    assert problem.slug == "no-gpu-shown" and "--gpus all" in problem.remedy
    assert problem.severity is (Severity.warning if gpu_build else Severity.note)
    assert ("2 are on the PCI bus" in problem.sentence) == (on_pci == 2)


@pytest.mark.parametrize(
    ("change", "slug", "severity"),
    [
        ({"version": None}, "no-paddle", Severity.blocker),
        ({"python_version": "3.9.18"}, "python-too-old", Severity.blocker),
        ({"version": "2.3.2"}, "paddle-too-old", Severity.blocker),
        ({"version": "2.4.2"}, "paddle-old", Severity.warning),
        ({"version": "2.5.2"}, "paddle-old", Severity.warning),
        ({"version": "0.0.0"}, "paddle-development", Severity.note),
        ({"cuda_version": "10.0"}, "cuda-too-old", Severity.blocker),
        ({"cudnn_version": "7.5.1"}, "cudnn-old", Severity.warning),
        (
            {"absent": {"distribution": "a and b are installed over each other"}},
            "paddle-twice",
            Severity.warning,
        ),
        ({"absent": {"build": "its folder is gone"}}, "paddle-broken", Severity.blocker),
        (
            {"version": "3.3.1", "numpy_version": "2.4.0"},
            "paddle-numpy-scaler",
            Severity.warning,
        ),
    ],
)
def test_paddle(change: dict[str, Any], slug: str, severity: Severity) -> None:
    found = by_slug(checks.paddle_problems(replace(PADDLE, **change)), slug)
    assert found is not None and found.severity is severity


@pytest.mark.parametrize(
    ("change", "slug"),
    [
        ({"version": "2.4.0"}, "paddle-too-old"),
        ({"version": "2.6.0"}, "paddle-old"),
        ({"version": "3.10.0"}, "paddle-old"),
        ({"cuda_version": "10.1"}, "cuda-too-old"),
        ({"cudnn_version": "7.6.0"}, "cudnn-old"),
        ({"cudnn_version": "9.5.1"}, "cudnn-old"),
        ({"version": "3.3.1", "numpy_version": "2.3.5"}, "paddle-numpy-scaler"),
        ({"version": "3.2.0", "numpy_version": "2.4.0"}, "paddle-numpy-scaler"),
    ],
)
def test_paddle_at_the_border(change: dict[str, Any], slug: str) -> None:
    assert by_slug(checks.paddle_problems(replace(PADDLE, **change)), slug) is None


@pytest.mark.parametrize(
    ("change", "slug", "severity"),
    [
        ({"shm_free_bytes": 64 * MIB}, "shm-small", Severity.warning),
        ({"memory_total_bytes": 15 * GIB}, "host-memory-small", Severity.note),
        ({"cpu_count": 3}, "few-cores", Severity.note),
        ({"wsl": True}, "wsl", Severity.note),
    ],
)
def test_host(change: dict[str, Any], slug: str, severity: Severity) -> None:
    found = by_slug(checks.host_problems(replace(HOST, **change), a10()), slug)
    assert found is not None and found.severity is severity


def test_few_cores_matter_to_accelerators_only() -> None:
    small = replace(HOST, cpu_count=2)
    cpu = Device(kind=DeviceKind.cpu, paddle_name="cpu", name="CPU")
    assert by_slug(checks.host_problems(small, cpu), "few-cores") is None
    assert by_slug(checks.host_problems(small, custom("npu")), "few-cores") is not None


@pytest.mark.parametrize(
    ("wheel", "driver", "blocked"),
    [
        # From CUDA 11 on a driver runs every minor version of its major one.
        ("12.6", "12.4", False),
        ("12.6", "11.8", True),
        ("11.8", "12.4", False),
        ("11.8", "11.0", False),
        ("13.0", "12.9", True),
        ("10.2", "10.1", True),
        ("10.2", "10.2", False),
        ("10.2", "11.4", False),
        (None, "12.4", False),
        ("12.6", None, False),
    ],
)
def test_driver_against_wheel(wheel: str | None, driver: str | None, blocked: bool) -> None:
    reading = replace(READING, driver_cuda_version=driver)
    found = usable.driver_too_old(reading, replace(PADDLE, cuda_version=wheel))
    assert (found is not None) == blocked
    if found is not None:
        assert wheel and wheel in found.sentence and driver and driver in found.sentence


@pytest.mark.parametrize(
    ("capability", "archs", "cuda", "blocked"),
    [
        # Machine code runs on its own major version from its minor one on; names beside.
        ((8, 6), (70, 75, 80), "12.3", False),
        ((7, 5), (70, 80), "12.3", False),
        ((6, 1), (70, 75, 80), "12.3", True),
        ((12, 0), (61, 70, 75, 80, 86, 89, 90), "12.3", True),
        ((8, 0), (86,), "12.3", True),
        # Without a list the wheel's CUDA tells.
        ((8, 9), (), "11.2", True),
        ((8, 9), (), "11.8", False),
        ((12, 0), (), "12.6", True),
        ((12, 0), (), "12.9", False),
        ((8, 0), (), "10.2", True),
        ((6, 1), (), "13.0", True),
        ((3, 7), (), "12.0", True),
        ((7, 0), (), "10.2", False),
        (None, (70,), "12.3", False),
        ((8, 0), (), None, False),
    ],
)
def test_wheel_lacks_this_architecture(
    capability: tuple[int, int] | None,
    archs: tuple[int, ...],
    cuda: str | None,
    blocked: bool,
) -> None:
    paddle = replace(PADDLE, cuda_archs=archs, cuda_version=cuda)
    reading = replace(READING, driver_cuda_version="13.0")
    found = usable.unusable(gpu("NVIDIA X", capability), reading, paddle)
    assert (found is not None and found.slug == "arch-not-in-wheel") == blocked


@pytest.mark.parametrize(
    ("change", "slug"),
    [
        ({"gpu_build": False, "build": "cpu", "cuda_version": None}, "cpu-build-on-gpu"),
        ({"gpu_build": True, "build": "rocm", "cuda_version": None}, "rocm-build-on-nvidia"),
    ],
)
def test_the_wrong_build(change: dict[str, Any], slug: str) -> None:
    found = usable.unusable(a10(), READING, replace(PADDLE, **change))
    assert found is not None and found.slug == slug and found.severity is Severity.blocker
    assert "virtual:" in found.remedy


@pytest.mark.parametrize(
    ("state", "slug"),
    [
        ({"compute_mode": "prohibited"}, "gpu-prohibited"),
        (
            {"compute_mode": "exclusive process", "processes": (GpuProcess(pid=77),)},
            "gpu-exclusive",
        ),
        ({"compute_mode": "exclusive process"}, None),
        ({"processes": (GpuProcess(pid=77),)}, None),
    ],
)
def test_compute_modes(state: dict[str, Any], slug: str | None) -> None:
    found = usable.unusable(a10(**state), READING, replace(PADDLE, cuda_version="12.3"))
    assert (found.slug if found else None) == slug


@pytest.mark.parametrize(
    ("state", "slug"),
    [
        ({"processes": (GpuProcess(pid=77, name="python"),)}, "gpu-busy"),
        ({"memory_free_bytes": 18 * GIB}, "gpu-low-memory"),
        ({"throttle_reasons": ("hardware thermal slowdown",)}, "gpu-throttled"),
        ({"throttle_reasons": ("hardware slowdown",)}, "gpu-throttled"),
        ({"throttle_reasons": (POWER_CAP, "hardware power brake")}, "gpu-throttled"),
        ({"throttle_reasons": (POWER_CAP,)}, "gpu-at-power-limit"),
        ({"power_limit_w": 100.0}, "gpu-power-limit"),
        ({"pcie_width": 4}, "pcie-narrow"),
    ],
)
def test_state_of_the_gpu(state: dict[str, Any], slug: str) -> None:
    found = gpu_checks.gpu_problems(a10(**state), READING, replace(PADDLE, cuda_version="12.3"))
    assert [p.slug for p in found] == [slug]
    assert found[0].severity is not Severity.blocker


def test_a_foreign_process_is_named() -> None:
    busy = a10(processes=(GpuProcess(pid=77, name="python"), GpuProcess(pid=78)))
    (found,) = gpu_checks.gpu_problems(busy, READING, replace(PADDLE, cuda_version="12.3"))
    assert "python (pid 77)" in found.sentence and "pid 78" in found.sentence


def test_no_driver_is_normal_on_a_machine_without_a_gpu() -> None:
    reading = NvmlReading(problem="no driver", problem_slug="nvml-missing", remedy="install it")
    cpu = replace(PADDLE, gpu_build=False, build="cpu", cuda_version=None)
    (note,) = gpu_checks.nvml_problems(reading, cpu, HOST)
    assert note.severity is Severity.note
    (warning,) = gpu_checks.nvml_problems(reading, PADDLE, HOST)
    assert warning.severity is Severity.warning and "GPU build" in warning.sentence
    on_pci = replace(HOST, nvidia_on_pci=1)
    (blocker,) = gpu_checks.nvml_problems(reading, PADDLE, on_pci)
    assert blocker.severity is Severity.blocker and "PCI" in blocker.sentence


@pytest.mark.parametrize(
    ("environment", "slugs"),
    [
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, {"gpus-mixed"}),
        ({}, {"gpus-mixed", "gpu-order"}),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2"}, {"gpus-mixed"}),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, {"gpus-mixed", "gpu-order"}),
    ],
)
def test_mixed_gpus(environment: dict[str, str], slugs: set[str]) -> None:
    both = (STATE, replace(STATE, index=1, uuid="GPU-2", name="NVIDIA L4"))
    assert {p.slug for p in gpu_checks.several(both, both, environment)} == slugs


def test_several_mig_instances_are_not_used_at_once() -> None:
    first = replace(STATE, mig_profile="1g.10gb", uuid="MIG-1")
    whole = replace(STATE, index=1, uuid="GPU-2")
    for shown in ((first, replace(first, uuid="MIG-2")), (first, whole)):
        (found,) = gpu_checks.several(shown, shown, {})
        assert found.slug == "mig-one-at-a-time" and found.severity is Severity.note
    assert not gpu_checks.several((first,), (first,), {})
    # Of several, CUDA_VISIBLE_DEVICES shows one: nothing to say.
    assert not gpu_checks.several((first, whole), (first,), {"CUDA_VISIBLE_DEVICES": "MIG-1"})


@pytest.mark.parametrize(
    ("wheel", "driver", "said"),
    [
        ("12.3", "12.2", True),
        ("12.3", "12.3", False),
        ("12.3", "12.8", False),
        ("11.8", "11.4", True),
        # Another major version is too old or fine, never "minor".
        ("12.3", "11.8", False),
        ("11.8", "12.0", False),
        (None, "12.0", False),
        ("12.3", None, False),
    ],
)
def test_a_driver_older_within_its_major_version(
    wheel: str | None, driver: str | None, said: bool
) -> None:
    reading = replace(READING, driver_cuda_version=driver)
    found = gpu_checks.gpu_problems(a10(), reading, replace(PADDLE, cuda_version=wheel))
    assert [p.slug for p in found] == (["driver-minor-older"] if said else [])
    assert all(p.severity is Severity.note and driver in p.sentence for p in found if driver)


def test_hidden_gpus() -> None:
    (found,) = gpu_checks.several((STATE,), (), {"CUDA_VISIBLE_DEVICES": ""})
    assert found.slug == "gpus-hidden"


def unknown(thing: Any, names: set[str]) -> Any:
    return replace(thing, **{n: None for n in names})


@given(
    host=st.sets(st.sampled_from(["shm_free_bytes", "cpu_model", "nvidia_on_pci"])),
    state=st.sets(st.sampled_from([f.name for f in fields(NvmlGpu) if f.default is None])),
    paddle=st.sets(st.sampled_from([f.name for f in fields(PaddleInstall) if f.default is None])),
    reading=st.sets(st.sampled_from(["driver_version", "driver_cuda_version"])),
)
def test_no_combination_of_absent_facts_raises(
    host: set[str], state: set[str], paddle: set[str], reading: set[str]
) -> None:
    where, said = unknown(HOST, host), unknown(READING, reading)
    which: PaddleInstall = unknown(PADDLE, paddle)
    device = a10(**{n: None for n in state})
    for found in (
        *checks.paddle_problems(which),
        *checks.host_problems(where, device),
        *gpu_checks.nvml_problems(said, which, where),
        *gpu_checks.gpu_problems(device, said, which),
        usable.unusable(device, said, which),
    ):
        assert found is None or (found.sentence and found.remedy and found.slug)
