"""The probe as text and JSON."""

import io
import re

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from autoamp.label import Label
from autoamp.probes import choice, peaks, rules
from autoamp.probes.catalogue import models
from autoamp.probes.device_spec import DeviceSpec
from autoamp.probes.facts import (
    Device,
    DeviceKind,
    GpuModel,
    KnobVerdict,
    Machine,
    MatmulRate,
    NvmlGpu,
    PaddleInstall,
    Problem,
    Roofline,
    Severity,
    Verdict,
    slowed_by,
)
from autoamp.rates import rate_text
from autoamp.report.text import bytes_text
from autoamp.settings import Dtype, Level

DIGITS = 3
"""Of peaks and bench rates: data sheets give no more."""

_COLOURS = {Severity.blocker: "bold red", Severity.warning: "yellow", Severity.note: "cyan"}


def as_json(machine: Machine) -> str:
    """The Machine as JSON; docs/probes.md explains the keys."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(machine), indent=2).decode() + "\n"


def print_machine(console: Console, machine: Machine) -> None:
    """Problems first, one panel a GPU, then the verdicts."""
    if machine.problems:
        console.print(problem_table(machine.problems))
        console.print()
    shown = machine.devices
    if machine.device not in shown:
        shown = (machine.device, *shown)
    for device in shown:
        console.print(panel(device, machine))
    console.print(surroundings(machine))
    console.print()
    console.print(verdict_table(machine))
    if any(v.allowed and v.level is Level.OD for v in machine.verdicts):
        console.print(Text(OD, style="dim"))
    if machine.roofline is not None:
        console.print()
        console.print(roofline_table(machine.roofline))


def lines(machine: Machine, width: int = 100) -> list[str]:
    """The same as plain lines."""
    console = Console(file=io.StringIO(), width=width, highlight=False, color_system=None)
    with console.capture() as capture:
        print_machine(console, machine)
    return [line.rstrip() for line in capture.get().splitlines()]


def problem_table(problems: tuple[Problem, ...]) -> Table:
    """Severity, sentence and name; below them what to do."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, show_header=False)
    for found in problems:
        severity = Text(str(found.severity).upper(), style=_COLOURS[found.severity])
        table.add_row(severity, Text(f"{found.sentence} [{found.slug}]"))
        table.add_row("", Text(found.remedy, style="dim"))
    return table


def panel(device: Device, machine: Machine) -> Panel:
    """One device: what it is, and for a GPU the state it is in."""
    chosen = device == machine.device
    lines = [Text(device_text(device))]
    if device.nvml is not None:
        lines += [Text(line) for line in state_lines(device.nvml)]
    if device.kind is DeviceKind.virtual:
        kinds = emulated(machine)
        values = f"{kinds} emulated" if kinds else "FP32 computed, no 16-bit precision"
        lines.append(Text(f"{values}, memory counted, time modelled", style="dim"))
    if device.allowed_dtypes is not None:
        lines.append(Text("AMP seen to run in: " + (", ".join(device.allowed_dtypes) or "none")))
    if chosen and machine.device_reason and machine.device_reason != "asked for":
        lines.append(Text(machine.device_reason, style="dim"))
    name = str(device.kind) if device.kind is DeviceKind.virtual else device.paddle_name
    return Panel(
        Group(*lines),
        title=f"{name} · chosen" if chosen else name,
        title_align="left",
        border_style="green" if chosen else "dim",
    )


def emulated(machine: Machine) -> str:
    """``FP16/BF16``: the 16-bit precisions of this GPU, forcible ones too; empty if none."""
    names = {"float16": "FP16", "bfloat16": "BF16"}
    there = {str(v.dtype) for v in machine.verdicts if v.allowed or v.forcible}
    return "/".join(name for dtype, name in names.items() if dtype in there)


