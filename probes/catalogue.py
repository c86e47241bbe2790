"""The GPU catalogue: one row a model, its source kept beside it."""

import csv
import difflib
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
    exact = [m for m in models() if wanted in (_plain(m.alias), _plain(m.name))]
    if len(exact) == 1:
        return exact[0]
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
    near = difflib.get_close_matches(wanted, [_plain(m.alias) for m in models()], n=3)
    close = [m.alias for m in models() if _plain(m.alias) in near]
    raise UsageError(
        f"no GPU {name!r} in the catalogue" + (f"; near: {', '.join(close)}" if close else ""),
        slug="unknown-device",
        remedy="autoamp devices lists the names",
    )


def match_nvml(name: str, memory_total_bytes: int | None) -> GpuModel | None:
    """The row for a name that NVML reports, None if the GPU is unknown.

    An exact NVML name wins; else the row whose words all stand in the name and whose memory is
    nearest, within NVML_TOLERANCE.
    """
    exact = [m for m in models() if m.nvml_name == name]
    candidates = exact or [m for m in models() if _words(m.name) <= _words(name)]
    if memory_total_bytes is not None:
        candidates = [
            m
            for m in candidates
            if abs(m.memory_bytes - memory_total_bytes) <= NVML_TOLERANCE * m.memory_bytes
        ]
    if not candidates:
        return None
    if memory_total_bytes is not None:
        return min(
            candidates,
            key=lambda m: (-len(_words(m.name)), abs(m.memory_bytes - memory_total_bytes)),
        )
    return candidates[0] if len(candidates) == 1 else None


_NOISE = {"nvidia", "tesla", "geforce", "tensor", "core", "gpu", "graphics", "device"}


def _words(name: str) -> frozenset[str]:
    """Words that tell models apart; sizes and form factors are left to the memory."""
    words = re.findall(r"[a-z]+\d*[a-z]*|\d+[a-z]*", re.sub(r"\(.*?\)", "", name.lower()))
    return frozenset(
        w for w in words if w not in _NOISE and not re.fullmatch(r"\d+gb|sxm\d?|pcie|hbm\d?|gb", w)
    )
