"""Setting: the values of the knobs of one trial."""

import json
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from typing import Any


class Level(str, Enum):
    """AMP level as ``paddle.amp.auto_cast(level=...)`` names it."""

    O0 = "O0"
    O1 = "O1"
    O2 = "O2"
    OD = "OD"

    def __str__(self) -> str:
        return self.value


class Dtype(str, Enum):
    """Compute dtype of AMP; ``float32`` stands for no mixed precision."""

    float32 = "float32"
    float16 = "float16"
    bfloat16 = "bfloat16"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One value a knob; ``None`` (or an empty list) leaves the script's own value alone.

    ``batch_size`` is samples a step and device; ``init_loss_scaling`` is the loss scale that
    GradScaler starts from (float16 only). ``tf32`` True lets float32 matrix products and
    convolutions round their inputs to 10 bits of mantissa (Ampere and later), False forbids it.
    """

    batch_size: int | None = None
    amp_level: Level | None = None
    dtype: Dtype | None = None
    init_loss_scaling: float | None = None
    dynamic_loss_scaling: bool | None = None
    custom_white_list: tuple[str, ...] = ()
    custom_black_list: tuple[str, ...] = ()
    use_promote: bool | None = None
    master_grad: bool | None = None
    accumulate_steps: int | None = None
    tf32: bool | None = None

    @property
    def is_as_written(self) -> bool:
        """True if no knob is touched: the script runs as its author wrote it."""
        return self == AS_WRITTEN

    @property
    def is_mixed(self) -> bool:
        """True if the setting asks for float16 or bfloat16 arithmetic."""
        return self.amp_level not in (None, Level.O0)

    @property
    def is_reduced(self) -> bool:
        """True if arithmetic is less exact than float32's by the setting's own doing: mixed
        precision, or TF32 products."""
        return self.is_mixed or self.tf32 is True

    @property
    def arithmetic(self) -> tuple[Level | None, Dtype | None, bool | None]:
        """What tells precisions apart: level, dtype and the TF32 switches."""
        return self.amp_level, self.dtype, self.tf32

    def canonical(self) -> "Setting":
        """The same setting without knobs that mean nothing: FP32 has no dtype or loss scale."""
        if self.amp_level is Level.O0:
            return replace(
                self,
                dtype=Dtype.float32,
                init_loss_scaling=None,
                dynamic_loss_scaling=None,
                custom_white_list=(),
                custom_black_list=(),
                use_promote=None,
                master_grad=None,
            )
        setting = self
        if self.dtype is Dtype.bfloat16:
            setting = replace(setting, init_loss_scaling=None, dynamic_loss_scaling=None)
        if self.amp_level is not Level.O2:
            setting = replace(setting, master_grad=None)
        return replace(
            setting,
            custom_white_list=tuple(sorted(set(setting.custom_white_list))),
            custom_black_list=tuple(sorted(set(setting.custom_black_list))),
        )

    def to_json(self) -> dict[str, Any]:
        """Only the knobs that are set, as plain JSON values."""
        raw = asdict(self)
        out: dict[str, Any] = {}
        for name, value in raw.items():
            if value is None or value == ():
                continue
            if isinstance(value, Enum):
                value = value.value
            out[name] = list(value) if isinstance(value, tuple) else value
        return out

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Setting":
        """Inverse of ``to_json``; raises ValueError naming an unknown knob or bad value."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(data) - known)
        if unknown:
            raise ValueError(f"unknown knob {unknown[0]!r}; known: {', '.join(sorted(known))}")
        values = dict(data)
        if values.get("amp_level") is not None:
            values["amp_level"] = Level(values["amp_level"])
        if values.get("dtype") is not None:
            values["dtype"] = Dtype(values["dtype"])
        for name in ("custom_white_list", "custom_black_list"):
            values[name] = tuple(values.get(name) or ())
        return cls(**values)

    def key(self) -> str:
        """One string for each distinct setting; equal settings have equal keys."""
        return json.dumps(self.canonical().to_json(), sort_keys=True, separators=(",", ":"))

    def precision(self) -> str:
        """``FP32``, ``TF32``, ``O1 float16``, ``O2 bfloat16`` or ``as written``."""
        if self.amp_level is None:
            return "as written"
        if self.amp_level is Level.O0:
            return "TF32" if self.tf32 else "FP32"
        return f"{self.amp_level} {self.dtype or Dtype.float16}"

    def describe(self) -> str:
        """The setting in one line, in the field's own words."""
        parts = [self.precision()]
        if self.amp_level is Level.O0 and self.tf32 is not None:
            parts = [f"FP32 {'with' if self.tf32 else 'without'} TF32 products"]
        elif self.tf32 is not None:
            parts.append(f"tf32 {self.tf32}")
        if self.batch_size is not None:
            parts.append(f"batch {self.batch_size}")
        if self.init_loss_scaling is not None:
            parts.append(f"init_loss_scaling {self.init_loss_scaling:g}")
        if self.dynamic_loss_scaling is False:
            parts.append("static loss scale")
        if self.custom_black_list:
            parts.append(f"custom_black_list {','.join(self.custom_black_list)}")
        if self.custom_white_list:
            parts.append(f"custom_white_list {','.join(self.custom_white_list)}")
        for name in ("use_promote", "master_grad", "accumulate_steps"):
            value = getattr(self, name)
            if value is not None:
                parts.append(f"{name} {value}")
        return ", ".join(parts)


AS_WRITTEN = Setting()
