"""Emulated runs that the studies of one plan share.

What a run with full numerics computes depends on the script and the setting, not on the GPU that
is played: rounding is the same on each that has the dtype. So it is made once for all of them.
"""

from dataclasses import dataclass, field

from autoamp.measurement import Measurement, Outcome

SHAREABLE = (Outcome.ok, Outcome.not_finite, Outcome.scale_collapsed, Outcome.diverged)
"""Ends that speak about the numbers. Out of memory and time-outs belong to one GPU or moment."""

NOT_TIMED = "an emulated run of another GPU's study stands here: it timed nothing of this GPU"

OF_THE_SCRIPT = (
    *("outcome", "reason", "numerics_label", "batch_size", "steps_done"),
    *("memory_label", "memory_allocated_peak_bytes", "memory_reserved_peak_bytes"),
    *("losses", "loss_steps", "skipped_steps", "loss_scales", "zero_gradient_share"),
    *("op_calls", "applied", "effects", "facts", "scan", "proposal_key"),
    *("step_flops", "step_bytes", "dataset_restarts", "refused_writes", "caveats"),
    *("exit_code", "signal", "wall_s", "startup_s", "log_path", "log_tail"),
)
"""What a run with full numerics shows of script and setting, whatever GPU is played."""

OF_THE_GPU = (
    *("time_label", "steps_timed", "samples_timed", "timed_s", "throughput_samples_per_s"),
    *("throughput_spread", "block_throughputs", "data_wait_share", "data_wait_reason"),
    *("modelled_busy_share", "loader_s_per_step", "loader_workers", "loader_reason"),
    *("memory_overhead_bytes", "memory_workspace_bytes", "memory_reason", "utilisation"),
    *("tf32_matmul", "tf32_conv", "taken_from"),
)
"""The rest belongs to the GPU that was played, and stays with its study."""


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
        peak = measurement.memory_reserved_peak_bytes
        if peak is None or capacity_bytes is None:
            return None
        estimated = (overhead_bytes or 0) + (measurement.memory_workspace_bytes or 0)
        if peak + estimated > capacity_bytes:
            return None
        return Measurement(
            **{name: getattr(measurement, name) for name in OF_THE_SCRIPT},
            time_label=measurement.time_label,
            memory_overhead_bytes=overhead_bytes,
            data_wait_reason=NOT_TIMED,
            loader_reason=NOT_TIMED,
            taken_from=source,
        )
