"""The probe as a person reads it: problems first, a panel a device, each verdict with its why."""

import fake_nvml
import machine_files
import pytest

from autoamp.measurement import Label
from autoamp.probes.facts import POWER_CAP, MatmulRate, Roofline
from autoamp.report import machine as report


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
    from dataclasses import replace

    text = printed(replace(bare(0.9), other_processes=("python (pid 12)",)))
    assert "shared with python (pid 12)" in text


def test_a_power_limit_is_not_called_throttling() -> None:
    assert "throttled" not in report.throttling_text((POWER_CAP,))
    both = report.throttling_text((POWER_CAP, "hardware power brake"))
    assert both == f"throttled: {POWER_CAP}, hardware power brake"
