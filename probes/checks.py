"""Problems of Paddle and of the host: severity, sentence, remedy. Pure functions of facts."""

from autoamp.errors import MachineError
from autoamp.probes.facts import (
    INSTALLED_TWICE,
    Device,
    DeviceKind,
    Host,
    PaddleInstall,
    Problem,
    Severity,
)
from autoamp.probes.rules import version_tuple

GIB = 2**30
SHM_LEAST_BYTES = 256 * 2**20
"""Docker's default /dev/shm is 64 MiB; Paddle's DataLoader workers hand batches over in it."""
ADVISED_MEMORY_BYTES = 16 * GIB
FEW_CORES = 4
NUMPY_FAULT = (2, 4)
"""The first NumPy whose ``float()`` refuses arrays of one dimension (NumPy 2.4 release notes)."""
PYTHON_OLDEST = (3, 10)
"""The child's hooks are written for it; older interpreters cannot load them."""
PADDLE_OLDEST = (2, 4)
PADDLE_ADVISED = (2, 6)
CUDA_OLDEST = (10, 1)
CUDNN_OLDEST = (7, 6)


def problem(severity: Severity, sentence: str, remedy: str, *, slug: str) -> Problem:
    """A Problem; ``slug`` is what studies and docs/probes.md know it by."""
    return Problem(severity=severity, slug=slug, sentence=sentence, remedy=remedy)


def paddle_problems(paddle: PaddleInstall) -> list[Problem]:
    """What is wrong with the Paddle that would be used."""
    if paddle.version is None:
        return [
            problem(
                Severity.blocker,
                f"No Paddle in {paddle.python}.",
                "Install paddlepaddle-gpu (or paddlepaddle) there, or give --python the "
                "interpreter that has it.",
                slug="no-paddle",
            )
        ]
    found = [
        _python_age(paddle),
        _paddle_age(paddle),
        _paddle_twice(paddle),
        _cuda_age(paddle),
        _cudnn_age(paddle),
        paddle_numpy_fault(paddle),
    ]
    if "build" in paddle.absent:
        found.append(
            problem(
                Severity.blocker,
                f"Paddle {paddle.version} is not whole: {paddle.absent['build']}.",
                "Install it again: pip install --force-reinstall paddlepaddle-gpu (or "
                "paddlepaddle).",
                slug="paddle-broken",
            )
        )
    return [p for p in found if p is not None]


def _python_age(paddle: PaddleInstall) -> Problem | None:
    found = version_tuple(paddle.python_version)
    if found is None or len(found) < 2 or found[:2] >= PYTHON_OLDEST:
        return None
    return problem(
        Severity.blocker,
        f"{paddle.python} is Python {paddle.python_version}; the script must run under 3.10 or "
        "later.",
        "Give --python an environment with Python 3.10 to 3.13 and Paddle.",
        slug="python-too-old",
    )


def _paddle_age(paddle: PaddleInstall) -> Problem | None:
    version = version_tuple(paddle.version)
    if version is None or version[:2] == (0, 0):
        return problem(
            Severity.note,
            f"Paddle {paddle.version} is a development build: rules for it are those of 3.x.",
            "Trust what the trials show.",
            slug="paddle-development",
        )
    if version[:2] < PADDLE_OLDEST:
        return problem(
            Severity.blocker,
            f"Paddle {paddle.version} is too old: 2.4 or later is needed.",
            "Upgrade Paddle; 3.x is advised.",
            slug="paddle-too-old",
        )
    if version[:2] < PADDLE_ADVISED:
        return problem(
            Severity.warning,
            f"Paddle {paddle.version} is older than 2.6: AMP there ignores its own hardware gates "
            "and has no master gradients.",
            "Upgrade Paddle to 2.6 or later; autoamp's trials were never run with older ones.",
            slug="paddle-old",
        )
    return None


def _paddle_twice(paddle: PaddleInstall) -> Problem | None:
    if not paddle.absent.get("distribution", "").endswith(INSTALLED_TWICE):
        return None
    kept = "GPU" if paddle.gpu_build else "CPU"
    return problem(
        Severity.warning,
        f"{paddle.absent['distribution']}: their files are mixed, those of the {kept} build are "
        "on top.",
        "pip uninstall -y paddlepaddle paddlepaddle-gpu, then install one of them.",
        slug="paddle-twice",
    )


