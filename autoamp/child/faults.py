"""Known faults of paddle that would end any training, and their work-arounds."""

from typing import Any

from autoamp.child.paddle_base import base

SCALER_FLOAT = (
    "Paddle {paddle} with numpy {numpy}: GradScaler.update() raises TypeError at the first "
    "overflow (float() of a tensor of shape [1]); autoamp works around it in its own runs, "
    "plain `python train.py` needs numpy < 2.4"
)


def work_around(paddle: Any) -> list[str]:
    """Mend what is broken in this pair of versions; returns one caveat for each mend."""
    import numpy

    caveats: list[str] = []
    try:
        float(paddle.to_tensor([1.0], place=paddle.CPUPlace()))
    except TypeError:
        _mend_float(paddle)
        caveats.append(SCALER_FLOAT.format(paddle=paddle.__version__, numpy=numpy.__version__))
    return caveats


def _mend_float(paddle: Any) -> None:
    """``float(tensor)`` of one element goes by ``item()``, as it did before numpy 2.4."""
    classes = {paddle.Tensor}
    eager = getattr(base(paddle).core, "eager", None)
    if eager is not None:
        classes.add(eager.Tensor)
    for cls in classes:
        before = cls.__float__

        def to_float(tensor: Any, before: Any = before) -> float:
            return float(tensor.item()) if tensor.size == 1 else float(before(tensor))

        cls.__float__ = to_float
