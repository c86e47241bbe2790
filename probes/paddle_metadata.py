"""Reads an interpreter's Paddle from its metadata; paddle is not imported.

Standard library only, and complete in itself: the text of this file also runs in other
interpreters, back to Python 3.8.
"""

import json
import os
import re
import sys
from importlib.machinery import PathFinder

DISTRIBUTIONS = ("paddlepaddle-gpu", "paddlepaddle", "paddlepaddle-xpu", "paddlepaddle-dcu")
# Wheels that put files into the same `paddle` folder; the first found names the distribution.
WANTED = (*DISTRIBUTIONS, "numpy")


_METADATA = re.compile(r"([A-Za-z0-9._-]+?)-([^-]+)(-py\d[^-]*)?\.(?:dist|egg)-info$")


def versions(places: "list[str]") -> "dict[str, str]":
    """Versions by distribution, from the names of metadata folders; the first place wins.

    ``importlib.metadata`` tells the same and imports Python's email package for it, which takes
    longer than the rest of this file.
    """
    found: dict[str, str] = {}
    for place in places:
        try:
            names = sorted(os.listdir(place))
        except OSError:
            continue
        for name in names:
            match = _METADATA.match(name)
            if match is None:
                continue
            key = re.sub(r"[-_.]+", "-", match.group(1)).lower()
            if key in WANTED:
                found.setdefault(key, match.group(2))
    return found


def slow_versions() -> "dict[str, str]":
    """The same by ``importlib.metadata``, for a paddle whose metadata lies elsewhere."""
    from importlib import metadata

    found = {}
    for name in WANTED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return found


def answer() -> "dict[str, object]":
    """Facts as plain JSON values; ``paddle_install.read_answer`` gives them their meaning."""
    out: dict[str, object] = {"python_version": sys.version.split()[0], "plugins": []}
    # The working directory is left out: a `paddle` folder in it is the user's own.
    here = os.getcwd()
    places = [p for p in sys.path if p not in ("", here)]
    installed = versions(places)
    spec = PathFinder.find_spec("paddle", places)
    if spec is not None and not installed.keys() & set(DISTRIBUTIONS):
        installed.update(slow_versions())
    out["installed"] = installed
    folder = os.path.dirname(spec.origin) if spec is not None and spec.origin else None
    if folder is not None:
        try:
            # A list of plain assignments in every wheel.
            with open(os.path.join(folder, "version", "__init__.py"), encoding="utf-8") as f:
                text = f.read()
            for key, value in re.findall(r"^(\w+) *= *(.*)$", text, re.M):
                out[key] = value.strip().strip("'\"")
        except OSError as error:
            out["unreadable"] = str(error)
    root = os.environ.get("CUSTOM_DEVICE_ROOT")
    if root is None and folder is not None:
        # Where paddle/base/core.py looks for plug-ins.
        root = os.path.join(os.path.dirname(folder), "paddle_custom_device")
    try:
        out["plugins"] = sorted(n for n in os.listdir(root) if n.endswith(".so")) if root else []
    except OSError:
        pass
    out["found"] = folder is not None
    return out


if __name__ == "__main__":
    print(json.dumps(answer()))
