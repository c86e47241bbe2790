"""The sampler: what it sums up, what it says where there is nothing to sum, and what it costs."""

import time
from typing import Any

import fake_nvml
import machine_files
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoamp.measurement import Utilisation
from autoamp.probes.facts import Device, DeviceKind
from autoamp.probes.nvml_session import Look, Session
from autoamp.probes.sampler import Sample, Sampler, combine, counted_energy, summarise

MIB = 2**20


def device_of(monkeypatch: pytest.MonkeyPatch, machine: dict[str, Any], number: int = 0) -> Device:
    return machine_files.assembled(monkeypatch, machine).devices[number]


def samples(*looks: Look, step_s: float = 0.1) -> list[Sample]:
    return [Sample(t_s=round(step_s * n, 6), look=look) for n, look in enumerate(looks)]


def test_means_peaks_and_throttling_of_a_window() -> None:
    taken = samples(
        Look(gpu_percent=0, memory_used_bytes=900, power_w=50.0, sm_clock_mhz=300),
        Look(gpu_percent=80, memory_used_bytes=500, power_w=100.0, sm_clock_mhz=1000),
        Look(gpu_percent=100, memory_used_bytes=700, power_w=200.0, throttle_bits=0x4),
        Look(gpu_percent=0, memory_used_bytes=999, power_w=900.0, throttle_bits=0x40),
    )
    found = summarise(taken, 0.05, 0.25, {})
    assert found == Utilisation(
        gpu_percent=90.0,
        memory_used_peak_bytes=700,
        power_mean_w=150.0,
        energy_j=pytest.approx(30.0),  # type: ignore[arg-type]  # stands in for a float
        sm_clock_mean_mhz=1000.0,
        throttle_reasons=("software power cap",),
    )


@pytest.mark.parametrize(
    ("bits", "seen"),
    [
        ([0x4] * 10, ("software power cap",)),
        # A moment of slowdown in a long window is no throttled window.
        ([0x8] + [0] * 20, ()),
        ([0x8] * 2 + [0] * 18, ("hardware slowdown",)),
        ([0x44, 0x4, 0x4, 0x40], ("software power cap", "hardware thermal slowdown")),
        # Looks that say nothing of it are no looks at it.
        ([0x20] + [None] * 20, ("software thermal slowdown",)),
        ([None, None], ()),
        ([0x1 | 0x2 | 0x10 | 0x100] * 5, ()),
    ],
)
def test_a_throttle_reason_needs_a_share_of_the_looks(
    bits: list[int | None], seen: tuple[str, ...]
) -> None:
    found = summarise(samples(*[Look(throttle_bits=b) for b in bits]), 0.0, 10.0, {})
    assert found.throttle_reasons == seen


def test_energy_comes_from_the_counter_where_there_is_one() -> None:
    taken = samples(*[Look(power_w=1.0, energy_j=1000.0 + 40.0 * n) for n in range(11)])
    # 400 J a second between two samples, whatever the power readings said.
    assert counted_energy(taken, 0.2, 0.8) == pytest.approx(240.0)
    assert counted_energy(taken, 0.25, 0.35) == pytest.approx(40.0)
    found = summarise(taken, 0.2, 0.8, {})
    assert found.energy_j == pytest.approx(240.0)
    # Mean power is of the same counter, so that energy for 1,000 samples is, wherever it is taken.
    assert found.power_mean_w == pytest.approx(400.0)


def test_a_counter_that_starts_anew_is_no_energy() -> None:
    taken = samples(*[Look(energy_j=e) for e in (900.0, 950.0, 1.0, 2.0)])
    assert counted_energy(taken, 0.0, 0.3) is None
    still = samples(*[Look(energy_j=10.0, power_w=48.0)] * 11)
    assert counted_energy(still, 0.0, 1.0) is None
    assert summarise(still, 0.0, 1.0, {}).energy_j == pytest.approx(48.0)


def test_a_window_beyond_the_samples_is_not_guessed() -> None:
    taken = samples(*[Look(energy_j=float(n)) for n in range(5)])
    assert counted_energy(taken, 0.0, 4.0) is None
    assert counted_energy([], 0.0, 1.0) is None
    assert counted_energy(taken, 0.3, 0.3) is None


