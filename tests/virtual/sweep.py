"""Runs every case of ``operators.py`` in every dtype, forward and backward; run in a child.

The reference is the CPU in float32 on inputs that were rounded to the dtype first, so what is
left is the rounding of results: once for one kernel, a few times for composite operators.
"""

from collections.abc import Collection
from typing import Any

import numpy as np
import paddle
from operators import CASES, Case

# Half a unit in the last place, relative to the largest value of a result.
ROUNDING = {"float32": 2.0**-20, "float16": 2.0**-11, "bfloat16": 2.0**-8}
NO_REFERENCE = "the CPU itself refuses it"
DTYPES = ("float32", "float16", "bfloat16")

# Paddle's own Python code takes no 16-bit tensor here, on a GPU either.
KNOWN = {
    f"{name} {dtype}"
    for name in ("nan_to_num", "cosine_embedding", "gaussian_nll", "dice")
    for dtype in ("float16", "bfloat16")
}

# Results in another dtype than the 16-bit input's, by case or case and dtype.
OTHER_DTYPE = {
    # Paddle's Python code computes the median of 16-bit values in float32.
    "median": paddle.float32,
    "median axis": paddle.float32,
    # Its shape function leaves the dtype open: the emulating kernel's own is kept.
    "unique": paddle.float32,
}
if not paddle.__version__.startswith("2."):
    # 3.x: the shape function of all devices gives the loss of bfloat16 logits in float32.
    for _kind in ("", " none", " sum", " ignore", " smooth", " soft"):
        OTHER_DTYPE[f"cross_entropy{_kind} bfloat16"] = paddle.float32


def dense(tensor: Any) -> Any:
    if tensor is None:
        return None
    if tensor.is_selected_rows():
        rows = np.array(tensor.rows())
        values = np.asarray(tensor.get_selected_rows().get_tensor())
        if values.dtype == np.uint16:  # numpy has no bfloat16: its bits are float32's upper half
            values = (values.astype("uint32") << 16).view("float32")
        values = values.astype("float32")
        out = np.zeros(tensor.shape, "float32")
        np.add.at(out, rows, values)
        return out
    return tensor.astype("float32").numpy()


def evaluate(case: Case, inputs: list[Any], dtype: str) -> Any:
    """Result, gradients, and the dtypes of both."""
    tensors = [paddle.to_tensor(x).astype(dtype) for x in inputs]
    for tensor in tensors:
        tensor.stop_gradient = False
    out = case.call(*tensors)
    if out.dtype in (paddle.float32, paddle.float16, paddle.bfloat16) and not out.stop_gradient:
        out.astype("float32").sum().backward()
    grads = [t.grad for t in tensors]
    return (
        dense(out),
        [dense(g) for g in grads],
        out.dtype,
        [g.dtype for g in grads if g is not None],
    )


def error(got: Any, want: Any) -> float:
    """The largest difference, relative; infinite where NaN or infinity stand elsewhere."""
    if (got is None) != (want is None):
        return float("inf")
    if got is None:
        return 0.0
    if got.shape != want.shape:
        return float("inf")
    finite = np.isfinite(want)
    odd = ~finite
    if not (np.isfinite(got) == finite).all():
        return float("inf")
    if not np.array_equal(got[odd], want[odd], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    # A comparison of sums that cancel would measure nothing but noise.
    scale = max(float(np.abs(want[finite]).max()), 1e-2)
    return float(np.abs(got[finite] - want[finite]).max()) / scale


def check(name: str, case: Case, dtype: str) -> str | None:
    """None if right, else what is wrong."""
    paddle.set_device("cpu")
    rounded = [paddle.to_tensor(x).astype(dtype).astype("float32").numpy() for x in case.inputs]
    try:
        want, want_grads, want_dtype, _ = evaluate(case, rounded, "float32")
    except Exception as failure:
        return f"{NO_REFERENCE}: {failure!r}"
    paddle.set_device("gpu")
    try:
        got, grads, got_dtype, grad_dtypes = evaluate(case, rounded, dtype)
    except Exception as failure:
        text = str(failure)
        at = text.find("Error Message Summary")
        return f"{type(failure).__name__}: {text[at + 22 if at >= 0 else 0 :][:300].strip()}"
    finally:
        paddle.set_device("cpu")
    allowed = ROUNDING[dtype] * case.slack * 1.01
    worst = max([error(got, want), *[error(g, w) for g, w in zip(grads, want_grads, strict=True)]])
    if not worst <= allowed:
        return f"off by {worst:.3g}, allowed {allowed:.3g}"
    if any(d != getattr(paddle, dtype) for d in grad_dtypes):
        return f"gradients in {grad_dtypes}"
    own = getattr(paddle, dtype)
    right = own if want_dtype == paddle.float32 else want_dtype
    if dtype != "float32":
        right = OTHER_DTYPE.get(name, OTHER_DTYPE.get(f"{name} {dtype}", right))
    if got_dtype != right:
        return f"result in {got_dtype}, not in {right}"
    return None


def sweep() -> tuple[int, dict[str, str]]:
    """(cases run, what is wrong by ``name dtype``)."""
    wrong: dict[str, str] = {}
    count = 0
    for name, case in CASES.items():
        for dtype in DTYPES:
            count += 1
            said = check(name, case, dtype)
            if said is not None:
                wrong[f"{name} {dtype}"] = said
    return count, wrong


def judged(known: Collection[str] = KNOWN) -> dict[str, Any]:
    """``count`` of cases, what is ``wrong`` beyond ``known``, and what that holds too much.

    ``no_reference``: cases that this Paddle's CPU does not have either.
    """
    count, wrong = sweep()
    missing = {name for name, said in wrong.items() if said.startswith(NO_REFERENCE)}
    return {
        "count": count - len(missing),
        "wrong": {name: said for name, said in wrong.items() if name not in missing.union(known)},
        "works_now": sorted(set(known) - set(wrong)),
        "no_reference": sorted(missing.difference(known)),
    }
