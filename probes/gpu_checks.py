"""Problems of NVIDIA GPUs and their driver. Pure functions of facts."""

import re
from collections.abc import Mapping, Sequence

from autoamp.probes.checks import GIB, problem
from autoamp.probes.facts import (
    Device,
    GpuProcess,
    Host,
    NvmlGpu,
    PaddleInstall,
    Problem,
    Severity,
    slowed_by,
)
from autoamp.probes.nvml import NvmlReading
from autoamp.probes.rules import version_tuple
from autoamp.probes.usable import PLAN
from autoamp.probes.visible import VISIBLE, order_is_doubtful

LOW_FREE_SHARE = 0.8
"""Less free GPU memory than this share: someone else's memory would be measured."""
LOW_POWER_SHARE = 0.9


def nvml_problems(reading: NvmlReading, paddle: PaddleInstall, host: Host) -> list[Problem]:
    """NVML itself: missing is normal without a GPU, anything else deserves a word."""
    found: list[Problem] = []
    if reading.lost:
        found.append(
            problem(
                Severity.warning if reading.gpus else Severity.blocker,
                "A GPU does not answer any more: " + "; ".join(reading.lost) + ".",
                "It may have fallen off the bus: see dmesg for 'Xid', reboot. To go on without: "
                f"{PLAN}.",
                slug="gpu-lost",
            )
        )
    if reading.unreadable:
        found.append(
            problem(
                Severity.warning if reading.gpus else Severity.blocker,
                "NVML does not show all that is there: " + "; ".join(reading.unreadable) + ".",
                "See what nvidia-smi -L says as this user, and the rights of /dev/nvidia* and "
                f"/dev/nvidia-caps (in a container: its devices). To go on without: {PLAN}.",
                slug="gpu-unreadable",
            )
        )
    for index in reading.mig_empty:
        found.append(
            problem(
                Severity.warning if reading.gpus else Severity.blocker,
                f"GPU {index} is in MIG mode and has no instance: no program can use it.",
                f"Create one (nvidia-smi mig -cgi … -C), or nvidia-smi -i {index} -mig 0 (as "
                "root).",
                slug="mig-empty",
            )
        )
    if reading.problem is not None:
        found.append(_nvml_trouble(reading, paddle, host))
    elif not (reading.gpus or reading.lost or reading.unreadable or reading.mig_empty):
        gpu_build = paddle.gpu_build and paddle.build != "rocm"
        found.append(
            problem(
                Severity.warning if gpu_build else Severity.note,
                "The NVIDIA driver answers and shows no GPU"
                + (
                    f", though {host.nvidia_on_pci} are on the PCI bus."
                    if host.nvidia_on_pci
                    else "."
                ),
                "In a container: start it with --gpus all, and NVIDIA_VISIBLE_DEVICES neither "
                "'none' nor 'void'. Else see what nvidia-smi says.",
                slug="no-gpu-shown",
            )
        )
    return found


def _nvml_trouble(reading: NvmlReading, paddle: PaddleInstall, host: Host) -> Problem:
    slug = reading.problem_slug or "nvml-failed"
    sentence = reading.problem or ""
    sentence = sentence[:1].upper() + sentence[1:] + "."
    remedy = (reading.remedy or "see what nvidia-smi says") + "."
    remedy = remedy[:1].upper() + remedy[1:]
    if host.nvidia_on_pci and not reading.gpus:
        # A GPU that could work: planning for a virtual one in silence would be no help.
        count = host.nvidia_on_pci
        here = "an NVIDIA GPU is" if count == 1 else f"{count} NVIDIA GPUs are"
        return problem(
            Severity.blocker if paddle.gpu_build else Severity.warning,
            f"{sentence} But {here} on the PCI bus.",
            f"{remedy} Without it: {PLAN}.",
            slug=slug,
        )
    if slug == "nvml-missing":
        if not paddle.gpu_build or paddle.build == "rocm":
            return problem(severity=Severity.note, slug=slug, sentence=sentence, remedy=remedy)
        return problem(
            Severity.warning,
            f"{sentence} Paddle {paddle.version} is a GPU build: without a driver it computes on "
            "the CPU.",
            remedy,
            slug=slug,
        )
    return problem(severity=Severity.warning, slug=slug, sentence=sentence, remedy=remedy)


def gpu_problems(device: Device, reading: NvmlReading, paddle: PaddleInstall) -> list[Problem]:
    """The state of the chosen GPU."""
    gpu = device.nvml
    found = [_driver_minor(reading, paddle)]
    if gpu is not None:
        found += [_busy(device, gpu), _throttled(gpu), _power_limit(gpu), _narrow(gpu)]
    return [p for p in found if p is not None]


def process_text(process: GpuProcess) -> str:
    """``python (pid 12)``, ``pid 12``."""
    return f"{process.name} (pid {process.pid})" if process.name else f"pid {process.pid}"


