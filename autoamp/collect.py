"""Event files and exit status in, Measurement out. Reads one folder, decides nothing else."""

import json
import math
import os
import re
from dataclasses import dataclass, field, replace
from typing import Any

from autoamp import wire
from autoamp.launch import Ended
from autoamp.measurement import (
    Applied,
    Effect,
    Label,
    Loader,
    LossScale,
    Measurement,
    OpCalls,
    Outcome,
    Scan,
    ScriptFacts,
    Utilisation,
)
from autoamp.settings import Dtype, Level, Setting

LOG_TAIL_LINES = 25
MIN_TIMED_STEPS = 3
"""Fewer timed steps than this carry no throughput."""
LAST_STEPS_SKIPPED = 8
"""So many skipped steps at the end of a run: a scale that never settles."""
# Paddle's texts for device memory, by release: cuda_allocator.cc, custom_allocator.cc and
# malloc of the CPU build. The exception's type changed over time, the text did not.
OOM_TEXTS = ("ResourceExhausted", "Out of memory error on", "Fail to alloc memory")
# How Paddle's messages begin ("(Unimplemented) ...", "InvalidArgumentError: ...") and what stands
# behind or below them: enforce.h and the operators' entry code.
_PADDLE = re.compile(r"\([A-Z][A-Za-z]+\) |[A-Z][A-Za-z]+Error: ")
_PLACE = re.compile(r"\s*\(at [^()]+:\d+\)$")
_OPERATOR = re.compile(r"\[operator <.*> error\]")
UNSUPPORTED_TEXTS = (
    "is not registered",
    "not support",
    "NotFoundError",
    "Unimplemented",
    "refused in planning mode",
)
DEVICE_TEXTS = ("vgpu", "/autoamp/virtual/csrc/")
"""What names the virtual device in a message: its name, or the plug-in's source."""


COPIED_VIEWS = (
    "Paddle 2.6 on a virtual device copies where a GPU gives views (slices, reshape, transpose): "
    "what the script writes into them in place does not reach the tensor behind"
)
"""Not emulated: 2.6's strided kernels need device functions that custom devices do not have."""


@dataclass
class Process:
    """The events of one process of the trial."""

    pid: int
    armed: bool = False
    values: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The last event of each kind."""
    applied: list[dict[str, Any]] = field(default_factory=list)
    exceptions: list[dict[str, Any]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    blocks: list[dict[str, Any]] = field(default_factory=list)

    @property
    def steps(self) -> int:
        last = self.values.get("end") or self.values.get("progress", {})
        return int(last.get("steps", 0))


def read_events(folder: str) -> list[Process]:
    """Every process of a trial, the training one first. A torn last line is left out."""
    found: list[Process] = []
    for name in sorted(os.listdir(folder)):
        if not (name.startswith(wire.EVENTS_PREFIX) and name.endswith(wire.EVENTS_SUFFIX)):
            continue
        process = Process(pid=int(name[len(wire.EVENTS_PREFIX) : -len(wire.EVENTS_SUFFIX)]))
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as f:
            for line in f:
                try:
                    event = json.loads(line)
                except ValueError:
                    continue
                kind = event.get("kind")
                if kind == "applied":
                    process.applied.append(event)
                elif kind == "exception":
                    process.exceptions.append(event)
                elif kind == "refused":
                    process.refused.append(str(event.get("path")))
                elif kind == "fault":
                    process.faults.append(f"{event.get('where')}: {event.get('error')}")
                elif kind == "block":
                    process.blocks.append(event)
                else:
                    process.values[str(kind)] = event
        found.append(process)
    return sorted(found, key=lambda p: (-p.steps, "first_step" not in p.values, p.pid))


def log_tail(path: str) -> str:
    """The last lines of the script's own output."""
    try:
        with open(path, "rb") as f:
            f.seek(0, os.SEEK_END)
            f.seek(max(0, f.tell() - 16384))
            text = f.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-LOG_TAIL_LINES:])


