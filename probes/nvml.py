"""NVML: the only importer of pynvml. Every query gives a value or the reason it is absent."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

REMEDY_PACKAGE = "pip uninstall -y pynvml nvidia-ml-py3 && pip install nvidia-ml-py"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that holds memory on a GPU."""

    pid: int
    memory_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlGpu:
    """One GPU or MIG instance as NVML sees it; ``absent`` says why a field is None."""

    index: int
    """NVML's index, ordered by PCI bus."""
    name: str | None = None
    uuid: str | None = None
    pci_bus_id: str | None = None
    compute_capability: tuple[int, int] | None = None
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_used_bytes: int | None = None
    ecc: bool | None = None
    mig_enabled: bool | None = None
    mig_profile: str | None = None
    power_limit_w: float | None = None
    power_w: float | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    throttle_reasons: tuple[str, ...] = ()
    pcie_generation: int | None = None
    pcie_width: int | None = None
    persistence: bool | None = None
    compute_mode: str | None = None
    utilisation_percent: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    absent: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlReading:
    """Everything NVML said; ``problem`` is set when it could not be used at all."""

    gpus: tuple[NvmlGpu, ...] = ()
    driver_version: str | None = None
    driver_cuda_version: str | None = None
    problem: str | None = None
    problem_slug: str | None = None
    remedy: str | None = None
    lost: tuple[str, ...] = ()
    """GPUs that NVML counts and cannot open any more."""


# NVML's nvmlClocksThrottleReason bits (nvml.h); idle and application clocks are no throttling.
THROTTLE_BITS = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}


