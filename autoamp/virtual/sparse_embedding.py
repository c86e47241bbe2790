"""Embeddings with ``sparse=True`` whose weight AMP casts: refused by name.

At O2 Paddle keeps ``embedding`` in float32 (``EXTRA_BLACK_LIST`` of paddle/amp/amp_lists.py), so
its 16-bit weight is cast on the way in. Backward hands the sparse gradient (SelectedRows) to the
cast's gradient, whose C++ code takes every tensor for a dense one and reads rubbish: an error
about dimensions, or the end of the process. That code knows no device; a GPU runs it, too.
"""

import functools
import inspect
from typing import Any

from autoamp.virtual.script_names import DEVICE_TYPE, replace_everywhere


def install(paddle: Any) -> None:
    """Check the functional form, which the layer calls."""
    embedding = paddle.nn.functional.embedding
    names = list(inspect.signature(embedding).parameters)

    def argument(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        position = names.index(name)
        return args[position] if len(args) > position else kwargs.get(name)

    @functools.wraps(embedding)
    def checked(*args: Any, **kwargs: Any) -> Any:
        out = embedding(*args, **kwargs)
        weight = argument("weight", args, kwargs)
        # A compiled program's gradients are dense whatever ``sparse`` says.
        sparse = argument("sparse", args, kwargs) and paddle.in_dynamic_mode()
        if sparse and not out.stop_gradient and out.dtype != weight.dtype:
            raise NotImplementedError(
                f"the virtual device ({DEVICE_TYPE}) does not support sparse=True for an "
                f"embedding whose weight AMP casts ({weight.dtype} to {out.dtype}, as at O2): "
                "Paddle takes its sparse gradient for a dense one, on a GPU as well. Use "
                "sparse=False, or O1 without a GradScaler (bfloat16)."
            )
        return out

    replace_everywhere("embedding", embedding, checked)