def collect(plan: wire.Plan, ended: Ended, utilisation: Utilisation | None = None) -> Measurement:
    """The trial's Measurement. Never raises for what the script did: that is an outcome."""
    processes = read_events(plan.trial_dir)
    main = processes[0] if processes else Process(pid=0)
    log_path = os.path.join(plan.trial_dir, wire.LOG_FILE)
    tail = log_tail(log_path)
    setting = Setting.from_json(plan.setting)
    measurement = _numbers(plan, main, setting)
    if plan.virtual is not None:
        measurement = _with_loading(measurement, main)
    first = main.values.get("first_step")
    measurement = replace(
        measurement,
        exit_code=ended.exit.code,
        signal=ended.exit.signal,
        wall_s=ended.wall_s,
        startup_s=None if first is None else float(first["t"]) - ended.started_s,
        log_path=log_path,
        log_tail=tail,
        refused_writes=tuple(dict.fromkeys(p for x in processes for p in x.refused)),
        utilisation=utilisation or Utilisation(reason="not sampled"),
    )
    outcome, reason = _outcome(plan, ended, processes, main, measurement, setting)
    return replace(measurement, outcome=outcome, reason=reason)


def _numbers(plan: wire.Plan, main: Process, setting: Setting) -> Measurement:
    end = main.values.get("end") or main.values.get("progress", {})
    blocks = [(float(s), int(n), int(k)) for s, n, k in end.get("blocks", ())]
    seconds = sum(b[0] for b in blocks)
    samples = sum(b[1] for b in blocks)
    rates = tuple(n / s for s, n, _ in blocks if s > 0)
    throughput = samples / seconds if seconds > 0 and samples else None
    spread = None
    if throughput and len(rates) > 1:
        spread = (max(rates) - min(rates)) / 2 / throughput
    memory = end.get("memory", {})
    facts = _facts(end) or _facts(main.values.get("unstepped", {}))
    if facts is not None and not end.get("steps"):
        facts = replace(facts, partial=True)
    virtual = plan.virtual is not None
    planning = plan.virtual is not None and not plan.virtual.numerics
    wall = float(end.get("window_wall_s") or 0.0)
    state = main.values.get("state", {})
    # At import nothing was set yet; the end of the window says what the steps ran with.
    paddle = main.values.get("paddle", {})
    tf32 = end.get("tf32") or paddle
    losses = [(int(s), float(v)) for s, v in end.get("losses", ())]
    delivered = max((int(x.get("delivered") or 0) for x in _loaders(end)), default=0)
    if not delivered and blocks and blocks[0][2]:
        delivered = round(blocks[0][1] / blocks[0][2])
    return Measurement(
        outcome=Outcome.ok,
        time_label=Label.modelled if virtual else Label.measured,
        memory_label=Label.counted if virtual else Label.measured,
        numerics_label=(
            Label.not_computed if planning else Label.emulated if virtual else Label.measured
        ),
        batch_size=delivered or None,
        steps_done=int(end.get("steps", 0)),
        steps_timed=sum(b[2] for b in blocks),
        samples_timed=samples,
        timed_s=seconds or None,
        throughput_samples_per_s=throughput,
        throughput_spread=spread,
        block_throughputs=rates,
        data_wait_share=(
            None if virtual or not wall else min(1.0, float(end.get("data_wait_s", 0.0)) / wall)
        ),
        memory_allocated_peak_bytes=memory.get("allocated_peak_bytes"),
        memory_reserved_peak_bytes=memory.get("reserved_peak_bytes"),
        memory_overhead_bytes=memory.get("overhead_bytes"),
        memory_workspace_bytes=memory.get("workspace_bytes"),
        memory_reason=memory.get("reason"),
        losses=() if planning else tuple(v for _, v in losses),
        loss_steps=() if planning else tuple(s for s, _ in losses),
        skipped_steps=None if planning else int(end.get("skipped_steps", 0)),
        loss_scales=(
            ()
            if planning
            else tuple(LossScale(step=int(s), value=float(v)) for s, v in end.get("scales", ()))
        ),
        zero_gradient_share=main.values.get("zero_gradients", {}).get("share"),
        op_calls=_op_calls(main),
        applied=tuple(
            Applied(
                knob=str(a["knob"]),
                value=str(a["value"]),
                where=str(a["where"]),
                previous=a.get("previous"),
            )
            for a in main.applied
        ),
        effects=_effects(plan, main, setting, facts, state, delivered),
        facts=facts,
        scan=_scan(main) if plan.scan else None,
        tf32_matmul=tf32.get("tf32_matmul"),
        tf32_conv=tf32.get("tf32_conv"),
        step_flops=end.get("step_flops"),
        step_bytes=end.get("step_bytes"),
        dataset_restarts=int(end.get("dataset_restarts", 0)),
        # What is known of this Paddle bites a GradScaler; a run without one has nothing to say.
        caveats=(tuple(paddle.get("caveats", ())) if state.get("scaler_enabled") else ())
        + ((COPIED_VIEWS,) if virtual and str(paddle.get("version")).startswith("2.") else ())
        + tuple(f"hook: {x}" for x in main.faults),
    )


