"""The script's own AMP calls, with the setting's arguments instead of the script's."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autoamp.child.paddle_base import base
from autoamp.child.patching import bind, replace_function, wrap_method
from autoamp.settings import Dtype, Level

if TYPE_CHECKING:
    from autoamp.child.session import Session


class AmpHooks:
    """auto_cast, decorate, GradScaler and Model.prepare.

    ``auto_cast``, ``autocast`` and ``amp_guard`` all end in ``amp_guard`` of one module, and
    ``decorate`` in ``amp_decorate``, so one function each is replaced.
    """

    def __init__(self, session: "Session") -> None:
        self._session = session
        self.calls_auto_cast = False
        self.calls_scaler = False
        self.calls_decorate = False
        self.uses_hapi = False
        self.enables_amp = False
        """The script switches something of AMP on: calls with ``enable=False`` and those that
        ``paddle.Model`` makes for an FP32 training are calls, but no AMP."""
        self.own_level: str | None = None
        self.own_dtype: str | None = None
        self.scalers: list[Any] = []
        self.ours = 0
        """Above zero while autoamp itself calls into AMP: not the script's call."""
        self.amp_guard: Callable[..., Any] | None = None
        self.amp_decorate: Callable[..., Any] | None = None

    def install(self) -> None:
        paddle = self._session.paddle
        module = sys.modules["paddle.amp.auto_cast"]
        self.amp_guard = module.amp_guard
        self.amp_decorate = module.amp_decorate
        replace_function(self.amp_guard, self._guard)
        replace_function(self.amp_decorate, self._decorate)
        scaler = paddle.amp.AmpScaler
        wrap_method(scaler, "__init__", self._around_scaler_init)
        wrap_method(paddle.Model, "prepare", self._around_prepare)

    def active(self) -> bool:
        """True inside an enabled ``auto_cast``."""
        tracer = base(self._session.paddle).framework._dygraph_tracer()
        return tracer is not None and int(tracer._amp_level) > 0

    def _guard(self, *args: Any, **kwargs: Any) -> Any:
        original = self.amp_guard
        assert original is not None
        bound = bind(original, args, kwargs)
        if bound is None:
            return original(*args, **kwargs)
        own = dict(bound.arguments)
        values = bound.arguments
        if not self.ours:
            self.calls_auto_cast = True
            if own.get("enable") and own.get("level") != "O0":
                self.enables_amp = True
                self.own_level = str(own.get("level"))
                self.own_dtype = str(own.get("dtype")).replace("paddle.", "")
            # A nested enable=False protects FP32 maths of the model and stays; an outer one is
            # a suite's own switch, unless the script enables AMP elsewhere.
            switch = not self.active() and not self._session.plan.keep_disabled
            if own.get("enable") or switch:
                self.arguments(values)
                for knob in ("amp_level", "dtype", "custom_white_list", "custom_black_list"):
                    if self._session.patches(knob):
                        self._session.applied(
                            knob, getattr(self._session.setting, knob), own.get(_GUARD[knob])
                        )
        return original(*bound.args, **bound.kwargs)

    def arguments(self, values: dict[str, Any]) -> None:
        """Write the setting's values into ``amp_guard`` arguments by name."""
        session, setting = self._session, self._session.setting
        if session.patches("amp_level"):
            if setting.amp_level is Level.O0:
                values["enable"] = False
                return
            values["enable"] = True
            values["level"] = str(setting.amp_level)
        if session.patches("dtype"):
            values["dtype"] = str(setting.dtype)
        for knob, other in (
            ("custom_white_list", "custom_black_list"),
            ("custom_black_list", "custom_white_list"),
        ):
            if session.patches(knob):
                chosen = set(getattr(setting, knob))
                values[knob] = chosen
                # Paddle raises when the two lists overlap; the setting's word holds.
                if values.get(other):
                    values[other] = set(values[other]) - chosen
        if session.patches("use_promote") and "use_promote" in values:
            values["use_promote"] = setting.use_promote

    def _decorate(self, *args: Any, **kwargs: Any) -> Any:
        original = self.amp_decorate
        assert original is not None
        session, setting = self._session, self._session.setting
        bound = bind(original, args, kwargs)
        if bound is None:
            return original(*args, **kwargs)
        values = bound.arguments
        if not self.ours:
            self.calls_decorate = True
            # O1 and OD leave model and optimizer alone.
            self.enables_amp |= values.get("level") == "O2"
            if session.patches("amp_level"):
                session.applied("amp_level", setting.amp_level, values.get("level"))
                if setting.amp_level is not Level.O2:
                    # decorate accepts no O0, and O1 and OD leave model and optimizer alone.
                    models, optimizers = values["models"], values.get("optimizers")
                    return models if optimizers is None else (models, optimizers)
                values["level"] = "O2"
            if session.patches("dtype"):
                values["dtype"] = str(setting.dtype)
            if session.patches("master_grad") and "master_grad" in values:
                session.applied("master_grad", setting.master_grad, values["master_grad"])
                values["master_grad"] = setting.master_grad
        return original(*bound.args, **bound.kwargs)

    def _around_scaler_init(self, original: Callable[..., None]) -> Callable[..., None]:
        def __init__(scaler: Any, *args: Any, **kwargs: Any) -> None:
            session, setting = self._session, self._session.setting
            bound = bind(original, (scaler, *args), kwargs)
            if bound is None:
                original(scaler, *args, **kwargs)
                return
            values = bound.arguments
            if not self.ours:
                self.calls_scaler = True
                self.enables_amp |= bool(values.get("enable"))
                if session.patches("amp_level") and setting.amp_level is not None:
                    values["enable"] = self.wants_scaler()
                for knob, name in (
                    ("init_loss_scaling", "init_loss_scaling"),
                    ("dynamic_loss_scaling", "use_dynamic_loss_scaling"),
                ):
                    if session.patches(knob) and name in values:
                        session.applied(knob, getattr(setting, knob), values[name])
                        values[name] = getattr(setting, knob)
            original(*bound.args, **bound.kwargs)
            self.scalers.append(scaler)
            session.meter.scaler_made(scaler)

        return __init__

    def wants_scaler(self) -> bool:
        """FP16 needs a loss scale; bfloat16 has float32's range and FP32 has nothing to scale."""
        setting = self._session.setting
        return setting.is_mixed and setting.dtype is not Dtype.bfloat16

    def _around_prepare(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def prepare(model: Any, *args: Any, **kwargs: Any) -> Any:
            session, setting = self._session, self._session.setting
            self.uses_hapi = True
            bound = bind(original, (model, *args), kwargs)
            if bound is None or not session.patches("amp_level"):
                return original(model, *args, **kwargs)
            values = bound.arguments
            session.applied("amp_level", setting.amp_level, values.get("amp_configs"))
            if setting.amp_level is Level.O0:
                values["amp_configs"] = None
            else:
                own = values.get("amp_configs")
                configs: dict[str, Any] = dict(own) if isinstance(own, dict) else {}
                configs.pop("use_pure_fp16", None)
                configs["level"] = str(setting.amp_level)
                for knob in ("custom_white_list", "custom_black_list"):
                    if session.patches(knob):
                        configs[knob] = set(getattr(setting, knob))
                if session.patches("init_loss_scaling"):
                    configs["init_loss_scaling"] = setting.init_loss_scaling
                if session.patches("dynamic_loss_scaling"):
                    configs["use_dynamic_loss_scaling"] = setting.dynamic_loss_scaling
                values["amp_configs"] = configs
            return original(*bound.args, **bound.kwargs)

        return prepare


_GUARD = {
    "amp_level": "level",
    "dtype": "dtype",
    "custom_white_list": "custom_white_list",
    "custom_black_list": "custom_black_list",
}
