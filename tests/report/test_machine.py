"""The probe as a person reads it: problems first, a panel a device, each verdict with its why."""

import re
from dataclasses import replace

import fake_nvml
import machine_files
import pytest

from autoamp.measurement import Label
from autoamp.probes.catalogue import find, models
from autoamp.probes.facts import POWER_CAP, GpuModel, MatmulRate, Roofline
from autoamp.report import machine as report
from autoamp.settings import Dtype, Level


def text_of(monkeypatch: pytest.MonkeyPatch, name: str, device: str | None = None) -> str:
    found = machine_files.assembled(monkeypatch, fake_nvml.load(name), device)
    return "\n".join(report.lines(found, width=120))


@pytest.mark.parametrize("name", fake_nvml.names())
def test_every_problem_stands_above_the_devices_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    found = machine_files.assembled(monkeypatch, fake_nvml.load(name))
    text = " ".join(report.lines(found, width=400))
    devices = text.index("· chosen")
    for problem in found.problems:
        assert 0 <= text.index(f"[{problem.slug}]") < devices
        assert problem.remedy in text


@pytest.mark.parametrize("name", fake_nvml.names())
@pytest.mark.parametrize("width", [40, 80, 200])
def test_lines_keep_to_the_terminal(
    monkeypatch: pytest.MonkeyPatch, name: str, width: int
) -> None:
    found = machine_files.assembled(monkeypatch, fake_nvml.load(name))
    assert max(map(len, report.lines(found, width=width))) <= width


def test_each_gpu_has_its_panel_and_one_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    text = text_of(monkeypatch, "mixed-gpus", "gpu:1")
    assert "─ gpu:0 ─" in text
    assert "─ gpu:1 · chosen ─" in text


def test_state_is_shown_as_far_as_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    text = text_of(monkeypatch, "t4")
    assert "8 of 70 W" in text
    assert "SM 300 of 1590 MHz" in text
    assert "None" not in text
    assert "None" not in text_of(monkeypatch, "nvml-says-little")


def test_pascal_is_refused_with_reason_and_alternative(monkeypatch: pytest.MonkeyPatch) -> None:
    text = " ".join(text_of(monkeypatch, "no-gpu", "virtual:gtx1080").split())
    assert "float16 O1 O2 OD no GeForce GTX 1080 has compute capability 6.1" in text
    assert "Instead:" in text
    assert "FP16 arithmetic runs at 1/64 of the FP32 rate" in text


def test_a_roofline_shows_rate_share_and_conditions() -> None:
    roofline = Roofline(
        device="Tesla T4",
        label=Label.measured,
        taken_at="2026-01-02T12:00:00Z",
        paddle="3.1.0",
        matmuls=(
            MatmulRate(
                dtype="float16", m=4096, n=4096, k=4096, flops_per_s=4.8e13, share_of_peak=0.74
            ),
            MatmulRate(dtype="float32", m=100, n=100, k=100, flops_per_s=1e12),
        ),
        launch_s=4e-6,
        sm_clock_mhz=1234.5,
        throttle_reasons=("software power cap",),
        absent={"bfloat16": "no kernel"},
    )
    from rich.console import Console

    console = Console(width=120, color_system=None)
    with console.capture() as capture:
        console.print(report.roofline_table(roofline))
    text = capture.get()
    assert "48 TFLOP/s" in text and "74%" in text
    assert "(not aligned)" in text
    assert "measured" in text
    text = " ".join(text.split())
    assert "at its power limit (software power cap)" in text and "no kernel" in text


def printed(roofline: Roofline) -> str:
    from rich.console import Console

    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(report.roofline_table(roofline))
    return capture.get()


def bare(share: float, label: Label = Label.measured) -> Roofline:
    product = MatmulRate(dtype="float32", m=64, n=64, k=64, flops_per_s=1e12, share_of_peak=share)
    return Roofline(
        device="virtual:t4" if label is Label.modelled else "Tesla T4",
        label=label,
        taken_at="2026-01-02T12:00:00Z",
        paddle="3.1.0",
        matmuls=(product,),
        absent={"tf32": "no TF32"},
    )