def _load() -> tuple[Any, str | None]:
    """pynvml, or the reason it cannot be used. A stranger of that name is told apart."""
    try:
        import pynvml
    except ImportError as error:
        return None, f"the pynvml module does not import: {error}"
    except Exception as error:
        return None, f"a broken pynvml module is installed: {error}"
    needed = ("nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "NVMLError")
    missing = [name for name in needed if not hasattr(pynvml, name)]
    if missing:
        where = getattr(pynvml, "__file__", "an unknown place")
        return None, f"another pynvml than nvidia-ml-py's is imported, from {where}"
    return pynvml, None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def read() -> NvmlReading:
    """Ask NVML for everything. Never raises."""
    pynvml, problem = _load()
    if pynvml is None:
        return NvmlReading(
            problem=problem, problem_slug="nvml-wrong-package", remedy=REMEDY_PACKAGE
        )
    try:
        pynvml.nvmlInit()
    except Exception as error:
        return _not_started(pynvml, error)
    try:
        return _read_all(pynvml)
    except Exception as error:
        return NvmlReading(
            problem=f"NVML stopped answering: {error}",
            problem_slug="nvml-failed",
            remedy="see what nvidia-smi says; a reboot or driver reinstall may be needed",
        )
    finally:
        try:
            pynvml.nvmlShutdown()
        except Exception:
            pass


def _not_started(pynvml: Any, error: Exception) -> NvmlReading:
    code = getattr(error, "value", None)
    if code == getattr(pynvml, "NVML_ERROR_LIBRARY_NOT_FOUND", 12):
        return NvmlReading(
            problem="no NVIDIA driver: libnvidia-ml is not installed",
            problem_slug="nvml-missing",
            remedy="install the NVIDIA driver if this machine has an NVIDIA GPU",
        )
    if code == getattr(pynvml, "NVML_ERROR_DRIVER_NOT_LOADED", 9):
        return NvmlReading(
            problem="the NVIDIA driver is installed but not loaded",
            problem_slug="nvml-driver-not-loaded",
            remedy="load it (modprobe nvidia), or reboot after a driver update",
        )
    if code == getattr(pynvml, "NVML_ERROR_LIB_RM_VERSION_MISMATCH", 18):
        return NvmlReading(
            problem="driver and NVML library have different versions",
            problem_slug="nvml-version-mismatch",
            remedy="reboot: the driver was updated while the old one is loaded",
        )
    return NvmlReading(
        problem=f"NVML does not start: {error}",
        problem_slug="nvml-failed",
        remedy="see what nvidia-smi says",
    )


class _Asker:
    """Runs single queries; a failure is a reason for that field alone."""

    def __init__(self) -> None:
        self.absent: dict[str, str] = {}

    def __call__(self, field: str, query: Callable[[], Any]) -> Any:
        try:
            return query()
        except AttributeError as error:
            self.absent[field] = f"this nvidia-ml-py has no such query: {error}"
        except Exception as error:
            self.absent[field] = str(error) or type(error).__name__
        return None


def _read_all(pynvml: Any) -> NvmlReading:
    ask = _Asker()
    driver = ask("driver_version", lambda: _text(pynvml.nvmlSystemGetDriverVersion()))
    cuda = ask("driver_cuda_version", lambda: int(pynvml.nvmlSystemGetCudaDriverVersion()))
    count = int(pynvml.nvmlDeviceGetCount())
    gpus: list[NvmlGpu] = []
    lost: list[str] = []
    for index in range(count):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        except Exception as error:
            lost.append(f"GPU {index}: {error}")
            continue
        gpu = _read_gpu(pynvml, index, handle)
        instances = _mig_instances(pynvml, index, handle, gpu) if gpu.mig_enabled else []
        gpus.extend(instances or [gpu])
    return NvmlReading(
        gpus=tuple(gpus),
        driver_version=driver,
        driver_cuda_version=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        lost=tuple(lost),
    )


def _read_gpu(pynvml: Any, index: int, handle: Any) -> NvmlGpu:
    ask = _Asker()
    memory = ask("memory_total_bytes", lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
    capability = ask(
        "compute_capability", lambda: pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    )
    pci = ask("pci_bus_id", lambda: _text(pynvml.nvmlDeviceGetPciInfo(handle).busId))
    throttle = ask(
        "throttle_reasons",
        lambda: int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
    )
    mode = ask("compute_mode", lambda: int(pynvml.nvmlDeviceGetComputeMode(handle)))
    power = ask("power_w", lambda: pynvml.nvmlDeviceGetPowerUsage(handle))
    limit = ask("power_limit_w", lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle))
    rates = ask("utilisation_percent", lambda: pynvml.nvmlDeviceGetUtilizationRates(handle))
    ecc = ask("ecc", lambda: pynvml.nvmlDeviceGetEccMode(handle)[0])
    mig = ask("mig_enabled", lambda: pynvml.nvmlDeviceGetMigMode(handle)[0])
    persistence = ask("persistence", lambda: pynvml.nvmlDeviceGetPersistenceMode(handle))
    processes = ask("processes", lambda: _processes(pynvml, handle))
    return NvmlGpu(
        index=index,
        name=ask("name", lambda: _text(pynvml.nvmlDeviceGetName(handle))),
        uuid=ask("uuid", lambda: _text(pynvml.nvmlDeviceGetUUID(handle))),
        pci_bus_id=pci,
        compute_capability=None if capability is None else (capability[0], capability[1]),
        memory_total_bytes=None if memory is None else int(memory.total),
        memory_free_bytes=None if memory is None else int(memory.free),
        memory_used_bytes=None if memory is None else int(memory.used),
        ecc=None if ecc is None else bool(ecc),
        mig_enabled=None if mig is None else bool(mig),
        power_limit_w=None if limit is None else limit / 1000,
        power_w=None if power is None else power / 1000,
        sm_clock_mhz=ask("sm_clock_mhz", lambda: int(pynvml.nvmlDeviceGetClockInfo(handle, 1))),
        sm_clock_max_mhz=ask(
            "sm_clock_max_mhz", lambda: int(pynvml.nvmlDeviceGetMaxClockInfo(handle, 1))
        ),
        throttle_reasons=throttle_names(throttle or 0),
        pcie_generation=ask(
            "pcie_generation", lambda: int(pynvml.nvmlDeviceGetCurrPcieLinkGeneration(handle))
        ),
        pcie_width=ask("pcie_width", lambda: int(pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle))),
        persistence=None if persistence is None else bool(persistence),
        compute_mode=None if mode is None else _COMPUTE_MODES.get(mode, str(mode)),
        utilisation_percent=None if rates is None else int(rates.gpu),
        processes=processes,
        absent=tuple(ask.absent.items()),
    )


def throttle_names(bits: int) -> tuple[str, ...]:
    """Names of the bits that mean real throttling."""
    return tuple(name for bit, name in THROTTLE_BITS.items() if bits & bit)