def device_text(device: Device) -> str:
    """One device in one line."""
    parts = [("virtual " if device.kind is DeviceKind.virtual else "") + device.name]
    if device.memory_total_bytes:
        parts.append(bytes_text(device.memory_total_bytes))
    if device.mig:
        parts.append(f"MIG {device.mig}")
    if device.architecture:
        parts.append(device.architecture)
    if device.compute_capability:
        parts.append("compute capability {}.{}".format(*device.compute_capability))
    if device.tensor_core_generation is not None:
        generation = device.tensor_core_generation
        parts.append(f"Tensor Cores gen {generation}" if generation else "no Tensor Cores")
    if device.kind is DeviceKind.gpu and device.model is None:
        parts.append("not in the catalogue")
    if not device.numerics:
        parts.append("planning mode")
    return ", ".join(parts)


def state_lines(gpu: NvmlGpu) -> list[str]:
    """Memory, power and clocks; link, modes and processes. What is unknown is left out."""
    now: list[str] = []
    if gpu.memory_free_bytes is not None:
        now.append(f"{bytes_text(gpu.memory_free_bytes)} free")
    if gpu.utilisation_percent is not None:
        now.append(f"{gpu.utilisation_percent} % busy")
    if gpu.power_w is not None:
        limit = f" of {gpu.power_limit_w:.0f}" if gpu.power_limit_w is not None else ""
        now.append(f"{gpu.power_w:.0f}{limit} W")
    if gpu.temperature_c is not None:
        now.append(f"{gpu.temperature_c} °C")
    if gpu.sm_clock_mhz is not None:
        most = f" of {gpu.sm_clock_max_mhz}" if gpu.sm_clock_max_mhz is not None else ""
        now.append(f"SM {gpu.sm_clock_mhz}{most} MHz")
    if gpu.throttle_reasons:
        now.append(throttling_text(gpu.throttle_reasons))
    rest: list[str] = []
    if gpu.pcie_generation is not None and gpu.pcie_width is not None:
        rest.append(f"PCIe gen {gpu.pcie_generation} x{gpu.pcie_width}")
    if gpu.ecc is not None:
        rest.append(f"ECC {'on' if gpu.ecc else 'off'}")
    if gpu.persistence is not None:
        rest.append(f"persistence {'on' if gpu.persistence else 'off'}")
    if gpu.compute_mode not in (None, "default"):
        rest.append(f"compute mode {gpu.compute_mode}")
    if gpu.processes is not None:
        count = len(gpu.processes)
        rest.append("no other process" if not count else f"{count} process(es) on it")
    if gpu.pci_bus_id is not None:
        rest.append(gpu.pci_bus_id)
    return [" · ".join(line) for line in (now, rest) if line]


def surroundings(machine: Machine) -> Text:
    """Host, driver and Paddle in a line each."""
    host, paddle = machine.host, machine.paddle
    driver = host.driver_version or host.absent.get("driver_version", "none")
    if host.driver_cuda_version:
        driver += f", CUDA up to {host.driver_cuda_version}"
    version = paddle.version or paddle.absent.get("version", "none")
    if paddle.cuda_version:
        version += f", CUDA {paddle.cuda_version}"
    if paddle.cudnn_version:
        version += f", cuDNN {paddle.cudnn_version}"
    if paddle.build in ("cpu", "rocm", "xpu"):
        version += f" ({'CPU' if paddle.build == 'cpu' else paddle.build.upper()} build)"
    if paddle.numpy_version:
        version += f", numpy {paddle.numpy_version}"
    kind = " (WSL)" if host.wsl else f" ({host.jetson})" if host.jetson else ""
    return Text(
        f"host    {host.hostname}: {host.os}{kind}, {host.cpu_model or 'CPU'}, {host.cpu_count} "
        f"processors, {bytes_text(host.memory_total_bytes)} memory\n"
        f"driver  {driver}\n"
        f"paddle  {version}, in {paddle.python}"
    )


