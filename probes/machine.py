"""The whole probe: facts, the device that tuning would use, verdicts and problems."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from autoamp.errors import MachineError
from autoamp.probes import checks, choice, gpu_checks, nvml, rules, usable, visible
from autoamp.probes.accelerators import accelerators, may_have_any
from autoamp.probes.catalogue import match_nvml, tensor_core_generation
from autoamp.probes.device_spec import DeviceSpec, parse_device
from autoamp.probes.facts import (
    Device,
    DeviceKind,
    Host,
    Machine,
    NvmlGpu,
    PaddleInstall,
    Problem,
    Severity,
)
from autoamp.probes.host import host as read_host
from autoamp.probes.identity import identity
from autoamp.probes.knobs import knob_verdicts
from autoamp.probes.paddle_install import paddle_install
from autoamp.probes.roofline_store import load as load_roofline


def probe(
    device: str = "auto", python: str | None = None, allow_unsupported: bool = False
) -> Machine:
    """Find out what this machine can do, for the device that ``device`` names.

    Never imports paddle into this process; asks a child that does only for accelerators beside
    NVIDIA's. Raises UsageError for a device that cannot be (``bad-device``, ``unknown-device``,
    ``ambiguous-device``) and MachineError for one that is not here (``device-not-found``), an
    interpreter that does not answer (``interpreter-broken``) or a Paddle that does not when an
    accelerator is asked for by name (``paddle-child-failed``; with ``auto`` that is a problem of
    the Machine, and the rest is shown).
    """
    spec = parse_device(device)
    reading = nvml.read()
    paddle = paddle_install(python)
    others: tuple[Device, ...] = ()
    unasked: MachineError | None = None
    if spec.kind is DeviceKind.custom and paddle.version is not None:
        others = accelerators(paddle.python, spec.paddle_type)
    elif spec.kind is None and not reading.gpus and may_have_any(paddle):
        try:
            others = accelerators(paddle.python)
        except MachineError as error:
            unasked = error
    machine = assemble(
        spec,
        reading,
        paddle,
        read_host(reading),
        environment=os.environ,
        others=others,
        unasked=unasked,
        allow_unsupported=allow_unsupported,
    )
    return replace(machine, roofline=load_roofline(machine.identity))


def assemble(
    spec: DeviceSpec,
    reading: nvml.NvmlReading,
    paddle: PaddleInstall,
    host: Host,
    *,
    environment: Mapping[str, str] | None = None,
    others: Sequence[Device] = (),
    unasked: MachineError | None = None,
    allow_unsupported: bool = False,
) -> Machine:
    """The Machine from what was read; pure but for the catalogue file.

    ``others`` are accelerators beside NVIDIA's; ``unasked`` is why Paddle did not tell of them.
    Raises as ``probe`` for the device.
    """
    environment = environment or {}
    gpus = visible.visible(reading.gpus, environment.get(visible.VISIBLE))
    shown = tuple(gpu_device(gpu, number, host) for number, gpu in enumerate(gpus))
    unusable = {d.paddle_name: usable.unusable(d, reading, paddle) for d in shown}
    by_speed = visible.order_is_doubtful(gpus, environment) and visible.VISIBLE not in environment
    chosen, reason = choice.choose(
        spec, shown, others, unusable, reading, paddle, host, fastest_first=by_speed
    )
    problems = checks.paddle_problems(paddle)
    about_gpus = gpu_checks.nvml_problems(reading, paddle, host)
    about_gpus += gpu_checks.several(reading.gpus, gpus, environment)
    if chosen.kind is DeviceKind.gpu:
        blocker = unusable[chosen.paddle_name]
        about_gpus += [blocker] if blocker else gpu_checks.gpu_problems(chosen, reading, paddle)
    elif any(unusable.values()):
        about_gpus.append(next(p for p in unusable.values() if p))
    if spec.kind is not None and spec.kind is not DeviceKind.gpu:
        # Another device was asked for by name: the GPUs' troubles are news, no obstacle.
        about_gpus = [replace(p, severity=Severity.note) for p in about_gpus]
    if unasked is not None:
        problems.append(checks.accelerators_unasked(paddle, unasked))
    problems += about_gpus + checks.host_problems(host, chosen)
    return Machine(
        device=chosen,
        devices=(*shown, *others),
        host=host,
        paddle=paddle,
        verdicts=rules.verdicts(chosen, paddle, allow_unsupported=allow_unsupported),
        problems=in_order(problems),
        identity=identity(chosen, paddle, host),
        device_reason=reason,
        knobs=knob_verdicts(chosen, paddle, environment),
    )


def in_order(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Blockers first, then warnings, then notes."""
    order = {Severity.blocker: 0, Severity.warning: 1, Severity.note: 2}
    return tuple(sorted(problems, key=lambda p: order[p.severity]))


def gpu_device(gpu: NvmlGpu, number: int, host: Host) -> Device:
    """The Device for a GPU that CUDA shows under ``number``."""
    name = gpu.name or "unknown NVIDIA GPU"
    absent = dict(gpu.absent)
    total, free = gpu.memory_total_bytes, gpu.memory_free_bytes
    if total is None and host.jetson is not None:
        # GPU and CPU share one memory there, and NVML does not speak of it.
        total, free = host.memory_total_bytes, host.memory_available_bytes
        absent["memory"] = f"shared with the CPU: the memory of {host.jetson} is given"
        for field in ("memory_total_bytes", "memory_free_bytes"):
            absent.pop(field, None)
    model = match_nvml(name, None if gpu.mig_profile else total)
    if total is None and model is not None and not gpu.mig_profile:
        # WSL's NVML may keep quiet; how much of it is free stays unknown.
        total = model.memory_bytes
        absent["memory"] = f"NVML gives none: that of {model.name} in the catalogue is given"
        absent.pop("memory_total_bytes", None)
    capability = gpu.compute_capability or (model.compute_capability if model else None)
    if gpu.compute_capability is None and capability is not None:
        absent.pop("compute_capability", None)
    absent["allowed_dtypes"] = "Paddle is not asked about NVIDIA GPUs: its rules are known"
    if not gpu.mig_profile:
        absent["mig"] = "it is no MIG instance"
    if model is not None:
        absent.pop("architecture", None)
    elif capability is None:
        absent["tensor_core_generation"] = "neither model nor compute capability is known"
    if model is None:
        absent["model"] = f"{name} is not in the catalogue: judged by its compute capability"
    return Device(
        kind=DeviceKind.gpu,
        paddle_name=f"gpu:{number}",
        name=name,
        uuid=gpu.uuid,
        architecture=model.architecture if model else gpu.architecture,
        compute_capability=capability,
        tensor_core_generation=(
            model.tensor_core_generation if model else tensor_core_generation(capability, name)
        ),
        memory_total_bytes=total,
        memory_free_bytes=free,
        mig=gpu.mig_profile,
        model=model,
        nvml=gpu,
        absent=absent,
    )


def blockers(machine: Machine) -> tuple[Problem, ...]:
    """The problems that stop tuning."""
    return tuple(p for p in machine.problems if p.severity is Severity.blocker)


def require(machine: Machine) -> None:
    """Raise MachineError for the first problem that blocks tuning."""
    for found in blockers(machine):
        raise MachineError(found.sentence, slug=found.slug, remedy=found.remedy)