def _processes(pynvml: Any, handle: Any) -> tuple[GpuProcess, ...]:
    found = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return tuple(
        GpuProcess(
            pid=int(p.pid),
            memory_bytes=None if p.usedGpuMemory is None else int(p.usedGpuMemory),
        )
        for p in found
    )


def _mig_instances(pynvml: Any, index: int, handle: Any, parent: NvmlGpu) -> list[NvmlGpu]:
    """MIG instances are devices of their own size; NVML numbers them below their GPU."""
    found: list[NvmlGpu] = []
    try:
        most = int(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle))
    except Exception:
        return []
    for number in range(most):
        try:
            instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except Exception:
            continue
        ask = _Asker()
        memory = ask("memory_total_bytes", lambda i=instance: pynvml.nvmlDeviceGetMemoryInfo(i))
        name = ask("name", lambda i=instance: _text(pynvml.nvmlDeviceGetName(i))) or parent.name
        profile = name.rpartition("MIG ")[2] if name and "MIG " in name else None
        found.append(
            NvmlGpu(
                index=index,
                name=parent.name,
                uuid=ask("uuid", lambda i=instance: _text(pynvml.nvmlDeviceGetUUID(i))),
                pci_bus_id=parent.pci_bus_id,
                compute_capability=parent.compute_capability,
                memory_total_bytes=None if memory is None else int(memory.total),
                memory_free_bytes=None if memory is None else int(memory.free),
                memory_used_bytes=None if memory is None else int(memory.used),
                mig_enabled=True,
                mig_profile=profile or f"instance {number}",
                absent=tuple(ask.absent.items()),
            )
        )
    return found


def visible(gpus: tuple[NvmlGpu, ...], setting: str | None) -> tuple[NvmlGpu, ...]:
    """The GPUs that CUDA shows, in CUDA's order, under ``CUDA_VISIBLE_DEVICES``.

    CUDA stops at the first entry it does not know (CUDA programming guide, environment
    variables). Indices assume PCI order, which the tuner sets for its children.
    """
    if setting is None:
        return gpus
    chosen: list[NvmlGpu] = []
    for entry in (e.strip() for e in setting.split(",")):
        if entry.lstrip("-").isdigit():
            match = [g for g in gpus if g.index == int(entry)]
        else:
            match = [g for g in gpus if entry and g.uuid and g.uuid.startswith(entry)]
        if not match or match[0] in chosen:
            break
        chosen.append(match[0])
    return tuple(chosen)


def visible_setting() -> str | None:
    """``CUDA_VISIBLE_DEVICES`` as set."""
    return os.environ.get("CUDA_VISIBLE_DEVICES")


class Session:
    """NVML kept open for sampling one device; None values where a query fails."""

    def __init__(self, uuid: str | None, index: int) -> None:
        self._pynvml, problem = _load()
        if self._pynvml is None:
            raise RuntimeError(problem)
        self._pynvml.nvmlInit()
        if uuid is not None:
            self._handle = self._pynvml.nvmlDeviceGetHandleByUUID(uuid)
        else:
            self._handle = self._pynvml.nvmlDeviceGetHandleByIndex(index)

    def sample(self) -> dict[str, float | int | None]:
        """One look: ``gpu_percent``, ``memory_used_bytes``, ``power_w``, ``sm_clock_mhz``,
        ``throttle_bits``."""
        nv, handle = self._pynvml, self._handle
        ask = _Asker()
        power = ask("power_w", lambda: nv.nvmlDeviceGetPowerUsage(handle))
        memory = ask("memory", lambda: nv.nvmlDeviceGetMemoryInfo(handle))
        rates = ask("gpu", lambda: nv.nvmlDeviceGetUtilizationRates(handle))
        return {
            "gpu_percent": None if rates is None else int(rates.gpu),
            "memory_used_bytes": None if memory is None else int(memory.used),
            "power_w": None if power is None else power / 1000,
            "sm_clock_mhz": ask("clock", lambda: int(nv.nvmlDeviceGetClockInfo(handle, 1))),
            "throttle_bits": ask(
                "throttle", lambda: int(nv.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
            ),
        }

    def close(self) -> None:
        try:
            self._pynvml.nvmlShutdown()
        except Exception:
            pass
