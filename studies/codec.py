"""Rows to records and back. JSON columns hold whole values; fields of a newer autoamp are
passed over when read."""

import json
import math
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, TypeVar

import msgspec

from autoamp.measurement import Label, Measurement, Outcome, Phase
from autoamp.probes.facts import Identity
from autoamp.settings import Setting
from autoamp.studies.records import (
    LeaseRow,
    Study,
    StudyState,
    Trial,
    TrialScalars,
    TrialState,
)
from autoamp.studies.script_identity import ScriptIdentity

Row = Mapping[str, Any]
T = TypeVar("T")


def encode(value: Any) -> str:
    """JSON of a dataclass. JSON has no NaN or infinity: they become the strings "nan", "inf"
    and "-inf", which ``decode`` reads back as numbers."""
    return msgspec.json.encode(_plain(msgspec.to_builtins(value))).decode()


def decode(text: str, kind: type[T]) -> T:
    """Inverse of ``encode``; raises ValueError if the text does not fit."""
    # Not strict: that is what lets a float be read from the string "nan".
    return msgspec.json.decode(text.encode(), type=kind, strict=False)


def storable(text: str) -> str:
    """``text`` without what databases refuse: NUL, and bytes that were no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def now_text() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")


def study_from_row(row: Row) -> Study:
    machine = decode(row["machine"], Identity)
    return Study(
        id=row["id"],
        name=row["name"],
        script_path=row["script_path"],
        arguments=tuple(json.loads(row["arguments"])),
        device=machine.device,
        machine=machine,
        script=decode(row["script"], ScriptIdentity),
        options_json=row["options"],
        space_json=row["space"],
        state=StudyState(row["state"]),
        autoamp_version=row["autoamp_version"],
        created_at=datetime.fromisoformat(row["created_at"]),
        updated_at=datetime.fromisoformat(row["updated_at"]),
    )


def trial_from_row(row: Row) -> Trial:
    text = row["measurement"]
    finished = row["finished_at"]
    return Trial(
        id=row["id"],
        number=row["number"],
        phase=Phase(row["phase"]),
        setting=Setting.from_json(json.loads(row["setting"])),
        numerics=row["numerics"],
        state=TrialState(row["state"]),
        measurement=None if text is None else decode(text, Measurement),
        started_at=datetime.fromisoformat(row["started_at"]),
        finished_at=None if finished is None else datetime.fromisoformat(finished),
    )


def scalars_from_row(row: Row) -> TrialScalars:
    reserved = row["memory_reserved_peak_bytes"]
    return TrialScalars(
        study_id=row["study_id"],
        number=row["number"],
        phase=Phase(row["phase"]),
        setting=Setting.from_json(json.loads(row["setting"])),
        numerics=row["numerics"],
        outcome=None if row["outcome"] is None else Outcome(row["outcome"]),
        throughput_samples_per_s=row["throughput_samples_per_s"],
        memory_peak_bytes=row["memory_allocated_peak_bytes"] if reserved is None else reserved,
        time_label=None if row["time_label"] is None else Label(row["time_label"]),
    )


def lease_from_row(row: Row) -> LeaseRow:
    return LeaseRow(
        study_id=row["study_id"],
        token=row["token"],
        host=row["host"],
        host_id=row["host_id"],
        pid=row["pid"],
        process_started=row["process_started"],
        acquired_at=datetime.fromisoformat(row["acquired_at"]),
        heartbeat_at_s=row["heartbeat_at_s"],
        beats=row["beats"],
    )


def setting_columns(setting: Setting) -> dict[str, Any]:
    return {
        "setting": json.dumps(setting.to_json(), sort_keys=True, ensure_ascii=False),
        "batch_size": setting.batch_size,
        "amp_level": None if setting.amp_level is None else str(setting.amp_level),
        "dtype": None if setting.dtype is None else str(setting.dtype),
    }


def measurement_columns(measurement: Measurement) -> dict[str, Any]:
    """The columns that repeat scalars of ``measurement``, and the whole of it as JSON.

    A failed trial has no throughput column: SQL must not find a value where there is none.
    """
    m = measurement
    return {
        "outcome": str(m.outcome),
        "reason": None if m.reason is None else storable(m.reason),
        "throughput_samples_per_s": _finite(m.throughput_samples_per_s) if m.ok else None,
        "memory_allocated_peak_bytes": m.memory_allocated_peak_bytes,
        "memory_reserved_peak_bytes": m.memory_reserved_peak_bytes,
        "skipped_steps": m.skipped_steps,
        "final_loss_scale": _finite(m.final_loss_scale),
        "time_label": str(m.time_label),
        "memory_label": str(m.memory_label),
        "numerics_label": str(m.numerics_label),
        "wall_s": m.wall_s,
        "measurement": encode(m),
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
