"""The probe as text and JSON."""

import msgspec

from autoamp.probes import rules
from autoamp.probes.catalogue import models
from autoamp.probes.facts import Device, DeviceKind, Machine
from autoamp.report.text import bytes_text


def as_json(machine: Machine) -> str:
    """The Machine as JSON; docs/probes.md explains the keys."""
    return msgspec.json.format(msgspec.json.encode(machine), indent=2).decode() + "\n"


def lines(machine: Machine) -> list[str]:
    """Problems first, then device, host, Paddle and the verdicts."""
    out: list[str] = []
    for problem in machine.problems:
        out.append(f"{str(problem.severity).upper():8} {problem.sentence} [{problem.slug}]")
        out.append(f"         {problem.remedy}")
    if out:
        out.append("")
    for number, device in enumerate(machine.devices):
        mark = "->" if device == machine.device else "  "
        out.append(f"{mark} gpu:{number}  {device_text(device)}")
    if machine.device not in machine.devices:
        out.append(f"-> {machine.device.kind}  {device_text(machine.device)}")
    if machine.device_reason and machine.device_reason != "asked for":
        out.append(f"   {machine.device_reason}")
    host, paddle = machine.host, machine.paddle
    driver = host.driver_version or host.absent.get("driver_version", "no driver")
    out += [
        f"   host    {host.hostname}: {host.os}, {host.cpu_model or 'CPU'}, {host.cpu_count} "
        f"processors, {bytes_text(host.memory_total_bytes)} memory",
        f"   driver  {driver}"
        + (f", CUDA up to {host.driver_cuda_version}" if host.driver_cuda_version else ""),
        f"   paddle  {paddle.version or paddle.absent.get('version', 'none')}"
        + (f", CUDA {paddle.cuda_version}" if paddle.cuda_version else "")
        + (f", cuDNN {paddle.cudnn_version}" if paddle.cudnn_version else "")
        + ("" if paddle.gpu_build or paddle.version is None else " (CPU build)")
        + (f", numpy {paddle.numpy_version}" if paddle.numpy_version else "")
        + f"  in {paddle.python}",
        "",
    ]
    for verdict in machine.verdicts:
        name = f"{verdict.level} {verdict.dtype}"
        answer = "yes" if verdict.allowed else "no (forcible)" if verdict.forcible else "no"
        out.append(f"   {name:12} {answer:14} {verdict.reason}")
        if not verdict.allowed and verdict.instead:
            out.append(f"   {'':12} {'':14} instead: {verdict.instead}")
    out.append(f"   {rules.tf32_text(machine.device)}")
    return out


def device_text(device: Device) -> str:
    """One device in one line."""
    parts = [("virtual " if device.kind is DeviceKind.virtual else "") + device.name]
    if device.memory_total_bytes:
        parts.append(bytes_text(device.memory_total_bytes))
    if device.mig:
        parts.append(f"MIG {device.mig}")
    if device.compute_capability:
        parts.append("compute capability {}.{}".format(*device.compute_capability))
    if device.tensor_core_generation is not None:
        generation = device.tensor_core_generation
        parts.append(f"Tensor Cores gen {generation}" if generation else "no Tensor Cores")
    return ", ".join(parts)


def catalogue_lines() -> list[str]:
    """The catalogue as a table."""
    head = (
        f"{'name':16} {'GPU':38} {'capability':>10} {'memory':>9} {'GB/s':>6} "
        f"{'FP32':>6} {'FP16':>6}  TFLOP/s"
    )
    out = [head]
    for m in models():
        fp16 = m.fp16_tensor_tflops or m.fp16_plain_tflops
        capability = "{}.{}".format(*m.compute_capability)
        out.append(
            f"{m.alias:16} {m.name:38} {capability:>10} {m.memory_bytes / 2**30:>5.0f} GiB "
            f"{m.bandwidth_gb_per_s:>6.0f} {m.fp32_tflops:>6.1f} "
            + (f"{fp16:>6.1f}" if fp16 is not None else f"{'-':>6}")
        )
    out.append("use one as --device virtual:NAME")
    return out


def catalogue_json() -> str:
    """The catalogue as JSON, sources included."""
    return msgspec.json.format(msgspec.json.encode(models()), indent=2).decode() + "\n"
