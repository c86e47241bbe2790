"""Samples the trial's device from a thread of the tuner."""

import threading
import time
from dataclasses import dataclass

from autoamp.measurement import Utilisation
from autoamp.probes import nvml
from autoamp.probes.facts import Device, DeviceKind

PERIOD_S = 0.1
"""NVML refreshes utilisation about every 100 ms to 1 s; faster looks see the same numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at the device, at ``t_s`` on CLOCK_MONOTONIC."""

    t_s: float
    gpu_percent: int | None
    memory_used_bytes: int | None
    power_w: float | None
    sm_clock_mhz: int | None
    throttle_bits: int | None


class Sampler:
    """Looks at one device until stopped; ``window`` sums up any span of time."""

    def __init__(self, device: Device, period_s: float = PERIOD_S) -> None:
        self._device = device
        self._period_s = period_s
        self._samples: list[Sample] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._session: nvml.Session | None = None
        self._reason: str | None = None

    def start(self) -> None:
        """Begin; a device without NVML gets a reason instead of samples."""
        if self._device.kind is not DeviceKind.gpu:
            self._reason = {
                DeviceKind.virtual: "a virtual device has no utilisation: its time is modelled",
                DeviceKind.cpu: "the CPU has no NVML",
                DeviceKind.custom: "this accelerator has no NVML",
            }[self._device.kind]
            return
        try:
            index = int(self._device.paddle_name.partition(":")[2] or 0)
            self._session = nvml.Session(self._device.uuid, index)
        except Exception as error:
            self._reason = f"NVML does not answer: {error}"
            return
        self._thread = threading.Thread(target=self._run, name="autoamp-sampler", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._period_s):
            self.look()

    def look(self) -> None:
        """Take one sample now."""
        if self._session is None:
            return
        raw = self._session.sample()
        self._samples.append(
            Sample(
                t_s=time.monotonic(),
                gpu_percent=_whole(raw["gpu_percent"]),
                memory_used_bytes=_whole(raw["memory_used_bytes"]),
                power_w=raw["power_w"],
                sm_clock_mhz=_whole(raw["sm_clock_mhz"]),
                throttle_bits=_whole(raw["throttle_bits"]),
            )
        )

    def window(self, start_s: float, end_s: float) -> Utilisation:
        """What the device did between two moments of CLOCK_MONOTONIC."""
        if self._reason is not None:
            return Utilisation(reason=self._reason)
        return summarise([s for s in self._samples if start_s <= s.t_s <= end_s], end_s - start_s)

    def stop(self) -> None:
        """End the thread and close NVML."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._session is not None:
            self._session.close()
            self._session = None


def _whole(value: float | int | None) -> int | None:
    return None if value is None else int(value)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def summarise(samples: list[Sample], seconds: float) -> Utilisation:
    """Means and peaks of samples; energy is mean power times the window's seconds."""
    if not samples:
        return Utilisation(reason="the timed window was shorter than the sampling period")
    power = _mean([s.power_w for s in samples if s.power_w is not None])
    memory = [s.memory_used_bytes for s in samples if s.memory_used_bytes is not None]
    bits = 0
    for sample in samples:
        bits |= sample.throttle_bits or 0
    percent = _mean([float(s.gpu_percent) for s in samples if s.gpu_percent is not None])
    return Utilisation(
        gpu_percent=percent,
        memory_used_peak_bytes=max(memory) if memory else None,
        power_mean_w=power,
        energy_j=None if power is None else power * seconds,
        sm_clock_mean_mhz=_mean(
            [float(s.sm_clock_mhz) for s in samples if s.sm_clock_mhz is not None]
        ),
        throttle_reasons=nvml.throttle_names(bits),
        reason=None if percent is not None else "NVML gives no utilisation here",
    )
