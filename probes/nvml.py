"""NVML: the only importer of pynvml. Every query gives a value or the reason it is absent."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from autoamp.probes.facts import GpuProcess, NvmlGpu

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
    mig_empty: tuple[int, ...] = ()
    """Indexes of GPUs in MIG mode without an instance: no program can use them."""
    absent: dict[str, str] = field(default_factory=dict)


# nvml.h, nvmlClocksThrottleReason*: idle, application clocks and sync boost are no throttling.
THROTTLE_BITS = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
# nvml.h, NVML_DEVICE_ARCH_*.
_ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
}
_NEEDED = ("nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "NVMLError")
# What nvidia-ml-py has had since 11.450 and the abandoned copies of it never got.
_MARK_OF_OURS = "nvmlDeviceGetMigMode"
_GPU_IS_LOST = 15
_CLOCK_SM, _CLOCK_MEMORY, _SENSOR_GPU = 1, 2, 0


def load() -> tuple[Any, NvmlReading | None]:
    """pynvml, and what is wrong with it; without a module the reading is the whole answer."""
    try:
        import pynvml
    except ImportError as error:
        return None, NvmlReading(
            problem=f"the Python module pynvml does not import: {error}",
            problem_slug="nvml-wrong-package",
            remedy=REMEDY_PACKAGE,
        )
    except Exception as error:
        return None, NvmlReading(
            problem=f"a broken pynvml module is installed: {error}",
            problem_slug="nvml-wrong-package",
            remedy=REMEDY_PACKAGE,
        )
    where = getattr(pynvml, "__file__", None) or "an unknown place"
    if any(not hasattr(pynvml, name) for name in _NEEDED):
        return None, NvmlReading(
            problem=f"another module than nvidia-ml-py's pynvml is imported, from {where}",
            problem_slug="nvml-wrong-package",
            remedy=REMEDY_PACKAGE,
        )
    if not hasattr(pynvml, _MARK_OF_OURS):
        return pynvml, NvmlReading(
            problem=f"an abandoned pynvml (nvidia-ml-py3 or an old pynvml) is imported, from "
            f"{where}: it knows neither MIG nor newer GPUs",
            problem_slug="nvml-wrong-package",
            remedy=REMEDY_PACKAGE,
        )
    return pynvml, None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def read() -> NvmlReading:
    """Ask NVML for everything. Never raises."""
    pynvml, trouble = load()
    if pynvml is None:
        return trouble or NvmlReading()
    try:
        pynvml.nvmlInit()
    except Exception as error:
        return _not_started(pynvml, error)
    try:
        return _read_all(pynvml, trouble or NvmlReading())
    except Exception as error:
        return NvmlReading(
            problem=f"NVML stopped answering: {reason_of(error)}",
            problem_slug="nvml-failed",
            remedy="see what nvidia-smi says; a reboot or driver reinstall may be needed",
        )
    finally:
        try:
            pynvml.nvmlShutdown()
        except Exception:
            pass


def reason_of(error: Exception) -> str:
    return str(error) or type(error).__name__


def _code(error: Exception) -> int | None:
    value = getattr(error, "value", None)
    return value if isinstance(value, int) else None


# nvmlReturn_t: what NVML says when it does not start, as (sentence, slug, remedy).
_START_ERRORS = {
    12: (
        "no NVIDIA driver: libnvidia-ml is not installed",
        "nvml-missing",
        "install the NVIDIA driver if this machine has an NVIDIA GPU (in a container: start it "
        "with --gpus all)",
    ),
    9: (
        "the NVIDIA driver is installed but not loaded",
        "nvml-driver-not-loaded",
        "load it (modprobe nvidia), or reboot after a driver update",
    ),
    18: (
        "the NVIDIA driver and its NVML library have different versions",
        "nvml-version-mismatch",
        "reboot: the driver was updated while the old one is loaded",
    ),
    13: (
        "the NVIDIA driver is too old for NVML version 2: its library lacks the entry points",
        "nvml-too-old",
        "update the NVIDIA driver",
    ),
    4: (
        "NVML may not be used by this user",
        "nvml-no-permission",
        "check the rights of /dev/nvidiactl and /dev/nvidia*",
    ),
    _GPU_IS_LOST: (
        "a GPU has fallen off the bus, and NVML does not start",
        "gpu-lost",
        "see dmesg for 'Xid' or 'fallen off the bus'; reboot",
    ),
}


def _not_started(pynvml: Any, error: Exception) -> NvmlReading:
    sentence, slug, remedy = _START_ERRORS.get(
        _code(error) or -1,
        (f"NVML does not start: {reason_of(error)}", "nvml-failed", "see what nvidia-smi says"),
    )
    return NvmlReading(problem=sentence, problem_slug=slug, remedy=remedy)


class Asker:
    """Runs single queries; a failure is the reason for that field alone."""

    def __init__(self) -> None:
        self.absent: dict[str, str] = {}
        self.lost = False

    def __call__(self, field: str, query: Callable[[], Any]) -> Any:
        try:
            return query()
        except AttributeError as error:
            self.absent[field] = f"the installed pynvml has no such query: {error}"
        except Exception as error:
            self.lost = self.lost or _code(error) == _GPU_IS_LOST
            self.absent[field] = f"NVML: {reason_of(error)}"
        return None


def _read_all(pynvml: Any, so_far: NvmlReading) -> NvmlReading:
    ask = Asker()
    driver = ask("driver_version", lambda: _text(pynvml.nvmlSystemGetDriverVersion()))
    cuda = ask("driver_cuda_version", lambda: int(pynvml.nvmlSystemGetCudaDriverVersion()))
    count = int(pynvml.nvmlDeviceGetCount())
    gpus: list[NvmlGpu] = []
    lost: list[str] = []
    mig_empty: list[int] = []
    for index in range(count):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        except Exception as error:
            lost.append(f"GPU {index}: {reason_of(error)}")
            continue
        gpu, gone = _read_gpu(pynvml, index, handle)
        if gone:
            lost.append(f"GPU {index}: {gone}")
            continue
        found = _mig_instances(pynvml, handle, gpu) if gpu.mig_enabled else [gpu]
        if not found:
            mig_empty.append(index)
        gpus.extend(found)
    return NvmlReading(
        gpus=tuple(gpus),
        driver_version=driver,
        driver_cuda_version=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        problem=so_far.problem,
        problem_slug=so_far.problem_slug,
        remedy=so_far.remedy,
        lost=tuple(lost),
        mig_empty=tuple(mig_empty),
        absent=ask.absent,
    )


def _read_gpu(nv: Any, index: int, handle: Any) -> tuple[NvmlGpu, str | None]:
    """One GPU, and how it was lost if it does not answer any more."""
    ask = Asker()

    def number(field: str, query: Callable[[], Any]) -> int | None:
        return ask(field, lambda: int(query()))  # type: ignore[no-any-return]  # int or None

    def watts(field: str, query: Callable[[], Any]) -> float | None:
        # NVML speaks of milliwatts.
        return ask(field, lambda: int(query()) / 1000)  # type: ignore[no-any-return]  # or None

    name = ask("name", lambda: _text(nv.nvmlDeviceGetName(handle)))
    total, free, used = _memory(nv, handle, ask)
    mode = number("compute_mode", lambda: nv.nvmlDeviceGetComputeMode(handle))
    arch = number("architecture", lambda: nv.nvmlDeviceGetArchitecture(handle))
    bits = number("throttle_reasons", lambda: throttle_bits(nv, handle))
    capability = ask(
        "compute_capability",
        lambda: tuple(int(x) for x in nv.nvmlDeviceGetCudaComputeCapability(handle)),
    )
    gpu = NvmlGpu(
        index=index,
        name=name,
        uuid=ask("uuid", lambda: _text(nv.nvmlDeviceGetUUID(handle))),
        pci_bus_id=ask("pci_bus_id", lambda: _text(nv.nvmlDeviceGetPciInfo(handle).busId)),
        architecture=None if arch is None else _ARCHITECTURES.get(arch),
        compute_capability=capability,
        memory_total_bytes=total,
        memory_free_bytes=free,
        memory_used_bytes=used,
        ecc=ask("ecc", lambda: bool(nv.nvmlDeviceGetEccMode(handle)[0])),
        mig_enabled=ask("mig_enabled", lambda: bool(nv.nvmlDeviceGetMigMode(handle)[0])),
        power_w=watts("power_w", lambda: nv.nvmlDeviceGetPowerUsage(handle)),
        power_limit_w=watts("power_limit_w", lambda: nv.nvmlDeviceGetEnforcedPowerLimit(handle)),
        power_limit_default_w=watts(
            "power_limit_default_w", lambda: nv.nvmlDeviceGetPowerManagementDefaultLimit(handle)
        ),
        temperature_c=number(
            "temperature_c", lambda: nv.nvmlDeviceGetTemperature(handle, _SENSOR_GPU)
        ),
        sm_clock_mhz=number("sm_clock_mhz", lambda: nv.nvmlDeviceGetClockInfo(handle, _CLOCK_SM)),
        sm_clock_max_mhz=number(
            "sm_clock_max_mhz", lambda: nv.nvmlDeviceGetMaxClockInfo(handle, _CLOCK_SM)
        ),
        memory_clock_mhz=number(
            "memory_clock_mhz", lambda: nv.nvmlDeviceGetClockInfo(handle, _CLOCK_MEMORY)
        ),
        memory_clock_max_mhz=number(
            "memory_clock_max_mhz", lambda: nv.nvmlDeviceGetMaxClockInfo(handle, _CLOCK_MEMORY)
        ),
        throttle_reasons=throttle_names(bits or 0),
        pcie_generation=number(
            "pcie_generation", lambda: nv.nvmlDeviceGetCurrPcieLinkGeneration(handle)
        ),
        pcie_generation_max=number(
            "pcie_generation_max", lambda: nv.nvmlDeviceGetMaxPcieLinkGeneration(handle)
        ),
        pcie_width=number("pcie_width", lambda: nv.nvmlDeviceGetCurrPcieLinkWidth(handle)),
        pcie_width_max=number("pcie_width_max", lambda: nv.nvmlDeviceGetMaxPcieLinkWidth(handle)),
        persistence=ask("persistence", lambda: bool(nv.nvmlDeviceGetPersistenceMode(handle))),
        compute_mode=None if mode is None else _COMPUTE_MODES.get(mode, str(mode)),
        utilisation_percent=number(
            "utilisation_percent", lambda: nv.nvmlDeviceGetUtilizationRates(handle).gpu
        ),
        processes=ask("processes", lambda: _processes(nv, handle)),
        absent=ask.absent,
    )
    # Some queries still answer from a cache when the GPU is gone; without memory it is of no use.
    gone = ask.absent.get("memory_total_bytes") if ask.lost and total is None else None
    return gpu, gone


def _memory(nv: Any, handle: Any, ask: Asker) -> tuple[int | None, int | None, int | None]:
    memory = ask("memory_total_bytes", lambda: nv.nvmlDeviceGetMemoryInfo(handle))
    if memory is None:
        reason = ask.absent["memory_total_bytes"]
        ask.absent.update(memory_free_bytes=reason, memory_used_bytes=reason)
        return None, None, None
    total = int(memory.total)
    if total <= 0:
        # Seen on integrated GPUs: the call succeeds and says nothing.
        for name in ("memory_total_bytes", "memory_free_bytes", "memory_used_bytes"):
            ask.absent[name] = "NVML says 0 bytes: memory is shared with the host"
        return None, None, None
    return total, int(memory.free), int(memory.used)


def throttle_bits(nv: Any, handle: Any) -> int:
    """The reasons' bit mask; newer drivers name the query by events."""
    query = getattr(nv, "nvmlDeviceGetCurrentClocksEventReasons", None)
    if query is not None:
        try:
            return int(query(handle))
        except Exception:
            pass  # an older driver's library lacks this entry point and has the other
    return int(nv.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def throttle_names(bits: int) -> tuple[str, ...]:
    """Names of the bits that mean real throttling."""
    return tuple(name for bit, name in THROTTLE_BITS.items() if bits & bit)


def _processes(nv: Any, handle: Any) -> tuple[GpuProcess, ...]:
    return tuple(
        GpuProcess(
            pid=int(p.pid),
            memory_bytes=None if p.usedGpuMemory is None else int(p.usedGpuMemory),
            name=_process_name(int(p.pid)),
        )
        for p in nv.nvmlDeviceGetComputeRunningProcesses(handle)
    )


def _process_name(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as f:
            return f.read().strip() or None
    except OSError:
        return None


def _mig_instances(nv: Any, handle: Any, parent: NvmlGpu) -> list[NvmlGpu]:
    """MIG instances are devices of their own size; NVML numbers them below their GPU."""
    found: list[NvmlGpu] = []
    ask = Asker()
    most = ask("mig", lambda: int(nv.nvmlDeviceGetMaxMigDeviceCount(handle)))
    for number in range(most or 0):
        try:
            instance = nv.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except Exception:
            continue  # NVML numbers the slots; empty ones are not found
        found.append(_mig_instance(nv, instance, parent, number))
    return found


def _mig_instance(nv: Any, instance: Any, parent: NvmlGpu, number: int) -> NvmlGpu:
    ask = Asker()
    total, free, used = _memory(nv, instance, ask)
    name = ask("mig_profile", lambda: _text(nv.nvmlDeviceGetName(instance))) or ""
    profile = name.rpartition("MIG ")[2] if "MIG " in name else f"instance {number}"
    whole = "NVML gives it for the whole GPU only"
    for missing in ("power_w", "sm_clock_mhz", "utilisation_percent"):
        ask.absent[missing] = whole
    return NvmlGpu(
        index=parent.index,
        name=parent.name,
        uuid=ask("uuid", lambda: _text(nv.nvmlDeviceGetUUID(instance))),
        pci_bus_id=parent.pci_bus_id,
        architecture=parent.architecture,
        compute_capability=parent.compute_capability,
        memory_total_bytes=total,
        memory_free_bytes=free,
        memory_used_bytes=used,
        ecc=parent.ecc,
        mig_enabled=True,
        mig_profile=profile,
        power_limit_w=parent.power_limit_w,
        power_limit_default_w=parent.power_limit_default_w,
        sm_clock_max_mhz=parent.sm_clock_max_mhz,
        throttle_reasons=parent.throttle_reasons,
        compute_mode=parent.compute_mode,
        processes=ask("processes", lambda: _processes(nv, instance)),
        absent=ask.absent,
    )
