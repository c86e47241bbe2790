"""What the numbers did: operators by dtype, zero gradients, gradient exponents, overflow."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from autoamp.child.paddle_base import base
from autoamp.child.patching import parameters_of

if TYPE_CHECKING:
    from autoamp.child.session import Session

FLOAT16_MAX = 65504.0
"""Largest finite float16 (IEEE 754 binary16)."""
SAMPLE_ELEMENTS = 1_000_000
"""Gradient elements read per parameter: enough for a histogram, bounded for large models."""
PIECE_ELEMENTS = 128 * 1024


class Numerics:
    """Looks at a few steps outside the timed window."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._counting = False
        self._exponents: dict[int, int] = {}
        self._zeros = 0
        self._elements = 0
        self._wrapped: dict[str, Any] = {}
        self._maxima: dict[str, float] = {}

    # Operators by dtype ------------------------------------------------------------------

    def start_op_counts(self) -> None:
        """Count operator calls by dtype until ``op_counts``."""
        if self._session.device.virtual is not None:
            self._session.device.virtual.start_low_precision_calls()
        else:
            core = base(self._session.paddle).core
            core.clear_low_precision_op_list()
            self._session.paddle.set_flags({"FLAGS_low_precision_op_list": 1})
        self._counting = True

    def op_counts(self) -> dict[str, list[int]]:
        """Calls as [float16, bfloat16, float32, other] by the name AMP lists use."""
        if not self._counting:
            return {}
        self._counting = False
        if self._session.device.virtual is not None:
            calls = self._session.device.virtual.low_precision_calls()
            return {op: list(counts) for op, counts in calls.items()}
        core = base(self._session.paddle).core
        raw = core.get_low_precision_op_list()
        self._session.paddle.set_flags({"FLAGS_low_precision_op_list": 0})
        return {op: [int(n) for n in str(counts).split(",")] for op, counts in raw.items()}

    # Gradients ---------------------------------------------------------------------------

    def zero_gradient_share(self, optimizer: Any) -> float | None:
        """Share of gradient elements that are exactly zero: what underflowed, or never was."""
        paddle = self._session.paddle
        zeros = elements = 0
        for parameter in parameters_of(optimizer):
            grad = parameter.grad
            if grad is None or not grad.is_dense():
                continue
            with paddle.no_grad():
                zeros += sum(int((x == 0).astype("int32").sum().item()) for x in _pieces(grad))
            elements += int(grad.size)
        return zeros / elements if elements else None

    def add_gradients(self, optimizer: Any) -> None:
        """Add this step's gradients to the histogram of floor(log2(abs(g)))."""
        import numpy

        for parameter in parameters_of(optimizer):
            grad = parameter.grad
            if grad is None or not grad.is_dense():
                continue
            values = grad.astype("float32").numpy().ravel()
            if values.size > SAMPLE_ELEMENTS:
                values = values[:: values.size // SAMPLE_ELEMENTS + 1]
            self._elements += int(values.size)
            values = values[numpy.isfinite(values) & (values != 0)]
            self._zeros += int(values.size)
            # frexp's mantissa lies in [0.5, 1), so its exponent is floor(log2) + 1.
            exponents, counts = numpy.unique(
                numpy.frexp(numpy.abs(values))[1] - 1, return_counts=True
            )
            for exponent, count in zip(exponents.tolist(), counts.tolist(), strict=True):
                self._exponents[exponent] = self._exponents.get(exponent, 0) + count

    # Operator outputs --------------------------------------------------------------------

    def start_ranges(self) -> None:
        """Track the largest output of every operator until ``scan_result``."""
        if self._session.device.virtual is not None:
            self._session.device.virtual.start_range_tracking()
        else:
            self._wrap_c_ops()

    def _wrap_c_ops(self) -> None:
        """Real devices: look at what each forward operator called from Python returns."""
        paddle = self._session.paddle
        c_ops = paddle._C_ops
        for name in dir(c_ops):
            function = getattr(c_ops, name)
            if name.startswith("_") or name.endswith("_grad") or not callable(function):
                continue

            def tracked(
                *args: Any, _name: str = name, _call: Any = function, **kwargs: Any
            ) -> Any:
                out = _call(*args, **kwargs)
                self._look(_name, out)
                return out

            self._wrapped[name] = function
            try:
                setattr(c_ops, name, tracked)
            except (AttributeError, TypeError):
                del self._wrapped[name]

    def _look(self, name: str, out: Any) -> None:
        paddle = self._session.paddle
        for value in out if isinstance(out, (list, tuple)) else (out,):
            if (
                isinstance(value, paddle.Tensor)
                and value.dtype == paddle.float32
                and value._is_initialized()
                and value.size
            ):
                import numpy

                peak = float(numpy.max(numpy.abs(value.numpy())))
                if peak > self._maxima.get(name, 0.0):
                    self._maxima[name] = peak

    def scan_result(self) -> dict[str, Any]:
        """Gradient exponents and the operators whose FP32 outputs leave float16's range."""
        reason = None
        if self._session.device.virtual is not None:
            rows = self._session.device.virtual.stop_range_tracking()
            overflow = sorted({op for op, peak, _ in rows if peak > FLOAT16_MAX})
        else:
            for name, function in self._wrapped.items():
                setattr(self._session.paddle._C_ops, name, function)
            self._wrapped.clear()
            overflow = sorted(n for n, peak in self._maxima.items() if peak > FLOAT16_MAX)
            overflow = [AMP_LIST_NAMES.get(n, n) for n in overflow]
            reason = "forward operators called from Python were watched; backward ones were not"
        exponents = sorted(self._exponents.items())
        return {
            "grad_exponents": exponents,
            "zero_gradient_share": (
                1.0 - self._zeros / self._elements if self._elements else None
            ),
            "overflow_ops": overflow,
            "overflow_ops_reason": reason,
        }


def _pieces(tensor: Any) -> Iterator[Any]:
    """Slices of at most about ``PIECE_ELEMENTS``: what is made of them must not show in a peak."""
    rows = int(tensor.shape[0]) if tensor.ndim else 1
    step = max(1, PIECE_ELEMENTS * rows // max(1, int(tensor.size)))
    if step >= rows:
        yield tensor
        return
    for start in range(0, rows, step):
        yield tensor[start : start + step]


# Kernel names and the older names that AMP lists go by (paddle/fluid op compat table); unknown
# names in a list are ignored silently by paddle, so the right one matters.
AMP_LIST_NAMES = {
    "matmul": "matmul_v2",
    "add": "elementwise_add",
    "subtract": "elementwise_sub",
    "multiply": "elementwise_mul",
    "divide": "elementwise_div",
    "elementwise_pow": "elementwise_pow",
    "maximum": "elementwise_max",
    "minimum": "elementwise_min",
    "sum": "reduce_sum",
    "mean": "reduce_mean",
    "max": "reduce_max",
    "min": "reduce_min",
    "prod": "reduce_prod",
    "cross_entropy_with_softmax": "softmax_with_cross_entropy",
    "embedding": "lookup_table_v2",
    "reshape": "reshape2",
    "transpose": "transpose2",
    "squeeze": "squeeze2",
    "unsqueeze": "unsqueeze2",
    "bilinear_interp": "bilinear_interp_v2",
    "nearest_interp": "nearest_interp_v2",
    "linear_interp": "linear_interp_v2",
    "bicubic_interp": "bicubic_interp_v2",
    "trilinear_interp": "trilinear_interp_v2",
    "conv2d_transpose": "conv2d_transpose",
    "expand": "expand_v2",
    "topk": "top_k_v2",
}