def test_what_nvml_does_not_tell_is_said() -> None:
    silent = {"gpu_percent": "NVML: Not Supported", "sm_clock_mhz": "NVML: Not Supported"}
    found = summarise(samples(Look(power_w=5.0)), 0.0, 1.0, silent)
    assert found.gpu_percent is None
    assert found.reason == (
        "no utilisation, SM clock: NVML: Not Supported; no memory: NVML did not say"
    )
    # Utilisation alone is not all: whatever is missing has its reason.
    look = Look(gpu_percent=5, memory_used_bytes=1, sm_clock_mhz=9)
    found = summarise(samples(look), 0.0, 1.0, {"power_w": "NVML: No permission"})
    assert found.reason == "no power: NVML: No permission" and found.energy_j is None
    assert summarise([], 0.0, 1.0, {}).reason


LOOKS = st.builds(
    Look,
    gpu_percent=st.none() | st.integers(0, 100),
    memory_used_bytes=st.none() | st.integers(0, 2**40),
    power_w=st.none() | st.floats(0, 2000),
    energy_j=st.none() | st.floats(0, 1e9),
    sm_clock_mhz=st.none() | st.integers(0, 3000),
    throttle_bits=st.none() | st.integers(0, 0x1FF),
)


@given(st.lists(LOOKS, max_size=8), st.floats(-1, 2), st.floats(0, 2))
def test_no_samples_raise_and_no_sum_leaves_its_range(
    looks: list[Look], start: float, length: float
) -> None:
    found = summarise(samples(*looks), start, start + length, {})
    assert found.gpu_percent is None or 0 <= found.gpu_percent <= 100
    assert found.energy_j is None or found.energy_j >= 0
    assert found.gpu_percent is not None or found.reason


def test_several_gpus_are_summed_up() -> None:
    one = Utilisation(
        gpu_percent=90.0, memory_used_peak_bytes=5, power_mean_w=100.0, energy_j=10.0
    )
    two = Utilisation(
        gpu_percent=70.0,
        memory_used_peak_bytes=9,
        power_mean_w=200.0,
        energy_j=30.0,
        throttle_reasons=("software power cap",),
    )
    found = combine([one, two])
    assert (found.gpu_percent, found.memory_used_peak_bytes) == (80.0, 9)
    assert (found.power_mean_w, found.energy_j) == (300.0, 40.0)
    assert found.throttle_reasons == ("software power cap",)
    # Half a sum would be a wrong one.
    assert combine([one, Utilisation(reason="lost")]).power_mean_w is None
    assert combine([one, Utilisation(reason="lost")]).reason == "lost"


def sampled(device: Device | list[Device], looks: int = 3) -> tuple[Sampler, Utilisation]:
    sampler = Sampler(device, period_s=0.001)
    before = time.monotonic()
    sampler.start()
    deadline = before + 30
    while sampler.cost_s_per_look is None and time.monotonic() < deadline:
        time.sleep(0.002)
    for _ in range(looks):
        sampler.look()
    after = time.monotonic()
    sampler.stop()
    return sampler, sampler.window(before, after)


def test_a_gpu_is_sampled_from_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fake_nvml.load("h100-busy")
    machine["gpus"][0]["gpu_percent"] = 37
    sampler, found = sampled(device_of(monkeypatch, machine))
    assert found.gpu_percent == 37.0 and found.power_mean_w == 113.0
    assert found.memory_used_peak_bytes == 72459 * MIB and found.sm_clock_mean_mhz == 1980.0
    assert found.reason is None
    assert sampler.cost_s_per_look is not None and sampler.cost_s_per_look > 0


