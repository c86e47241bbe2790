"""The recommended-config JSON: its types, reading and writing it, and its JSON Schema.

``docs/files.md`` explains every key. The types refuse unknown keys, so that a typo in a file
edited by hand is an error and not a silent default.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

import msgspec

from autoamp.errors import UsageError
from autoamp.settings import Setting

SCHEMA_VERSION = 1
SCHEMA_ID = "autoamp-recommended-config"

Verdict = Literal["use", "keep_fp32", "keep_as_written"]
LabelName = Literal["measured", "emulated", "counted", "modelled", "not_computed"]


class Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all types in the file."""


class SettingRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The knobs that are set; a knob left out keeps the script's own value."""

    batch_size: int | None = None
    amp_level: Literal["O0", "O1", "O2", "OD"] | None = None
    dtype: Literal["float32", "float16", "bfloat16"] | None = None
    init_loss_scaling: float | None = None
    dynamic_loss_scaling: bool | None = None
    custom_white_list: tuple[str, ...] = ()
    custom_black_list: tuple[str, ...] = ()
    use_promote: bool | None = None
    master_grad: bool | None = None
    accumulate_steps: int | None = None
    tf32: bool | None = None

    @classmethod
    def of(cls, setting: Setting) -> SettingRecord:
        return msgspec.convert(setting.to_json(), cls)

    def setting(self) -> Setting:
        return Setting.from_json(msgspec.to_builtins(self))


class Ratio(Struct, frozen=True, kw_only=True):
    """A ratio of throughputs (above 1: faster) with its interval; ``reason`` says why a part is
    null, ``basis`` how the interval came about."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    basis: str | None = None
    reason: str | None = None


class Throughput(Struct, frozen=True, kw_only=True):
    """Samples a second, data wait included; ``low`` and ``high`` are over fresh runs."""

    samples_per_s: float | None
    low: float | None = None
    high: float | None = None
    runs: int
    spread: float | None = None
    basis: str
    label: LabelName


class Memory(Struct, frozen=True, kw_only=True):
    """Peak memory as measured or counted (``label``). On a virtual device ``overhead_bytes`` and
    ``workspace_bytes`` are estimates of what comes on top; ``needed_bytes`` is the sum, which is
    held against the device's capacity."""

    peak_bytes: int | None
    allocated_bytes: int | None
    reserved_bytes: int | None
    device_used_bytes: int | None
    share_of_device: float | None
    label: LabelName
    reason: str | None = None
    overhead_bytes: int | None = None
    workspace_bytes: int | None = None
    needed_bytes: int | None = None
    needed_label: LabelName | None = None


class UtilisationRecord(Struct, frozen=True, kw_only=True):
    """Device use in the timed window; ``reason`` where a value is null."""

    gpu_percent: float | None
    power_mean_w: float | None
    energy_j: float | None
    reason: str | None = None
    modelled_busy_share: float | None = None


class Loading(Struct, frozen=True, kw_only=True):
    """Virtual devices: the loader of the machine at hand, timed with the device idle, and what a
    step would give that waits for the slower of the two (``label``)."""

    loader_samples_per_s: float | None
    samples_per_s: float | None
    workers: int | None
    label: LabelName
    reason: str | None = None


class Numerics(Struct, frozen=True, kw_only=True):
    """Stability as seen in the runs of this setting."""

    label: LabelName
    skipped_steps: int | None
    steps: int
    final_loss_scale: float | None
    zero_gradient_share: float | None
    final_loss: float | None
    reason: str | None = None


class Measured(Struct, frozen=True, kw_only=True):
    """What the runs of one setting showed."""

    setting: SettingRecord
    description: str
    batch_size: int | None
    throughput: Throughput
    seconds_per_1000_samples: float | None
    memory: Memory
    utilisation: UtilisationRecord
    data_wait_share: float | None
    data_wait_reason: str | None = None
    data_wait_label: LabelName = "measured"
    loading: Loading | None = None
    numerics: Numerics
    tf32_matmul: bool | None = None
    tf32_conv: bool | None = None


