"""Keeps the last measured roofline of a machine, so that a search can start from it."""

import hashlib
import json
import os
import tempfile
from dataclasses import asdict, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from autoamp.probes.facts import Identity, Roofline

if TYPE_CHECKING:
    from importlib.abc import Traversable

SCHEMA = 2
KEYS = {"schema", "identity", "clock", "roofline"}
"""Of a file; ``docs/probes.md`` lists them."""


def folder() -> Path:
    """``$AUTOAMP_CACHE_DIR/roofline``, by default below ``~/.cache/autoamp``."""
    given = os.environ.get("AUTOAMP_CACHE_DIR")
    if given:
        return Path(given) / "roofline"
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "autoamp" / "roofline"


def subject(identity: Identity) -> Identity:
    """What a roofline is of: the rates of a virtual device depend neither on the memory it is
    given nor on whether values are computed, which are part of a study's identity."""
    if not identity.device.startswith("virtual:"):
        return identity
    return replace(identity, device=identity.device.partition(",")[0], memory_gib=None)


def path_of(identity: Identity) -> Path:
    """The file for a machine and device."""
    identity = subject(identity)
    key = hashlib.sha256(json.dumps(asdict(identity)).encode()).hexdigest()[:16]
    return folder() / f"{key}.json"


def clock_of(identity: Identity) -> str | None:
    """What made the rates of a virtual GPU: a digest of the clock's code and data, and of the
    catalogue. A roofline of another clock says nothing about this one's. None for real ones."""
    if not identity.device.startswith("virtual:"):
        return None
    digest = hashlib.sha256()
    virtual = resources.files("autoamp").joinpath("virtual")
    catalogue = resources.files("autoamp.probes").joinpath("gpus.csv")
    for file in (*_files(virtual.joinpath("csrc")), *_files(virtual.joinpath("data")), catalogue):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _files(folder: "Traversable") -> "list[Traversable]":
    return sorted((f for f in folder.iterdir() if f.is_file()), key=lambda f: f.name)


def save(identity: Identity, roofline: Roofline) -> Path:
    """Keep ``roofline``; raises OSError if the folder cannot be written."""
    import msgspec

    path = path_of(identity)
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {
        "schema": SCHEMA,
        "identity": subject(identity),
        "clock": clock_of(identity),
        "roofline": roofline,
    }
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as f:
        f.write(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")
    os.replace(temporary, path)
    return path


def load(identity: Identity) -> Roofline | None:
    """The kept roofline; None if there is none, or its file is of another version or broken."""
    try:
        data = path_of(identity).read_bytes()
    except OSError:
        return None
    # Imported where there is something to read: most machines have no roofline.
    import msgspec

    try:
        kept = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        if kept.keys() != KEYS or msgspec.json.decode(kept["schema"]) != SCHEMA:
            return None
        if msgspec.json.decode(kept["identity"], type=Identity) != subject(identity):
            return None
        if msgspec.json.decode(kept["clock"]) != clock_of(identity):
            return None
        return msgspec.json.decode(kept["roofline"], type=Roofline)
    except (msgspec.MsgspecError, ValueError):
        return None