def verdict_table(machine: Machine) -> Table:
    """Each precision and knob with its answer and reason; levels that agree share a row."""
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for head in ("precision", "", "why"):
        table.add_column(head, overflow="fold")
    groups: dict[tuple[str, bool, bool, str], list[Verdict]] = {}
    for verdict in machine.verdicts:
        key = (str(verdict.dtype), verdict.allowed, verdict.forcible, verdict.reason)
        groups.setdefault(key, []).append(verdict)
    for verdicts in groups.values():
        first = verdicts[0]
        levels = " ".join(str(v.level) for v in verdicts)
        why = first.reason
        if not first.allowed and first.instead:
            why += f". Instead: {first.instead}"
        table.add_row(f"{first.dtype} {levels}", _answer(first), why)
    for knob in machine.knobs:
        table.add_row(knob.knob, _knob_answer(knob), knob.reason)
    return table


OD = (
    "OD: only AMP's white list (products, convolutions) in 16 bits, which O1 runs as well; "
    "tune tries it where --levels names it"
)


def _answer(verdict: Verdict) -> Text:
    if verdict.allowed:
        return Text("forced", style="yellow") if verdict.forcible else Text("yes", style="green")
    return Text("no, forcible" if verdict.forcible else "no", style="red")


def _knob_answer(knob: KnobVerdict) -> Text:
    return Text("yes", style="green") if knob.available else Text("no", style="red")


def roofline_table(roofline: Roofline) -> Group:
    """What ``--bench`` found, against the catalogue's peaks where they are known; below it what
    was not measured, and why."""
    modelled = roofline.label is Label.modelled
    table = Table(
        title=f"roofline of {roofline.device}, {roofline.label} {roofline.taken_at}",
        title_justify="left",
        box=None,
        padding=(0, 1),
        pad_edge=False,
    )
    table.add_column("what")
    table.add_column("rate", justify="right")
    table.add_column("of peak", justify="right")
    for product in roofline.matmuls:
        table.add_row(
            matmul_text(product),
            flops_text(product.flops_per_s),
            _share(product.share_of_peak),
        )
    if roofline.copy_bytes_per_s is not None:
        table.add_row(
            "copy on the device (read + write)",
            f"{rate_text(roofline.copy_bytes_per_s / 1e9, DIGITS)} GB/s",
            _share(roofline.copy_share_of_peak),
        )
    if roofline.host_to_device_bytes_per_s is not None:
        rate = f"{rate_text(roofline.host_to_device_bytes_per_s / 1e9, DIGITS)} GB/s"
        table.add_row("copy host to device", rate, "")
    if roofline.launch_s is not None:
        table.add_row("one small kernel", f"{roofline.launch_s * 1e6:.3g} us", "")
    unmeasured: dict[str, list[str]] = {}
    for name, why in roofline.absent.items():
        if name not in _SHARES:
            unmeasured.setdefault(why, []).append(_ROOFLINE_WORDS.get(name, name))
    done = "modelled" if modelled else "measured"
    absent = [Text(f"{', '.join(x)}: not {done}: {why}") for why, x in unmeasured.items()]
    shares = (*(p.share_of_peak for p in roofline.matmuls), roofline.copy_share_of_peak)
    if modelled:
        absent.append(Text("the rates are the model's, whatever memory= and numerics= are"))
    if any(share is not None and share > 1 for share in shares):
        absent.append(Text(OVER_PEAK))
    conditions = []
    if roofline.other_processes:
        conditions.append(f"shared with {', '.join(roofline.other_processes)}: not used by tune")
    if roofline.sm_clock_mhz is not None:
        conditions.append(f"SM clock {roofline.sm_clock_mhz:.0f} MHz on average")
    if roofline.power_w is not None:
        conditions.append(f"{roofline.power_w:.0f} W")
    if roofline.throttle_reasons:
        conditions.append(throttling_text(roofline.throttle_reasons))
    if conditions:
        table.caption = " · ".join(conditions)
    return Group(table, *absent)