def test_no_share_is_printed_above_the_peak() -> None:
    assert "100%" in printed(bare(1.0)) and report.OVER_PEAK not in printed(bare(1.0))
    over = printed(bare(1.04))
    assert "%" not in over and report.OVER_PEAK in over


def test_a_modelled_roofline_speaks_of_no_measuring() -> None:
    text = printed(bare(0.9, Label.modelled))
    assert "tf32: not modelled: no TF32" in text and "measured" not in text
    assert "roofline of virtual:t4, modelled" in text
    assert "whatever memory= and numerics= are" in text
    assert "tf32: not measured: no TF32" in printed(bare(0.9))


def test_a_shared_gpus_roofline_says_so() -> None:
    text = printed(replace(bare(0.9), other_processes=("python (pid 12)",)))
    assert "shared with python (pid 12)" in text


def test_a_power_limit_is_not_called_throttling() -> None:
    assert "throttled" not in report.throttling_text((POWER_CAP,))
    both = report.throttling_text((POWER_CAP, "hardware power brake"))
    assert both == f"throttled: {POWER_CAP}, hardware power brake"


def test_the_catalogue_says_what_a_renter_asks() -> None:
    head, *rest = report.catalogue_lines()
    lines = rest[: len(models())]
    text = "\n".join([head, *rest])
    assert "e+" not in text and "FP16 AMP" in head and "BF16 AMP" in head
    cells = {line.split()[0]: re.split(r" {2,}", line) for line in lines}
    assert cells["gtx1080"][-2:] == ["no", "no"]
    assert cells["t4"][-2:] == ["yes", "no"]
    assert cells["gtx1660-ti"][-2:] == ["advised against", "no"]
    assert cells["b200"][-2:] == ["yes", "yes"] and "2,250" in cells["b200"]
    assert {len(row) for row in cells.values()} == {len(re.split(r" {2,}", head))}
    # Sorted by capability, and within one by name with its numbers as numbers.
    order = list(cells)
    assert [find(name).compute_capability for name in order] == sorted(
        find(name).compute_capability for name in order
    )
    assert (
        order.index("a16")
        < order.index("a40")
        < order.index("a4000")
        < order.index("rtx3060-12gb")
    )
    assert order.index("gtx1650") < order.index("gtx1660") < order.index("rtx2060")


@pytest.mark.parametrize("model", models(), ids=lambda m: m.alias)
def test_the_catalogues_answer_is_the_probes(
    model: GpuModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = machine_files.assembled(
        monkeypatch, fake_nvml.load("no-gpu"), f"virtual:{model.alias}"
    )
    for dtype, cell in zip(
        (Dtype.float16, Dtype.bfloat16), report.catalogue_row(model)[-2:], strict=True
    ):
        verdict = found.verdict(Level.O1, dtype)
        assert verdict is not None and (cell == "yes") == verdict.allowed
        assert (cell == "advised against") == (not verdict.allowed and verdict.forcible)


@pytest.mark.parametrize(("device", "told"), [("virtual:t4", True), ("virtual:gtx1080", False)])
def test_level_od_is_explained_where_it_is_a_choice(
    device: str, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = " ".join(text_of(monkeypatch, "no-gpu", device).split())
    assert ("OD: only AMP's white list" in text) == told


def test_no_rate_has_an_exponent() -> None:
    assert report.flops_text(2.25e15) == "2,250 TFLOP/s"
    assert report.flops_text(4.8e13) == "48 TFLOP/s"
    fast = replace(bare(0.9), copy_bytes_per_s=7.7e12, host_to_device_bytes_per_s=1.2e12)
    assert "7,700 GB/s" in printed(fast) and "1,200 GB/s" in printed(fast)
