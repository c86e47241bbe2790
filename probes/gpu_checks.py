"""Problems of NVIDIA GPUs and their driver. Pure functions of facts."""

import re
from collections.abc import Mapping, Sequence

from autoamp.probes.checks import GIB, problem
from autoamp.probes.facts import Device, Host, NvmlGpu, PaddleInstall, Problem, Severity
from autoamp.probes.nvml import NvmlReading
from autoamp.probes.rules import capability_text, version_tuple
from autoamp.probes.visible import VISIBLE, order_is_doubtful

LOW_FREE_SHARE = 0.8
"""Less free GPU memory than this share: someone else's memory would be measured."""
LOW_POWER_SHARE = 0.9
PLAN = "plan with --device virtual:NAME"

# The first CUDA that compiles for a compute capability, and the last (NVIDIA, CUDA Toolkit
# release notes; CUDA 12 dropped Kepler, CUDA 13 all before Turing).
FIRST_CUDA = (
    ((12, 0), (12, 8)),
    ((10, 0), (12, 8)),
    ((9, 0), (11, 8)),
    ((8, 9), (11, 8)),
    ((8, 6), (11, 1)),
    ((8, 0), (11, 0)),
    ((7, 5), (10, 0)),
    ((7, 0), (9, 0)),
)
DROPPED = (((5, 0), (12, 0)), ((7, 5), (13, 0)))


def unusable(device: Device, reading: NvmlReading, paddle: PaddleInstall) -> Problem | None:
    """Why this Paddle cannot use a GPU that NVML sees; None if nothing stands against it."""
    if paddle.version is None or paddle.gpu_build is None:
        return None
    if not paddle.gpu_build:
        kind = "an XPU build" if paddle.build == "xpu" else "a CPU build"
        return problem(
            Severity.blocker,
            f"There is {device.name}, but Paddle {paddle.version} is {kind}.",
            f"Install paddlepaddle-gpu (after pip uninstall paddlepaddle), or {PLAN}.",
            slug="cpu-build-on-gpu",
        )
    if paddle.build == "rocm":
        return problem(
            Severity.blocker,
            f"There is {device.name}, but Paddle {paddle.version} is built for AMD GPUs.",
            f"Install paddlepaddle-gpu built with CUDA, or {PLAN}.",
            slug="rocm-build-on-nvidia",
        )
    if device.nvml is not None and device.nvml.compute_mode == "prohibited":
        return problem(
            Severity.blocker,
            f"The compute mode of {device.name} is 'prohibited': no program may use it.",
            "nvidia-smi -c DEFAULT (as root).",
            slug="gpu-prohibited",
        )
    gpu = device.nvml
    if gpu is not None and gpu.compute_mode == "exclusive process" and gpu.processes:
        pids = ", ".join(str(p.pid) for p in gpu.processes)
        return problem(
            Severity.blocker,
            f"{device.name} lets one process in (compute mode 'exclusive process'), and pid "
            f"{pids} has it.",
            "Wait for it, choose another GPU, or nvidia-smi -c DEFAULT (as root).",
            slug="gpu-exclusive",
        )
    return driver_too_old(reading, paddle) or _not_compiled_for(device, paddle)


def driver_too_old(reading: NvmlReading, paddle: PaddleInstall) -> Problem | None:
    """CUDA runs on drivers of its own major version; before 11 on its own minor one only.

    (NVIDIA, CUDA Compatibility, minor version compatibility.)
    """
    driver = version_tuple(reading.driver_cuda_version)
    wheel = version_tuple(paddle.cuda_version)
    if driver is None or wheel is None:
        return None
    exact = wheel[0] < 11
    if (wheel[:2] <= driver[:2]) if exact else (wheel[0] <= driver[0]):
        return None
    return problem(
        Severity.blocker,
        f"Paddle was built with CUDA {paddle.cuda_version}; driver "
        f"{reading.driver_version or 'installed here'} supports CUDA "
        f"{reading.driver_cuda_version} at most.",
        f"Update the NVIDIA driver, install a Paddle built with an older CUDA, or {PLAN}.",
        slug="driver-too-old",
    )


def _not_compiled_for(device: Device, paddle: PaddleInstall) -> Problem | None:
    capability = device.compute_capability
    if capability is None:
        return None
    have = capability[0] * 10 + capability[1]
    remedy = f"Install a Paddle whose wheel has it (see the vendor's list), or {PLAN}."
    sentence = (
        f"{device.name} has compute capability {capability_text(device)}; this Paddle wheel is "
    )
    if paddle.cuda_archs:
        # Machine code runs on its own major version, from its minor one on.
        if any(a // 10 == capability[0] and a <= have for a in paddle.cuda_archs):
            return None
        archs = ", ".join(f"{a // 10}.{a % 10}" for a in paddle.cuda_archs)
        return problem(
            Severity.blocker,
            f"{sentence}compiled for {archs}.",
            remedy,
            slug="arch-not-in-wheel",
        )
    wheel = version_tuple(paddle.cuda_version)
    if wheel is None:
        return None
    first = next((cuda for least, cuda in FIRST_CUDA if capability >= least), None)
    if first is not None and wheel[:2] < first:
        return problem(
            Severity.blocker,
            f"{sentence}built with CUDA {paddle.cuda_version}, and only CUDA "
            f"{first[0]}.{first[1]} and later compile for it.",
            remedy,
            slug="arch-not-in-wheel",
        )
    for below, since in DROPPED:
        if capability < below and wheel[:2] >= since:
            return problem(
                Severity.blocker,
                f"{sentence}built with CUDA {paddle.cuda_version}, which dropped GPUs below "
                f"{below[0]}.{below[1]}.",
                remedy,
                slug="arch-not-in-wheel",
            )
    return None


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


def _busy(device: Device, gpu: NvmlGpu) -> Problem | None:
    total, free = device.memory_total_bytes, device.memory_free_bytes
    if gpu.processes:
        who = ", ".join(
            f"{p.name} (pid {p.pid})" if p.name else f"pid {p.pid}" for p in gpu.processes[:5]
        )
        return problem(
            Severity.warning,
            f"Other processes use the GPU: {who}. Times and memory will be theirs as well.",
            "Wait for them, or choose another GPU with --device gpu:N.",
            slug="gpu-busy",
        )
    if total and free is not None and free < LOW_FREE_SHARE * total and "memory" not in gpu.absent:
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
