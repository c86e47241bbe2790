"""Steps, time, losses and loss scale of one process; ends a trial after the wanted steps.

A step is one outermost ``step``/``minimize`` of the first optimizer that steps. The timed window
starts after the warm-up steps and is cut into blocks; the device is synchronised only at block
borders, and losses are read there, so that the script runs as it would alone.
"""

import atexit
import math
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autoamp import wire
from autoamp.child import loader_pace
from autoamp.child.ending import end_now
from autoamp.child.paddle_base import base
from autoamp.child.patching import (
    optimizer_classes,
    parameters_of,
    replace_function,
    wrap_method,
)

if TYPE_CHECKING:
    from autoamp.child.session import Session

RUN_LOSS_EVERY = 50
"""``autoamp run`` reads a loss this often: one small copy in fifty steps."""
RUN_REPORT_EVERY_S = 30.0
LEAST_TIMED_STEPS = 4
"""A soft limit never cuts a trial below these."""


class Meter:
    """Counts, times and, in a trial, ends."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._started = time.monotonic()
        self._inside_step = False
        self._inside_backward = False
        self._primary: int | None = None
        self._first_step = 0.0
        self._optimizers: list[Any] = []
        self._optimizer_name: str | None = None
        self._master_weights: bool | None = None
        self.steps = 0
        self.skipped = 0
        self._scales: list[tuple[int, float]] = []
        self._losses: list[tuple[int, Any]] = []
        self._scaled_loss = False
        self._found_inf: list[Any] = []
        self._read: list[tuple[int, float]] = []
        self._window_start: float | None = None
        self._wall_start = 0.0
        self._work_start: tuple[float, float] | None = None
        self._block_start = 0.0
        self._block_samples = 0
        self._block_end = 0
        self._block_steps = 0
        self._wanted: int | None = None
        self._wait_at_start = 0.0
        self._busy_start: float | None = None
        self._blocks: list[tuple[float, int, int]] = []
        self._input_samples = 0
        self._ended = False
        self._last_report = time.monotonic()
        self._warned = False
        self._scheduler_steps = 0
        self._uses_to_static = False

    # Installation ------------------------------------------------------------------------

    def install(self) -> None:
        paddle = self._session.paddle
        for cls in optimizer_classes(paddle):
            for name in ("step", "minimize"):
                if name in cls.__dict__:
                    wrap_method(cls, name, self._around_step)
        self._wrap_later_optimizers(paddle.optimizer.Optimizer)
        wrap_method(paddle.amp.AmpScaler, "scale", self._around_scale)
        wrap_method(paddle.amp.AmpScaler, "_update", self._around_update)
        wrap_method(paddle.amp.AmpScaler, "minimize", self._around_scaler_step)
        wrap_method(paddle.amp.GradScaler, "step", self._around_scaler_step)
        for cls in {paddle.Tensor, base(paddle).core.eager.Tensor}:
            cls.backward = self._around_backward(cls.backward)
        if self._session.is_trial and not self._session.plan.loaders:
            wrap_method(paddle.nn.Layer, "__call__", self._around_first_call)
        if hasattr(paddle.optimizer.lr.LRScheduler, "step"):
            wrap_method(paddle.optimizer.lr.LRScheduler, "step", self._around_scheduler)
        to_static = paddle.jit.to_static

        def noted(*args: Any, **kwargs: Any) -> Any:
            self._uses_to_static = True
            return to_static(*args, **kwargs)

        replace_function(to_static, noted)
        atexit.register(self._script_ended)

    def _wrap_later_optimizers(self, base: type) -> None:
        """Optimizers that the script defines itself, with a ``step`` of their own."""
        meter = self
        vars_of: Any = base

        def __init_subclass__(cls: Any, /, **kwargs: Any) -> None:
            super(vars_of, cls).__init_subclass__(**kwargs)
            for name in ("step", "minimize"):
                if name in cls.__dict__:
                    wrap_method(cls, name, meter._around_step)

        vars_of.__init_subclass__ = classmethod(__init_subclass__)

    def _around_first_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Samples a step for scripts without a DataLoader: the model's first input."""
        from autoamp.child.loaders import leading_dimension

        depth = 0

        def __call__(layer: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            if depth == 0 and not self._inside_step and self._input_samples == 0:
                found = leading_dimension((args, kwargs), self._session.paddle)
                self._input_samples = found or 0
            depth += 1
            try:
                return original(layer, *args, **kwargs)
            finally:
                depth -= 1

        return __call__

    def _around_scheduler(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            self._scheduler_steps += 1
            return original(scheduler, *args, **kwargs)

        return step

    # Loss and loss scale -----------------------------------------------------------------

    def _around_scale(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def scale(scaler: Any, var: Any) -> Any:
            if not self._inside_backward:
                self._note_loss(var)
                self._scaled_loss = True
            return original(scaler, var)

        return scale

    def _around_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if self._inside_backward:
                return original(tensor, *args, **kwargs)
            if self._scaled_loss:
                self._scaled_loss = False
            else:
                self._note_loss(tensor)
            self._inside_backward = True
            try:
                return original(tensor, *args, **kwargs)
            finally:
                self._inside_backward = False

        return backward

    def _note_loss(self, tensor: Any) -> None:
        try:
            if tensor.size != 1 or not self._session.paddle.in_dynamic_mode():
                return
            if self._session.is_trial or self.steps % RUN_LOSS_EVERY == 0:
                self._losses.append((self.steps, tensor.detach()))
        except Exception as error:
            self._session.events.fault("loss", error)

    def _read_losses(self) -> None:
        found, self._found_inf = self._found_inf, []
        self.skipped += sum(1 for flag in found if flag is not None and bool(flag))
        noted, self._losses = self._losses, []
        for step, tensor in noted:
            try:
                self._read.append((step, float(tensor.astype("float32").item())))
            except Exception as error:
                self._session.events.fault("loss", error)
                return

    def scaler_made(self, scaler: Any) -> None:
        if scaler.is_enable() and scaler._scale is not None:
            self._note_scale(float(scaler._init_loss_scaling))

    def _note_scale(self, value: float) -> None:
        if not self._scales or self._scales[-1][1] != value:
            self._scales.append((self.steps, value))

    def _around_update(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def _update(scaler: Any) -> Any:
            before = scaler._incr_count if scaler.is_enable() else 0
            scale_before = scaler._scale
            result = original(scaler)
            if scaler.is_enable() and scaler._incr_count == 0:
                # Host-side counters tell a skip from growth without asking the device.
                if before + 1 != scaler._incr_every_n_steps or scaler._decr_count:
                    self.skipped += 1
                if scaler._scale is not scale_before:
                    self._note_scale(float(scaler._scale.item()))
            return result

        return _update

    def _around_scaler_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A static loss scale is never updated, so what it skips is noted at the step."""

        def step(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(scaler, *args, **kwargs)
            if scaler.is_enable() and not scaler.is_use_dynamic_loss_scaling():
                # Paddle 2.6 spells it _cache_founf_inf.
                found = getattr(
                    scaler, "_cache_found_inf", getattr(scaler, "_cache_founf_inf", None)
                )
                self._found_inf.append(found)
            return result

        return step

    # Steps -------------------------------------------------------------------------------

    def _around_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if self._inside_step or not self._session.paddle.in_dynamic_mode():
                return original(optimizer, *args, **kwargs)
            self._inside_step = True
            try:
                self._before(optimizer)
                result = self._session.outside.step(optimizer, original, args, kwargs)
            finally:
                self._inside_step = False
            self._after(optimizer)
            return result

        return step

    def _before(self, optimizer: Any) -> None:
        session, plan = self._session, self._session.plan
        if all(o is not optimizer for o in self._optimizers):
            self._optimizers.append(optimizer)
        if self._primary is None:
            self._primary = id(optimizer)
            self._optimizer_name = type(optimizer).__name__
            self._master_weights = hasattr(optimizer, "_multi_precision")
            self._first_step = time.monotonic()
            session.events.emit("first_step", startup_s=time.monotonic() - self._started)
        if id(optimizer) != self._primary or not session.is_trial:
            return
        try:
            if plan.scan and 0 < self.steps <= plan.warmup_steps:
                session.numerics.add_gradients(optimizer)
            if self.steps == plan.warmup_steps - 1 and self._computes():
                session.events.emit(
                    "zero_gradients", share=session.numerics.zero_gradient_share(optimizer)
                )
        except Exception as error:
            session.events.fault("gradients", error)

    def _computes(self) -> bool:
        virtual = self._session.plan.virtual
        return virtual is None or virtual.numerics

    def wants_full_queue(self) -> bool:
        """True where counted memory needs the loader's queue filled before the step.

        In planning mode each step does, and costs no more than the batches: then the pool sees
        allocations in the same order every time. With full numerics once is enough for the peak
        of live tensors, and the loader works beside the other steps.
        """
        session, plan = self._session, self._session.plan
        if session.device.virtual is None or not session.is_trial or self._ended:
            return False
        return not self._computes() or self.steps == plan.warmup_steps - 1

    def _after(self, optimizer: Any) -> None:
        if id(optimizer) != self._primary or self._ended:
            return
        samples = self._session.loaders.stepped()
        if samples is None:
            samples = self._input_samples
        self._input_samples = 0
        self.steps += 1
        try:
            if self._session.is_trial:
                self._trial_step(samples)
            elif time.monotonic() - self._last_report > RUN_REPORT_EVERY_S:
                self._run_report()
        except Exception as error:
            self._session.events.fault("meter", error)

    def _trial_step(self, samples: int) -> None:
        session, plan = self._session, self._session.plan
        n = self.steps
        if n == plan.warmup_steps - 1:
            if plan.scan:
                session.numerics.start_ranges()
            session.numerics.start_op_counts()
        if n == plan.warmup_steps:
            session.events.emit("op_counts", ops=session.numerics.op_counts())
            if plan.scan:
                session.events.emit("scan", **session.numerics.scan_result())
            self._effects()
            self._start_window()
            return
        if self._window_start is None:
            return
        self._block_samples += samples
        done = n - plan.warmup_steps
        late = (
            plan.soft_limit_s is not None
            and done >= LEAST_TIMED_STEPS
            and time.monotonic() - self._first_step > plan.soft_limit_s
        )
        if late:
            self._block_steps -= self._block_end - n
        if late or n == self._block_end:
            self._end_block()
            if self._hopeless():
                self._end_trial("too_slow")
            if late or (self._wanted is not None and done >= self._wanted):
                self._end_trial("steps_reached")

    def _start_window(self) -> None:
        session, plan = self._session, self._session.plan
        session.device.synchronize()
        self._read_losses()
        self._wall_start = time.perf_counter()
        self._window_start = self._block_start = session.device.clock_s()
        self._wait_at_start = session.loaders.wait_s
        self._busy_start = session.device.busy_s()
        session.loaders.start_counting()
        self._work_start = session.device.work()
        self._block_steps = max(1, math.ceil(plan.min_steps / plan.blocks))
        self._block_end = self.steps + self._block_steps
        session.events.emit("window_start", step=self.steps)

    def _end_block(self) -> None:
        session, plan = self._session, self._session.plan
        session.device.synchronize()
        now = session.device.clock_s()
        self._blocks.append((now - self._block_start, self._block_samples, self._block_steps))
        self._read_losses()
        self._block_samples = 0
        if self._wanted is None:
            # The first block gives the pace: enough further steps for the wanted seconds.
            pace = max(self._blocks[0][0] / self._block_steps, 1e-6)
            by_time = math.ceil(plan.min_timed_s / pace) if session.device.virtual is None else 0
            wanted = min(max(by_time, plan.min_steps), max(plan.max_steps, plan.min_steps))
            left = wanted - self._block_steps
            self._block_steps = max(self._block_steps, math.ceil(left / max(1, plan.blocks - 1)))
            self._wanted = wanted
        session.events.emit("block", step=self.steps, seconds=self._blocks[-1][0])
        left = self._wanted - (self.steps - plan.warmup_steps)
        if left > 0:
            self._block_steps = min(self._block_steps, left)
        self._block_end = self.steps + self._block_steps
        self._block_start = session.device.clock_s()

    def _hopeless(self) -> bool:
        least = self._session.plan.give_up_samples_per_s
        if least is None or len(self._blocks) != 1:
            return False
        seconds, samples, _ = self._blocks[0]
        return samples < least * seconds

    def _effects(self) -> None:
        """What can be seen of the knobs from inside: scalers and parameter dtypes."""
        session = self._session
        scalers = session.amp.scalers
        session.events.emit(
            "state",
            scaler_enabled=any(s.is_enable() for s in scalers),
            scalers=len(scalers),
            parameter_dtypes=self._parameter_dtypes(),
            on_device=session.device.on_plan_device(),
        )

    def _parameter_dtypes(self) -> dict[str, int]:
        dtypes: dict[str, int] = {}
        for optimizer in self._optimizers:
            for parameter in parameters_of(optimizer):
                name = str(parameter.dtype).replace("paddle.", "")
                dtypes[name] = dtypes.get(name, 0) + 1
        return dtypes

    # Ends --------------------------------------------------------------------------------

    def _script_facts(self) -> dict[str, Any]:
        amp = self._session.amp
        return {
            "calls_auto_cast": amp.calls_auto_cast,
            "calls_scaler": amp.calls_scaler,
            "calls_decorate": amp.calls_decorate,
            "uses_hapi": amp.uses_hapi,
            "enables_amp": amp.enables_amp,
            "uses_to_static": self._uses_to_static,
            "own_level": amp.own_level,
            "own_dtype": amp.own_dtype,
            "optimizer": self._optimizer_name,
            "optimizer_has_master_weights": self._master_weights,
            "scheduler_steps": self._scheduler_steps,
            "loaders": self._session.loaders.facts(),
        }

    def _report(self, reason: str) -> dict[str, Any]:
        loaders = self._session.loaders
        wall = time.perf_counter() - self._wall_start if self._window_start is not None else 0.0
        return {
            "reason": reason,
            "steps": self.steps,
            "blocks": self._blocks,
            "window_wall_s": wall,
            "data_wait_s": loaders.wait_s - self._wait_at_start,
            "busy_s": self._busy_s(),
            **self._step_work(),
            "tf32": self._session.tf32.seen(),
            "losses": self._read,
            "skipped_steps": self.skipped,
            "scales": self._scales,
            "memory": self._session.device.memory_peaks(),
            "facts": self._script_facts(),
            "dataset_restarts": loaders.restarts,
            "modules": user_modules(),
        }

    def _busy_s(self) -> float | None:
        """Modelled seconds of the timed window in which the virtual GPU had work."""
        now = self._session.device.busy_s()
        if now is None or self._busy_start is None:
            return None
        return now - self._busy_start

    def _step_work(self) -> dict[str, float | None]:
        steps = sum(block[2] for block in self._blocks)
        now = self._session.device.work()
        if now is None or self._work_start is None or not steps:
            return {"step_flops": None, "step_bytes": None}
        flops, moved = (b - a for a, b in zip(self._work_start, now, strict=True))
        return {"step_flops": flops / steps, "step_bytes": moved / steps}

    def _end_trial(self, reason: str) -> None:
        self._ended = True
        self._read_losses()
        self._session.events.emit("end", **self._report(reason))
        if self._session.device.virtual is not None:
            loader_pace.measure(self._session)
        end_now(self._session.paddle)

    def _script_ended(self) -> None:
        """The script ran to its own end (or failed) before the wanted steps."""
        if self._ended:
            return
        self._ended = True
        if self._primary is None:
            if self._session.is_trial:
                self._session.events.emit("unstepped", facts=self._script_facts())
            return
        try:
            self._read_losses()
            if self._window_start is not None and self._block_samples:
                self._session.device.synchronize()
                seconds = self._session.device.clock_s() - self._block_start
                steps = self.steps - (self._block_end - self._block_steps)
                self._blocks.append((seconds, self._block_samples, steps))
            self._session.events.emit("end", **self._report("script_end"))
        except Exception as error:
            self._session.events.fault("end", error)

    def _run_report(self) -> None:
        """``autoamp run``: a cheap look every half minute, and a word when the scale collapses."""
        self._last_report = time.monotonic()
        self._read_losses()
        self._read = self._read[-1:]
        scale = self._scales[-1][1] if self._scales else None
        self._session.events.emit(
            "progress",
            steps=self.steps,
            skipped_steps=self.skipped,
            scales=self._scales[-1:],
            losses=self._read,
            memory=self._session.device.memory_peaks(),
        )
        if scale is not None and scale < wire.COLLAPSED_SCALE and not self._warned:
            self._warned = True
            print(
                f"autoamp run: warning: the loss scale fell to {scale:g} at step {self.steps}: "
                "training does not learn any more",
                file=sys.stderr,
                flush=True,
            )


def user_modules() -> list[str]:
    """Files of the modules loaded from the script's own project: part of a study's identity."""
    import os

    main = sys.modules.get("__main__")
    entry = getattr(main, "__file__", None)
    if not entry:
        return []
    # The working directory, too: suites run tools/train.py and import their library beside it.
    folders = {os.path.dirname(os.path.abspath(entry)) + os.sep, os.getcwd() + os.sep} - {"//"}
    found = set()
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if (
            isinstance(name, str)
            and name.startswith(tuple(folders))
            and name.endswith(".py")
            and not {"site-packages", "dist-packages"} & set(name.split(os.sep))
            and not name.startswith(sys.base_prefix + os.sep)
        ):
            found.add(name)
    return sorted(found)
