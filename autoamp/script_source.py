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
    # What is asked for on the command line holds before what the source merely mentions.
    texts = [" ".join(target.arguments)]
    if not target.is_module:
        try:
            path = Path(target.cwd, target.entry)
            texts.append(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            pass
    for text in texts:
        if _BY_EPOCHS.search(text):
            return "epochs"
        if _BY_ITERATIONS.search(text):
            return "iterations"
    return None