def _with_loading(m: Measurement, main: Process) -> Measurement:
    """Waiting and busy share of a virtual device: its modelled step against the loader's own pace.

    Several loaders fetch beside each other, so the slowest decides.
    """
    seen = main.values.get("loader_pace", {})
    loaders = seen.get("loaders") or ()
    reason = seen.get("reason") or "the trial ended before its loader was timed"
    device_s = m.timed_s / m.steps_timed if m.timed_s and m.steps_timed else 0.0
    busy_s = main.values.get("end", {}).get("busy_s")
    loader_s = 0.0
    if loaders:
        times = [float(x["seconds_per_batch"]) * float(x["batches_per_step"]) for x in loaders]
        loader_s = max(times)
        m = replace(
            m,
            loader_s_per_step=loader_s,
            loader_workers=int(loaders[times.index(loader_s)]["workers"]),
        )
    else:
        m = replace(m, loader_reason=reason)
    step_s = max(device_s, loader_s)
    if not device_s:
        return replace(m, data_wait_reason="no step was timed")
    if loaders:
        m = replace(m, data_wait_share=1.0 - device_s / step_s)
    else:
        m = replace(m, data_wait_reason=f"the loader was not timed: {reason}")
    if busy_s is not None:
        share = float(busy_s) / m.steps_timed / step_s
        m = replace(m, modelled_busy_share=min(1.0, share))
    return m


def _loaders(end: dict[str, Any]) -> list[dict[str, Any]]:
    return list(end.get("facts", {}).get("loaders", ()))


def _facts(end: dict[str, Any]) -> ScriptFacts | None:
    raw = end.get("facts")
    if raw is None:
        return None
    return ScriptFacts(
        calls_auto_cast=bool(raw["calls_auto_cast"]),
        calls_scaler=bool(raw["calls_scaler"]),
        calls_decorate=bool(raw["calls_decorate"]),
        uses_hapi=bool(raw["uses_hapi"]),
        enables_amp=bool(raw["enables_amp"]),
        uses_to_static=bool(raw["uses_to_static"]),
        own_level=raw["own_level"],
        own_dtype=raw["own_dtype"],
        optimizer=raw["optimizer"],
        optimizer_has_master_weights=raw["optimizer_has_master_weights"],
        scheduled_by=raw.get("scheduled_by"),
        loaders=tuple(
            Loader(
                ordinal=int(x["ordinal"]),
                kind=str(x["kind"]),
                site=str(x["site"]),
                batch_size=x["batch_size"],
                dataset_length=x["dataset_length"],
                tunable=bool(x["tunable"]),
                reason=x["reason"],
            )
            for x in raw["loaders"]
        ),
    )


def user_modules(folder: str) -> tuple[str, ...]:
    """Files of the script's own modules that the trial loaded, for the script's identity."""
    processes = read_events(folder)
    if not processes:
        return ()
    return tuple(str(x) for x in processes[0].values.get("end", {}).get("modules", ()))


def _op_calls(main: Process) -> tuple[OpCalls, ...]:
    ops = main.values.get("op_counts", {}).get("ops", {})
    return tuple(
        OpCalls(op=str(op), float16=n[0], bfloat16=n[1], float32=n[2], other=n[3])
        for op, n in sorted(ops.items())
    )


