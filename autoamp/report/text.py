"""Numbers as a person reads them."""

import math


def bytes_text(value: int | None) -> str:
    """``7.8 GiB``; ``-`` for unknown."""
    if value is None:
        return "-"
    size = float(value)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def estimated_text(extra_bytes: int) -> str:
    """`` +1.9 GiB m``: what the model adds to a counted peak (context, workspaces); else empty."""
    return f" +{bytes_text(extra_bytes)} m" if extra_bytes else ""


def ratio_text(value: float) -> str:
    """``1.43x``."""
    return f"{value:.2f}x"


def rate_text(value: float) -> str:
    """``40,600``, ``310.5``, ``2.34``: enough digits to compare, none that noise makes."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def scale_text(value: float | None) -> str:
    """A loss scale: ``2^15`` where it is a power of two."""
    if value is None:
        return "-"
    if value > 0 and math.log2(value).is_integer():
        return f"2^{int(math.log2(value))}"
    return f"{value:g}"


def seconds_text(value: float) -> str:
    """``45 s``, ``3 min``, ``1 h 20 min``."""
    if value < 90:
        return f"{value:.0f} s"
    minutes = round(value / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
