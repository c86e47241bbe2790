"""``autoamp run``: the full training with a recommended setting, the script's own exit code."""

import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autoamp import collect, launch, wire
from autoamp.errors import MachineError
from autoamp.launch import Target
from autoamp.measurement import Measurement, Outcome
from autoamp.played import played
from autoamp.probes import machine as probes_machine
from autoamp.probes import visible
from autoamp.probes.facts import DeviceKind, Machine
from autoamp.process import Exit, run_foreground
from autoamp.settings import Dtype, Setting
from autoamp.studies import recommend, script_identity
from autoamp.studies.recommendation import Recommendation, Recommended
from autoamp.virtual import build as virtual_build
from autoamp.virtual import device as virtual_device

EXIT_OWN_FAILURE = 125
"""``run`` passes the script's codes through and keeps 125 to 127 for itself, as env(1) does."""
EXIT_CANNOT_START = 126


@dataclass(frozen=True, slots=True, kw_only=True)
class FullRun:
    """What is about to run, and what a person should know first."""

    target: Target
    machine: Machine
    recommended: Recommended
    setting: Setting
    device_asked: bool
    """``--device`` names one GPU; else the script sees what the user's environment shows."""
    notes: tuple[str, ...]


def prepare(config: Recommendation, target: Target, *, device: str, keep_batch: bool) -> FullRun:
    """Choose device and setting, and say what differs from what was tuned.

    Raises MachineError if the machine has no Paddle or refuses the setting's precision.
    """
    machine = probes_machine.probe(device, target.python)
    notes: list[str] = []
    probes_machine.require(machine)
    tuned_virtually = config.machine.device_kind == "virtual"
    here_virtual = machine.device.kind is DeviceKind.virtual
    planned_for = config.machine.identity.device
    if (
        here_virtual
        and tuned_virtually
        and device == "auto"
        and planned_for.startswith("virtual:")
    ):
        # Nothing better here: play the GPU that the config was planned for.
        machine = probes_machine.probe(planned_for, target.python)
    if here_virtual:
        # Too little memory is an answer before anything is built or started.
        played(machine.device, numerics=True)
    if tuned_virtually and not here_virtual:
        notes.append(
            f"this config was planned for a virtual {config.machine.device}, never measured on a "
            f"GPU; it now runs on {machine.device.name}"
        )
    elif here_virtual:
        found = "no accelerator found: " if device == "auto" else ""
        notes.append(
            f"{found}training runs on a virtual {machine.device.name}, emulated on the CPU and "
            "slower than plain CPU training; its results are those of the emulated precision"
        )
    if here_virtual or not tuned_virtually:
        different = machine.identity.differences(recommend.identity_of(config.machine.identity))
        notes += [f"tuned on another machine: {x}" for x in different]
    script = script_identity.identify(
        target.entry, is_module=target.is_module, arguments=target.arguments, cwd=target.cwd
    )
    notes += script_notes(config, script)
    other = is_other_script(config, script)
    recommended = config.chosen(keep_batch=keep_batch)
    if not recommended.confirmed:
        notes.append("this setting was not confirmed in fresh runs: the search was cut short")
    setting = recommended.setting
    if setting.is_mixed and setting.amp_level is not None and setting.dtype is not None:
        verdict = machine.verdict(setting.amp_level, setting.dtype)
        if verdict is not None and not verdict.allowed and not verdict.forcible:
            raise MachineError(
                f"{setting.precision()} is refused on {machine.device.name}: {verdict.reason}",
                slug="refused-precision",
                remedy=verdict.instead or "tune on this machine",
            )
    if setting.tf32:
        notes += tf32_notes(machine, setting)
    notes += batch_notes(config, setting, other_script=other)
    return FullRun(
        target=target,
        machine=machine,
        recommended=recommended,
        setting=setting,
        device_asked=device != "auto",
        notes=tuple(notes),
    )


