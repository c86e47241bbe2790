"""The measured roofline: what the child is asked, what is made of its answer, and real runs."""

import importlib.util
import sys
from dataclasses import fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import devices
import fake_nvml
import machine_files
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoamp.measurement import Label, Utilisation
from autoamp.played import played
from autoamp.probes import bench, machine
from autoamp.probes.facts import Machine, Roofline
from autoamp.probes.nvml import NvmlReading
from autoamp.probes.peaks import peaks
from autoamp.probes.visible import child_environment

HERE = pytest.mark.skipif(
    importlib.util.find_spec("paddle") is None, reason="Paddle is not installed here"
)
NOON = datetime(2026, 1, 2, 12, 0, tzinfo=timezone.utc)
ANSWER: dict[str, Any] = {
    "matmuls": [
        {"dtype": "float32", "m": 4096, "n": 4096, "k": 4096, "flops_per_s": 4.0e12},
        {"dtype": "float16", "m": 4096, "n": 4096, "k": 4096, "flops_per_s": 3.25e13},
        {"dtype": "float16", "m": 4095, "n": 4096, "k": 4096, "flops_per_s": 2.0e13},
    ],
    "copy_bytes_per_s": 2.4e11,
    "launch_s": 5e-6,
    "host_to_device_bytes_per_s": 1.2e10,
    "absent": {"bfloat16": "no kernel"},
    "window_s": [0.0, 1.0],
}


