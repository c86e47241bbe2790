"""NVML kept open to look at one device again and again."""

from dataclasses import dataclass
from typing import Any

from autoamp.probes.facts import Device
from autoamp.probes.nvml import load
from autoamp.probes.nvml_gpu import WHOLE_ONLY, Asker, reason_of, throttle_bits


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What NVML says of a device at one moment; None where it does not."""

    gpu_percent: int | None = None
    memory_used_bytes: int | None = None
    power_w: float | None = None
    energy_j: float | None = None
    """Counter since the driver was loaded (Volta and later)."""
    sm_clock_mhz: int | None = None
    throttle_bits: int | None = None


class Session:
    """Raises RuntimeError with the reason if NVML or the device does not answer."""

    def __init__(self, device: Device) -> None:
        nv, trouble = load()
        if nv is None:
            raise RuntimeError(trouble.problem if trouble else "no pynvml")
        self._nv: Any = nv
        self._reasons: dict[str, str] = {}
        """Why a field had no value at the last look without one."""
        self._silent: set[str] = set()
        """Fields that this device does not know: not asked again."""
        if device.mig is not None:
            self._silent = {"gpu_percent", "power_w", "energy_j"}
            self._reasons = dict.fromkeys(self._silent, WHOLE_ONLY)
        try:
            nv.nvmlInit()
        except Exception as error:
            raise RuntimeError(f"NVML does not start: {reason_of(error)}") from None
        try:
            self._handle = self._open(device)
            self._board = self._board_of(device)
        except Exception as error:
            self.close()
            raise RuntimeError(f"NVML does not find {device.name}: {reason_of(error)}") from None

    def _open(self, device: Device) -> Any:
        if device.uuid is not None:
            # Old drivers' library wants bytes, newer bindings convert by themselves.
            try:
                return self._nv.nvmlDeviceGetHandleByUUID(device.uuid)
            except TypeError:
                return self._nv.nvmlDeviceGetHandleByUUID(device.uuid.encode())
        if device.mig is not None:
            # By index it would be its whole GPU, with everybody's memory.
            raise RuntimeError("NVML gives no UUID of this MIG instance")
        index = device.nvml.index if device.nvml else int(device.paddle_name.partition(":")[2])
        return self._nv.nvmlDeviceGetHandleByIndex(index)

    def _board_of(self, device: Device) -> Any:
        """What runs the clocks: of a MIG instance its GPU."""
        if device.mig is None:
            return self._handle
        try:
            return self._nv.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self._handle)
        except Exception:
            return self._handle  # then the queries themselves give their reasons

    @property
    def silent(self) -> dict[str, str]:
        """Why fields of a Look are None, by field."""
        return dict(self._reasons)

    def look(self) -> Look:
        """One look. Never raises: a GPU that is lost half way gives empty looks."""
        nv, handle, board = self._nv, self._handle, self._board
        ask = Asker()

        def once(field: str, query: Any) -> Any:
            return None if field in self._silent else ask(field, query)

        found = Look(
            gpu_percent=once(
                "gpu_percent", lambda: int(nv.nvmlDeviceGetUtilizationRates(handle).gpu)
            ),
            memory_used_bytes=once(
                "memory_used_bytes", lambda: int(nv.nvmlDeviceGetMemoryInfo(handle).used)
            ),
            power_w=once("power_w", lambda: int(nv.nvmlDeviceGetPowerUsage(handle)) / 1000),
            energy_j=once(
                "energy_j", lambda: int(nv.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000
            ),
            sm_clock_mhz=once("sm_clock_mhz", lambda: int(nv.nvmlDeviceGetClockInfo(board, 1))),
            throttle_bits=once("throttle_bits", lambda: throttle_bits(nv, board)),
        )
        self._reasons.update(ask.absent)
        self._silent |= ask.absent.keys() - ask.passing
        return found

    def close(self) -> None:
        try:
            self._nv.nvmlShutdown()
        except Exception:
            pass