_ROOFLINE_WORDS = {
    "copy_bytes_per_s": "copy on the device",
    "launch_s": "one small kernel",
    "host_to_device_bytes_per_s": "copy host to device",
    "sm_clock_mhz": "SM clock",
    "power_w": "power",
}
_SHARES = ("share_of_peak", "copy_share_of_peak")
"""Their reason stands in the JSON; in the table an empty column says enough."""


def throttling_text(reasons: tuple[str, ...]) -> str:
    """``throttled: …`` for what makes times doubtful; a power limit is where many boards work."""
    if not slowed_by(reasons):
        return f"at its power limit ({', '.join(reasons)})"
    return "throttled: " + ", ".join(reasons)


def flops_text(flops_per_s: float) -> str:
    """``48 TFLOP/s``, ``9.1 GFLOP/s``."""
    if flops_per_s < 1e11:
        return f"{flops_per_s / 1e9:.3g} GFLOP/s"
    return f"{rate_text(flops_per_s / 1e12, DIGITS)} TFLOP/s"


def matmul_text(product: MatmulRate) -> str:
    """``float16 product 4096 x 4096 x 4096``; sizes that do not suit Tensor Cores are marked."""
    size = f"{product.m} x {product.n} x {product.k}"
    return f"{product.dtype} product {size}" + ("" if product.aligned else " (not aligned)")


OVER_PEAK = "over: more than the catalogue's peak, which is at the data sheet's boost clock"


def _share(value: float | None) -> str:
    if value is None:
        return ""
    return "over" if value > 1 else f"{value:.0%}"


def catalogue_lines() -> list[str]:
    """The catalogue as a table; a rate that no source gives is marked as worked out."""
    head = ("name", "GPU", "capability", "memory", "GB/s", *TFLOPS, "FP16 AMP", "BF16 AMP")
    rows = [head, *(catalogue_row(m) for m in sorted(models(), key=_place))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    out = []
    for row in rows:
        cells = [
            cell.ljust(width) if title in LEFT else cell.rjust(width)
            for title, cell, width in zip(head, row, widths, strict=True)
        ]
        out.append("  ".join(cells).rstrip())
    out.append("~ worked out from SMs and clock; all others from the sources in --json")
    out.append(
        "AMP: what Paddle 2.6 and later allow; advised against: only with --allow-unsupported "
        "(why: autoamp probe --device virtual:NAME)"
    )
    out.append("use one as --device virtual:NAME[,memory=4GiB][,numerics=off]")
    return out


TFLOPS = ("FP32 TFLOP/s", "FP16 TFLOP/s")
LEFT = ("name", "GPU", "FP16 AMP", "BF16 AMP")


def catalogue_row(model: GpuModel) -> tuple[str, ...]:
    half = peaks.float16(model)
    return (
        model.alias,
        model.name,
        "{}.{}".format(*model.compute_capability),
        f"{model.memory_bytes / 2**30:.0f} GiB",
        f"{model.bandwidth_gb_per_s:,.0f}",
        rate_text(model.fp32_tflops, DIGITS),
        "-" if half is None else f"{'~' if half.derived else ''}{rate_text(half.tflops, DIGITS)}",
        *(_amp(model, dtype) for dtype in (Dtype.float16, Dtype.bfloat16)),
    )


def _amp(model: GpuModel, dtype: Dtype) -> str:
    """By the rules alone: no Paddle is asked for."""
    device = choice.virtual(DeviceSpec(kind=DeviceKind.virtual, model=model.alias))
    verdict = rules.judge(Level.O1, dtype, device, PaddleInstall(python=""))
    return "yes" if verdict.allowed else "advised against" if verdict.forcible else "no"


def _place(model: GpuModel) -> tuple[tuple[int, int], list[tuple[int, str]]]:
    """By compute capability, then by name with its numbers as numbers."""
    parts = re.findall(r"\d+|\D+", model.alias)
    return model.compute_capability, [
        (int(part), "") if part.isdigit() else (-1, part) for part in parts
    ]


def catalogue_json() -> str:
    """The catalogue as JSON, sources included."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(models()), indent=2).decode() + "\n"
