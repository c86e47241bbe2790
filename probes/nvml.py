"""NVML: the only importer of pynvml. Every query gives a value or the reason it is absent."""

import warnings
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from autoamp.probes.facts import NvmlGpu
from autoamp.probes.nvml_gpu import (
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    NO_PERMISSION,
    Asker,
    code_of,
    mig_instances,
    read_gpu,
    reason_of,
    text_of,
)

REMEDY_PACKAGE = (
    "pip uninstall -y pynvml nvidia-ml-py3 nvidia-ml-py && pip install nvidia-ml-py, where "
    "autoamp is installed"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlReading:
    """Everything NVML said; ``problem`` is set when it could not be used, or not in full."""

    gpus: tuple[NvmlGpu, ...] = ()
    driver_version: str | None = None
    driver_cuda_version: str | None = None
    problem: str | None = None
    problem_slug: str | None = None
    remedy: str | None = None
    lost: tuple[str, ...] = ()
    """GPUs that NVML counts and that do not answer any more."""
    unreadable: tuple[str, ...] = ()
    """GPUs, or their MIG instances, that are there and NVML does not show, with the reason."""
    mig_empty: tuple[int, ...] = ()
    """Indexes of GPUs in MIG mode without an instance: no program can use them."""
    absent: dict[str, str] = field(default_factory=dict)


_NEEDED = ("nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "NVMLError")
# What nvidia-ml-py has had since 11.450 and the abandoned copies of it never got.
_MARK_OF_OURS = "nvmlDeviceGetMigMode"


def load() -> tuple[Any, NvmlReading | None]:
    """pynvml, and what is wrong with it; without a module the reading is the whole answer."""
    try:
        with warnings.catch_warnings():
            # The "pynvml" package on PyPI wraps nvidia-ml-py and warns about itself.
            warnings.simplefilter("ignore")
            import pynvml
    except ImportError as error:
        return None, _wrong(f"the Python module pynvml does not import: {error}")
    except Exception as error:
        return None, _wrong(f"a broken pynvml module is installed: {error}")
    where = getattr(pynvml, "__file__", None) or "an unknown place"
    if any(not hasattr(pynvml, name) for name in _NEEDED):
        return None, _wrong(f"another module than nvidia-ml-py's is imported, from {where}")
    if not hasattr(pynvml, _MARK_OF_OURS):
        return pynvml, _wrong(
            f"an abandoned pynvml (nvidia-ml-py3 or an old pynvml) is imported, from {where}: it "
            "knows neither MIG nor newer GPUs"
        )
    return pynvml, None


def _wrong(sentence: str) -> NvmlReading:
    return _Trouble(sentence=sentence, slug="nvml-wrong-package", remedy=REMEDY_PACKAGE).reading()


def read() -> NvmlReading:
    """Ask NVML for everything. Never raises."""
    pynvml, trouble = load()
    if pynvml is None:
        return trouble or NvmlReading()
    try:
        pynvml.nvmlInit()
    except Exception as error:
        return _not_started(error)
    try:
        return _read_all(pynvml, trouble or NvmlReading())
    except Exception as error:
        # No query of ours gets here; what a stranger's answers may hold, nobody knows.
        return _Trouble(
            sentence=f"NVML answers what autoamp does not understand: {reason_of(error)}",
            slug="nvml-failed",
            remedy=REMEDY_PACKAGE,
        ).reading()
    finally:
        try:
            pynvml.nvmlShutdown()
        except Exception:
            pass


class _Trouble(NamedTuple):
    """Why NVML cannot be used, or not in full."""

    sentence: str
    slug: str
    remedy: str

    def reading(self) -> NvmlReading:
        return NvmlReading(problem=self.sentence, problem_slug=self.slug, remedy=self.remedy)


# By nvmlReturn_t, what nvmlInit may answer.
_START_ERRORS = {
    12: _Trouble(
        sentence="no NVIDIA driver: libnvidia-ml is not installed",
        slug="nvml-missing",
        remedy="install the NVIDIA driver if this machine has an NVIDIA GPU (in a container: "
        "start it with --gpus all)",
    ),
    9: _Trouble(
        sentence="the NVIDIA driver is installed but not loaded",
        slug="nvml-driver-not-loaded",
        remedy="load it (modprobe nvidia), or reboot after a driver update",
    ),
    18: _Trouble(
        sentence="the NVIDIA driver and its NVML library have different versions",
        slug="nvml-version-mismatch",
        remedy="reboot: the driver was updated while the old one is loaded",
    ),
    FUNCTION_NOT_FOUND: _Trouble(
        sentence="the NVIDIA driver is too old: its NVML library lacks the entry points of "
        "version 2",
        slug="nvml-too-old",
        remedy="update the NVIDIA driver",
    ),
    4: _Trouble(
        sentence="NVML may not be used by this user",
        slug="nvml-no-permission",
        remedy="check the rights of /dev/nvidiactl and /dev/nvidia*",
    ),
    GPU_IS_LOST: _Trouble(
        sentence="a GPU has fallen off the bus, and NVML does not start",
        slug="nvml-gpu-lost",
        remedy="see dmesg for 'Xid' or 'fallen off the bus'; reboot",
    ),
}


def _not_started(error: Exception) -> NvmlReading:
    unknown = _Trouble(
        sentence=f"NVML does not start: {reason_of(error)}",
        slug="nvml-failed",
        remedy="see what nvidia-smi says; a reboot or driver reinstall may be needed",
    )
    return _START_ERRORS.get(code_of(error) or -1, unknown).reading()


def _not_counted(error: Exception) -> NvmlReading:
    """NVML runs, and does not say how many GPUs there are; what else it said stays."""
    known = _START_ERRORS.get(code_of(error) or -1)
    return _Trouble(
        sentence=f"NVML starts and does not count the GPUs: {reason_of(error)}",
        slug=known.slug if known else "nvml-failed",
        remedy=known.remedy if known else "see what nvidia-smi says; reboot if it says the same",
    ).reading()


def _read_all(pynvml: Any, so_far: NvmlReading) -> NvmlReading:
    ask = Asker()
    driver = ask("driver_version", lambda: text_of(pynvml.nvmlSystemGetDriverVersion()))
    cuda = ask("driver_cuda_version", lambda: int(pynvml.nvmlSystemGetCudaDriverVersion()))
    try:
        count = int(pynvml.nvmlDeviceGetCount())
    except Exception as error:
        count, so_far = 0, _not_counted(error)
    gpus: list[NvmlGpu] = []
    lost: list[str] = []
    unreadable: list[str] = []
    mig_empty: list[int] = []
    for index in range(count):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        except Exception as error:
            # A GPU off the bus is an unknown error to many drivers; one that is not this user's
            # (a container's device list) is there and well.
            denied = code_of(error) == NO_PERMISSION
            (unreadable if denied else lost).append(f"GPU {index}: {reason_of(error)}")
            continue
        gpu, gone = read_gpu(pynvml, index, handle)
        if gone:
            lost.append(f"GPU {index}: {gone}")
            continue
        if not gpu.mig_enabled:
            gpus.append(gpu)
            continue
        found = mig_instances(pynvml, handle, gpu)
        gpus.extend(found.gpus)
        if found.lost:
            lost.append(f"GPU {index}: {found.lost}")
        elif found.unread:
            unreadable.append(f"the MIG instances of GPU {index}: {found.unread}")
        elif not found.gpus:
            mig_empty.append(index)
    return NvmlReading(
        gpus=tuple(gpus),
        driver_version=driver,
        driver_cuda_version=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        problem=so_far.problem,
        problem_slug=so_far.problem_slug,
        remedy=so_far.remedy,
        lost=tuple(lost),
        unreadable=tuple(unreadable),
        mig_empty=tuple(mig_empty),
        absent=ask.absent,
    )