def _scan(main: Process) -> Scan | None:
    raw = main.values.get("scan")
    if raw is None:
        return None
    exponents = tuple((int(e), int(n)) for e, n in raw.get("grad_exponents", ()))
    return Scan(
        grad_exponent_min=exponents[0][0] if exponents else None,
        grad_exponent_max=exponents[-1][0] if exponents else None,
        grad_exponents=exponents,
        zero_gradient_share=raw.get("zero_gradient_share"),
        overflow_ops=tuple(raw.get("overflow_ops", ())),
        overflow_ops_reason=raw.get("overflow_ops_reason"),
    )


def _effects(
    plan: wire.Plan,
    main: Process,
    setting: Setting,
    facts: ScriptFacts | None,
    state: dict[str, Any],
    delivered: int,
) -> tuple[Effect, ...]:
    """What was seen of each knob. Without the operator counts nothing was seen."""
    effects: list[Effect] = []
    if "state" in main.values:
        on_device = bool(state.get("on_device", True))
        effects.append(
            Effect(
                knob="device",
                wanted=plan.device,
                seen=plan.device if on_device else "another device",
                effective=on_device,
            )
        )
    if setting.amp_level is not None and "op_counts" in main.values:
        ops = _op_calls(main)
        low = {
            Dtype.float16: sum(o.float16 for o in ops),
            Dtype.bfloat16: sum(o.bfloat16 for o in ops),
        }
        if setting.amp_level is Level.O0:
            seen = low[Dtype.float16] + low[Dtype.bfloat16]
            effects.append(
                Effect(
                    knob="amp_level",
                    wanted="O0",
                    seen=f"{seen} operator calls in 16 bits in one step",
                    effective=seen == 0,
                )
            )
        else:
            wanted = setting.dtype or Dtype.float16
            count = low[wanted]
            effects.append(
                Effect(
                    knob="amp_level",
                    wanted=setting.precision(),
                    seen=f"{count} operator calls in {wanted} in one step",
                    effective=count > 0,
                )
            )
            if setting.amp_level is Level.O2:
                dtypes = {k: int(v) for k, v in state.get("parameter_dtypes", {}).items()}
                n = dtypes.get(str(wanted), 0)
                effects.append(
                    Effect(
                        knob="decorate",
                        wanted=f"parameters in {wanted}",
                        seen=", ".join(f"{v} in {k}" for k, v in sorted(dtypes.items())),
                        effective=n > 0,
                    )
                )
            if wanted is Dtype.float16:
                enabled = bool(state.get("scaler_enabled"))
                effects.append(
                    Effect(
                        knob="init_loss_scaling",
                        wanted="an enabled GradScaler",
                        seen="enabled" if enabled else "disabled or none",
                        effective=enabled,
                    )
                )
    effects += _list_effects(main, setting)
    effects += _tf32_effects(main, setting)
    scales = main.values.get("end", {}).get("scales", ())
    if setting.init_loss_scaling is not None and setting.dtype is not Dtype.bfloat16 and scales:
        first = float(scales[0][1])
        effects.append(
            Effect(
                knob="init_loss_scaling",
                wanted=f"{setting.init_loss_scaling:g}",
                seen=f"{first:g}",
                effective=first == setting.init_loss_scaling,
            )
        )
    if setting.batch_size is not None and main.steps:
        effects.append(
            Effect(
                knob="batch_size",
                wanted=str(setting.batch_size),
                seen=str(delivered),
                effective=delivered == setting.batch_size,
            )
        )
    return tuple(effects)


def _list_effects(main: Process, setting: Setting) -> list[Effect]:
    """Paddle ignores unknown names in op lists silently: each must be seen to change its op."""
    if "op_counts" not in main.values or not setting.is_mixed:
        return []
    calls = {o.op: o for o in _op_calls(main)}
    effects: list[Effect] = []
    for knob, names, wants_low in (
        ("custom_black_list", setting.custom_black_list, False),
        ("custom_white_list", setting.custom_white_list, True),
    ):
        for name in names:
            op = calls.get(name)
            low = 0 if op is None else op.float16 + op.bfloat16
            effects.append(
                Effect(
                    knob=knob,
                    wanted=f"{name} in {'16 bits' if wants_low else 'float32'}",
                    seen=(
                        "no operator of that name was called"
                        if op is None
                        else f"{low} calls in 16 bits, {op.float32} in float32"
                    ),
                    effective=op is not None and (low > 0) == wants_low,
                )
            )
    return effects


