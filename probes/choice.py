"""The device that tuning would use, and why this one. Pure but for the catalogue file."""

from collections.abc import Mapping, Sequence

from autoamp.errors import MachineError
from autoamp.probes import catalogue
from autoamp.probes.device_spec import DeviceSpec
from autoamp.probes.facts import (
    ONLY_GPUS,
    Device,
    DeviceKind,
    Host,
    PaddleInstall,
    Problem,
)
from autoamp.probes.nvml import NvmlReading

DEFAULT_VIRTUAL = "v100-32gb"
"""The virtual device without a choice: a GPU whose published rows calibrate the clock."""

ASKED = "asked for"


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
        absent={
            "uuid": "a virtual device has none",
            "memory_free_bytes": "it is all free",
            "mig": "a virtual device is a whole GPU",
            "allowed_dtypes": "Paddle is not asked about NVIDIA GPUs: its rules are known",
            "nvml": "a virtual device has no NVML",
        },
    )


def cpu(host: Host) -> Device:
    """The CPU as a device."""
    return Device(
        kind=DeviceKind.cpu,
        paddle_name="cpu",
        name=host.cpu_model or "CPU",
        memory_total_bytes=host.memory_total_bytes,
        memory_free_bytes=host.memory_available_bytes,
        absent={
            **dict.fromkeys(ONLY_GPUS, "a CPU has none"),
            "uuid": "a CPU has none",
            "allowed_dtypes": "Paddle is not asked: its AMP does nothing on a CPU",
        },
    )


def choose(
    spec: DeviceSpec,
    gpus: Sequence[Device],
    others: Sequence[Device],
    unusable: Mapping[str, Problem | None],
    reading: NvmlReading,
    paddle: PaddleInstall,
    host: Host,
    *,
    fastest_first: bool = False,
) -> tuple[Device, str]:
    """The device asked for, or for ``auto`` the best one; with the reason.

    ``fastest_first``: the GPUs differ and CUDA numbers them by speed, so that a program which
    does not choose gets the fastest: ``auto`` must not be another one. ``unusable`` says by
    ``paddle_name`` what stands against a GPU. Raises MachineError ``device-not-found``.
    """
    if spec.kind is DeviceKind.virtual:
        return virtual(spec), ASKED
    if spec.kind is DeviceKind.cpu:
        return cpu(host), ASKED
    if spec.kind is DeviceKind.custom:
        return _custom(spec, others, paddle), ASKED
    if spec.kind is DeviceKind.gpu:
        if spec.index < len(gpus):
            return gpus[spec.index], ASKED
        seen = ", ".join(f"{d.paddle_name} {d.name}" for d in gpus) or "none"
        raise MachineError(
            f"no gpu:{spec.index} here; seen: {seen}"
            + (f" ({reading.problem})" if reading.problem else ""),
            slug="device-not-found",
            remedy="autoamp probe shows what is here; without a GPU use --device virtual:NAME",
        )
    return _auto(gpus, others, unusable, fastest_first)


def _custom(spec: DeviceSpec, others: Sequence[Device], paddle: PaddleInstall) -> Device:
    wanted = f"{spec.paddle_type}:{spec.index}"
    for device in others:
        if device.paddle_name == wanted:
            return device
    seen = ", ".join(d.paddle_name for d in others)
    if not seen:
        seen = "none (no Paddle to ask)" if paddle.version is None else "none"
    raise MachineError(
        f"Paddle sees no {wanted}; accelerators of that type: {seen}",
        slug="device-not-found",
        remedy="check that the device's Paddle plug-in is installed, or use --device virtual:NAME",
    )


def _auto(
    gpus: Sequence[Device],
    others: Sequence[Device],
    unusable: Mapping[str, Problem | None],
    fastest_first: bool,
) -> tuple[Device, str]:
    working = [d for d in gpus if unusable[d.paddle_name] is None]
    if working:
        first = working[0]
        words = "the first GPU that CUDA shows and Paddle can use"
        if fastest_first and (fastest := _fastest(working)) is not None and fastest != first:
            first, words = fastest, "the fastest GPU that Paddle can use: CUDA begins with it"
        if not _busy(first):
            return first, words
        for other in working:
            if (
                other != first
                and other.name == first.name
                and other.mig == first.mig
                and not _busy(other)
            ):
                return (
                    other,
                    f"{first.paddle_name} is busy; this one is equal and idle",
                )
        return first, f"{words}; it is busy"
    if gpus:
        # An unusable GPU is chosen, too: its problem blocks tuning and says what to do.
        return gpus[0], "the first GPU that CUDA shows; Paddle cannot use it"
    if others:
        return others[0], "the first accelerator that Paddle shows"
    fallback = virtual(DeviceSpec(kind=DeviceKind.virtual, model=DEFAULT_VIRTUAL))
    return fallback, (
        f"No accelerator found. Planning for a virtual {fallback.name}: FP16/BF16 emulated op by "
        "op, memory counted as Paddle allocates it, times modelled. Choose another with "
        "--device virtual:NAME (autoamp devices)."
    )


def _fastest(gpus: Sequence[Device]) -> Device | None:
    """The GPU with the highest FP32 rate, the first of equals; None if one is not known.

    CUDA's own guess is documented as "a simple heuristic" (CUDA C++ Programming Guide).
    """
    rates = [d.model.fp32_tflops if d.model is not None else None for d in gpus]
    known = [rate for rate in rates if rate is not None]
    return gpus[rates.index(max(known))] if known and len(known) == len(rates) else None


def _busy(device: Device) -> bool:
    return bool(device.nvml is not None and device.nvml.processes)
