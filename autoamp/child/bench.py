"""Times products, copies and launches through Paddle on one device; runs in a child."""

import time
from collections.abc import Callable
from typing import Any

from autoamp.child.accelerators import reason
from autoamp.child.paddle_base import base

TIMED_S = 0.2
"""Each measure is repeated for this long (device seconds on a virtual device)."""
MOST_REPEATS = 2000
LAUNCHES = 500


class Bench:
    """One device, its clock, and what could not be measured with the reason."""

    def __init__(self, paddle: Any, question: dict[str, Any]) -> None:
        self.paddle = paddle
        self.question = question
        self.device: str = question["device"]
        self.small: bool = self.device == "cpu"
        self.absent: dict[str, str] = {}
        self._runtime: Any = None
        if self.device == "virtual":
            from autoamp import wire
            from autoamp.virtual import runtime

            asked = dict(question["virtual"])
            asked["compute_capability"] = tuple(asked["compute_capability"])
            runtime.install(wire.VirtualDevice(**asked))
            self._runtime = runtime
        else:
            paddle.set_device(self.device)

    def now(self) -> float:
        """Seconds: modelled on a virtual device, else wall clock with the device idle."""
        if self._runtime is not None:
            # Else a copy, which the host does, would hide behind kernels of the measure before.
            self._runtime.synchronize_clock()
            return float(self._runtime.clock_s())
        if self.device.startswith("gpu"):
            self.paddle.device.cuda.synchronize()
        elif self.device != "cpu":
            self.paddle.device.synchronize()
        return time.perf_counter()

    def seconds(self, work: Callable[[], Any], repeats: int | None = None) -> float:
        """Seconds one call of ``work`` takes, after two calls that do not count."""
        work()
        work()
        before = self.now()
        work()
        once = max(self.now() - before, 1e-9)
        count = repeats or max(3, min(MOST_REPEATS, int(TIMED_S / once)))
        before = self.now()
        for _ in range(count):
            work()
        return (self.now() - before) / count

    def measure(self, name: str, work: Callable[[], float]) -> float | None:
        """``work()``, or None with the reason kept under ``name``."""
        try:
            return work()
        except Exception as error:
            self.absent[name] = reason(error)
            return None

    def sizes(self) -> list[tuple[int, int, int]]:
        """A large, a middle and a small product, and one whose sizes suit no Tensor Core."""
        if self.small:
            return [(1024, 1024, 1024), (256, 256, 256), (1023, 1023, 1023)]
        return [(8192, 8192, 8192), (4096, 4096, 4096), (1024, 1024, 1024), (4095, 4095, 4095)]

    def matmul(self, dtype: str, m: int, n: int, k: int) -> float:
        """Floating-point operations per second of one product."""
        # Not ones: a GPU draws less power for equal numbers, and clocks higher than in training.
        x = self.paddle.randn([m, k], dtype="float32").astype(dtype)
        y = self.paddle.randn([k, n], dtype="float32").astype(dtype)
        with self.paddle.no_grad():
            return 2.0 * m * n * k / self.seconds(lambda: self.paddle.matmul(x, y))

    def matmuls(self) -> list[dict[str, Any]]:
        """Every dtype at every size; TF32 is float32 with Paddle's switch on."""
        core = base(self.paddle).core
        skip: dict[str, str] = self.question.get("skip", {})
        switch = getattr(core, "set_cublas_switch", None)
        found = []
        for dtype in ("float32", "tf32", "float16", "bfloat16"):
            why = skip.get(dtype)
            if why is None and dtype == "tf32" and switch is None:
                why = "this Paddle has no switch for it"
            if why is not None:
                self.absent[dtype] = why
                continue
            if switch is not None:
                switch(dtype == "tf32")
            found += self.products(dtype)
        return found

    def products(self, dtype: str) -> list[dict[str, Any]]:
        """One dtype at every size; one that fails, for want of memory, hides no other."""
        kind = "float32" if dtype == "tf32" else dtype
        found: list[dict[str, Any]] = []
        failed: dict[str, str] = {}
        for m, n, k in self.sizes():
            try:
                rate = self.matmul(kind, m, n, k)
            except Exception as error:
                failed[f"{dtype} product {m} x {n} x {k}"] = reason(error)
            else:
                found.append({"dtype": dtype, "m": m, "n": n, "k": k, "flops_per_s": rate})
        if failed and not found:
            failed = {dtype: next(iter(failed.values()))}
        self.absent.update(failed)
        return found

    def copy(self) -> float:
        """Bytes per second read plus written by a copy on the device."""
        megabytes = 32 if self.small else 256
        x = self.paddle.ones([megabytes * 2**18], dtype="float32")
        y = self.paddle.zeros_like(x)
        # Into memory that is there: on a CPU a new tensor is mostly page faults.
        return 2 * megabytes * 2**20 / self.seconds(lambda: self.paddle.assign(x, y))

    def launch(self) -> float:
        """Seconds a kernel takes whose work is nothing, one after the other."""
        x = self.paddle.ones([16], dtype="float32")
        with self.paddle.no_grad():
            return self.seconds(lambda: self.paddle.add(x, x), LAUNCHES)

    def host_to_device(self) -> float:
        """Bytes per second from a NumPy array to the device."""
        if self.small:
            raise RuntimeError("a CPU is its own host")
        import numpy

        array = numpy.ones(64 * 2**18, dtype="float32")
        seconds = self.seconds(lambda: self.paddle.to_tensor(array))
        if self._runtime is not None and seconds <= 0:
            raise RuntimeError("not modelled")
        return array.nbytes / seconds


def main(question: dict[str, Any]) -> dict[str, Any]:
    """Everything that can be measured on ``question["device"]``."""
    import paddle

    bench = Bench(paddle, question)
    start = time.monotonic()
    return {
        "matmuls": bench.matmuls(),
        "copy_bytes_per_s": bench.measure("copy_bytes_per_s", bench.copy),
        "launch_s": bench.measure("launch_s", bench.launch),
        "host_to_device_bytes_per_s": bench.measure(
            "host_to_device_bytes_per_s", bench.host_to_device
        ),
        "absent": bench.absent,
        "window_s": [start, time.monotonic()],
    }
