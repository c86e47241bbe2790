"""The whole probe: facts, the device that tuning would use, verdicts and problems."""

from dataclasses import replace

from autoamp.errors import MachineError
from autoamp.probes import catalogue, checks, nvml, rules
from autoamp.probes.device_spec import DeviceSpec, parse_device
from autoamp.probes.facts import (
    Device,
    DeviceKind,
    Host,
    Machine,
    PaddleInstall,
    Problem,
    Severity,
)
from autoamp.probes.host import host as read_host
from autoamp.probes.identity import identity
from autoamp.probes.paddle_install import paddle_install

DEFAULT_VIRTUAL = "v100-32gb"
"""The virtual device without a choice: a GPU whose published rows calibrate the clock."""


def probe(
    device: str = "auto", python: str | None = None, allow_unsupported: bool = False
) -> Machine:
    """Find out what this machine can do, for the device that ``device`` names.

    Never imports paddle. Raises UsageError for a device that cannot be (``bad-device``,
    ``unknown-device``, ``ambiguous-device``) and MachineError for one that is not here
    (``device-not-found``) or an interpreter that does not answer (``interpreter-broken``).
    """
    spec = parse_device(device)
    reading = nvml.read()
    paddle = paddle_install(python)
    host = read_host(reading.driver_version, reading.driver_cuda_version, reading.problem)
    return assemble(spec, reading, paddle, host, nvml.visible_setting(), allow_unsupported)


def assemble(
    spec: DeviceSpec,
    reading: nvml.NvmlReading,
    paddle: PaddleInstall,
    host: Host,
    visible_setting: str | None = None,
    allow_unsupported: bool = False,
) -> Machine:
    """The Machine from what was read; pure but for the catalogue file."""
    gpus = nvml.visible(reading.gpus, visible_setting)
    devices = tuple(gpu_device(gpu, number) for number, gpu in enumerate(gpus))
    unusable = checks.unusable_gpu(replace(reading, gpus=gpus), paddle)
    chosen, reason = choose(spec, devices, reading, paddle, host, unusable)
    problems = checks.paddle_problems(paddle)
    if unusable is not None:
        asked = spec.kind in (DeviceKind.virtual, DeviceKind.cpu)
        problems.append(replace(unusable, severity=Severity.note) if asked else unusable)
    trouble = checks.nvml_problem(reading, paddle)
    if trouble is not None:
        quiet = spec.kind in (DeviceKind.virtual, DeviceKind.cpu)
        problems.append(replace(trouble, severity=Severity.note) if quiet else trouble)
    if chosen.kind is DeviceKind.gpu:
        problems += checks.gpu_problems(gpus[int(chosen.paddle_name.partition(":")[2])])
    problems += checks.host_problems(host, chosen)
    found = rules.verdicts(chosen, paddle)
    order = {Severity.blocker: 0, Severity.warning: 1, Severity.note: 2}
    return Machine(
        device=chosen,
        devices=devices,
        host=host,
        paddle=paddle,
        verdicts=rules.forced(found) if allow_unsupported else found,
        problems=tuple(sorted(problems, key=lambda p: order[p.severity])),
        identity=identity(chosen, paddle),
        device_reason=reason,
    )


def gpu_device(gpu: nvml.NvmlGpu, number: int) -> Device:
    """The Device for a GPU that CUDA shows under ``number``."""
    name = gpu.name or "unknown NVIDIA GPU"
    model = catalogue.match_nvml(name, None if gpu.mig_profile else gpu.memory_total_bytes)
    absent = dict(gpu.absent)
    capability = gpu.compute_capability or (model.compute_capability if model else None)
    if model is None:
        absent["model"] = f"{name} is not in the catalogue: judged by its compute capability"
    return Device(
        kind=DeviceKind.gpu,
        paddle_name=f"gpu:{number}",
        name=name,
        uuid=gpu.uuid,
        architecture=model.architecture if model else None,
        compute_capability=capability,
        tensor_core_generation=model.tensor_core_generation if model else None,
        memory_total_bytes=gpu.memory_total_bytes,
        memory_free_bytes=gpu.memory_free_bytes,
        mig=gpu.mig_profile,
        model=model,
        absent=absent,
    )


def virtual(spec: DeviceSpec) -> Device:
    """The Device that the virtual accelerator would play. Raises as ``catalogue.find``."""
    model = catalogue.find(spec.model)
    return Device(
        kind=DeviceKind.virtual,
        paddle_name="virtual",
        name=model.name,
        architecture=model.architecture,
        compute_capability=model.compute_capability,
        tensor_core_generation=model.tensor_core_generation,
        memory_total_bytes=spec.memory_bytes or model.memory_bytes,
        model=model,
        numerics=spec.numerics,
        absent={"uuid": "a virtual device has none", "memory_free_bytes": "it is all free"},
    )


def cpu(host: Host) -> Device:
    """The CPU as a device."""
    return Device(
        kind=DeviceKind.cpu,
        paddle_name="cpu",
        name=host.cpu_model or "CPU",
        memory_total_bytes=host.memory_total_bytes,
        memory_free_bytes=host.memory_available_bytes,
        absent={"compute_capability": "a CPU has none"},
    )


def choose(
    spec: DeviceSpec,
    devices: tuple[Device, ...],
    reading: nvml.NvmlReading,
    paddle: PaddleInstall,
    host: Host,
    unusable: Problem | None,
) -> tuple[Device, str]:
    """The device asked for, or for ``auto`` the best one; with the reason."""
    if spec.kind is DeviceKind.virtual:
        return virtual(spec), "asked for"
    if spec.kind is DeviceKind.cpu:
        return cpu(host), "asked for"
    if spec.kind is DeviceKind.custom:
        return (
            Device(
                kind=DeviceKind.custom,
                paddle_name=f"{spec.paddle_type}:{spec.index}",
                name=f"{spec.paddle_type}:{spec.index}",
                absent={"compute_capability": "Paddle decides what the device can do"},
            ),
            "asked for",
        )
    if spec.kind is DeviceKind.gpu:
        if spec.index >= len(devices):
            seen = ", ".join(f"gpu:{n} {d.name}" for n, d in enumerate(devices)) or "none"
            raise MachineError(
                f"no gpu:{spec.index} here; seen: {seen}"
                + (f" ({reading.problem})" if reading.problem else ""),
                slug="device-not-found",
                remedy="autoamp probe shows what is here; without a GPU use --device virtual:NAME",
            )
        return devices[spec.index], "asked for"
    if devices and (unusable is not None or paddle.gpu_build):
        # An unusable GPU is chosen, too: its problem blocks tuning and says what to do.
        return devices[0], "the first GPU that CUDA shows"
    fallback = virtual(DeviceSpec(kind=DeviceKind.virtual, model=DEFAULT_VIRTUAL))
    return fallback, (
        f"No accelerator found. Planning for a virtual {fallback.name}: FP16 emulated op by op, "
        "memory counted as Paddle allocates it, times modelled. Choose another with "
        "--device virtual:NAME (autoamp devices)."
    )