def _busy(device: Device, gpu: NvmlGpu) -> Problem | None:
    total, free = device.memory_total_bytes, device.memory_free_bytes
    if gpu.processes:
        who = ", ".join(process_text(p) for p in gpu.processes[:5])
        return problem(
            Severity.warning,
            f"Other processes use the GPU: {who}. Times and memory will be theirs as well.",
            "Wait for them, or choose another GPU with --device gpu:N.",
            slug="gpu-busy",
        )
    if (
        total
        and free is not None
        and free < LOW_FREE_SHARE * total
        and "memory" not in device.absent
    ):
        return problem(
            Severity.warning,
            f"Only {free / GIB:.1f} of {total / GIB:.1f} GiB GPU memory is free, and no process "
            "shows who holds it.",
            "Processes of other containers or users hide here: nvidia-smi on the host shows them.",
            slug="gpu-low-memory",
        )
    return None


def _throttled(gpu: NvmlGpu) -> Problem | None:
    if not gpu.throttle_reasons:
        return None
    if not slowed_by(gpu.throttle_reasons):
        return problem(
            Severity.note,
            "The GPU is at its power limit now"
            + (f" ({gpu.power_limit_w:.0f} W)." if gpu.power_limit_w is not None else "."),
            "Usual under full load, and so are its clocks then. Without load of yours: see who "
            "computes there, and nvidia-smi -q -d POWER.",
            slug="gpu-at-power-limit",
        )
    heat = f" at {gpu.temperature_c} °C" if gpu.temperature_c is not None else ""
    return problem(
        Severity.warning,
        f"The GPU is throttled now{heat}: {', '.join(gpu.throttle_reasons)}.",
        "Check cooling and power: throttled times do not repeat.",
        slug="gpu-throttled",
    )


def _power_limit(gpu: NvmlGpu) -> Problem | None:
    limit, usual = gpu.power_limit_w, gpu.power_limit_default_w
    if limit is None or not usual or limit >= LOW_POWER_SHARE * usual:
        return None
    return problem(
        Severity.note,
        f"The power limit is {limit:.0f} W; this GPU's default is {usual:.0f} W. Results hold "
        "for that limit.",
        "nvidia-smi -pl sets it (as root).",
        slug="gpu-power-limit",
    )


def _narrow(gpu: NvmlGpu) -> Problem | None:
    width, most = gpu.pcie_width, gpu.pcie_width_max
    if not width or not most or width * 2 > most:
        return None
    return problem(
        Severity.note,
        f"The GPU has {width} PCIe lanes of {most} it could use: copies from the host are slower.",
        "Check slot and riser; some laptops save power that way while idle.",
        slug="pcie-narrow",
    )


def _driver_minor(reading: NvmlReading, paddle: PaddleInstall) -> Problem | None:
    driver = version_tuple(reading.driver_cuda_version)
    wheel = version_tuple(paddle.cuda_version)
    if driver is None or wheel is None or driver[0] != wheel[0] or wheel[:2] <= driver[:2]:
        return None
    return problem(
        Severity.note,
        f"Paddle was built with CUDA {paddle.cuda_version}, the driver is of CUDA "
        f"{reading.driver_cuda_version}: this works within a major version, but kernels compiled "
        "at run time may fail.",
        "Update the NVIDIA driver if a kernel does not load.",
        slug="driver-minor-older",
    )


def several(
    gpus: Sequence[NvmlGpu], shown: Sequence[NvmlGpu], environment: Mapping[str, str]
) -> list[Problem]:
    """Several GPUs: hidden ones, mixed models, doubtful order."""
    found: list[Problem] = []
    setting = environment.get(VISIBLE)
    if gpus and not shown:
        found.append(
            problem(
                Severity.warning,
                f"{VISIBLE}={setting!r} hides every GPU ({len(gpus)} here).",
                f"Unset {VISIBLE}, or name a GPU in it.",
                slug="gpus-hidden",
            )
        )
    if len(shown) > 1 and any(g.mig_profile for g in shown):
        found.append(
            problem(
                Severity.note,
                "Of several MIG instances a CUDA program sees one, and no whole GPU beside it; "
                "gpu:N here counts them all.",
                "autoamp shows each trial the chosen one alone; other programs need its UUID in "
                f"{VISIBLE}.",
                slug="mig-one-at-a-time",
            )
        )
    if len({g.name for g in shown}) > 1:
        found.append(
            problem(
                Severity.note,
                "The GPUs differ: a recommendation holds for the model it was tuned on.",
                "Tune on each model: --device gpu:N.",
                slug="gpus-mixed",
            )
        )
    if order_is_doubtful(gpus, environment) and re.search(r"(^|,)\s*\d", setting or "0"):
        found.append(
            problem(
                Severity.note,
                "CUDA numbers different GPUs by speed unless CUDA_DEVICE_ORDER=PCI_BUS_ID is set; "
                "gpu:N here counts in PCI order, as nvidia-smi does.",
                "export CUDA_DEVICE_ORDER=PCI_BUS_ID, so that all programs agree.",
                slug="gpu-order",
            )
        )
    return found
