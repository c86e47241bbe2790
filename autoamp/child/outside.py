"""AMP for a script that does not call it: added around the model, the loss and the optimizer.

The outermost ``Layer.__call__`` runs under ``auto_cast`` with its outputs cast back to float32,
``Tensor.backward`` scales the loss, the optimizer's step unscales, skips and updates, and
``decorate`` is called once a model meets its optimizer.
"""

import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from autoamp.child.paddle_base import base
from autoamp.child.patching import optimizer_classes, parameters_of, replace_function, wrap_method
from autoamp.settings import Level

if TYPE_CHECKING:
    from autoamp.child.session import Session


class OutsideAmp:
    """What the plan asks to add; each part only where the script has none of its own."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        plan, setting = session.plan, session.setting
        mixed = setting.is_mixed
        self._casts = mixed and plan.outside_auto_cast
        self._scales = mixed and plan.outside_scaler
        self._decorates = plan.outside_decorate and setting.amp_level is Level.O2
        self._depth = 0
        self._scaler: Any = None
        self._decorated: set[int] = set()
        self._has_parameters: dict[int, bool] = {}
        self._optimizers: list[Any] = []
        self._layers: weakref.WeakSet[Any] = weakref.WeakSet()

    def install(self) -> None:
        paddle = self._session.paddle
        if self._casts or self._decorates:
            wrap_method(paddle.nn.Layer, "__call__", self._around_call)
            for cls in static_functions():
                if "__call__" in cls.__dict__:
                    wrap_method(cls, "__call__", self._around_static_call)
        if self._decorates:
            wrap_method(paddle.nn.Layer, "__init__", self._around_layer_init)
        if self._casts or self._decorates or self._scales:
            # Some subclasses (AdamW) do not call the base class's __init__.
            for cls in optimizer_classes(paddle):
                if "__init__" in cls.__dict__:
                    wrap_method(cls, "__init__", self._around_optimizer_init)
        if self._scales and self._session.amp.wants_scaler():
            for cls in {paddle.Tensor, base(paddle).core.eager.Tensor}:
                original = cls.backward
                cls.backward = self._around_backward(original)
            for name in ("clip_grad_norm_", "clip_grad_value_"):
                original = getattr(paddle.nn.utils, name, None)
                if original is not None:
                    replace_function(original, self._around_clip(original))

    @contextmanager
    def _our_call(self) -> Iterator[None]:
        self._session.amp.ours += 1
        try:
            yield
        finally:
            self._session.amp.ours -= 1

    def _guard_arguments(self) -> dict[str, Any]:
        values: dict[str, Any] = {"enable": True, "use_promote": True}
        self._session.amp.arguments(values)
        if values.get("use_promote") is True:
            # Paddle 2.4 has no such argument, and True is the default where there is one.
            del values["use_promote"]
        return values

    def _around_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __call__(layer: Any, *args: Any, **kwargs: Any) -> Any:
            if self._depth or not self._in_dynamic_mode() or not self._owns_parameters(layer):
                return original(layer, *args, **kwargs)
            if self._decorates and id(layer) not in self._decorated:
                self._decorate(layer)
            return self._cast_call(original, layer, args, kwargs)

        return __call__

    def _around_static_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A function under ``to_static`` calls its models inside the trace, where it is too late
        to decorate them: every model that has met its optimizer is decorated before."""

        def __call__(function: Any, *args: Any, **kwargs: Any) -> Any:
            if self._depth or not self._in_dynamic_mode():
                return original(function, *args, **kwargs)
            if self._decorates:
                for layer in self._roots():
                    if id(layer) not in self._decorated:
                        self._decorate(layer)
            return self._cast_call(original, function, args, kwargs)

        return __call__

    def _cast_call(
        self, original: Callable[..., Any], owner: Any, args: tuple[Any, ...], kwargs: Any
    ) -> Any:
        if not self._casts:
            return original(owner, *args, **kwargs)
        self._depth += 1
        try:
            with self._our_call():
                guard = self._session.paddle.amp.auto_cast(**self._guard_arguments())
            self._session.applied("amp_level", self._session.setting.amp_level, None)
            with guard:
                out = original(owner, *args, **kwargs)
        finally:
            self._depth -= 1
        return self._to_float32(out)

    def _in_dynamic_mode(self) -> bool:
        return bool(self._session.paddle.in_dynamic_mode())

    def _around_layer_init(self, original: Callable[..., None]) -> Callable[..., None]:
        def __init__(layer: Any, *args: Any, **kwargs: Any) -> None:
            original(layer, *args, **kwargs)
            self._layers.add(layer)

        return __init__

    def _roots(self) -> list[Any]:
        """Layers that are part of no other layer."""
        layers = list(self._layers)
        inner = {id(part) for layer in layers for part in layer.sublayers()}
        return [layer for layer in layers if id(layer) not in inner and layer.parameters()]

    def _owns_parameters(self, layer: Any) -> bool:
        """A loss layer without parameters stays in FP32: what it reads was cast back already."""
        known = self._has_parameters.get(id(layer))
        if known is None:
            known = bool(layer.parameters())
            self._has_parameters[id(layer)] = known
        return known

    def _around_optimizer_init(self, original: Callable[..., None]) -> Callable[..., None]:
        def __init__(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            if all(o is not optimizer for o in self._optimizers):
                self._optimizers.append(optimizer)

        return __init__

    def _decorate(self, layer: Any) -> None:
        """Decorate a model with the optimizers that hold its parameters, once both exist."""
        mine = {id(p) for p in layer.parameters()}
        optimizers = [o for o in self._optimizers if mine & {id(p) for p in parameters_of(o)}]
        if not optimizers:
            return
        self._decorated.add(id(layer))
        setting = self._session.setting
        # A script that does not know of AMP must be able to load what it saves.
        values: dict[str, Any] = {
            "level": "O2",
            "dtype": str(setting.dtype or "float16"),
            "save_dtype": "float32",
        }
        if setting.master_grad is not None:
            values["master_grad"] = setting.master_grad
        with self._our_call():
            self._session.paddle.amp.decorate(layer, optimizers, **values)

    def _to_float32(self, value: Any) -> Any:
        paddle = self._session.paddle
        if isinstance(value, paddle.Tensor):
            return value.astype("float32") if value.dtype in _low(paddle) else value
        if isinstance(value, dict):
            return type(value)((k, self._to_float32(v)) for k, v in value.items())
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self._to_float32(v) for v in value))
        if isinstance(value, (list, tuple)):
            return type(value)(self._to_float32(v) for v in value)
        return value

    def scaler(self) -> Any:
        """The one GradScaler of this process, made when the first loss comes back."""
        if self._scaler is None:
            setting = self._session.setting
            values: dict[str, Any] = {}
            if setting.init_loss_scaling is not None:
                values["init_loss_scaling"] = setting.init_loss_scaling
            if setting.dynamic_loss_scaling is not None:
                values["use_dynamic_loss_scaling"] = setting.dynamic_loss_scaling
            with self._our_call():
                self._scaler = self._session.paddle.amp.GradScaler(**values)
            self._session.applied("init_loss_scaling", setting.init_loss_scaling, None)
        return self._scaler

    def _around_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            return original(self.scaler().scale(tensor), *args, **kwargs)

        return backward

    def _around_clip(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            if self._scaler is not None:
                if not isinstance(parameters, (list, tuple)):
                    parameters = (
                        [parameters]
                        if isinstance(parameters, self._session.paddle.Tensor)
                        else list(parameters)
                    )
                wanted = {id(p) for p in parameters}
                for optimizer in self._optimizers:
                    if wanted & {id(p) for p in parameters_of(optimizer)}:
                        try:
                            self._scaler.unscale_(optimizer)
                        except RuntimeError:
                            # Already unscaled since the last update: a second clip of this step.
                            pass
            return original(parameters, *args, **kwargs)

        return clip

    def step(
        self, optimizer: Any, original: Callable[..., Any], args: tuple[Any, ...], kwargs: Any
    ) -> Any:
        """The optimizer's own step, through the scaler if there is one of ours."""
        if self._scaler is None:
            return original(optimizer, *args, **kwargs)
        scaler = self._scaler
        if original.__name__ == "minimize":
            return scaler.minimize(optimizer, *args, **kwargs)
        scaler.step(optimizer)
        scaler.update()
        return None


def _low(paddle: Any) -> tuple[Any, Any]:
    return (paddle.float16, paddle.bfloat16)


def static_functions() -> list[type]:
    """The classes whose instances ``to_static`` puts in place of functions."""
    module = sys.modules.get("paddle.jit.dy2static.program_translator")
    base = getattr(module, "StaticFunction", None)
    if base is None:
        return []
    found: list[type] = []
    todo: list[type] = [base]
    while todo:
        cls = todo.pop()
        found.append(cls)
        todo.extend(cls.__subclasses__())
    return found
