"""What a kept roofline (``autoamp probe --bench``) says about a search: order, limits, causes.

Pure. It never decides: it moves precisions in the queue, and explains what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autoamp.measurement import Measurement
from autoamp.probes.facts import POWER_CAP, DeviceKind, Machine, Roofline, slowed_by
from autoamp.settings import Setting

if TYPE_CHECKING:
    from autoamp.studies.space import Precision

NEAR_BEST = 0.8
"""A 16-bit type whose products run at less than this share of the other's rate stands behind it:
the rates of one board repeat within a few percent, and a library without kernels for a type falls
far below that."""

LAUNCHES_MATTER = 0.25
"""From this share of a step on kernel launches are named as what no precision shortens."""

SMALL_GAIN = 1.5
"""Products that are less than this much faster are named as the limit of what can be gained."""

FEW_PRODUCTS = 0.4
"""Below this share of a step products are named as too little to shorten it by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """A roofline as the search sees it. Rates are floating-point operations per second of the
    fastest aligned product."""

    rates: dict[str, float]
    """By ``float32``, ``tf32``, ``float16``, ``bfloat16``; absent: not measured."""
    launch_s: float | None
    copy_bytes_per_s: float | None
    label: str
    """``measured`` or ``modelled``."""
    taken_at: str
    conditions: str
    """``SM clock 1980 MHz on average, 540 W``; empty if nothing was seen."""
    throttled: tuple[str, ...]
    """By heat or hardware; a GPU at its power limit does what it does in training."""
    shared_with: tuple[str, ...] = ()
    """Processes that used the GPU as well."""

    @property
    def trusted(self) -> bool:
        """Rates of a throttled GPU are those of its cooling, of a shared one half another's."""
        return not self.throttled and not self.shared_with and "float32" in self.rates

    def gain(self, name: str, *, fp32_in_tf32: bool) -> float | None:
        """How much faster products run in the dtype (or ``tf32``) than FP32's own; None if one
        of them was not measured."""
        own = self.rates.get("tf32") if fp32_in_tf32 else None
        own = own or self.rates.get("float32")
        theirs = self.rates.get(name)
        return None if not own or theirs is None else theirs / own

    def sentence(self) -> str:
        """Which roofline it is and whether it was used."""
        seen = f" ({self.conditions})" if self.conditions else ""
        which = f"roofline {self.label} {self.taken_at}{seen}"
        if self.throttled:
            return (
                f"{which}: not used, the GPU was throttled then ({', '.join(self.throttled)}); "
                "autoamp probe --bench takes it anew"
            )
        if self.shared_with:
            return (
                f"{which}: not used, other processes were on the GPU then "
                f"({', '.join(self.shared_with)}); autoamp probe --bench takes it anew"
            )
        if not self.trusted:
            return f"{which}: not used, it has no rate for float32"
        return f"{which}: used for the order of precisions and for reasons, not for the choice"


def prior_of(machine: Machine) -> Prior | None:
    """The prior of a machine; None without a roofline, and on a CPU, where Paddle's AMP does
    nothing that could be put in order."""
    if machine.roofline is None or machine.device.kind is DeviceKind.cpu:
        return None
    return read(machine.roofline)


def read(roofline: Roofline) -> Prior:
    """The roofline's best aligned products and its conditions."""
    rates: dict[str, float] = {}
    for product in roofline.matmuls:
        if product.aligned and product.flops_per_s > 0:
            rates[product.dtype] = max(rates.get(product.dtype, 0.0), product.flops_per_s)
    seen = []
    if roofline.sm_clock_mhz is not None:
        seen.append(f"SM clock {roofline.sm_clock_mhz:.0f} MHz on average")
    if roofline.power_w is not None:
        seen.append(f"{roofline.power_w:.0f} W")
    if POWER_CAP in roofline.throttle_reasons:
        seen.append("at its power limit")
    return Prior(
        rates=rates,
        launch_s=roofline.launch_s,
        copy_bytes_per_s=roofline.copy_bytes_per_s,
        label=str(roofline.label),
        taken_at=roofline.taken_at,
        conditions=", ".join(seen),
        throttled=slowed_by(roofline.throttle_reasons),
        shared_with=roofline.other_processes,
    )


def rate_name(setting: Setting) -> str | None:
    """The rate that a setting's products run at; None for FP32 and the script as written."""
    if setting.is_mixed:
        return str(setting.dtype or "float16")
    return "tf32" if setting.tf32 else None


def slow(prior: Prior | None, setting: Setting, *, fp32_in_tf32: bool) -> str | None:
    """Why a precision stands last: its products were measured below FP32's rate; else None."""
    name = rate_name(setting)
    if prior is None or not prior.trusted or name is None:
        return None
    gain = prior.gain(name, fp32_in_tf32=fp32_in_tf32)
    if gain is None or gain >= 1:
        return None
    return f"{name} products run at {gain:.2f}x FP32's rate ({prior.label} {prior.taken_at})"


