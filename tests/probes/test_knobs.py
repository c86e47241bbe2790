"""Knobs beside level and dtype, by Paddle's version and the device."""

from dataclasses import replace

import pytest
from devices import DEVICES, PADDLE, PADDLES, custom, played
from hypothesis import given

from autoamp.probes import knobs
from autoamp.probes.facts import Device, KnobVerdict, PaddleInstall


def knob(name: str, device: Device, paddle: PaddleInstall = PADDLE) -> KnobVerdict:
    (found,) = [k for k in knobs.knob_verdicts(device, paddle) if k.knob == name]
    return found


@pytest.mark.parametrize(
    ("name", "version", "available"),
    [
        ("use_promote", "2.4.2", False),
        ("use_promote", "2.5.0", True),
        ("master_grad", "2.5.2", False),
        ("master_grad", "2.6.2", True),
        ("master_grad", "3.3.1", True),
        ("master_grad", "0.0.0", True),
        ("master_weight", "2.4.2", True),
    ],
)
def test_by_version(name: str, version: str, available: bool) -> None:
    found = knob(name, played("t4"), replace(PADDLE, version=version))
    assert found.available == available and found.reason and found.source


@pytest.mark.parametrize(
    ("alias", "available"),
    [("v100-16gb", False), ("t4", False), ("a100-80gb", True), ("rtx4090", True)],
)
def test_tf32_came_with_ampere(alias: str, available: bool) -> None:
    assert knob("tf32", played(alias)).available == available


def test_tf32_says_what_the_peaks_promise() -> None:
    assert "8x the FP32 peak" in knob("tf32", played("a100-40gb")).reason
    # A GeForce board's TF32 is no faster than its FP32, and is offered with that warning.
    weak = knob("tf32", played("rtx3090"))
    assert weak.available and "expect little" in weak.reason


def test_tf32_default_differs_by_paddle() -> None:
    device = played("a100-80gb")
    old = knob("tf32", device, replace(PADDLE, version="2.6.2")).reason
    new = knob("tf32", device, replace(PADDLE, version="3.3.1")).reason
    assert old != new and "2.6" in old and "convolutions, not in matrix products" in new
    assert "baseline records" in old and "baseline records" in new
    # A development build goes by the rules of 3.x; older ones were never read.
    built = knob("tf32", device, replace(PADDLE, version="0.0.0")).reason
    assert "convolutions, not in matrix products" in built
    assert "not known" in knob("tf32", device, replace(PADDLE, version="2.5.2")).reason


@pytest.mark.parametrize(("value", "available"), [("0", False), ("1", True), ("", True)])
def test_cudas_own_variable_forbids_tf32(value: str, available: bool) -> None:
    found = knobs.tf32(played("a100-40gb"), PADDLE, {"NVIDIA_TF32_OVERRIDE": value})
    assert found.available == available
    assert available or "NVIDIA_TF32_OVERRIDE=0" in found.reason
    # A GPU without it is refused for that reason, whatever the environment says.
    assert "Ampere" in knobs.tf32(played("t4"), PADDLE, {"NVIDIA_TF32_OVERRIDE": "0"}).reason


def test_tf32_elsewhere() -> None:
    assert not knob("tf32", custom("npu")).available


@pytest.mark.parametrize(
    ("optimizer", "has"),
    [("AdamW", True), ("Momentum", True), ("LBFGS", False), ("MyOwn", None), (None, None)],
)
def test_master_weights_of_optimizers(optimizer: str | None, has: bool | None) -> None:
    assert knobs.has_master_weights(optimizer) is has


@given(DEVICES, PADDLES)
def test_no_combination_of_facts_raises(device: Device, paddle: PaddleInstall) -> None:
    found = knobs.knob_verdicts(device, paddle)
    assert len({k.knob for k in found}) == len(found)
    assert all(k.reason and k.source for k in found)
