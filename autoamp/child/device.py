"""The device of the process: chosen by the plan, read for memory, time and state."""

import atexit
import time
from typing import TYPE_CHECKING, Any

from autoamp.child.paddle_base import base

if TYPE_CHECKING:
    from autoamp.child.session import Session


class DeviceHooks:
    """Sets the plan's device and answers what only the device knows."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self.virtual: Any = None

    def install(self) -> None:
        paddle = self._session.paddle
        plan = self._session.plan
        if plan.device == "virtual" and plan.virtual is not None:
            from autoamp.virtual import runtime

            runtime.install(plan.virtual)
            self.virtual = runtime
            atexit.register(self._tell_host_memory)
        elif plan.device == "cpu":
            # The script may say 'gpu'; asked to tune on the CPU, it trains there.
            self._force("cpu")
        elif not plan.device.startswith("gpu"):
            # A GPU build starts on gpu:0, the only one visible; setting it here would open the
            # device before a script that forks its ranks.
            paddle.set_device(plan.device)

    def _force(self, name: str) -> None:
        from autoamp.child.patching import replace_function

        paddle = self._session.paddle
        original = paddle.set_device

        def set_device(device: str) -> Any:
            return original(name)

        replace_function(original, set_device)
        original(name)

    def _tell_host_memory(self) -> None:
        """Paddle's error names the GPU only; this says that it was the host that had no room."""
        refusals = self.virtual.host_refusals()
        if refusals:
            self._session.events.emit(
                "host_memory", refusals=refusals, last=self.virtual.host_refused_last()
            )

    def seed(self) -> None:
        """Equal data order and weights need paddle and numpy seeded: shuffle uses np.random."""
        seed = self._session.plan.seed
        if seed is not None:
            import numpy

            numpy.random.seed(seed)
            self._session.paddle.seed(seed)

    def current(self) -> str:
        return str(self._session.paddle.device.get_device())

    def on_plan_device(self) -> bool:
        """False if the script moved training elsewhere, e.g. by ``set_device('cpu')``."""
        want = self._session.plan.device.split(":")[0]
        seen = str(base(self._session.paddle).framework._current_expected_place())
        if want == "virtual":
            return "vgpu" in seen
        return want in seen.lower()

    def synchronize(self) -> None:
        paddle = self._session.paddle
        if self._session.plan.device.startswith("gpu"):
            paddle.device.cuda.synchronize()
        elif self._session.plan.device not in ("cpu", "virtual"):
            paddle.device.synchronize()

    def clock_s(self) -> float:
        """Modelled device seconds on a virtual device, else the wall clock."""
        if self.virtual is not None:
            return float(self.virtual.clock_s())
        return time.perf_counter()

    def work(self) -> tuple[float, float] | None:
        """Floating-point operations and bytes of memory traffic counted so far; None where
        nothing counts them."""
        if self.virtual is None:
            return None
        rows = self.virtual.op_report()
        return float(sum(row.flops for row in rows)), float(sum(row.bytes for row in rows))

    def busy_s(self) -> float | None:
        """Of the modelled seconds, those in which the GPU had work; None on a real device."""
        return None if self.virtual is None else float(self.virtual.busy_s())

    def memory_peaks(self) -> dict[str, Any]:
        """Peak bytes since the start of the process, from paddle's own counters."""
        core = base(self._session.paddle).core
        if self.virtual is not None:
            return {
                "allocated_peak_bytes": self.virtual.allocated_peak_bytes(),
                "reserved_peak_bytes": self.virtual.reserved_peak_bytes(),
                "overhead_bytes": self.virtual.overhead_bytes(),
                "workspace_bytes": self.virtual.workspace_bytes(),
            }
        if self._session.plan.device == "cpu":
            try:
                peak = int(core.host_memory_stat_peak_value("Allocated", 0))
            except Exception as error:
                return {"reason": f"host memory statistics: {error}"}
            return {"allocated_peak_bytes": peak, "reserved_peak_bytes": None}
        index = int(self._session.plan.device.split(":")[1]) if ":" in self.current() else 0
        try:
            return {
                "allocated_peak_bytes": int(
                    core.device_memory_stat_peak_value("Allocated", index)
                ),
                "reserved_peak_bytes": int(core.device_memory_stat_peak_value("Reserved", index)),
            }
        except Exception as error:
            return {"reason": f"device memory statistics: {error}"}
