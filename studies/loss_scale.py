"""From the gradients of one FP32 run to the loss scales worth trying in float16.

Constants are those of IEEE 754 binary16: largest value 65504 (exponent 15), smallest normal
2**-14, smallest subnormal 2**-24.
"""

from dataclasses import dataclass

from autoamp.measurement import Scan

FP16_MAX_EXPONENT = 15
FP16_MIN_NORMAL_EXPONENT = -14
FP16_MIN_SUBNORMAL_EXPONENT = -24

MARGIN_BITS = 1
"""The scan sees some steps of one run; a later gradient may be larger by this much."""

DEFAULT_EXPONENT = 15
"""2**15 is AmpScaler's default. GradScaler's 2**16 is above 65504: a loss that is itself
float16 (O2) overflows on the first step."""

MAX_EXPONENT = 24
"""Beyond this a float32 loss of ordinary size comes near to losing its own low bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleWindow:
    """Exponents of two for ``init_loss_scaling``: above ``high`` gradients overflow, below
    ``low`` some vanish. ``low`` may exceed ``high``: then no scale keeps all gradients."""

    low: int
    high: int
    kept_share: float
    """Share of non-zero gradients that survive in float16 at ``chosen``."""
    kept_share_unscaled: float
    """The same with no loss scale."""
    chosen: int

    @property
    def chosen_scale(self) -> float:
        return float(2.0**self.chosen)

    def candidates(self) -> tuple[float, ...]:
        """Scales to try, the most promising first; powers of two, all within the window."""
        middle = (max(0, min(self.low, self.high)) + self.high) // 2
        wanted = (self.chosen, self.high, middle)
        return tuple(dict.fromkeys(float(2.0**e) for e in wanted))


def scale_window(scan: Scan) -> ScaleWindow | None:
    """The window for ``init_loss_scaling``; None if the scan saw no gradient."""
    if scan.grad_exponent_max is None or scan.grad_exponent_min is None:
        return None
    high = FP16_MAX_EXPONENT - MARGIN_BITS - scan.grad_exponent_max
    high = min(max(high, 0), MAX_EXPONENT)
    low = max(0, FP16_MIN_SUBNORMAL_EXPONENT - scan.grad_exponent_min)
    # The default is kept when it does no harm: fewer surprises for who reads the script later.
    chosen = min(high, max(DEFAULT_EXPONENT, min(low, high)))
    return ScaleWindow(
        low=low,
        high=high,
        chosen=chosen,
        kept_share=_kept_share(scan, chosen),
        kept_share_unscaled=_kept_share(scan, 0),
    )


def _kept_share(scan: Scan, shift: int) -> float:
    total = sum(count for _, count in scan.grad_exponents)
    if total == 0:
        assert scan.grad_exponent_min is not None and scan.grad_exponent_max is not None
        fits = (
            scan.grad_exponent_min + shift >= FP16_MIN_SUBNORMAL_EXPONENT
            and scan.grad_exponent_max + shift <= FP16_MAX_EXPONENT
        )
        return 1.0 if fits else 0.0
    kept = sum(
        count
        for exponent, count in scan.grad_exponents
        if FP16_MIN_SUBNORMAL_EXPONENT <= exponent + shift <= FP16_MAX_EXPONENT
    )
    return kept / total
