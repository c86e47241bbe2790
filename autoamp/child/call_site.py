"""Where in the user's own code a call came from."""

import os
import sys

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def call_site(paddle_dir: str, frames: int = 1) -> str:
    """``file.py:41``, innermost first and joined by `` < ``: frames outside paddle and us."""
    out: list[str] = []
    # With the separator: paddlenlp and paddleseg are the user's side.
    inner = paddle_dir.rstrip(os.sep) + os.sep
    frame = sys._getframe(1)
    while frame is not None and len(out) < frames:
        name = frame.f_code.co_filename
        if not name.startswith((inner, _OWN, "<")):
            shown = os.path.relpath(name) if os.path.isabs(name) else name
            if shown.startswith(".."):
                shown = os.path.basename(name)
            out.append(f"{shown}:{frame.f_lineno}")
        frame = frame.f_back  # type: ignore[assignment]
    return " < ".join(out) or "?"


def same_site(first: str, second: str) -> bool:
    """True if both name the same lines, whatever folder they were seen from.

    Paths are shown relative to the working folder, which a later run may have changed: of two
    names of a file one ends the other.
    """
    ours, theirs = first.split(" < "), second.split(" < ")
    return len(ours) == len(theirs) and all(
        a == b or a.endswith("/" + b) or b.endswith("/" + a)
        for a, b in zip(ours, theirs, strict=True)
    )
