"""Peak memory as a line over the batch size, from a few cheap runs.

Weights, gradients and optimizer state do not depend on the batch; activations grow with it in
proportion. Workspaces and the caching allocator's blocks bend the line, so a prediction only
says what to try next: no batch size is recommended that was not run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryModel:
    """``fixed_bytes + batch * bytes_per_sample``."""

    fixed_bytes: float
    bytes_per_sample: float
    points: int
    worst_error: float
    """Largest relative error of the line at the points it was fitted to."""

    def predict_bytes(self, batch: int) -> float:
        """Peak memory in bytes that the line gives for ``batch``."""
        return self.fixed_bytes + self.bytes_per_sample * batch

    def largest_batch(self, limit_bytes: float) -> int | None:
        """Largest batch whose prediction stays within the limit; None: the line is flat."""
        if self.bytes_per_sample <= 0:
            return None
        return max(0, int((limit_bytes - self.fixed_bytes) / self.bytes_per_sample))


def fit(points: Sequence[tuple[int, int]]) -> MemoryModel | None:
    """Least-squares line through (batch, bytes); None below two different batch sizes."""
    if len({batch for batch, _ in points}) < 2:
        return None
    batches = np.array([b for b, _ in points], dtype=float)
    peaks = np.array([m for _, m in points], dtype=float)
    centred = batches - batches.mean()
    slope = float((centred * (peaks - peaks.mean())).sum() / (centred**2).sum())
    # A falling line is the allocator's noise on a model whose activations do not matter.
    slope = max(0.0, slope)
    fixed = float(peaks.mean() - slope * batches.mean())
    errors = np.abs(fixed + slope * batches - peaks) / np.maximum(peaks, 1.0)
    return MemoryModel(
        fixed_bytes=fixed,
        bytes_per_sample=slope,
        points=len(points),
        worst_error=float(errors.max()),
    )