def batch_notes(
    config: Recommendation, setting: Setting, *, other_script: bool = False
) -> tuple[str, ...]:
    """That the batch size is not the script's own, why, and what is done about it. Of another
    script than the one that was tuned neither batch nor learning rate is known."""
    own, batch = config.own_batch, setting.batch_size
    if other_script and batch is not None:
        return (
            f"batch size {batch} is set if a loader here is called as in {config.script.entry}; "
            "what this script's own batch and learning rate are is not known",
        )
    advice = recommend.learning_rate_advice(own, batch)
    if advice is None:
        return ()
    kept = config.at_your_batch.measured.batch_size
    hint = "--keep-batch leaves it"
    if kept is not None and kept != own:
        hint = f"{own} does not fit the device that it was tuned for"
        if kept != batch:
            hint += f"; --keep-batch takes {kept}"
    return (f"batch size changed from {own} to {batch} ({hint})", advice)


def tf32_notes(machine: Machine, setting: Setting) -> tuple[str, ...]:
    """What TF32 means here. Raises MachineError if it is all the setting asks for and the machine
    has none."""
    knob = machine.knob("tf32")
    if knob is None or knob.available:
        return ()
    if not setting.is_mixed:
        raise MachineError(
            f"TF32 is refused on {machine.device.name}: {knob.reason}",
            slug="refused-precision",
            remedy="tune on this machine",
        )
    return (f"tf32 has no effect on {machine.device.name}: {knob.reason}",)


def script_notes(
    config: Recommendation, script: script_identity.ScriptIdentity
) -> tuple[str, ...]:
    """What differs between the script that was tuned and the one at hand."""
    then = {f.path: f.sha256 for f in config.script.files}
    now = {f.path: f.sha256 for f in script.files}
    notes = []
    if is_other_script(config, script):
        notes.append(f"tuned for another script: {config.script.entry}, not {script.entry}")
    changed = sorted(p for p in then.keys() & now.keys() if then[p] != now[p])
    notes += [f"changed since it was tuned: {path}" for path in changed]
    if config.script.arguments != script.arguments:
        notes.append(
            "other arguments than when it was tuned: "
            + (" ".join(config.script.arguments) or "none")
        )
    return tuple(notes)


def is_other_script(config: Recommendation, script: script_identity.ScriptIdentity) -> bool:
    """Another file than the one that was tuned, by its name: the same one may have moved."""
    return os.path.basename(config.script.entry) != os.path.basename(script.entry)


def run(full: FullRun, config: Recommendation, say: Callable[[str], None]) -> int:
    """Train; returns the script's exit code (128 + n for signal n), or 126 if it cannot start."""
    device = full.machine.device
    hooks = config.script.hooks
    templated = launch.templated_knobs(full.target.arguments)
    mixed = full.setting.is_mixed and "amp_level" not in templated
    virtual = None
    # Which GPUs a full training uses is the user's choice, and may be several.
    extra: Mapping[str, str] = visible.child_environment(device) if full.device_asked else {}
    if device.kind is DeviceKind.virtual:
        virtual = played(device, numerics=True)
        folder = virtual_build.ensure_built(full.target.python, say)
        extra = virtual_device.child_environment(virtual, folder)
    trial_dir = summary_folder(say)
    plan = wire.Plan(
        trial_dir=str(trial_dir),
        mode="run",
        device="virtual" if virtual else launch.child_device(device.paddle_name),
        virtual=virtual,
        setting=full.setting.to_json(),
        templated=templated,
        keep_disabled=hooks.enables_auto_cast,
        outside_auto_cast=mixed and not hooks.calls_auto_cast,
        outside_scaler=mixed and not hooks.calls_scaler and not hooks.uses_hapi,
        outside_decorate=mixed and not hooks.calls_decorate and not hooks.uses_hapi,
        loaders=tuple(
            wire.LoaderPlan(ordinal=x.ordinal, kind=x.kind, site=x.site) for x in hooks.loaders
        ),
        restart_dataset=False,
        divert_files=False,
    )
    env = launch.environment(wire.write_plan(plan), device.paddle_name, extra, trial=False)
    started = time.monotonic()
    try:
        done = run_foreground(
            launch.command(full.target, full.setting), env=env, cwd=full.target.cwd
        )
    except OSError as error:
        say(f"cannot start {full.target.python}: {error}")
        return EXIT_CANNOT_START
    summarise(trial_dir, plan, full, done, time.monotonic() - started, say)
    return done.code if done.code is not None else 128 + (done.signal or 0)