def _cuda_age(paddle: PaddleInstall) -> Problem | None:
    version = version_tuple(paddle.cuda_version)
    if version is None or version[:2] >= CUDA_OLDEST:
        return None
    return problem(
        Severity.blocker,
        f"Paddle was built with CUDA {paddle.cuda_version}; 10.1 or later is needed.",
        "Install a Paddle built with a newer CUDA.",
        slug="cuda-too-old",
    )


def _cudnn_age(paddle: PaddleInstall) -> Problem | None:
    version = version_tuple(paddle.cudnn_version)
    if version is None or version[:2] >= CUDNN_OLDEST:
        return None
    return problem(
        Severity.warning,
        f"Paddle was built with cuDNN {paddle.cudnn_version}; below 7.6 many FP16 convolutions "
        "do not reach Tensor Cores.",
        "Install a Paddle built with cuDNN 7.6 or later.",
        slug="cudnn-old",
    )


def paddle_numpy_fault(paddle: PaddleInstall) -> Problem | None:
    """The pair that ends every FP16 training at its first overflow (seen with Paddle 3.3.1)."""
    numpy = version_tuple(paddle.numpy_version)
    version = version_tuple(paddle.version)
    if numpy is None or version is None or numpy[:2] < NUMPY_FAULT or version[:2] != (3, 3):
        return None
    return problem(
        Severity.warning,
        f"Paddle {paddle.version} with numpy {paddle.numpy_version} ends every FP16 training at "
        "its first overflow: GradScaler.update() raises TypeError.",
        "autoamp works around it in its own runs; plain python needs: pip install 'numpy<2.4'",
        slug="paddle-numpy-scaler",
    )


def accelerators_unasked(paddle: PaddleInstall, error: MachineError) -> Problem:
    """Paddle has a plug-in or is an XPU build, and does not say what it sees: a device that could
    work may be behind that, so planning for a virtual one in silence would be no help."""
    parts = ", ".join(paddle.plugins) or f"its {(paddle.build or '').upper()} build"
    return problem(
        Severity.blocker,
        f"Paddle may have accelerators here ({parts}) and does not say: {error.message}.",
        f"{error.remedy or 'Try to import paddle yourself'}. Without them: --device cpu, or plan "
        "with --device virtual:NAME.",
        slug="paddle-child-failed",
    )


def host_problems(host: Host, device: Device) -> list[Problem]:
    """The computer around the device."""
    found: list[Problem] = []
    if host.shm_free_bytes is not None and host.shm_free_bytes < SHM_LEAST_BYTES:
        found.append(
            problem(
                Severity.warning,
                f"/dev/shm has {host.shm_free_bytes / 2**20:.0f} MiB free: DataLoader workers "
                "hand their batches over in it.",
                "In a container: --shm-size=8g; else use_shared_memory=False or num_workers=0.",
                slug="shm-small",
            )
        )
    if host.memory_total_bytes < ADVISED_MEMORY_BYTES and not host.jetson:
        found.append(
            problem(
                Severity.note,
                f"The host has {host.memory_total_bytes / GIB:.0f} GiB of memory; 16 GiB is "
                "advised.",
                "Large data sets and many workers may not fit.",
                slug="host-memory-small",
            )
        )
    accelerated = device.kind in (DeviceKind.gpu, DeviceKind.custom)
    if accelerated and host.cpu_count < FEW_CORES:
        found.append(
            problem(
                Severity.note,
                f"{host.cpu_count} processors feed the DataLoader: the GPU may wait for them.",
                "Watch the data wait of the baseline.",
                slug="few-cores",
            )
        )
    if host.wsl and device.kind is DeviceKind.gpu:
        found.append(
            problem(
                Severity.note,
                "This is Linux under Windows: NVML does not show other processes there, and "
                "Windows' own use of the GPU comes on top.",
                "Close what draws on the GPU before tuning.",
                slug="wsl",
            )
        )
    return found
