"""One trial: the command, its environment and its folder, run to its end or its limit."""

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from autoamp import wire
from autoamp.errors import UsageError
from autoamp.process import Exit, Supervised
from autoamp.settings import Dtype, Level, Setting

POLL_S = 0.1
GPU_RETRY_MS = "100"
"""FLAGS_gpu_allocator_retry_time: paddle's default waits 10 s before every out-of-memory error."""
_PLACEHOLDER = re.compile(r"\{([a-z_][a-z0-9_]*)(?::([^{}]*))?\}")
_TEMPLATE_KNOBS = {
    "batch_size": "batch_size",
    "amp_level": "amp_level",
    "dtype": "dtype",
    "use_amp": "amp_level",
    "init_loss_scaling": "init_loss_scaling",
    "tf32": "tf32",
    "custom_white_list": "custom_white_list",
    "custom_black_list": "custom_black_list",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What the user wants to train: a script or a module, with its own arguments."""

    entry: str
    is_module: bool
    arguments: tuple[str, ...]
    python: str
    cwd: str

    @property
    def shown(self) -> str:
        """The command line as a person would type it."""
        import shlex

        head = ["-m", self.entry] if self.is_module else [self.entry]
        return shlex.join([*head, *self.arguments])


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a trial's process ended, for ``collect``."""

    exit: Exit
    timed_out: bool
    interrupted: bool
    started_s: float
    """CLOCK_MONOTONIC at the start: the same clock as the events' ``t``."""
    wall_s: float
    limit_s: float | None


def placeholders(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Knobs templated into the arguments. Raises UsageError for a name that is no knob."""
    found: list[str] = []
    for argument in arguments:
        for name, _ in _PLACEHOLDER.findall(argument):
            if name in _TEMPLATE_KNOBS:
                found.append(name)
    return tuple(dict.fromkeys(found))


def templated_knobs(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Setting fields that the arguments carry; these are not patched in the child as well."""
    return tuple(dict.fromkeys(_TEMPLATE_KNOBS[name] for name in placeholders(arguments)))


def fill(arguments: tuple[str, ...], setting: Setting) -> tuple[str, ...]:
    """Arguments with ``{knob}`` or ``{knob:start value}`` replaced by the setting's values.

    A knob that the setting leaves alone takes the start value, else FP32's: O0, float32, False,
    32768 and empty lists. Raises UsageError for ``{batch_size}`` without one.
    """

    def value(match: re.Match[str]) -> str:
        name, start = match.group(1), match.group(2)
        if name not in _TEMPLATE_KNOBS:
            return match.group(0)
        if name == "use_amp":
            if setting.amp_level is None and start is not None:
                return start
            return str(setting.is_mixed)
        knob = getattr(setting, name)
        if knob is None or knob == ():
            if start is not None:
                return start
            if name == "batch_size":
                raise UsageError(
                    "the arguments contain {batch_size}, but the script's own batch size is "
                    "needed for the baseline",
                    slug="template-needs-start",
                    remedy="give it a start value: {batch_size:32}",
                )
            return {
                "amp_level": str(Level.O0),
                "dtype": str(Dtype.float32),
                "init_loss_scaling": "32768",
                "tf32": "False",
            }.get(name, "")
        if isinstance(knob, tuple):
            return ",".join(knob)
        return f"{knob:g}" if isinstance(knob, float) else str(knob)

    return tuple(_PLACEHOLDER.sub(value, argument) for argument in arguments)


def command(target: Target, setting: Setting) -> list[str]:
    """The real ``python script args`` (or ``-m module args``)."""
    head = ["-m", target.entry] if target.is_module else [target.entry]
    return [target.python, *head, *fill(target.arguments, setting)]


def environment(
    plan_path: str, device: str, extra: Mapping[str, str], *, trial: bool = True
) -> dict[str, str]:
    """The user's environment with our hooks first on the path and the plan's address in it.

    A trial sees the chosen GPU alone and fails fast when memory is short; a full run keeps the
    user's own choice of GPUs, which may be several.
    """
    env = dict(os.environ)
    site = str(Path(__file__).parent / "child" / "site")
    rest = env.get("PYTHONPATH")
    env["PYTHONPATH"] = site if not rest else os.pathsep.join([site, rest])
    env[wire.ENV_PLAN] = plan_path
    if trial:
        env[wire.ENV_GUARDED] = "1"
        # The log must hold the last lines of a script that is killed.
        env["PYTHONUNBUFFERED"] = "1"
        env.setdefault("FLAGS_gpu_allocator_retry_time", GPU_RETRY_MS)
    if device == "virtual":
        # Paddle logs seven lines about every custom device it loads.
        env.setdefault("GLOG_minloglevel", "1")
    kind, _, index = device.partition(":")
    if kind == "gpu" and trial:
        # NVML counts in PCI order, CUDA by speed unless told otherwise.
        env.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        visible = [v for v in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if v]
        number = int(index or 0)
        env["CUDA_VISIBLE_DEVICES"] = visible[number] if number < len(visible) else str(number)
    env.update(extra)
    return env


def child_device(device: str) -> str:
    """The device's name inside the child, where only the chosen GPU is visible."""
    return "gpu:0" if device.startswith("gpu") else device


def run(
    target: Target,
    plan: wire.Plan,
    *,
    device: str,
    extra_env: Mapping[str, str],
    limit_s: float | None,
    stop: Callable[[], bool] = lambda: False,
) -> Ended:
    """Run one trial in ``plan.trial_dir``; returns when no process of it is left.

    Raises OSError if the interpreter cannot be started. ``stop`` is asked ten times a second;
    True kills the trial.
    """
    os.makedirs(plan.scratch_dir, exist_ok=True)
    plan_path = wire.write_plan(plan)
    started = time.monotonic()
    timed_out = interrupted = False
    with Supervised(
        command(target, Setting.from_json(plan.setting)),
        env=environment(plan_path, device, extra_env),
        cwd=target.cwd,
        log_path=os.path.join(plan.trial_dir, wire.LOG_FILE),
    ) as child:
        while True:
            done = child.wait(POLL_S)
            if done is not None:
                break
            if stop():
                interrupted = True
                done = child.kill()
                break
            if limit_s is not None and time.monotonic() - started > limit_s:
                timed_out = True
                done = child.kill()
                break
    return Ended(
        exit=done,
        timed_out=timed_out,
        interrupted=interrupted,
        started_s=started,
        wall_s=time.monotonic() - started,
        limit_s=limit_s,
    )
