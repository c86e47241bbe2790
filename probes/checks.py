"""Problems of the machine as a whole: severity, sentence, remedy. Pure functions of facts."""

from autoamp.probes.facts import (
    Device,
    DeviceKind,
    Host,
    PaddleInstall,
    Problem,
    Severity,
)
from autoamp.probes.nvml import NvmlGpu, NvmlReading
from autoamp.probes.rules import version_tuple

GIB = 2**30
LOW_FREE_SHARE = 0.8
"""Less free GPU memory than this share: someone else's memory would be measured."""
SHM_LEAST_BYTES = 256 * 2**20
"""Docker's default /dev/shm is 64 MiB; Paddle's DataLoader workers hand batches over in it."""
ADVISED_MEMORY_BYTES = 16 * GIB
NUMPY_FAULT = (2, 4)
PADDLE_OLDEST = (2, 4)
PADDLE_ADVISED = (2, 6)


def paddle_numpy_fault(paddle: PaddleInstall) -> Problem | None:
    """The pair that ends every FP16 training at its first overflow."""
    numpy = version_tuple(paddle.numpy_version)
    version = version_tuple(paddle.version)
    if numpy is None or version is None or numpy[:2] < NUMPY_FAULT or version[:2] != (3, 3):
        return None
    return Problem(
        severity=Severity.warning,
        slug="paddle-numpy-scaler",
        sentence=f"paddle {paddle.version} with numpy {paddle.numpy_version} ends every FP16 "
        "training at its first overflow: GradScaler.update() raises TypeError.",
        remedy="autoamp works around it in its own runs; plain python needs: pip install 'numpy<2.4'",
    )


def paddle_problems(paddle: PaddleInstall) -> list[Problem]:
    """What is wrong with the Paddle that would be used."""
    found: list[Problem] = []
    version = version_tuple(paddle.version)
    if paddle.version is None:
        found.append(
            Problem(
                severity=Severity.blocker,
                slug="no-paddle",
                sentence=f"No Paddle in {paddle.python}.",
                remedy="Install paddlepaddle-gpu (or paddlepaddle) there, or give --python the "
                "interpreter that has it.",
            )
        )
    elif version is not None and version[:2] < PADDLE_OLDEST:
        found.append(
            Problem(
                severity=Severity.blocker,
                slug="paddle-too-old",
                sentence=f"Paddle {paddle.version} is too old: 2.4 or later is needed.",
                remedy="Upgrade Paddle; 3.x is advised.",
            )
        )
    elif version is not None and version[:2] < PADDLE_ADVISED:
        found.append(
            Problem(
                severity=Severity.warning,
                slug="paddle-old",
                sentence=f"Paddle {paddle.version} is older than 2.6: AMP there ignores its own "
                "hardware gates and has no master gradients.",
                remedy="Upgrade Paddle to 2.6 or later.",
            )
        )
    if paddle.absent.get("distribution"):
        found.append(
            Problem(
                severity=Severity.warning,
                slug="paddle-twice",
                sentence="Both paddlepaddle and paddlepaddle-gpu are installed over each other.",
                remedy="pip uninstall -y paddlepaddle paddlepaddle-gpu, then install one.",
            )
        )
    fault = paddle_numpy_fault(paddle)
    if fault is not None:
        found.append(fault)
    return found


def unusable_gpu(reading: NvmlReading, paddle: PaddleInstall) -> Problem | None:
    """NVML sees a GPU that this Paddle cannot use, and why."""
    if not reading.gpus or paddle.version is None:
        return None
    name = reading.gpus[0].name or "a GPU"
    if paddle.gpu_build is False:
        return Problem(
            severity=Severity.blocker,
            slug="cpu-build-on-gpu",
            sentence=f"There is {name}, but Paddle {paddle.version} is a CPU build.",
            remedy="Install paddlepaddle-gpu, or plan with --device virtual:NAME.",
        )
    driver = version_tuple(reading.driver_cuda_version)
    wheel = version_tuple(paddle.cuda_version)
    if driver is not None and wheel is not None and wheel[:1] > driver[:1]:
        return Problem(
            severity=Severity.blocker,
            slug="driver-too-old",
            sentence=f"Paddle was built with CUDA {paddle.cuda_version}; driver "
            f"{reading.driver_version} supports CUDA {reading.driver_cuda_version} at most.",
            remedy="Update the NVIDIA driver, or install a Paddle built with an older CUDA.",
        )
    return None