def ordered(
    prior: Prior | None, precisions: Sequence[Precision], *, fp32_in_tf32: bool
) -> tuple[Precision, ...]:
    """The precisions in the order in which they are worth a look: FP32 first, slow ones last,
    the rest as they stand, but for a 16-bit type far behind the other."""
    if prior is None or not prior.trusted:
        return tuple(precisions)
    rates = [prior.rates[n] for n in ("float16", "bfloat16") if n in prior.rates]
    best = max(rates, default=0.0)

    def place(precision: Precision) -> int:
        setting = precision.setting(None)
        if not setting.is_reduced:
            return 0
        if slow(prior, setting, fp32_in_tf32=fp32_in_tf32) is not None:
            return 3
        rate = prior.rates.get(str(precision.dtype)) if precision.is_mixed else None
        return 2 if rate is not None and rate < NEAR_BEST * best else 1

    # A stable sort: within a place they stay as they were.
    return tuple(sorted(precisions, key=place))


def notes(
    prior: Prior | None, precisions: Sequence[Precision], *, fp32_in_tf32: bool
) -> tuple[str, ...]:
    """What is looked at last, and why; each dtype once."""
    found = [slow(prior, p.setting(None), fp32_in_tf32=fp32_in_tf32) for p in precisions]
    return tuple(dict.fromkeys(f"looked at last: {text}" for text in found if text is not None))


def launch_share(prior: Prior, measurement: Measurement) -> tuple[int, float] | None:
    """(Operator calls of a step, their launches' share of it), from the counts of one step.

    The counts leave out what autograd calls on a real GPU, so the share is a least one. None if
    calls or times were not seen.
    """
    calls = sum(c.float16 + c.bfloat16 + c.float32 + c.other for c in measurement.op_calls)
    step_s = step_seconds(measurement)
    if not calls or not step_s or not prior.launch_s:
        return None
    return calls, min(1.0, calls * prior.launch_s / step_s)


def product_share(prior: Prior, measurement: Measurement) -> float | None:
    """Share of an FP32 step that its arithmetic takes at the measured product rate; None where
    operations are not counted (they are on a virtual device)."""
    step_s = step_seconds(measurement)
    name = "tf32" if measurement.tf32_matmul else "float32"
    rate = prior.rates.get(name)
    if not measurement.step_flops or not step_s or not rate:
        return None
    return min(1.0, measurement.step_flops / rate / step_s)


def traffic_share(prior: Prior, measurement: Measurement) -> float | None:
    """Share of a step that its memory traffic takes at the rate of a copy; None where bytes are
    not counted. Data that stays in the cache is counted as well, so the share is a most one."""
    step_s = step_seconds(measurement)
    if not measurement.step_bytes or not step_s or not prior.copy_bytes_per_s:
        return None
    return min(1.0, measurement.step_bytes / prior.copy_bytes_per_s / step_s)


def step_seconds(measurement: Measurement) -> float | None:
    """Seconds a step of the timed window."""
    if not measurement.timed_s or not measurement.steps_timed:
        return None
    return measurement.timed_s / measurement.steps_timed


def limits(prior: Prior | None, fp32: Measurement | None, setting: Setting) -> list[str]:
    """Sentences on what bounds the gain of ``setting`` over FP32, as far as the roofline tells."""
    if prior is None or not prior.trusted or fp32 is None:
        return []
    out = []
    launches = launch_share(prior, fp32)
    if launches is not None and launches[1] >= LAUNCHES_MATTER and prior.launch_s:
        out.append(
            f"kernel launches: {prior.launch_s * 1e6:.3g} us each ({prior.label}) times "
            f"{launches[0]} operator calls are {launches[1]:.0%} of an FP32 step, and no "
            "precision shortens them"
        )
    share = product_share(prior, fp32)
    if share is not None and share < FEW_PRODUCTS:
        text = f"at the {prior.label} rates arithmetic would take {share:.0%} of an FP32 step"
        traffic = traffic_share(prior, fp32)
        if traffic is not None:
            text += f", memory traffic at most {traffic:.0%}"
        out.append(text)
    name = rate_name(setting)
    in_tf32 = bool(fp32.tf32_matmul)
    gain = None if name is None else prior.gain(name, fp32_in_tf32=in_tf32)
    if gain is not None and gain < SMALL_GAIN:
        own = "FP32's (in TF32)" if in_tf32 else "FP32's"
        cannot = "they gain nothing" if gain <= 1 else "no more than that can be gained in them"
        out.append(
            f"{name} products run at {gain:.2f}x the rate of {own} ({prior.label}): {cannot}"
        )
    return out
