"""What the script's text says before it runs."""

import re
from pathlib import Path

from autoamp.launch import Target

_BY_ITERATIONS = re.compile(
    r"\b(?:max|total|num|train)_?(?:steps|iters?|iterations)\b|--iters\b|--steps\b", re.IGNORECASE
)
_BY_EPOCHS = re.compile(r"epoch", re.IGNORECASE)


def scheduled_by(target: Target) -> str | None:
    """``iterations``, ``epochs`` or None if neither word is found.

    A script that counts iterations and never speaks of epochs would see more data, not finish
    sooner, at a larger batch.
    """
    text = " ".join(target.arguments)
    if not target.is_module:
        try:
            text += Path(target.cwd, target.entry).read_text(encoding="utf-8", errors="replace")
        except OSError:
            pass
    if _BY_EPOCHS.search(text):
        return "epochs"
    return "iterations" if _BY_ITERATIONS.search(text) else None
