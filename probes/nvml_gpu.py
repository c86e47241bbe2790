"""Reads one GPU or MIG instance through a loaded pynvml; a failed query hides no other."""

from collections.abc import Callable
from typing import Any

from autoamp.probes.facts import POWER_CAP, GpuProcess, NvmlGpu

# nvml.h, nvmlClocksThrottleReason*: idle, application clocks and sync boost are no throttling.
THROTTLE_BITS = {
    0x4: POWER_CAP,
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
    13: "Rubin",
}
_CLOCK_SM, _CLOCK_MEMORY, _SENSOR_GPU = 1, 2, 0
GPU_IS_LOST, FUNCTION_NOT_FOUND = 15, 13


def text_of(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def reason_of(error: Exception) -> str:
    return str(error) or type(error).__name__


def code_of(error: Exception) -> int | None:
    value = getattr(error, "value", None)
    return value if isinstance(value, int) else None


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
            self.lost = self.lost or code_of(error) == GPU_IS_LOST
            self.absent[field] = f"NVML: {reason_of(error)}"
        return None


def read_gpu(nv: Any, index: int, handle: Any) -> tuple[NvmlGpu, str | None]:
    """One GPU, and how it was lost if it does not answer any more."""
    ask = Asker()

    def number(field: str, query: Callable[[], Any]) -> int | None:
        return ask(field, lambda: int(query()))  # type: ignore[no-any-return]  # int or None

    def watts(field: str, query: Callable[[], Any]) -> float | None:
        # NVML speaks of milliwatts.
        return ask(field, lambda: int(query()) / 1000)  # type: ignore[no-any-return]  # or None

    name = ask("name", lambda: text_of(nv.nvmlDeviceGetName(handle)))
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
        uuid=ask("uuid", lambda: text_of(nv.nvmlDeviceGetUUID(handle))),
        pci_bus_id=ask("pci_bus_id", lambda: text_of(nv.nvmlDeviceGetPciInfo(handle).busId)),
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
    """Names of the bits that hold the clocks down: what an idle GPU does by itself is left out."""
    return tuple(name for bit, name in THROTTLE_BITS.items() if bits & bit)


def _processes(nv: Any, handle: Any) -> tuple[GpuProcess, ...]:
    return tuple(
        GpuProcess(
            pid=int(p.pid),
            memory_bytes=None if p.usedGpuMemory is None else int(p.usedGpuMemory),
            name=_process_name(int(p.pid)),
        )
        for p in _running(nv, handle)
    )


def _running(nv: Any, handle: Any) -> Any:
    """Compute processes; drivers before 510 have the query's second version only."""
    try:
        return nv.nvmlDeviceGetComputeRunningProcesses(handle)
    except Exception as error:
        older = getattr(nv, "nvmlDeviceGetComputeRunningProcesses_v2", None)
        if older is None or code_of(error) != FUNCTION_NOT_FOUND:
            raise
        return older(handle)


def _process_name(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as f:
            return f.read().strip() or None
    except OSError:
        return None


def mig_instances(nv: Any, handle: Any, parent: NvmlGpu) -> list[NvmlGpu]:
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
    name = ask("mig_profile", lambda: text_of(nv.nvmlDeviceGetName(instance))) or ""
    profile = name.rpartition("MIG ")[2] if "MIG " in name else f"instance {number}"
    whole = "NVML gives it for the whole GPU only"
    for missing in ("power_w", "sm_clock_mhz", "utilisation_percent"):
        ask.absent[missing] = whole
    return NvmlGpu(
        index=parent.index,
        name=parent.name,
        uuid=ask("uuid", lambda: text_of(nv.nvmlDeviceGetUUID(instance))),
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