class Recommended(Struct, frozen=True, kw_only=True):
    """A setting to train with, what speaks for it, and code to paste."""

    measured: Measured
    confirmed: bool
    against_fp32: Ratio
    against_as_written: Ratio
    precision_gain: Ratio
    batch_gain: float | None
    reason: str
    snippet: str

    @property
    def setting(self) -> Setting:
        return self.measured.setting.setting()


class Drift(Struct, frozen=True, kw_only=True):
    """The loss comparison made for one precision, at one batch size for both sides."""

    setting: SettingRecord
    description: str
    batch_size: int | None
    steps: int
    fp32_losses: tuple[float, ...]
    candidate_loss: float | None
    difference: float | None
    tolerance: float | None
    tolerance_basis: str | None
    passed: bool | None
    why: str
    at_recommended_batch: str | None = None
    label: LabelName


class ScanRecord(Struct, frozen=True, kw_only=True):
    """Gradient exponents (powers of two) of one FP32 run, and what follows for float16."""

    grad_exponent_min: int | None
    grad_exponent_max: int | None
    scale_exponent_low: int | None
    scale_exponent_high: int | None
    scale_exponent_chosen: int | None
    kept_share: float | None
    overflow_ops: tuple[str, ...]
    overflow_ops_reason: str | None = None
    label: LabelName


class CeilingRecord(Struct, frozen=True, kw_only=True):
    """How far the batch of one precision was raised."""

    description: str
    largest_fitting: int | None
    fastest: int | None
    smallest_failing: int | None
    predicted_largest: int | None
    why: str


class SkippedRecord(Struct, frozen=True, kw_only=True):
    """What was not run or ruled out, and why."""

    what: str
    reason: str


class MachineRecord(Struct, frozen=True, kw_only=True):
    """The machine that was measured (or planned for)."""

    device: str
    device_kind: Literal["gpu", "cpu", "virtual", "custom"]
    paddle_name: str
    compute_capability: str | None
    tensor_core_generation: int | None
    memory_bytes: int | None
    mig: str | None
    identity: IdentityRecord
    hostname: str
    os: str
    driver: str | None
    driver_cuda: str | None
    paddle: str | None
    paddle_build: str | None
    cuda: str | None
    cudnn: str | None
    numpy: str | None
    python: str | None


class IdentityRecord(Struct, frozen=True, kw_only=True):
    """What must be equal for the result to hold elsewhere."""

    device: str
    memory_gib: int | None
    mig: str | None
    paddle: str | None
    cuda: str | None


class ScriptFile(Struct, frozen=True, kw_only=True):
    """A file of the script by content."""

    path: str
    sha256: str


class LoaderRecord(Struct, frozen=True, kw_only=True):
    """A loader that feeds training: where ``autoamp run`` puts the batch size."""

    ordinal: int
    kind: str
    site: str


class HooksRecord(Struct, frozen=True, kw_only=True):
    """What the script does itself, so that ``autoamp run`` adds only the rest."""

    calls_auto_cast: bool
    calls_scaler: bool
    calls_decorate: bool
    uses_hapi: bool
    enables_auto_cast: bool
    loaders: tuple[LoaderRecord, ...]


class ScriptRecord(Struct, frozen=True, kw_only=True):
    """The script that was tuned."""

    entry: str
    is_module: bool
    arguments: tuple[str, ...]
    files: tuple[ScriptFile, ...]
    command: str
    calls_amp: bool
    optimizer: str | None
    scheduled_by: str | None
    hooks: HooksRecord


class SearchRecord(Struct, frozen=True, kw_only=True):
    """How the search was run."""

    trials: int
    extra_runs: int
    trials_by_phase: dict[str, int]
    outcomes: dict[str, int]
    wall_s: float
    seed: int
    headroom: float
    min_gain: float
    max_drift: float | None
    confirm_pairs: int
    stopped: str | None
    batch_reason: str | None
    ceilings: tuple[CeilingRecord, ...]
    skipped: tuple[SkippedRecord, ...]


