"""The contract between tuner and child process: environment, plan file, event lines.

Standard library only: the child pays for every import. The plan is one JSON file, written by
the parent before the start. The child appends one JSON object a line to
``events-<pid>.jsonl`` in the trial's folder; each line has ``kind`` and ``t`` (seconds,
CLOCK_MONOTONIC) and the keys that ``docs/files.md`` lists for that kind.
"""

import json
import os
from dataclasses import asdict, dataclass, field, fields
from typing import Any

SCHEMA = 1

ENV_PLAN = "AUTOAMP_PLAN"
"""Path of the plan file; the child does nothing when it is unset."""

ENV_GUARDED = "AUTOAMP_GUARDED"
"""Set in trials: a process whose hooks cannot be armed must end instead of running unguarded."""
ARMING_FAILED_FILE = "arming-failed.txt"

COLLAPSED_SCALE = 1.0
"""Below it GradScaler shrinks gradients; known bad runs end at 1e-3 to 1e-30 (PaddleOCR 10365,
6848), healthy ones stay above."""

EVENTS_PREFIX = "events-"
EVENTS_SUFFIX = ".jsonl"
PLAN_FILE = "plan.json"
LOG_FILE = "log.txt"
SCRATCH_DIR = "scratch"
SUMMARY_FILE = "run-summary.json"


@dataclass(frozen=True, kw_only=True)
class VirtualDevice:
    """The GPU that the virtual accelerator plays. Rates are dense peaks, in units per second."""

    name: str
    alias: str
    architecture: str
    compute_capability: tuple[int, int]
    memory_bytes: int
    bandwidth_bytes_per_s: float
    flops_per_s: dict[str, float]
    """Peak by dtype: ``float32``, ``tf32``, ``float16``, ``bfloat16`` (Tensor Cores where there
    are any); a dtype the GPU cannot do is absent."""
    driver_bytes: int = 0
    """Estimate: what the driver and error correction keep of ``memory_bytes``."""
    context_bytes: int = 0
    """Estimate: CUDA context, loaded kernels and library handles."""
    sm_count: int = 1
    boost_clock_mhz: float = 0.0
    tdp_w: float = 0.0
    """Power limit of the board; 0 where unknown."""
    numerics: bool = True
    """False is planning mode: large kernels allocate and advance the clock, nothing more."""

    @property
    def overhead_bytes(self) -> int:
        """What is taken before the first tensor; all of the memory at the most."""
        return min(self.memory_bytes, self.driver_bytes + self.context_bytes)

    @property
    def usable_bytes(self) -> int:
        """What is left for Paddle's allocator."""
        return self.memory_bytes - self.overhead_bytes


@dataclass(frozen=True, kw_only=True)
class LoaderPlan:
    """The loader whose batch size is replaced: creation order and place, seen at baseline."""

    ordinal: int
    kind: str
    site: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the child does in one process group."""

    trial_dir: str
    mode: str = "trial"
    """``trial``: few steps, files diverted, ends early. ``run``: in full, files written."""
    device: str = "cpu"
    """``cpu``, ``gpu:0``, ``xpu:0``, ... or ``virtual`` (then ``virtual`` is set)."""
    virtual: VirtualDevice | None = None
    setting: dict[str, Any] = field(default_factory=dict)
    """``Setting.to_json()``."""
    templated: tuple[str, ...] = ()
    """Knobs already filled into the script's arguments: not patched as well."""
    outside_auto_cast: bool = False
    outside_scaler: bool = False
    outside_decorate: bool = False
    """AMP is added from outside for what the script does not call itself."""
    keep_disabled: bool = False
    """The script enables auto_cast itself, so its ``enable=False`` protects FP32 maths and stays;
    else it is a suite's switch and is turned on."""
    loaders: tuple[LoaderPlan, ...] = ()
    """Loaders that take the setting's batch size; empty: every loader outside paddle's own."""
    seed: int | None = None
    warmup_steps: int = 5
    min_steps: int = 20
    max_steps: int = 200
    min_timed_s: float = 3.0
    blocks: int = 4
    give_up_samples_per_s: float | None = None
    """A first timed block slower than this ends the trial: it cannot win."""
    soft_limit_s: float | None = None
    """Seconds from the first step after which a trial ends early, four timed steps at the least:
    numerics that the CPU emulates slowly."""
    scan: bool = False
    restart_dataset: bool = True
    divert_files: bool = True
    schema: int = SCHEMA

    @property
    def scratch_dir(self) -> str:
        return os.path.join(self.trial_dir, SCRATCH_DIR)


def write_plan(plan: Plan) -> str:
    """Write ``plan`` into its trial folder; returns the path for ``ENV_PLAN``."""
    path = os.path.join(plan.trial_dir, PLAN_FILE)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(asdict(plan), f, indent=1)
    return path


def read_plan(path: str) -> Plan:
    """Read a plan; raises ValueError for another schema or unknown keys."""
    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    if data.get("schema") != SCHEMA:
        raise ValueError(f"plan schema {data.get('schema')!r}, this autoamp reads {SCHEMA}")
    unknown = set(data) - {f.name for f in fields(Plan)}
    if unknown:
        raise ValueError(f"plan has unknown keys {sorted(unknown)}")
    if data.get("virtual"):
        virtual = data["virtual"]
        virtual["compute_capability"] = tuple(virtual["compute_capability"])
        data["virtual"] = VirtualDevice(**virtual)
    data["loaders"] = tuple(LoaderPlan(**x) for x in data.get("loaders", ()))
    data["templated"] = tuple(data.get("templated", ()))
    return Plan(**data)