def summary_folder(say: Callable[[str], None]) -> Path:
    """Where the run's events and summary go; a folder that cannot be written stops no training."""
    name = f"run-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    folder = Path.cwd() / ".autoamp" / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    except OSError as error:
        folder = Path(tempfile.mkdtemp(prefix=f"autoamp-{name}-"))
        say(f"autoamp run: {error.strerror or error} in this folder; its summary goes to {folder}")
        return folder


def summarise(
    trial_dir: Path,
    plan: wire.Plan,
    full: FullRun,
    done: Exit,
    wall_s: float,
    say: Callable[[str], None],
) -> None:
    """Hold what the training showed against what the trial promised; also as JSON."""
    ended = launch.Ended(
        exit=done, timed_out=False, interrupted=False, started_s=0.0, wall_s=wall_s, limit_s=None
    )
    seen = collect.collect(plan, ended)
    promised = full.recommended.measured
    peak = seen.memory_reserved_peak_bytes or seen.memory_allocated_peak_bytes
    summary = {
        "schema": 1,
        "exit_code": done.code,
        "signal": done.signal,
        "wall_s": wall_s,
        "steps": seen.steps_done,
        "skipped_steps": seen.skipped_steps,
        "final_loss_scale": seen.final_loss_scale,
        "last_loss": seen.losses[-1] if seen.losses else None,
        "memory_peak_bytes": peak,
        "promised_memory_peak_bytes": promised.memory.peak_bytes,
        "setting": full.setting.to_json(),
    }
    path = trial_dir / wire.SUMMARY_FILE
    path.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    if seen.steps_done:
        parts = [f"{seen.steps_done} steps", f"{seen.skipped_text} skipped"]
        if seen.final_loss_scale is not None:
            parts.append(f"final loss scale {seen.final_loss_scale:g}")
        if peak and promised.memory.peak_bytes:
            parts.append(
                f"peak memory {peak / 2**20:,.1f} MiB "
                f"(trial {promised.memory.peak_bytes / 2**20:,.1f})"
            )
        say("autoamp run: " + ", ".join(parts) + f"; {path}")
    for warning in (*warnings(seen), *not_seen(seen, full.setting, plan.templated)):
        say(f"autoamp run: warning: {warning}")


def warnings(seen: Measurement) -> tuple[str, ...]:
    """What went wrong although the script ended."""
    out = []
    if seen.outcome is Outcome.not_effective and all(x.effective for x in seen.effects):
        out.append(f"{seen.reason}: the training ran without the setting")
    elif seen.outcome is Outcome.no_steps:
        out.append(f"nothing shows that the setting was applied: {seen.reason}")
    if seen.final_loss_scale is not None and seen.final_loss_scale < wire.COLLAPSED_SCALE:
        out.append(
            f"the loss scale fell to {seen.final_loss_scale:g}: training does not learn any more"
        )
    if seen.losses and seen.losses[-1] != seen.losses[-1]:
        out.append("the last loss that was looked at is not a number")
    out += [
        f"{x.knob} had no effect: wanted {x.wanted}, saw {x.seen}"
        for x in seen.effects
        if x.knob == "tf32" and not x.effective
    ]
    return tuple(out)


def not_seen(
    seen: Measurement, setting: Setting, templated: Sequence[str] = ()
) -> tuple[str, ...]:
    """Parts of the setting that the training showed nothing of. ``templated``: knobs that the
    script took as arguments, and may have used in ways that no hook sees."""
    if not seen.steps_done:
        return ()
    out = []
    for effect in seen.effects:
        if effect.knob != "batch_size" or effect.effective:
            continue
        if effect.seen != "0":
            out.append(
                f"batch size {effect.wanted} was not delivered: the training ran at "
                f"{effect.seen}; the loader that was tuned was not found in it"
            )
        elif "batch_size" not in templated:
            out.append(
                f"batch size {effect.wanted} was not delivered: no DataLoader of Paddle's fed the "
                "training, which ran at the script's own"
            )
    if not setting.is_mixed or "amp_level" in templated:
        return tuple(out)
    if not any(x.knob == "amp_level" for x in seen.applied):
        out.append(f"{setting.precision()} was not applied: no model was called under AMP")
    elif setting.dtype is Dtype.float16 and seen.final_loss_scale is None:
        out.append("no enabled GradScaler was seen: float16 gradients were not scaled")
    return tuple(out)