class Recommendation(Struct, frozen=True, kw_only=True):
    """The whole file."""

    schema_version: int
    autoamp_version: str
    created_at: str
    study: str
    verdict: Verdict
    headline: str
    why: tuple[str, ...]
    default: Literal["best", "at_your_batch"]
    default_reason: str
    best: Recommended
    at_your_batch: Recommended
    as_written: Measured
    script_batch: int | None = None
    fp32: Measured | None
    fp32_reason: str | None
    mixed: Recommended | None
    drift: tuple[Drift, ...]
    scan: ScanRecord | None
    learning_rate_advice: str | None
    caveats: tuple[str, ...]
    labels: dict[str, str]
    error_band: str | None
    machine: MachineRecord
    script: ScriptRecord
    search: SearchRecord

    @property
    def own_batch(self) -> int | None:
        """The script's own batch size, also where it was run at a smaller one."""
        return self.script_batch or self.as_written.batch_size

    def chosen(self, *, keep_batch: bool = False) -> Recommended:
        """What ``autoamp run`` takes: the default setting, or the one at the script's batch."""
        if keep_batch or self.default == "at_your_batch":
            return self.at_your_batch
        return self.best


def save(recommendation: Recommendation, path: str | os.PathLike[str]) -> None:
    """Write the file; a reader never sees half of it."""
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}.part")
    beside.write_bytes(encode(recommendation))
    os.replace(beside, target)


def encode(recommendation: Recommendation) -> bytes:
    """The file's bytes."""
    return msgspec.json.format(msgspec.json.encode(recommendation), indent=2) + b"\n"


def load(path: str | os.PathLike[str]) -> Recommendation:
    """Read a file. Raises UsageError ``config-missing``, ``config-broken``, ``config-newer``."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise UsageError(
            f"{path}: expected a recommended config, found no file",
            slug="config-missing",
            remedy="give the JSON that autoamp tune wrote (autoamp-STUDY.json)",
        ) from None
    except OSError as exc:
        raise UsageError(
            f"{path}: cannot be read: {exc.strerror or exc}",
            slug="config-missing",
            remedy="give the JSON that autoamp tune wrote (autoamp-STUDY.json)",
        ) from None
    return decode(data, source=str(path))


def decode(data: bytes, *, source: str) -> Recommendation:
    """Parse a file's bytes; ``source`` names them in errors. Raises as ``load`` does."""
    try:
        raw = json.loads(data)
    except (ValueError, UnicodeDecodeError) as exc:
        raise _broken(source, f"it is not JSON: {exc}") from None
    if not isinstance(raw, dict) or "schema_version" not in raw:
        raise _broken(source, "it has no schema_version, so autoamp did not write it")
    version = raw["schema_version"]
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise _broken(source, f"schema_version is {version!r}")
    if version > SCHEMA_VERSION:
        raise UsageError(
            f"{source}: expected schema {SCHEMA_VERSION} or older, found {version} "
            f"(written by autoamp {raw.get('autoamp_version', 'unknown')})",
            slug="config-newer",
            remedy="upgrade autoamp, or tune again with this one",
        )
    try:
        return msgspec.convert(raw, Recommendation)
    except msgspec.ValidationError as exc:
        raise _broken(source, str(exc)) from None


def _broken(source: str, found: str) -> UsageError:
    return UsageError(
        f"{source}: expected a recommended config of schema {SCHEMA_VERSION}: {found}",
        slug="config-broken",
        remedy="take the file as autoamp tune wrote it, or tune again (finished trials are kept)",
    )


def study_of(path: str | os.PathLike[str]) -> str | None:
    """The study that a file belongs to; None if it is no recommended config."""
    try:
        raw = json.loads(Path(path).read_bytes())
    except (OSError, ValueError):
        return None
    study = raw.get("study") if isinstance(raw, dict) and "schema_version" in raw else None
    return study if isinstance(study, str) else None


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the file."""
    schema = msgspec.json.schema(Recommendation)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": f"autoamp recommended config, schema version {SCHEMA_VERSION}",
        **schema,
    }


def json_schema_text() -> str:
    """The schema as ``autoamp schema`` prints it and ``docs/`` keeps it."""
    return json.dumps(json_schema(), indent=2) + "\n"
