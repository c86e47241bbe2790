"""May this Paddle use a GPU that NVML sees: its build, the driver, its machine code. Pure."""

from autoamp.probes.checks import problem
from autoamp.probes.facts import Device, PaddleInstall, Problem, Severity
from autoamp.probes.nvml import NvmlReading
from autoamp.probes.rules import capability_text, version_tuple

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
# The first driver branch of a CUDA (CUDA Toolkit release notes, CUDA Compatibility).
LEAST_DRIVER = (((13, 0), 580), ((12, 0), 525), ((11, 0), 450), ((10, 2), 440), ((10, 1), 418))
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

    (NVIDIA, CUDA Compatibility, minor version compatibility.) Drivers before 418 do not say
    which CUDA they support; then their own number tells.
    """
    wheel = version_tuple(paddle.cuda_version)
    if wheel is None:
        return None
    driver = version_tuple(reading.driver_cuda_version)
    if driver is not None:
        exact = wheel[0] < 11
        fits = (wheel[:2] <= driver[:2]) if exact else (wheel[0] <= driver[0])
        limit = f"supports CUDA {reading.driver_cuda_version} at most"
    else:
        number = version_tuple(reading.driver_version)
        least = next((least for cuda, least in LEAST_DRIVER if wheel[:2] >= cuda), None)
        fits = number is None or least is None or number[0] >= least
        limit = f"is older than {least}, the least for that CUDA"
    if fits:
        return None
    return problem(
        Severity.blocker,
        f"Paddle was built with CUDA {paddle.cuda_version}; driver "
        f"{reading.driver_version or 'installed here'} {limit}.",
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
