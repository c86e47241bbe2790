"""Emulated runs that the studies of one plan share.

What a run with full numerics computes depends on the script and the setting, not on the GPU that
is played: rounding is the same on each that has the dtype. So it is made once for all of them.
"""

from dataclasses import dataclass, field, replace

from autoamp.measurement import Measurement, Outcome

SHAREABLE = (Outcome.ok, Outcome.not_finite, Outcome.scale_collapsed, Outcome.diverged)
"""Ends that speak about the numbers. Out of memory and time-outs belong to one GPU or moment."""


@dataclass
class SharedRuns:
    """Runs by what they were asked for, with the study and trial that made them."""

    _runs: dict[str, tuple[str, Measurement]] = field(default_factory=dict)

    def offer(self, key: str, study: str, number: int, measurement: Measurement) -> None:
        """Keep a run with full numerics for the studies to come."""
        if measurement.outcome in SHAREABLE and measurement.taken_from is None:
            self._runs.setdefault(key, (f"{study}, trial {number}", measurement))

    def take(
        self, key: str, capacity_bytes: int | None, overhead_bytes: int | None = None
    ) -> Measurement | None:
        """The run of another study, if it would have fitted this GPU as well.

        ``overhead_bytes`` is the estimate of what this GPU's driver and context take. The run
        carries where it comes from in ``taken_from``.
        """
        found = self._runs.get(key)
        if found is None:
            return None
        source, measurement = found
        here = replace(measurement, taken_from=source, memory_overhead_bytes=overhead_bytes)
        peak = here.memory_reserved_peak_bytes
        if peak is None or capacity_bytes is None:
            return None
        return here if peak + here.memory_estimated_bytes <= capacity_bytes else None