def nvml_problem(reading: NvmlReading, paddle: PaddleInstall) -> Problem | None:
    """NVML itself: missing is normal without a GPU, anything else deserves a word."""
    if reading.lost:
        return Problem(
            severity=Severity.warning,
            slug="gpu-lost",
            sentence="A GPU does not answer any more: " + "; ".join(reading.lost) + ".",
            remedy="It may have fallen off the bus: see dmesg, reboot.",
        )
    if reading.problem is None:
        return None
    expected = reading.problem_slug == "nvml-missing" and not paddle.gpu_build
    return Problem(
        severity=Severity.note if expected else Severity.warning,
        slug=reading.problem_slug or "nvml-failed",
        sentence=reading.problem[0].upper() + reading.problem[1:] + ".",
        remedy=(reading.remedy or "")[:1].upper() + (reading.remedy or "")[1:] + ".",
    )


def gpu_problems(gpu: NvmlGpu) -> list[Problem]:
    """The state of the chosen GPU."""
    found: list[Problem] = []
    total, free = gpu.memory_total_bytes, gpu.memory_free_bytes
    if gpu.processes:
        pids = ", ".join(str(p.pid) for p in gpu.processes[:5])
        found.append(
            Problem(
                severity=Severity.warning,
                slug="gpu-busy",
                sentence=f"Other processes use the GPU (pid {pids}): times and memory will be "
                "theirs as well.",
                remedy="Wait for them, or choose another GPU with --device gpu:N.",
            )
        )
    elif total and free is not None and free < LOW_FREE_SHARE * total:
        found.append(
            Problem(
                severity=Severity.warning,
                slug="gpu-low-memory",
                sentence=f"Only {free / GIB:.1f} of {total / GIB:.1f} GiB GPU memory is free.",
                remedy="Find who holds it with nvidia-smi.",
            )
        )
    if gpu.throttle_reasons:
        found.append(
            Problem(
                severity=Severity.warning,
                slug="gpu-throttled",
                sentence=f"The GPU is throttled now: {', '.join(gpu.throttle_reasons)}.",
                remedy="Check cooling and power limit: throttled times do not repeat.",
            )
        )
    if gpu.compute_mode == "prohibited":
        found.append(
            Problem(
                severity=Severity.blocker,
                slug="gpu-prohibited",
                sentence="The GPU's compute mode is 'prohibited': no program may use it.",
                remedy="nvidia-smi -c DEFAULT (as root).",
            )
        )
    return found


def host_problems(host: Host, device: Device) -> list[Problem]:
    """The computer around the device."""
    found: list[Problem] = []
    if host.shm_free_bytes is not None and host.shm_free_bytes < SHM_LEAST_BYTES:
        found.append(
            Problem(
                severity=Severity.warning,
                slug="shm-small",
                sentence=f"/dev/shm has {host.shm_free_bytes / 2**20:.0f} MiB free: DataLoader "
                "workers hand their batches over in it.",
                remedy="In a container: --shm-size=8g; else num_workers=0.",
            )
        )
    if host.memory_total_bytes < ADVISED_MEMORY_BYTES:
        found.append(
            Problem(
                severity=Severity.note,
                slug="host-memory-small",
                sentence=f"The host has {host.memory_total_bytes / GIB:.0f} GiB of memory; "
                "16 GiB is advised.",
                remedy="Large data sets and many workers may not fit.",
            )
        )
    if device.kind is DeviceKind.gpu and host.cpu_count < 4:
        found.append(
            Problem(
                severity=Severity.note,
                slug="few-cores",
                sentence=f"{host.cpu_count} processors for the DataLoader: the GPU may wait.",
                remedy="Watch the data wait of the baseline.",
            )
        )
    return found
