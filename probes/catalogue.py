"""The GPU catalogue: one row a model, its source kept beside it."""

import csv
import functools
import re
from importlib import resources

from autoamp.errors import UsageError
from autoamp.probes.facts import GpuModel

GIB = 2**30
NVML_TOLERANCE = 0.15
"""NVML reports a few per cent less than the data sheet (ECC, reserved); sizes of one name differ
by far more."""


@functools.cache
def models() -> tuple[GpuModel, ...]:
    """Every row of ``gpus.csv``, in its order."""
    text = resources.files("autoamp.probes").joinpath("gpus.csv").read_text(encoding="utf-8")
    return tuple(_model(row) for row in csv.DictReader(text.splitlines()))


def _number(text: str) -> float | None:
    return float(text) if text else None


def _required(row: dict[str, str], key: str) -> float:
    value = _number(row[key])
    if value is None:
        raise ValueError(f"gpus.csv: {row['name']} has no {key}")
    return value


def _model(row: dict[str, str]) -> GpuModel:
    major, _, minor = row["compute_capability"].partition(".")
    sm_count = _number(row["sm_count"])
    return GpuModel(
        alias=row["alias"],
        name=row["name"],
        nvml_name=row["nvml_name"] or None,
        architecture=row["architecture"],
        compute_capability=(int(major), int(minor)),
        tensor_core_generation=int(row["tensor_core_gen"]),
        memory_bytes=int(_required(row, "memory_gb") * GIB),
        bandwidth_gb_per_s=_required(row, "mem_bandwidth_gb_s"),
        fp32_tflops=_required(row, "fp32_tflops"),
        tf32_tflops=_number(row["tf32_tensor_tflops_dense"]),
        fp16_plain_tflops=_number(row["fp16_nontensor_tflops"]),
        fp16_tensor_tflops=_number(row["fp16_tensor_tflops_dense_fp32acc"]),
        bf16_tensor_tflops=_number(row["bf16_tensor_tflops_dense"]),
        sm_count=None if sm_count is None else int(sm_count),
        boost_clock_mhz=_number(row["boost_clock_mhz"]),
        tdp_w=_number(row["tdp_w"]),
        notes=row["notes"],
        source=row["source"],
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def find(name: str) -> GpuModel:
    """The model of that alias or name, whatever its case and punctuation.

    Raises UsageError ``ambiguous-device`` (several models begin like that) or
    ``unknown-device``, both listing candidates.
    """
    wanted = _plain(name)
    exact = [
        m
        for m in models()
        if wanted and wanted in (_plain(m.alias), _plain(m.name), _plain(m.nvml_name or ""))
    ]
    if len(exact) == 1:
        return exact[0]
    if _board(name) is not None or _size_in(name) is not None:
        as_nvml = match_nvml(name, None)
        if as_nvml is not None:
            return as_nvml
    starting = [
        m
        for m in models()
        if wanted and (_plain(m.alias).startswith(wanted) or wanted in _plain(m.name))
    ]
    if len(starting) == 1:
        return starting[0]
    if starting:
        raise UsageError(
            f"{name!r} fits several GPUs: " + ", ".join(m.alias for m in starting),
            slug="ambiguous-device",
            remedy="give one of these names",
        )
    # Imported where a name is wrong: a probe must not pay for it.
    import difflib

    near = difflib.get_close_matches(wanted, [_plain(m.alias) for m in models()], n=3)
    close = [m.alias for m in models() if _plain(m.alias) in near]
    raise UsageError(
        f"no GPU {name!r} in the catalogue" + (f"; near: {', '.join(close)}" if close else ""),
        slug="unknown-device",
        remedy="autoamp devices lists the names",
    )


def match_nvml(name: str, memory_total_bytes: int | None) -> GpuModel | None:
    """The row for a name that NVML reports, None if the GPU is unknown.

    An exact NVML name wins; else every word that tells models apart must be the same (a ``Ti``,
    ``SUPER``, ``Laptop`` or ``D`` too many is another GPU), and so must the board (SXM, PCIe)
    where the name says it; then the memory decides, within NVML_TOLERANCE.
    """
    name = re.sub(r"\s*\bMIG \d.*$", "", name)
    candidates = [m for m in models() if m.nvml_name == name] or _by_words(name)
    size = memory_total_bytes if memory_total_bytes is not None else _size_in(name)
    if size is not None:
        candidates = [
            m for m in candidates if abs(m.memory_bytes - size) <= NVML_TOLERANCE * m.memory_bytes
        ]
        candidates.sort(key=lambda m: abs(m.memory_bytes - size))
        return candidates[0] if candidates else None
    return candidates[0] if len(candidates) == 1 else None


def _by_words(name: str) -> list[GpuModel]:
    words = _words(name)
    if words in (frozenset({"orin"}), frozenset({"xavier"})):
        # A Jetson says no more than this; its memory (the host's) tells which one it is.
        return [m for m in models() if words | {"jetson"} <= _words(m.name)]
    same = [m for m in models() if words and _words(m.name) == words]
    board = _board(name)
    if board is not None:
        return [m for m in same if _board(m.name) in (board, None)]
    # NVIDIA's bare name of a board that has both forms is the SXM one: "NVIDIA H100 80GB HBM3".
    return [m for m in same if _board(m.name) == "sxm"] or same


def _board(name: str) -> str | None:
    match = re.search(r"sxm|pcie", name.lower())
    return match.group(0) if match else None


def _size_in(name: str) -> int | None:
    match = re.search(r"(\d+)\s*GB", name, re.IGNORECASE)
    return int(match.group(1)) * GIB if match else None


_NOISE = {"nvidia", "tesla", "geforce", "tensor", "core", "gpu", "graphics", "device"}


def _words(name: str) -> frozenset[str]:
    """Words that tell models apart; size and board are compared on their own."""
    words = re.findall(r"[a-z]+\d*[a-z]*|\d+[a-z]*", re.sub(r"\(.*?\)", "", name.lower()))
    return frozenset(
        w for w in words if w not in _NOISE and not re.fullmatch(r"\d+gb|sxm\d?|pcie|hbm\d?|gb", w)
    )


def tensor_core_generation(capability: tuple[int, int] | None, name: str) -> int | None:
    """Tensor Core generation of a GPU that has no row, 0 for none, None if it cannot be told.

    By compute capability (CUDA C++ programming guide, compute capabilities), but for Turing's
    small chips (TU116, TU117), which report 7.5 and have none.
    """
    if lacks_tensor_cores(name):
        return 0
    if capability is None:
        return None
    for least, generation in TENSOR_CORES:
        if capability >= least:
            return generation
    return 0


TENSOR_CORES = (((10, 0), 5), ((8, 9), 4), ((8, 0), 3), ((7, 5), 2), ((7, 0), 1))

_SMALL_TURING = re.compile(
    r"\bGTX\s*16\d\d|\bT(400|500|550|600|1000|1200|2000)\b|\bMX(450|550)\b|\bCMP 30HX\b"
)


def lacks_tensor_cores(name: str) -> bool:
    """True for Turing GPUs on TU116 or TU117, by name: capability 7.5, no Tensor Cores."""
    return _SMALL_TURING.search(name) is not None
