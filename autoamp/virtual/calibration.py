"""How far the modelled times can be trusted, from the errors against published figures."""

from dataclasses import dataclass

from autoamp.virtual.clock_data import clock_data


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBand:
    """Relative half-widths: a modelled ``x`` stands for ``x * (1 - b)`` to ``x * (1 + b)``."""

    throughput: float
    """Of absolute throughput."""
    ratio: float
    """Of the ratio of two settings on the same GPU; the one that decisions use."""
    calibrated: bool
    note: str


def error_band(alias: str) -> ErrorBand:
    """The band of a GPU of the catalogue, named by its alias (``a100-80gb``).

    Calibrated GPUs carry the largest error seen when the model under test was left out of the
    fit; all others the largest seen when the GPU under test was left out. The table is in
    ``docs/virtual.md``, made by ``benchmarks/virtual_fit.py``.
    """
    errors = clock_data()["errors"]
    calibrated = alias.startswith(tuple(errors["calibrated_prefixes"]))
    band = errors["calibrated" if calibrated else "uncalibrated"]
    if calibrated:
        note = (
            "step time is modelled; its band is the largest error against published figures "
            "for models left out of the fit"
        )
    else:
        note = (
            "step time is modelled and uncalibrated: no published figure for this GPU was "
            "available; its band is the largest error for a GPU left out of the fit"
        )
    return ErrorBand(
        throughput=float(band["throughput"]),
        ratio=float(band["ratio"]),
        calibrated=calibrated,
        note=note,
    )