def t4(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return machine_files.assembled(monkeypatch, fake_nvml.load("t4"))


def test_shares_are_of_the_catalogues_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Utilisation(sm_clock_mean_mhz=1300.0, power_mean_w=69.0, throttle_reasons=("heat",))
    found = bench.roofline(t4(monkeypatch), ANSWER, seen, NOON)
    assert found.label is Label.measured
    assert found.taken_at == "2026-01-02T12:00:00Z"
    by_dtype = {(m.dtype, m.aligned): m.share_of_peak for m in found.matmuls}
    assert by_dtype["float16", True] == pytest.approx(32.5 / 65)
    assert by_dtype["float16", False] == pytest.approx(20 / 65)
    assert by_dtype["float32", True] == pytest.approx(4.0 / 8.141)
    assert found.copy_share_of_peak == pytest.approx(240 / 320)
    assert (found.sm_clock_mhz, found.power_w) == (1300.0, 69.0)
    assert found.throttle_reasons == ("heat",)
    assert found.absent == {"bfloat16": "no kernel"}
    # What the sampler does not see has its reason under its key, and nothing else is absent.
    blind = bench.roofline(t4(monkeypatch), ANSWER, Utilisation(reason="no NVML"), NOON)
    assert blind.absent == {
        "bfloat16": "no kernel",
        "sm_clock_mhz": "no NVML",
        "power_w": "no NVML",
    }
    assert msgspec.json.decode(msgspec.json.encode(found), type=Roofline) == found


def test_an_instance_of_a_gpu_is_not_compared_with_the_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = machine_files.assembled(monkeypatch, fake_nvml.load("a100-mig"))
    assert found.device.mig is not None
    roofline = bench.roofline(found, ANSWER, Utilisation(), NOON)
    assert {m.share_of_peak for m in roofline.matmuls} == {None}
    assert roofline.copy_share_of_peak is None
    for name in ("share_of_peak", "copy_share_of_peak"):
        assert "share of its GPU" in roofline.absent[name]


def test_a_gpu_is_shown_to_the_child_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def ask(python: str, module: str, question: Any, **options: Any) -> dict[str, Any]:
        asked.append((module, question, options["environment"]))
        return ANSWER

    monkeypatch.setattr(bench, "ask", ask)
    found = machine_files.assembled(monkeypatch, fake_nvml.load("mixed-gpus"), "gpu:1")
    environment = child_environment(found.device)
    bench.bench(found, environment)
    ((module, question, given_environment),) = asked
    assert module == "autoamp.child.bench"
    # Alone in its environment, the second GPU is the child's first.
    assert question == {"device": "gpu:0", "skip": bench.left_out(found)}
    assert given_environment["CUDA_VISIBLE_DEVICES"] == found.device.uuid


def test_a_virtual_device_is_asked_without_computing(monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[Any] = []

    def ask(python: str, module: str, question: Any, **options: Any) -> dict[str, Any]:
        questions.append(question)
        return ANSWER

    monkeypatch.setattr(bench, "ask", ask)
    found = machine_files.assembled(monkeypatch, fake_nvml.load("no-gpu"), "virtual:t4")
    roofline = bench.bench(found, {}, played(found.device, numerics=False))
    assert roofline.label is Label.modelled
    # The bus of docs/virtual.md, whatever the GPU still had to do before.
    assert roofline.host_to_device_bytes_per_s == pytest.approx(12e9, rel=0.03)
    assert roofline.sm_clock_mhz is None
    assert questions[0]["device"] == "virtual"
    assert questions[0]["virtual"]["numerics"] is False


@pytest.mark.parametrize(
    ("alias", "skipped"),
    [
        ("v100-16gb", {"tf32", "bfloat16"}),
        ("t4", {"tf32", "bfloat16"}),
        ("p100-sxm2", {"tf32", "bfloat16", "float16"}),
        ("gtx1080", {"tf32", "bfloat16", "float16"}),
        ("gtx1660-ti", {"tf32", "bfloat16", "float16"}),
        ("a100-40gb", set()),
    ],
)
def test_what_the_gpu_has_not_is_not_measured_as_something_else(
    alias: str, skipped: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = machine_files.assembled(monkeypatch, fake_nvml.load("no-gpu"), f"virtual:{alias}")
    left = bench.left_out(found)
    assert set(left) == skipped and all(left.values())


def test_what_was_forced_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    found = machine_files.assembled(
        monkeypatch, fake_nvml.load("no-gpu"), "virtual:gtx1660-ti", allow_unsupported=True
    )
    assert "float16" not in bench.left_out(found)


def test_who_else_was_on_the_gpu_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "ask", lambda *words, **options: ANSWER)
    busy = machine_files.assembled(monkeypatch, fake_nvml.load("h100-busy"))
    assert busy.device.nvml is not None and busy.device.nvml.processes
    found = bench.bench(busy, {}).other_processes
    assert len(found) == len(busy.device.nvml.processes)
    assert all(
        str(p.pid) in text for p, text in zip(busy.device.nvml.processes, found, strict=True)
    )
    idle = machine_files.assembled(monkeypatch, fake_nvml.load("h100-idle"))
    assert bench.bench(idle, {}).other_processes == ()
    # Idle before, not after.
    came = replace(busy.device.nvml, uuid=idle.device.uuid)
    monkeypatch.setattr(bench.nvml, "read", lambda: NvmlReading(gpus=(came,)))
    assert bench.bench(idle, {}).other_processes == found


def test_a_virtual_gpus_roofline_carries_no_option_that_does_not_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "virtual:t4,memory=2GiB,numerics=off"
    found = machine_files.assembled(monkeypatch, fake_nvml.load("no-gpu"), name)
    assert bench.roofline(found, ANSWER, Utilisation(), NOON).device == "virtual:t4"


@given(
    answer=st.fixed_dictionaries(
        {"matmuls": st.just([])},
        optional={
            "copy_bytes_per_s": st.none() | st.floats(min_value=0, max_value=1e15),
            "launch_s": st.none() | st.floats(min_value=0, max_value=1),
            "absent": st.dictionaries(st.text(max_size=5), st.text(max_size=5)),
        },
    ),
    device=devices.DEVICES,
)
def test_no_absent_value_makes_it_raise(answer: dict[str, Any], device: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        found = replace(
            machine_files.assembled(patch, fake_nvml.load("no-gpu")),
            device=device,
        )
    roofline = bench.roofline(found, answer, Utilisation(reason="none"), NOON)
    told = {*roofline.absent, "paddle"} | {  # the child gives the reasons of its own values
        name
        for name in ("copy_bytes_per_s", "launch_s", "host_to_device_bytes_per_s")
        if answer.get(name) is None
    }
    assert {f.name for f in fields(roofline) if getattr(roofline, f.name) is None} <= told


@HERE
@pytest.mark.slow
@pytest.mark.needs_paddle
def test_the_cpu_is_measured() -> None:
    found = bench.bench(machine.probe("cpu"), {})
    assert found.label is Label.measured
    rates = [m.flops_per_s for m in found.matmuls if m.dtype == "float32"]
    assert len(rates) == 3 and min(rates) > 0
    assert found.copy_bytes_per_s and found.launch_s
    # What a CPU does not do is absent with its reason, not zero.
    assert found.host_to_device_bytes_per_s is None
    assert {"tf32", "host_to_device_bytes_per_s"} <= set(found.absent)
    # No value of null without its reason, by its key.
    nothing = {f.name for f in fields(found) if getattr(found, f.name) is None}
    assert nothing <= set(found.absent)


@HERE
@pytest.mark.slow
@pytest.mark.needs_paddle
@pytest.mark.needs_compiler
@pytest.mark.parametrize("alias", ["a100-40gb", "t4", "v100-16gb"])
def test_the_virtual_device_answers_with_its_clock(alias: str, tmp_path: Path) -> None:
    from autoamp.virtual.build import ensure_built
    from autoamp.virtual.device import child_environment as virtual_environment

    found = machine.probe(f"virtual:{alias}")
    folder = ensure_built(sys.executable, lambda text: None)
    virtual = played(found.device, numerics=False)
    roofline = bench.bench(found, virtual_environment(virtual, folder), virtual)
    assert roofline.label is Label.modelled
    assert found.device.model is not None
    assert {m.dtype for m in roofline.matmuls} == set(peaks(found.device.model))
    assert all(m.share_of_peak is not None and m.share_of_peak <= 1 for m in roofline.matmuls)
    large = {(m.dtype, m.aligned): m.flops_per_s for m in roofline.matmuls if m.m in (4096, 4095)}
    assert large["float16", True] > large["float32", True]
    assert large["float16", True] > large["float16", False]
    assert roofline.copy_share_of_peak is not None and roofline.copy_share_of_peak <= 1