def test_the_right_gpu_of_several_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fake_nvml.load("a100-exclusive")
    machine["gpus"][0]["uuid"] = machine["gpus"][1]["uuid"] = {"error": "UNKNOWN"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    shown = machine_files.assembled(
        monkeypatch, machine, environment={"CUDA_VISIBLE_DEVICES": "1"}
    ).devices[0]
    assert shown.paddle_name == "gpu:0" and shown.nvml is not None and shown.nvml.index == 1
    assert sampled(shown)[1].power_mean_w == 66.0


def test_two_gpus_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = machine_files.assembled(monkeypatch, fake_nvml.load("a100-exclusive")).devices
    both = sampled(list(found))[1]
    assert both.power_mean_w == pytest.approx(67.0 + 66.0)
    assert both.gpu_percent == pytest.approx(9.0)


def test_a_mig_instance_has_memory_and_no_utilisation(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fake_nvml.load("a100-mig")
    machine["gpus"][0]["mig_instances"][0]["memory_mib"]["used"] = 4000
    found = sampled(device_of(monkeypatch, machine))[1]
    assert found.memory_used_peak_bytes == 4000 * MIB
    assert found.gpu_percent is None and found.power_mean_w is None and found.energy_j is None
    assert found.reason == "no utilisation, power: NVML measures it for the whole GPU only"


def test_a_mig_instance_has_its_gpus_clock_and_throttling(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fake_nvml.load("a100-mig")
    machine["gpus"][0]["throttle_bits"] = 0x40
    found = sampled(device_of(monkeypatch, machine))[1]
    assert found.sm_clock_mean_mhz == 1275.0
    assert found.throttle_reasons == ("hardware thermal slowdown",)


def test_a_mig_instance_without_a_uuid_is_not_taken_for_its_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = fake_nvml.load("a100-mig")
    machine["gpus"][0]["mig_instances"][0]["uuid"] = {"error": "UNKNOWN"}
    sampler = Sampler(device_of(monkeypatch, machine))
    sampler.start()
    found = sampler.window(0.0, 1.0)
    sampler.stop()
    assert found.memory_used_peak_bytes is None and "no UUID" in (found.reason or "")


@pytest.mark.parametrize(
    ("error", "again"),
    [("TIMEOUT", True), ("UNKNOWN", True), ("NOT_SUPPORTED", False), ("NO_PERMISSION", False)],
)
def test_a_failure_that_passes_is_asked_again(
    error: str, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = fake_nvml.load("h100-busy")
    device = device_of(monkeypatch, machine)
    session = Session(device)
    machine["gpus"][0]["power_w"] = {"error": error}
    assert session.look().power_w is None and session.silent["power_w"]
    machine["gpus"][0]["power_w"] = 113.0
    assert (session.look().power_w is not None) == again
    session.close()


def test_a_gpu_that_falls_off_the_bus_while_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fake_nvml.load("h100-idle")
    device = device_of(monkeypatch, machine)
    for field in list(machine["gpus"][0]):
        machine["gpus"][0][field] = {"error": "GPU_IS_LOST"}
    machine["gpus"][0]["uuid"] = device.uuid
    found = sampled(device)[1]
    assert found.gpu_percent is None and "lost" in (found.reason or "")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (DeviceKind.virtual, "modelled"),
        (DeviceKind.cpu, "no NVML"),
        (DeviceKind.custom, "no NVML"),
    ],
)
def test_devices_without_nvml_say_so(kind: DeviceKind, words: str) -> None:
    sampler = Sampler(Device(kind=kind, paddle_name="x:0", name="x"))
    sampler.start()
    found = sampler.window(0.0, 1.0)
    sampler.stop()
    assert words in (found.reason or "") and found.energy_j is None


@pytest.mark.parametrize("name", ["wrong-pynvml", "nvml-missing-on-gpu-build"])
def test_nvml_that_went_away_is_a_reason_and_no_error(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = device_of(monkeypatch, fake_nvml.load("t4"))
    fake_nvml.install(monkeypatch, fake_nvml.load(name))
    sampler = Sampler(device)
    sampler.start()
    found = sampler.window(0.0, 1.0)
    sampler.stop()
    assert found.reason and found.gpu_percent is None


def test_nvml_is_closed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fake_nvml.load("t4")
    sampled(device_of(monkeypatch, machine))
    import pynvml

    with pytest.raises(fake_nvml.NVMLError):
        pynvml.nvmlDeviceGetCount()
