"""Numbers and settings as a person reads them."""

import math

from autoamp.settings import Setting


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


def setting_cells(setting: Setting, batch: int | None) -> tuple[str, str, str, str, str]:
    """Level, dtype, batch, loss scale and lists of a trial's row, in every table the same: rows of
    different settings differ. ``batch``: what was seen, where the setting leaves it alone."""
    size = setting.batch_size if setting.batch_size is not None else batch
    return (
        "own" if setting.amp_level is None else str(setting.amp_level),
        "tf32" if setting.precision() == "TF32" else str(setting.dtype or "-"),
        "-" if size is None else str(size),
        scale_text(setting.init_loss_scaling),
        _lists(setting),
    )


def _lists(setting: Setting) -> str:
    """``-softmax,no promote``: AMP's lists and the knobs that have no column of their own."""
    parts = [f"-{op}" for op in setting.custom_black_list]
    parts += [f"+{op}" for op in setting.custom_white_list]
    if setting.master_grad is not None:
        parts.append("master_grad" if setting.master_grad else "no master_grad")
    if setting.use_promote is not None:
        parts.append("promote" if setting.use_promote else "no promote")
    if setting.dynamic_loss_scaling is not None:
        parts.append("dynamic scale" if setting.dynamic_loss_scaling else "static scale")
    if setting.accumulate_steps is not None:
        parts.append(f"accumulate {setting.accumulate_steps}")
    if setting.tf32 is not None and setting.precision() != "TF32":
        parts.append("tf32" if setting.tf32 else "no tf32")
    return ",".join(parts) or ("default" if setting.is_mixed else "-")
