"""Keeps the last measured roofline of a machine, so that a search can start from it."""

import hashlib
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import msgspec

from autoamp.probes.facts import Identity, Roofline

SCHEMA = 1


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One file: ``docs/probes.md`` lists its keys."""

    schema: int
    identity: Identity
    roofline: Roofline


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
    key = hashlib.sha256(msgspec.json.encode(identity)).hexdigest()[:16]
    return folder() / f"{key}.json"


def save(identity: Identity, roofline: Roofline) -> Path:
    """Keep ``roofline``; raises OSError if the folder cannot be written."""
    path = path_of(identity)
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = Kept(schema=SCHEMA, identity=subject(identity), roofline=roofline)
    text = msgspec.json.encode(kept)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as f:
        f.write(msgspec.json.format(text, indent=1) + b"\n")
    os.replace(temporary, path)
    return path


def load(identity: Identity) -> Roofline | None:
    """The kept roofline; None if there is none, or its file is of another version or broken."""
    try:
        kept = msgspec.json.decode(path_of(identity).read_bytes(), type=Kept)
    except (OSError, msgspec.MsgspecError, ValueError):
        return None
    return kept.roofline if kept.schema == SCHEMA and kept.identity == subject(identity) else None
