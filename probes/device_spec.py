"""What ``--device`` may say."""

import re
from dataclasses import dataclass

from autoamp.errors import UsageError
from autoamp.probes.facts import DeviceKind

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(GiB|MiB|GB|MB|G|M|B)?$", re.IGNORECASE)
_UNITS = {
    "": 2**30,
    "g": 2**30,
    "gib": 2**30,
    "gb": 10**9,
    "m": 2**20,
    "mib": 2**20,
    "mb": 10**6,
    "b": 1,
}
_REMEDY = (
    "write auto, cpu, gpu:0, xpu:0, npu:0 or virtual:t4,memory=4GiB,numerics=off; a size without "
    "a unit is GiB"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """A parsed ``--device``; ``kind`` None is ``auto``."""

    kind: DeviceKind | None
    paddle_type: str = ""
    """``gpu``, ``xpu``, ``npu``, ... for a real accelerator."""
    index: int = 0
    model: str = ""
    memory_bytes: int | None = None
    numerics: bool = True


def parse_device(text: str) -> DeviceSpec:
    """Parse ``--device``. Raises UsageError ``bad-device``."""
    text = text.strip()
    if text == "auto":
        return DeviceSpec(kind=None)
    if text == "cpu":
        return DeviceSpec(kind=DeviceKind.cpu)
    head, _, rest = text.partition(":")
    if head == "virtual":
        return _virtual(text, rest)
    if re.fullmatch(r"[a-z_]+", head) and re.fullmatch(r"\d*", rest) and head != "cpu":
        kind = DeviceKind.gpu if head in ("gpu", "cuda") else DeviceKind.custom
        return DeviceSpec(
            kind=kind,
            paddle_type="gpu" if kind is DeviceKind.gpu else head,
            index=int(rest or 0),
        )
    raise _bad(text, "it is no device")


def _virtual(text: str, rest: str) -> DeviceSpec:
    name, *options = rest.split(",")
    if not name:
        raise _bad(text, "the GPU's name is missing")
    memory: int | None = None
    numerics = True
    for option in options:
        key, _, value = option.strip().partition("=")
        if key == "memory":
            memory = parse_size(value)
            if memory is None or memory <= 0:
                raise _bad(text, f"memory={value} is no size")
        elif key == "numerics":
            if value not in ("on", "off"):
                raise _bad(text, f"numerics is on or off, not {value!r}")
            numerics = value == "on"
        else:
            raise _bad(text, f"unknown option {key!r}")
    return DeviceSpec(kind=DeviceKind.virtual, model=name, memory_bytes=memory, numerics=numerics)


def parse_size(text: str) -> int | None:
    """``4GiB``, ``512MiB``, ``4`` (GiB) in bytes; None if it is no size."""
    match = _SIZE.match(text.strip())
    if match is None:
        return None
    return int(float(match.group(1)) * _UNITS[(match.group(2) or "").lower()])


def size_text(size: int) -> str:
    """A size as ``memory=`` takes it, in the largest unit that gives it exactly: ``1.5GiB``,
    ``900MiB``, ``4GB``; equal sizes have equal texts."""
    for unit, places in (("GiB", 2), ("MiB", 0), ("GB", 2), ("MB", 0)):
        value = round(size / _UNITS[unit.lower()], places)
        text = f"{value:g}{unit}"
        if value >= 1 and "e" not in text and parse_size(text) == size:
            return text
    return f"{size}B"


def _bad(text: str, why: str) -> UsageError:
    return UsageError(f"--device {text!r}: {why}", slug="bad-device", remedy=_REMEDY)
