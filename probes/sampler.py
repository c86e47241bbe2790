"""Samples the trial's devices from a thread of the tuner."""

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoamp.measurement import Utilisation
from autoamp.probes.facts import Device, DeviceKind
from autoamp.probes.nvml_gpu import THROTTLE_BITS, throttle_names
from autoamp.probes.nvml_session import Look, Session

PERIOD_S = 0.1
"""NVML renews its utilisation every 1/6 to 1 s (nvml.h, nvmlUtilization_t): looking more often
shows the same numbers."""

THROTTLED_SHARE = 0.1
"""A throttle reason counts from this share of the looks on: the slowdown bit may also come up for
a moment while clocks change (nvml.h, nvmlClocksThrottleReasonHwSlowdown)."""

_NO_NVML = {
    DeviceKind.virtual: "a virtual device has no utilisation: its time is modelled",
    DeviceKind.cpu: "the CPU has no NVML",
    DeviceKind.custom: "this accelerator has no NVML",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at one device, at ``t_s`` on CLOCK_MONOTONIC."""

    t_s: float
    look: Look


class Sampler:
    """Looks at one device, or several, until stopped; ``window`` sums up any span of time."""

    def __init__(self, device: Device | Sequence[Device], period_s: float = PERIOD_S) -> None:
        self._devices = (device,) if isinstance(device, Device) else tuple(device)
        self._period_s = period_s
        self._sessions: list[Session] = []
        self._samples: list[list[Sample]] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._reason: str | None = None
        self._cost_s = 0.0
        self._looks = 0

    @property
    def cost_s_per_look(self) -> float | None:
        """Processor seconds that one look at all devices took; None before the first."""
        return self._cost_s / self._looks if self._looks else None

    def start(self) -> None:
        """Begin; a device without NVML gets a reason instead of samples."""
        for device in self._devices:
            if device.kind is not DeviceKind.gpu:
                self._reason = _NO_NVML[device.kind]
                return
        try:
            for device in self._devices:
                self._sessions.append(Session(device))
        except RuntimeError as error:
            self._reason = str(error)
            self._close()
            return
        self._samples = [[] for _ in self._sessions]
        self._thread = threading.Thread(target=self._run, name="autoamp-sampler", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            self.look()
            if self._stop.wait(self._period_s):
                return

    def look(self) -> None:
        """Take one sample of every device now."""
        before = time.thread_time()
        for session, samples in zip(self._sessions, self._samples, strict=True):
            samples.append(Sample(t_s=time.monotonic(), look=session.look()))
        self._cost_s += time.thread_time() - before
        self._looks += 1

    def window(self, start_s: float, end_s: float) -> Utilisation:
        """What the devices did between two moments of CLOCK_MONOTONIC.

        Of several devices: mean utilisation and clock, the fullest memory, power and energy in
        sum.
        """
        if self._reason is not None:
            return Utilisation(reason=self._reason)
        parts = [
            summarise(list(samples), start_s, end_s, session.silent)
            for samples, session in zip(self._samples, self._sessions, strict=True)
        ]
        return combine(parts)

    def stop(self) -> None:
        """End the thread and close NVML; ``window`` still answers."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._close()

    def _close(self) -> None:
        for session in self._sessions:
            session.close()


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def summarise(
    samples: Sequence[Sample], start_s: float, end_s: float, silent: dict[str, str]
) -> Utilisation:
    """Means and peaks of the samples within a window; ``silent`` says what NVML does not tell."""
    inside = [s for s in samples if start_s <= s.t_s <= end_s]
    if not inside:
        return Utilisation(
            reason="no sample of the device: the timed window was shorter than the sampling period"
        )
    power = _mean([s.look.power_w for s in inside if s.look.power_w is not None])
    energy = counted_energy(samples, start_s, end_s)
    if energy is not None:
        # The counter misses nothing between two looks; the readings do.
        power = energy / (end_s - start_s)
    elif power is not None:
        energy = power * (end_s - start_s)
    memory = [s.look.memory_used_bytes for s in inside if s.look.memory_used_bytes is not None]
    percent = _mean([s.look.gpu_percent for s in inside if s.look.gpu_percent is not None])
    clock = _mean([s.look.sm_clock_mhz for s in inside if s.look.sm_clock_mhz is not None])
    told: dict[str, object] = {
        "gpu_percent": percent,
        "memory_used_bytes": memory or None,
        "power_w": power,
        "sm_clock_mhz": clock,
    }
    return Utilisation(
        gpu_percent=percent,
        memory_used_peak_bytes=max(memory) if memory else None,
        power_mean_w=power,
        energy_j=energy,
        sm_clock_mean_mhz=clock,
        throttle_reasons=throttling([s.look for s in inside]),
        reason=why_missing(told, silent),
    )


_WORDS = {
    "gpu_percent": "utilisation",
    "memory_used_bytes": "memory",
    "power_w": "power",
    "sm_clock_mhz": "SM clock",
}


def why_missing(told: Mapping[str, object], silent: Mapping[str, str]) -> str | None:
    """``no utilisation, power: NVML: Not Supported``; None if nothing is missing."""
    by_reason: dict[str, list[str]] = {}
    for name, value in told.items():
        if value is None:
            by_reason.setdefault(silent.get(name, "NVML did not say"), []).append(_WORDS[name])
    return "; ".join(f"no {', '.join(n)}: {why}" for why, n in by_reason.items()) or None


def throttling(looks: Sequence[Look]) -> tuple[str, ...]:
    """The throttle reasons seen in ``THROTTLED_SHARE`` of the looks that say something of it."""
    told = [throttle_names(x.throttle_bits) for x in looks if x.throttle_bits is not None]
    seen = Counter(name for names in told for name in names)
    return tuple(
        n for n in THROTTLE_BITS.values() if seen[n] > 0 and seen[n] >= THROTTLED_SHARE * len(told)
    )


def counted_energy(samples: Sequence[Sample], start_s: float, end_s: float) -> float | None:
    """Joules between two moments from the GPU's own counter, read between its samples.

    None without a counter, or if the window reaches beyond the samples by more than a tenth.
    """
    points = [(s.t_s, s.look.energy_j) for s in samples if s.look.energy_j is not None]
    if len(points) < 2 or end_s <= start_s:
        return None
    slack = 0.1 * (end_s - start_s)
    if points[0][0] > start_s + slack or points[-1][0] < end_s - slack:
        return None

    def at(moment: float) -> float:
        later = next((i for i, (t, _) in enumerate(points) if t >= moment), len(points) - 1)
        first = max(1, later) - 1
        (t0, e0), (t1, e1) = points[first], points[first + 1]
        return e0 + (e1 - e0) * (moment - t0) / (t1 - t0) if t1 > t0 else e1

    spent = at(end_s) - at(start_s)
    # The counter starts anew when the driver is loaded again, and a GPU that runs draws something.
    return spent if spent > 0 else None


def combine(parts: Sequence[Utilisation]) -> Utilisation:
    """One Utilisation for several devices; a value missing for one is missing for all."""
    if len(parts) == 1:
        return parts[0]

    def each(name: str) -> list[float] | None:
        values = [getattr(p, name) for p in parts]
        return None if any(v is None for v in values) or not values else values

    percent, clock = each("gpu_percent"), each("sm_clock_mean_mhz")
    memory, power, energy = each("memory_used_peak_bytes"), each("power_mean_w"), each("energy_j")
    return Utilisation(
        gpu_percent=_mean(percent or []),
        memory_used_peak_bytes=None if memory is None else int(max(memory)),
        power_mean_w=None if power is None else sum(power),
        energy_j=None if energy is None else sum(energy),
        sm_clock_mean_mhz=_mean(clock or []),
        throttle_reasons=tuple(dict.fromkeys(r for p in parts for r in p.throttle_reasons)),
        reason=next((p.reason for p in parts if p.reason), None),
    )