def _tf32_effects(main: Process, setting: Setting) -> list[Effect]:
    """The switches as they stood at the end, held against the device and CUDA's variable."""
    seen = main.values.get("end", {}).get("tf32")
    if setting.tf32 is None or seen is None:
        return []
    states = {"products": seen.get("tf32_matmul"), "convolutions": seen.get("tf32_conv")}
    words = {True: "on", False: "off", None: "unknown"}
    text = ", ".join(f"{what} {words[on]}" for what, on in states.items())
    if seen.get("tf32_why"):
        text += f" ({seen['tf32_why']})"
    return [
        Effect(
            knob="tf32",
            wanted=words[setting.tf32],
            seen=text,
            # Where nothing can be switched, off is what there is.
            effective=all(on is setting.tf32 for on in states.values())
            or (not setting.tf32 and not any(states.values())),
        )
    ]


def _outcome(
    plan: wire.Plan,
    ended: Ended,
    processes: list[Process],
    main: Process,
    m: Measurement,
    setting: Setting,
) -> tuple[Outcome, str | None]:
    """The outcome and a reason a person can act on."""
    if ended.interrupted:
        return Outcome.interrupted, "stopped by the user"
    ended_by = main.values.get("end", {}).get("reason")
    finished = ended_by in ("steps_reached", "too_slow")
    failed = not finished and (ended.exit.code != 0 or ended.exit.signal is not None)
    if failed or ended.timed_out:
        text = "\n".join(
            [e["message"] + e["traceback"] for p in processes for e in p.exceptions] + [m.log_tail]
        )
        if any(t in text for t in OOM_TEXTS):
            where = f"at step {main.steps + 1}" if main.steps else "before the first step"
            if any(p.values.get("host_memory", {}).get("last") for p in processes):
                return Outcome.host_memory, (
                    "this machine, or the container's limit, has too little memory to emulate the "
                    f"GPU {where}; the virtual GPU itself had room. More host memory, a smaller "
                    "batch, or planning with numerics=off, which needs little"
                )
            return Outcome.out_of_memory, f"out of memory {where}: {_oom_line(text)}"
    if ended.timed_out:
        at = f"after {main.steps} steps" if main.steps else _last_sign(main, "no optimizer step")
        return Outcome.timed_out, (
            f"no end within {ended.limit_s:.0f} s, {at}; raise --trial-timeout if the script is "
            "slow to start"
        )
    unarmed = os.path.join(plan.trial_dir, wire.ARMING_FAILED_FILE)
    if os.path.exists(unarmed):
        return Outcome.crashed, (
            "autoamp's hooks could not be armed, so the script was not run: "
            + _last_line(log_tail(unarmed))
        )
    if failed:
        return _failed(ended, processes, m)
    if not processes:
        return Outcome.no_steps, (
            "autoamp's hooks did not load: the interpreter ignores PYTHONPATH (python -I or -E?) "
            "or the script replaces its environment before Python starts"
        )
    broken = [f for p in processes for f in p.faults if f.startswith("install:")]
    if broken:
        return Outcome.not_effective, f"autoamp's hooks could not be installed: {broken[0]}"
    if not any("paddle" in p.values for p in processes):
        return Outcome.no_steps, "the script ended without importing paddle"
    if main.steps == 0:
        return Outcome.no_steps, (
            "the script ended without one optimizer step in dynamic graph mode; is the dataset "
            "empty at this batch size (drop_last), or does it train with the static graph?"
        )
    if not finished and m.steps_timed < MIN_TIMED_STEPS:
        return Outcome.too_few_steps, (
            f"the script made {main.steps} steps and ended; "
            f"{plan.warmup_steps + MIN_TIMED_STEPS} are needed: give it more data or epochs"
        )
    for effect in m.effects:
        if not effect.effective:
            return Outcome.not_effective, (
                f"{effect.knob}: wanted {effect.wanted}, seen {effect.seen}"
            )
    if ended_by == "too_slow":
        return Outcome.too_slow, (
            f"its first block ran at {m.throughput_samples_per_s or 0:.4g} samples/s, under half "
            "of the best so far"
        )
    return _numeric_outcome(plan, m, setting)


