"""Reads one GPU or MIG instance through a loaded pynvml; a failed query hides no other."""

from collections.abc import Callable
from dataclasses import dataclass
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
INVALID_ARGUMENT, NO_PERMISSION, NOT_FOUND, FUNCTION_NOT_FOUND, GPU_IS_LOST = 2, 4, 6, 13, 15

# nvml.h, nvmlReturn_t: timeout, in use, no memory, no data (yet), unknown.
_PASSING = (10, 19, 20, 21, 999)


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
        self.passing: set[str] = set()
        """Fields whose failure may be over a moment later."""

    def __call__(self, field: str, query: Callable[[], Any]) -> Any:
        try:
            return query()
        except Exception as error:
            self.failed(field, error)
        return None

    def failed(self, field: str, error: Exception) -> None:
        """Keep why ``field`` has no value."""
        if isinstance(error, AttributeError):
            self.absent[field] = f"the installed pynvml has no such query: {error}"
            return
        self.lost = self.lost or code_of(error) == GPU_IS_LOST
        if code_of(error) in _PASSING:
            self.passing.add(field)
        self.absent[field] = f"NVML: {reason_of(error)}"


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
    if arch is not None and arch not in _ARCHITECTURES:
        ask.absent["architecture"] = f"NVML's architecture {arch} is newer than this autoamp"
    ask.absent["mig_profile"] = "it is no MIG instance"
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
    def query() -> tuple[int, int, int]:
        memory = nv.nvmlDeviceGetMemoryInfo(handle)
        return int(memory.total), int(memory.free), int(memory.used)

    memory = ask("memory_total_bytes", query)
    if memory is None:
        reason = ask.absent["memory_total_bytes"]
        ask.absent.update(memory_free_bytes=reason, memory_used_bytes=reason)
        return None, None, None
    total, free, used = memory
    if total <= 0:
        # Seen on integrated GPUs: the call succeeds and says nothing.
        for name in ("memory_total_bytes", "memory_free_bytes", "memory_used_bytes"):
            ask.absent[name] = "NVML says 0 bytes: memory is shared with the host"
        return None, None, None
    return total, free, used


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


@dataclass(frozen=True, slots=True, kw_only=True)
class MigReading:
    """The instances of one GPU; without any, and without a reason, it has none."""

    gpus: tuple[NvmlGpu, ...] = ()
    unread: str | None = None
    """Why NVML does not show them, or not all."""
    lost: str | None = None
    """How the GPU was lost while it was asked."""


# What NVML answers for a slot without an instance (nvml.h, nvmlDeviceGetMigDeviceHandleByIndex).
_EMPTY_SLOT = (NOT_FOUND, INVALID_ARGUMENT)


def mig_instances(nv: Any, handle: Any, parent: NvmlGpu) -> MigReading:
    """MIG instances are devices of their own size; NVML numbers them below their GPU."""
    found: list[NvmlGpu] = []
    ask = Asker()
    most = ask("instances", lambda: int(nv.nvmlDeviceGetMaxMigDeviceCount(handle)))
    for number in range(most or 0):
        try:
            instance = nv.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except Exception as error:
            if code_of(error) not in _EMPTY_SLOT:
                ask.failed("instances", error)
            continue
        gpu, lost = _mig_instance(nv, instance, parent, number)
        if lost:
            ask.lost, ask.absent["instances"] = True, lost
        found.append(gpu)
    reason = ask.absent.get("instances")
    if ask.lost:
        return MigReading(lost=reason)
    return MigReading(gpus=tuple(found), unread=reason)


# An instance runs on its GPU's clocks, link, limits and heat. Use and power are its own, and NVML
# measures those of the whole GPU only.
_OF_THE_GPU = (
    "name",
    "pci_bus_id",
    "architecture",
    "compute_capability",
    "ecc",
    "power_limit_w",
    "power_limit_default_w",
    "temperature_c",
    "sm_clock_mhz",
    "sm_clock_max_mhz",
    "memory_clock_mhz",
    "memory_clock_max_mhz",
    "throttle_reasons",
    "pcie_generation",
    "pcie_generation_max",
    "pcie_width",
    "pcie_width_max",
    "persistence",
    "compute_mode",
)
_NOT_OF_AN_INSTANCE = ("power_w", "utilisation_percent")
WHOLE_ONLY = "NVML measures it for the whole GPU only"


def _mig_instance(
    nv: Any, instance: Any, parent: NvmlGpu, number: int
) -> tuple[NvmlGpu, str | None]:
    """The instance, and how its GPU was lost if it does not answer any more."""
    ask = Asker()
    total, free, used = _memory(nv, instance, ask)
    name = ask("mig_profile", lambda: text_of(nv.nvmlDeviceGetName(instance))) or ""
    profile = name.rpartition("MIG ")[2] if "MIG " in name else f"instance {number}"
    uuid = ask("uuid", lambda: text_of(nv.nvmlDeviceGetUUID(instance)))
    processes = ask("processes", lambda: _processes(nv, instance))
    lost = ask.absent.get("memory_total_bytes") if ask.lost and total is None else None
    shared = {name: getattr(parent, name) for name in _OF_THE_GPU}
    absent = {name: parent.absent[name] for name in _OF_THE_GPU if name in parent.absent}
    absent |= dict.fromkeys(_NOT_OF_AN_INSTANCE, WHOLE_ONLY)
    gpu = NvmlGpu(
        index=parent.index,
        uuid=uuid,
        memory_total_bytes=total,
        memory_free_bytes=free,
        memory_used_bytes=used,
        mig_enabled=True,
        mig_profile=profile,
        processes=processes,
        absent=absent | ask.absent,
        **shared,
    )
    return gpu, lost
