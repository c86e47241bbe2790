"""How far the modelled times can be trusted, from the errors against published figures."""

from dataclasses import dataclass

from autoamp.virtual.clock_data import clock_data


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBand:
    """A modelled ``x`` stands for ``x / (1 + b)`` to ``x * (1 + b)``."""

    throughput: float
    """Of absolute throughput."""
    ratio: float
    """Of the ratio of two settings on the same GPU; the one that decisions use."""
    host_bound_throughput: float
    host_bound_ratio: float
    """Of steps that wait for the host, whose speed is not the GPU's."""
    calibrated: bool
    note: str


def error_band(alias: str) -> ErrorBand:
    """The band of a GPU of the catalogue, named by its alias (``a100-80gb``).

    The larger of two figures: the largest error seen when the model (calibrated GPUs) or the GPU
    (all others, widened) under test was left out of the fit; and what nine of ten published rows
    (19 of 20 for the others) that had no part in the fit stay within. Tables in
    ``docs/virtual.md``, made by ``benchmarks/virtual_fit.py`` and ``virtual_validation.py``.
    """
    errors, validation = clock_data()["errors"], clock_data()["validation"]
    calibrated = alias in errors["calibrated_gpus"]
    # An uncalibrated GPU is never better known than a calibrated one.
    kinds = ("calibrated",) if calibrated else ("calibrated", "uncalibrated")
    found = [source[kind] for source in (errors, validation) for kind in kinds]
    if calibrated:
        note = (
            "step time is modelled; its band is the larger of the worst error for models left "
            "out of the fit and what 9 of 10 other published figures stay within"
        )
    else:
        note = (
            "step time is modelled and uncalibrated: no figure for this GPU is in the fit; its "
            "band is the larger of the widened error for a GPU left out of the fit and what 19 of "
            "20 figures published for such GPUs stay within"
        )
    return ErrorBand(
        throughput=max(float(band["throughput"]) for band in found),
        ratio=max(float(band["ratio"]) for band in found),
        host_bound_throughput=float(validation["host_bound"]["throughput"]),
        host_bound_ratio=float(validation["host_bound"]["ratio"]),
        calibrated=calibrated,
        note=note,
    )