def _numeric_outcome(
    plan: wire.Plan, m: Measurement, setting: Setting
) -> tuple[Outcome, str | None]:
    if m.numerics_label is Label.not_computed:
        return Outcome.ok, None
    if len(m.losses) >= 2 and not all(math.isfinite(x) for x in m.losses[-3:]):
        first = next(
            s for s, x in zip(m.loss_steps, m.losses, strict=True) if not math.isfinite(x)
        )
        return Outcome.not_finite, f"the loss is not finite from step {first} on"
    scale = m.final_loss_scale
    if scale is not None and scale < wire.COLLAPSED_SCALE and len(m.loss_scales) > 1:
        return Outcome.scale_collapsed, (
            f"the loss scale fell to {scale:g} in {m.steps_done} steps, "
            f"{m.skipped_steps} of them skipped"
        )
    many = m.steps_done > 2 * LAST_STEPS_SKIPPED
    if scale is not None and many and (m.skipped_steps or 0) >= m.steps_done - 2:
        return Outcome.scale_collapsed, (
            f"{m.skipped_steps} of {m.steps_done} steps were skipped: gradients overflow"
        )
    return Outcome.ok, None


def _failed(ended: Ended, processes: list[Process], m: Measurement) -> tuple[Outcome, str | None]:
    if ended.exit.signal == 9 and not ended.exit.killed_by_us:
        return Outcome.host_memory, (
            "the process was killed with SIGKILL by the system: most likely the host ran out of "
            "memory (num_workers, data set size)"
        )
    raised = [e for p in processes for e in p.exceptions]
    if raised:
        last = raised[-1]
        text = last["message"]
        summary = f"{last['type']}: {said(text)}" if text else str(last["type"])
        if any(x in text for x in DEVICE_TEXTS) and any(t in text for t in UNSUPPORTED_TEXTS):
            return Outcome.unsupported_on_device, summary
        return Outcome.crashed, summary
    if ended.exit.signal is not None:
        return Outcome.crashed, f"killed by signal {ended.exit.signal}"
    return Outcome.crashed, f"exit code {ended.exit.code}: {_last_line(m.log_tail)}"


def _oom_line(text: str) -> str:
    lines = text.splitlines()
    # The last texts carry the size asked for, the first only the kind.
    for wanted in reversed(OOM_TEXTS):
        for line in lines:
            if wanted in line:
                return line.strip()[:300]
    return "see the log"


def _spoken(text: str) -> list[str]:
    lines = [_PLACE.sub("", line.strip()).strip() for line in text.splitlines()]
    return [x for x in lines if x and not _OPERATOR.fullmatch(x)]


def _last_line(text: str) -> str:
    lines = _spoken(text)
    return lines[-1][:300] if lines else ""


def said(message: str) -> str:
    """What an exception says: its last line, or Paddle's sentence and hint without what stands
    around them (C++ frames before; source line and operator's name after)."""
    lines = _spoken(message)
    starts = [i for i, x in enumerate(lines) if _PADDLE.match(x)]
    if not starts:
        return lines[-1][:300] if lines else ""
    return " ".join(lines[starts[-1] :])[:300]


def _last_sign(main: Process, otherwise: str) -> str:
    if not main.values and not main.applied:
        return "its interpreter never reported"
    return otherwise if "paddle" in main.values else "paddle was never imported"


def timed_window(folder: str) -> tuple[float, float] | None:
    """CLOCK_MONOTONIC start and end of the timed window, None if it never began."""
    processes = read_events(folder)
    if not processes or "window_start" not in processes[0].values or not processes[0].blocks:
        return None
    return float(processes[0].values["window_start"]["t"]), float(processes[0].blocks[-1]["t"])
