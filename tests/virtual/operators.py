"""The public operators that the sweep runs, with inputs: ``name -> Case``.

Not a test module: ``sweep.py`` runs it inside a process on the virtual device.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import paddle as the_paddle


class Offered:
    """A module; what this version of Paddle lacks there fails when it is called, not here."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        try:
            found = getattr(self._module, name)
        except AttributeError:
            return lambda *args, **kwargs: getattr(self._module, name)
        return Offered(found) if isinstance(found, ModuleType) else found


paddle = Offered(the_paddle)
nn = paddle.nn
F = nn.functional


class Case(NamedTuple):
    call: Callable[..., Any]
    inputs: tuple[Any, ...]
    # How much more than rounding once the result may be off: composite operators round
    # between their kernels.
    slack: float = 1.0


CASES: dict[str, Case] = {}
_rng = np.random.RandomState(0)


def pos(*shape: int) -> Any:
    """Values in (0.2, 1.8)."""
    return (_rng.rand(*shape) * 1.6 + 0.2).astype("float32")


def sym(*shape: int) -> Any:
    """Values in (-0.9, 0.9)."""
    return (_rng.rand(*shape) * 1.8 - 0.9).astype("float32")


def distinct(*shape: int) -> Any:
    """Values that stay distinct in bfloat16: order must not depend on rounding."""
    return (_rng.permutation(int(np.prod(shape))).reshape(shape) / 16 + 0.25).astype("float32")


def add(name: str, call: Callable[..., Any], *inputs: Any, slack: float = 1.0) -> None:
    assert name not in CASES, name
    CASES[name] = Case(call, inputs, slack)


def ids(*values: int) -> Any:
    return paddle.to_tensor(np.array(values, "int64"))


# Gradients of a plain sum through a normalisation cancel to nothing, so results are weighted.
_weights = sym(4, 6, 5, 5)


def _weighted(y: Any) -> Any:
    weights = _weights.ravel()[: y.size].reshape(y.shape)
    return y * paddle.to_tensor(weights).astype(y.dtype)


# Element by element -------------------------------------------------------------------------

for _name in [
    "abs",
    "ceil",
    "cos",
    "cosh",
    "digamma",
    "erf",
    "exp",
    "expm1",
    "floor",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "neg",
    "reciprocal",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tanh",
    "trunc",
    "stanh",
    "deg2rad",
    "rad2deg",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "gammaln",
]:
    add(_name, getattr(paddle, _name), pos(4, 6), slack=4.0)
for _name in ["acos", "asin", "atan", "asinh", "atanh", "erfinv", "tan"]:
    add(_name, getattr(paddle, _name), sym(4, 6), slack=4.0)
add("acosh", paddle.acosh, pos(4, 6) + 1, slack=4.0)
add("logit", lambda x: paddle.logit(x, 0.01), pos(4, 6) / 2, slack=4.0)
for _name in [
    "add",
    "subtract",
    "multiply",
    "divide",
    "pow",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "atan2",
    "hypot",
]:
    add(_name, getattr(paddle, _name), pos(4, 6), pos(4, 6), slack=2.0)
    add(_name + " broadcast", getattr(paddle, _name), pos(2, 4, 6), pos(6), slack=2.0)
add("heaviside", paddle.heaviside, sym(4, 6), pos(4, 6))
add("remainder", paddle.remainder, pos(4, 6) * 4, pos(4, 6), slack=8.0)
add("floor_divide", paddle.floor_divide, distinct(4, 6), pos(1) * 0 + 0.75)
add("lerp", lambda x, y: paddle.lerp(x, y, 0.3), pos(4, 6), pos(4, 6), slack=2.0)
add("clip", lambda x: paddle.clip(x, 0.5, 1.0), pos(4, 6))
add("scale", lambda x: paddle.scale(x, 2.0, 1.0), pos(4, 6))
add("increment", lambda x: paddle.increment(x * 1.0), pos(1))
add("nan_to_num", lambda x: paddle.nan_to_num(x), pos(4, 6))
add("add_n", lambda x, y: paddle.add_n([x, y]), pos(4, 6), pos(4, 6), slack=2.0)
add("where", lambda x, y: paddle.where(x > y, x, y), distinct(4, 6), distinct(4, 6))
add("logaddexp", paddle.logaddexp, pos(4, 6), pos(4, 6), slack=4.0)
add("multiply_add", lambda x, y: x * y + x, pos(4, 6), pos(4, 6), slack=2.0)
for _op in ("+", "-", "*", "/", "**"):
    add(f"x {_op} 2.0", eval(f"lambda x: x {_op} 2.0"), pos(4, 6), slack=2.0)
    add(f"2.0 {_op} x", eval(f"lambda x: 2.0 {_op} x"), pos(4, 6), slack=2.0)

# Activations --------------------------------------------------------------------------------

for _name in [
    "relu",
    "relu6",
    "gelu",
    "silu",
    "swish",
    "mish",
    "elu",
    "selu",
    "celu",
    "leaky_relu",
    "softplus",
    "softsign",
    "softshrink",
    "hardshrink",
    "hardtanh",
    "hardswish",
    "hardsigmoid",
    "tanhshrink",
    "log_sigmoid",
    "log_softmax",
    "sigmoid",
    "glu",
    "normalize",
    "thresholded_relu",
    "tanh",
]:
    add("F." + _name, getattr(F, _name), sym(4, 6) * 2, slack=4.0)
add("F.gelu tanh", lambda x: F.gelu(x, approximate=True), sym(4, 6), slack=4.0)
add("F.softmax", lambda x: _weighted(F.softmax(x)), sym(2, 4, 5), slack=8.0)
add("F.softmax axis", lambda x: _weighted(F.softmax(x, axis=0)), sym(2, 4, 5), slack=8.0)
add("F.prelu", lambda x, w: F.prelu(x, w), sym(2, 3, 4, 4), pos(3))
add("F.maxout", lambda x: F.maxout(x, 2), distinct(2, 4, 3, 3))
add("F.rrelu eval", lambda x: F.rrelu(x, training=False), sym(4, 6))
add("F.gumbel_softmax", lambda x: F.gumbel_softmax(x) * 0 + x, sym(4, 6))
add("swiglu", lambda x: paddle.incubate.nn.functional.swiglu(x), sym(4, 6), slack=4.0)

# Reductions ---------------------------------------------------------------------------------

for _name in ["sum", "mean", "prod", "std", "var", "logsumexp"]:
    add(_name, getattr(paddle, _name), pos(4, 6), slack=4.0)
    add(_name + " axis", lambda x, _n=_name: getattr(paddle, _n)(x, axis=1), pos(4, 6), slack=4.0)
    add(
        _name + " keepdim",
        lambda x, _n=_name: getattr(paddle, _n)(x, axis=0, keepdim=True),
        pos(4, 6),
        slack=4.0,
    )
for _name in ["max", "min", "amax", "amin", "median", "nanmedian"]:
    add(_name, getattr(paddle, _name), distinct(4, 6))
    add(_name + " axis", lambda x, _n=_name: getattr(paddle, _n)(x, axis=1), distinct(4, 6))
for _name in ["nansum", "nanmean"]:
    add(_name, getattr(paddle, _name), pos(4, 6), slack=4.0)
add("cumsum", lambda x: paddle.cumsum(x, 0), pos(4, 6), slack=4.0)
add("cumsum flat", lambda x: paddle.cumsum(x), pos(4, 6), slack=4.0)
add("cumprod", lambda x: paddle.cumprod(x, 0), pos(4, 6), slack=8.0)
add("cummax", lambda x: paddle.cummax(x, 0)[0], distinct(4, 6))
add("cummin", lambda x: paddle.cummin(x, 0)[0], distinct(4, 6))
add("logcumsumexp", lambda x: paddle.logcumsumexp(x, 0), pos(4, 6), slack=4.0)
add("norm 2", lambda x: paddle.norm(x, 2, 1), pos(4, 6), slack=4.0)
add("norm 1", lambda x: paddle.norm(x, 1, 1), pos(4, 6), slack=4.0)
add("norm inf", lambda x: paddle.norm(x, float("inf"), 1), distinct(4, 6))
add("norm fro", lambda x: paddle.norm(x), pos(4, 6), slack=4.0)
add("dist", lambda x, y: paddle.dist(x, y), pos(4, 6), pos(4, 6) + 1, slack=8.0)
add("count_nonzero", lambda x: paddle.count_nonzero(x), pos(4, 6))
add("trace", paddle.trace, pos(4, 4), slack=2.0)

# Matrix products ----------------------------------------------------------------------------

add("matmul", paddle.matmul, sym(4, 6), sym(6, 5), slack=4.0)
add("matmul tt", lambda x, y: paddle.matmul(x, y, True, True), sym(6, 4), sym(5, 6), slack=4.0)
add("matmul batched", paddle.matmul, sym(2, 3, 4, 6), sym(2, 3, 6, 5), slack=4.0)
add("matmul broadcast", paddle.matmul, sym(2, 3, 4, 6), sym(6, 5), slack=4.0)
add("matmul vector", paddle.matmul, sym(4, 6), sym(6), slack=4.0)
add("bmm", paddle.bmm, sym(2, 4, 6), sym(2, 6, 3), slack=4.0)
add("mm", paddle.mm, sym(4, 6), sym(6, 3), slack=4.0)
add("mv", paddle.mv, sym(4, 6), sym(6), slack=4.0)
add("dot", paddle.dot, sym(6), sym(6), slack=4.0)
add("addmm", paddle.addmm, sym(4, 5), sym(4, 6), sym(6, 5), slack=4.0)
add(
    "einsum",
    lambda x, y: paddle.einsum("bij,bjk->bik", x, y),
    sym(2, 4, 6),
    sym(2, 6, 3),
    slack=8.0,
)
add("outer", paddle.outer, sym(4), sym(6))
add("inner", paddle.inner, sym(4, 6), sym(3, 6), slack=4.0)
add("kron", paddle.kron, sym(2, 2), sym(2, 3))
add("cross", lambda x, y: paddle.cross(x, y), sym(4, 3), sym(4, 3), slack=4.0)
add("tensordot", lambda x, y: paddle.tensordot(x, y, 1), sym(4, 6), sym(6, 5), slack=4.0)
add("linear", F.linear, sym(4, 6), sym(6, 3), sym(3), slack=4.0)
add("bilinear", F.bilinear, sym(4, 3), sym(4, 5), sym(2, 3, 5), slack=8.0)
add("multi_dot", lambda x, y: paddle.linalg.multi_dot([x, y]), sym(4, 6), sym(6, 3), slack=4.0)
add("matrix_power", lambda x: paddle.linalg.matrix_power(x, 2), sym(4, 4), slack=8.0)
add(
    "inverse",
    lambda x: paddle.inverse(x + 3 * paddle.eye(4).astype(x.dtype)),
    pos(4, 4),
    slack=16.0,
)
add(
    "cholesky",
    lambda x: paddle.linalg.cholesky(x @ x.T + 4 * paddle.eye(4).astype(x.dtype)),
    pos(4, 4),
    slack=32.0,
)
add(
    "det",
    lambda x: paddle.linalg.det(x + 3 * paddle.eye(3).astype(x.dtype)),
    pos(3, 3),
    slack=16.0,
)

# Convolutions and pooling -------------------------------------------------------------------

add("conv1d", F.conv1d, sym(2, 3, 8), sym(4, 3, 3), slack=8.0)
add("conv2d", lambda x, w: F.conv2d(x, w, padding=1), sym(2, 3, 8, 8), sym(4, 3, 3, 3), slack=8.0)
add(
    "conv2d bias",
    lambda x, w, b: F.conv2d(x, w, b),
    sym(2, 3, 8, 8),
    sym(4, 3, 3, 3),
    sym(4),
    slack=16.0,
)
add(
    "conv2d stride",
    lambda x, w: F.conv2d(x, w, stride=2),
    sym(2, 3, 8, 8),
    sym(4, 3, 3, 3),
    slack=8.0,
)
add(
    "conv2d dilated",
    lambda x, w: F.conv2d(x, w, dilation=2),
    sym(2, 3, 8, 8),
    sym(4, 3, 3, 3),
    slack=8.0,
)
add(
    "conv2d groups",
    lambda x, w: F.conv2d(x, w, groups=2),
    sym(2, 4, 8, 8),
    sym(4, 2, 3, 3),
    slack=8.0,
)
add(
    "conv2d depthwise",
    lambda x, w: F.conv2d(x, w, groups=4),
    sym(2, 4, 8, 8),
    sym(4, 1, 3, 3),
    slack=8.0,
)
add(
    "conv2d NHWC",
    lambda x, w: F.conv2d(x, w, data_format="NHWC"),
    sym(2, 8, 8, 3),
    sym(4, 3, 3, 3),
    slack=8.0,
)
add("conv3d", F.conv3d, sym(1, 2, 5, 5, 5), sym(3, 2, 3, 3, 3), slack=8.0)
add("conv1d_transpose", F.conv1d_transpose, sym(2, 3, 8), sym(3, 4, 3), slack=8.0)
add("conv2d_transpose", F.conv2d_transpose, sym(2, 3, 5, 5), sym(3, 4, 3, 3), slack=8.0)
add("conv3d_transpose", F.conv3d_transpose, sym(1, 2, 4, 4, 4), sym(2, 3, 3, 3, 3), slack=8.0)
add("max_pool1d", lambda x: F.max_pool1d(x, 2), distinct(2, 3, 8))
add("max_pool2d", lambda x: F.max_pool2d(x, 2), distinct(2, 3, 4, 4))
add("max_pool2d mask", lambda x: F.max_pool2d(x, 2, return_mask=True)[0], distinct(2, 3, 4, 4))
add("max_pool3d", lambda x: F.max_pool3d(x, 2), distinct(1, 2, 4, 4, 4))
add("avg_pool1d", lambda x: F.avg_pool1d(x, 2), pos(2, 3, 8), slack=2.0)
add("avg_pool2d", lambda x: F.avg_pool2d(x, 2), pos(2, 3, 8, 8), slack=2.0)
add("avg_pool3d", lambda x: F.avg_pool3d(x, 2), pos(1, 2, 4, 4, 4), slack=2.0)
add("lp_pool2d", lambda x: F.lp_pool2d(x, 2.0, 2), pos(2, 3, 4, 4), slack=8.0)
add("adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 3), pos(2, 3, 8), slack=2.0)
add("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, 3), pos(2, 3, 8, 8), slack=2.0)
add("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, 2), distinct(2, 3, 4, 4))
add("unfold", lambda x: F.unfold(x, 2), pos(1, 2, 4, 4))
add("fold", lambda x: F.fold(x, [4, 4], 2), pos(1, 8, 9), slack=2.0)

# Normalisation ------------------------------------------------------------------------------


def _layer(make: Callable[[], Any]) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        return _weighted(make()(x))

    return call


add(
    "layer_norm",
    lambda x, w, b: _weighted(F.layer_norm(x, 5, w, b)),
    pos(2, 4, 5, 5),
    pos(5),
    pos(5),
    slack=16.0,
)
add(
    "group_norm",
    lambda x, w, b: _weighted(F.group_norm(x, 2, 1e-5, w, b)),
    pos(2, 4, 5, 5),
    pos(4),
    pos(4),
    slack=16.0,
)
add("instance_norm", lambda x: _weighted(F.instance_norm(x)), pos(2, 4, 5, 5), slack=16.0)
add("local_response_norm", lambda x: F.local_response_norm(x, 3), pos(2, 4, 5, 5), slack=16.0)
add("batch_norm train", _layer(lambda: nn.BatchNorm2D(4)), pos(2, 4, 5, 5), slack=16.0)
add(
    "batch_norm eval",
    _layer(lambda: nn.BatchNorm2D(4, use_global_stats=True)),
    pos(2, 4, 5, 5),
    slack=16.0,
)

# Attention, embedding, recurrent layers -------------------------------------------------------

add(
    "attention",
    F.scaled_dot_product_attention,
    sym(2, 5, 2, 8),
    sym(2, 5, 2, 8),
    sym(2, 5, 2, 8),
    slack=16.0,
)
add(
    "attention causal",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    sym(2, 5, 2, 8),
    sym(2, 5, 2, 8),
    sym(2, 5, 2, 8),
    slack=16.0,
)
add("embedding", lambda w: F.embedding(ids(1, 3, 3, 0), w), pos(6, 5), slack=2.0)
add("embedding padding", lambda w: F.embedding(ids(1, 3, 0), w, padding_idx=0), pos(6, 5))
add(
    "embedding sparse",
    lambda w: F.embedding(ids(1, 3, 3, 0), w, sparse=True),
    pos(6, 5),
    slack=2.0,
)
add("one_hot matmul", lambda w: F.one_hot(ids(1, 3), 6).astype(w.dtype) @ w, pos(6, 5), slack=2.0)


def _recurrent(make: Callable[[], Any]) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        layer = make()
        for parameter in layer.parameters():
            # set_state and astype of a whole layer would cast its empty dropout state, too.
            parameter.set_value(paddle.full(parameter.shape, 0.1))
        if x.dtype != paddle.float32:
            for parameter in layer.parameters():
                parameter._to(dtype=x.dtype)
        return layer(x)[0]

    return call


# Losses -------------------------------------------------------------------------------------

_labels = ids(0, 5, 2, 3)
add("cross_entropy", lambda x: F.cross_entropy(x, _labels), sym(4, 6), slack=8.0)
add(
    "cross_entropy none",
    lambda x: F.cross_entropy(x, _labels, reduction="none"),
    sym(4, 6),
    slack=8.0,
)
add(
    "cross_entropy sum",
    lambda x: F.cross_entropy(x, _labels, reduction="sum"),
    sym(4, 6),
    slack=8.0,
)
add(
    "cross_entropy ignore",
    lambda x: F.cross_entropy(x, _labels, ignore_index=2),
    sym(4, 6),
    slack=8.0,
)
add(
    "cross_entropy smooth",
    lambda x: F.cross_entropy(x, _labels, label_smoothing=0.1),
    sym(4, 6),
    slack=16.0,
)
add(
    "cross_entropy soft",
    lambda x: F.cross_entropy(x, paddle.full([4, 6], 1 / 6).astype(x.dtype), soft_label=True),
    sym(4, 6),
    slack=16.0,
)
add("nll_loss", lambda x: F.nll_loss(F.log_softmax(x), _labels), sym(4, 6), slack=8.0)
add("mse_loss", F.mse_loss, pos(4, 6), pos(4, 6), slack=8.0)
add("l1_loss", F.l1_loss, distinct(4, 6), distinct(4, 6), slack=8.0)
add("smooth_l1_loss", F.smooth_l1_loss, pos(4, 6), pos(4, 6) + 1, slack=8.0)
add("huber", lambda x, y: F.smooth_l1_loss(x, y, delta=0.5), pos(4, 6), pos(4, 6) + 1, slack=8.0)
add("bce", lambda x: F.binary_cross_entropy(x * 0.5, paddle.ones_like(x)), pos(4, 6), slack=8.0)
add(
    "bce logits",
    lambda x: F.binary_cross_entropy_with_logits(x, paddle.ones_like(x)),
    sym(4, 6),
    slack=8.0,
)
add("kl_div", lambda x, y: F.kl_div(x, y), pos(4, 6), pos(4, 6), slack=8.0)
add("log_loss", lambda x: F.log_loss(x * 0.5, paddle.ones_like(x)), pos(4, 1), slack=8.0)
add("sigmoid_focal", lambda x: F.sigmoid_focal_loss(x, paddle.ones_like(x)), sym(4, 6), slack=32.0)
add(
    "margin_ranking",
    lambda x, y: F.margin_ranking_loss(x, y, paddle.ones_like(x)),
    pos(4, 6),
    pos(4, 6) + 2,
    slack=8.0,
)
add(
    "hinge_embedding",
    lambda x: F.hinge_embedding_loss(x, paddle.ones_like(x)),
    pos(4, 6),
    slack=8.0,
)
add("cosine_similarity", F.cosine_similarity, pos(4, 6), pos(4, 6), slack=16.0)
add(
    "cosine_embedding",
    lambda x, y: F.cosine_embedding_loss(x, y, ids(1, 1, -1, 1)),
    pos(4, 6),
    pos(4, 6),
    slack=64.0,
)
add("triplet", F.triplet_margin_loss, pos(4, 6), pos(4, 6), pos(4, 6) + 2, slack=16.0)
add("soft_margin", lambda x: F.soft_margin_loss(x, paddle.ones_like(x)), sym(4, 6), slack=8.0)
add("poisson_nll", lambda x, y: F.poisson_nll_loss(x, y), pos(4, 6), pos(4, 6), slack=8.0)
add(
    "gaussian_nll",
    lambda x, y, v: F.gaussian_nll_loss(x, y, v),
    pos(4, 6),
    pos(4, 6) + 1,
    pos(4, 6),
    slack=16.0,
)
add("square_error", lambda x, y: F.square_error_cost(x, y), pos(4, 6), pos(4, 6) + 1, slack=8.0)
add("label_smooth", lambda x: F.label_smooth(x), pos(4, 6), slack=4.0)
add(
    "dice",
    lambda x: F.dice_loss(F.softmax(x), ids(0, 5, 2, 3).reshape([4, 1])),
    sym(4, 6),
    slack=32.0,
)
add(
    "ctc",
    lambda x: F.ctc_loss(x, paddle.to_tensor([[1, 2]], dtype="int32"), ids(5), ids(2)),
    sym(5, 1, 4),
    slack=32.0,
)


def _index(result: Any) -> Any:
    """Integer results have no gradient; asking for one crashes Paddle 3.3.1, on CPUs too."""
    return result.detach()


# Shapes, indices, views -----------------------------------------------------------------------

add("concat", lambda x, y: paddle.concat([x, y], 0), pos(4, 6), pos(2, 6))
add("stack", lambda x, y: paddle.stack([x, y]), pos(4, 6), pos(4, 6))
add("split", lambda x: paddle.split(x, 2, 1)[1], pos(4, 6))
add("chunk", lambda x: paddle.chunk(x, 3, 1)[0], pos(4, 6))
# All parts are used: the gradient of a partly used unstack crashes Paddle 3.3.1, on CPUs too.
add("unstack", lambda x: sum(paddle.unstack(x, 0)), pos(4, 6), slack=4.0)
add("unbind", lambda x: paddle.unbind(x, 0)[1], pos(4, 6))
add("slice", lambda x: x[1:3, ::2] * 2, pos(4, 6))
add("index row", lambda x: x[2], pos(4, 6))
add("index tensor", lambda x: x[ids(0, 2)], pos(4, 6))
add("index mask", lambda x: x[x > 0.5], distinct(4, 6))
add("strided_slice", lambda x: paddle.strided_slice(x, [0, 1], [0, 1], [4, 6], [2, 2]), pos(4, 6))
add("transpose", lambda x: x.transpose([1, 0]) * 1.5, pos(4, 6))
add("transpose matmul", lambda x: x.transpose([1, 0]) @ x, sym(4, 6), slack=4.0)
add("T", lambda x: x.T + 1, pos(4, 6), slack=2.0)
add("moveaxis", lambda x: paddle.moveaxis(x, 0, 1) + 1, pos(4, 6), slack=2.0)
add("swapaxes", lambda x: paddle.swapaxes(x, 0, 1) + 1, pos(4, 6), slack=2.0)
add("reshape", lambda x: x.reshape([3, 8]) * x.reshape([3, 8]), pos(4, 6), slack=2.0)
add("reshape of transpose", lambda x: x.T.reshape([3, 8]) * 2, pos(4, 6))
add("flatten", lambda x: x.flatten() * 2, pos(4, 6))
add("squeeze", lambda x: x.squeeze(1) * 2, pos(4, 1, 6))
add("unsqueeze", lambda x: x.unsqueeze(1) * 2, pos(4, 6))
add("view", lambda x: x.view([6, 4]) * 2, pos(4, 6))
add("as_strided", lambda x: paddle.as_strided(x, [3, 4], [4, 1]) * 2, pos(4, 6))
add("expand", lambda x: x.unsqueeze(0).expand([3, 4, 6]), pos(4, 6), slack=2.0)
add("expand_as", lambda x, y: x.expand_as(y) * y, pos(6), pos(4, 6), slack=4.0)
add("broadcast_to", lambda x: paddle.broadcast_to(x, [3, 4, 6]), pos(4, 6), slack=2.0)
add("tile", lambda x: paddle.tile(x, [2, 1]), pos(4, 6), slack=2.0)
add("repeat_interleave", lambda x: paddle.repeat_interleave(x, 2, 0), pos(4, 6), slack=2.0)
add("flip", lambda x: x.flip(0), pos(4, 6))
add("roll", lambda x: paddle.roll(x, 1), pos(4, 6))
add("rot90", lambda x: paddle.rot90(x), pos(4, 6))
add("tril", paddle.tril, pos(4, 6))
add("triu", paddle.triu, pos(4, 6))
add("diag", paddle.diag, pos(4))
add("diagonal", paddle.diagonal, pos(4, 6))
add("diag_embed", lambda x: paddle.diag_embed(x), pos(4))
add("meshgrid", lambda x, y: sum(paddle.meshgrid(x, y)), pos(4), pos(6), slack=8.0)
add("gather", lambda x: paddle.gather(x, ids(0, 2)), pos(4, 6))
add("gather_nd", lambda x: paddle.gather_nd(x, paddle.to_tensor([[0, 1], [2, 3]])), pos(4, 6))
add("index_select", lambda x: paddle.index_select(x, ids(0, 2)), pos(4, 6))
add("index_sample", lambda x: paddle.index_sample(x, paddle.to_tensor([[0, 1]] * 4)), pos(4, 6))
add(
    "index_add", lambda x, y: paddle.index_add(x, ids(0, 2), 0, y), pos(4, 6), pos(2, 6), slack=2.0
)
add("index_fill", lambda x: paddle.index_fill(x, ids(0, 2), 0, 0.5), pos(4, 6))
add("index_put", lambda x, v: paddle.index_put(x, (ids(0, 2), ids(1, 1)), v), pos(4, 6), pos(2))
add("take", lambda x: paddle.take(x, ids(0, 7)), pos(4, 6))
add(
    "take_along_axis",
    lambda x: paddle.take_along_axis(x, paddle.to_tensor([[0], [1], [2], [3]]), 1),
    pos(4, 6),
)
add(
    "put_along_axis",
    lambda x: paddle.put_along_axis(x, paddle.to_tensor([[0], [1], [2], [3]]), 1.0, 1),
    pos(4, 6),
)
add("scatter", lambda x, u: paddle.scatter(x, ids(0, 2), u), pos(4, 6), pos(2, 6))
add(
    "scatter_nd_add",
    lambda x, u: paddle.scatter_nd_add(x, paddle.to_tensor([[0], [2]]), u),
    pos(4, 6),
    pos(2, 6),
    slack=2.0,
)
add("masked_fill", lambda x: paddle.masked_fill(x, x > 1, 0.0), distinct(4, 6))
add("masked_select", lambda x: paddle.masked_select(x, x > 1), distinct(4, 6))
add("masked_scatter", lambda x, y: paddle.masked_scatter(x, x > 1, y), distinct(4, 6), pos(4, 6))
add(
    "nonzero",
    lambda x: paddle.nonzero(x > 1).astype(x.dtype).sum() * 0 + x.sum(),
    distinct(4, 6),
    slack=8.0,
)
add("unique", lambda x: paddle.unique(x).detach() * 1.0, distinct(4, 6))
add("topk", lambda x: paddle.topk(x, 2)[0], distinct(4, 6))
add("topk index", lambda x: _index(paddle.topk(x.detach(), 2)[1]), distinct(4, 6))
add("kthvalue", lambda x: paddle.kthvalue(x, 2)[0], distinct(4, 6))
add("mode", lambda x: paddle.mode(x)[0], distinct(4, 6))
add("sort", lambda x: paddle.sort(x), distinct(4, 6))
add("argsort", lambda x: _index(paddle.argsort(x.detach())), distinct(4, 6))
add("argmax", lambda x: _index(paddle.argmax(x, 1)), distinct(4, 6))
add("argmin", lambda x: _index(paddle.argmin(x, 1)), distinct(4, 6))
add(
    "searchsorted",
    lambda x: _index(paddle.searchsorted(paddle.sort(x.detach()), x.detach()[:, :2])),
    distinct(4, 6),
)
add(
    "compare",
    lambda x, y: (x > y).astype("int32") + (x == x).astype("int32"),
    distinct(4, 6),
    distinct(4, 6),
)
add(
    "isfinite",
    lambda x: paddle.isfinite(x).astype("int32") + paddle.isnan(x).astype("int32"),
    pos(4, 6),
)
add(
    "bincount",
    lambda x: paddle.bincount(ids(0, 1, 1)).astype(x.dtype).sum() * 0 + x.sum(),
    pos(4, 6),
    slack=8.0,
)
add("cast", lambda x: x.astype("float64").astype(x.dtype) * 2, pos(4, 6))
add("zeros_like", lambda x: paddle.zeros_like(x) + x, pos(4, 6))
add("full_like", lambda x: paddle.full_like(x, 2.0) * x, pos(4, 6))
add("pad", lambda x: F.pad(x, [1, 1, 1, 1]), pos(2, 3, 4, 4))
add("pad reflect", lambda x: F.pad(x, [1, 1, 1, 1], mode="reflect"), pos(2, 3, 4, 4), slack=4.0)
add("pad3d", lambda x: F.pad(x, [1, 1, 1, 1, 1, 1], data_format="NCDHW"), pos(1, 2, 3, 3, 3))
add("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), pos(1, 4, 3, 3))
add("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), pos(1, 2, 4, 4))
add("channel_shuffle", lambda x: F.channel_shuffle(x, 2), pos(1, 4, 3, 3))
add("temporal_shift", lambda x: F.temporal_shift(x, 2, 0.25), pos(4, 4, 3, 3))
add(
    "interpolate bilinear",
    lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    pos(1, 2, 4, 4),
    slack=8.0,
)
add(
    "interpolate nearest",
    lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
    pos(1, 2, 4, 4),
    slack=8.0,
)
add(
    "interpolate bicubic",
    lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    pos(1, 2, 4, 4),
    slack=8.0,
)
add(
    "interpolate linear",
    lambda x: F.interpolate(x, scale_factor=2, mode="linear", data_format="NCW"),
    pos(1, 2, 4),
    slack=8.0,
)
add(
    "interpolate trilinear",
    lambda x: F.interpolate(x, scale_factor=2, mode="trilinear", data_format="NCDHW"),
    pos(1, 2, 3, 3, 3),
    slack=8.0,
)
add("grid_sample", lambda x, g: F.grid_sample(x, g), pos(1, 2, 4, 4), sym(1, 3, 3, 2), slack=32.0)
add("affine_grid", lambda t: F.affine_grid(t, [1, 2, 4, 4]), pos(1, 2, 3), slack=8.0)
add(
    "sequence_mask",
    lambda x: F.sequence_mask(ids(1, 3), 4).astype(x.dtype).sum() * 0 + x.sum(),
    pos(4, 6),
    slack=8.0,
)


# In place -----------------------------------------------------------------------------------


def _set_items(x: Any) -> Any:
    y = x * 1
    y[1:3] = 0.5
    y[0, 1] = x[0, 0]
    return y


add("setitem", _set_items, pos(4, 6), slack=2.0)
add("add_", lambda x: (x * 1).add_(x), pos(4, 6), slack=2.0)
add("multiply_", lambda x, y: (x * 1).multiply_(y), pos(4, 6), pos(4, 6), slack=2.0)
add("scale_", lambda x: (x * 1).scale_(2.0), pos(4, 6))
add("clip_", lambda x: (x * 1).clip_(0.5, 1.0), pos(4, 6))
add("relu_", lambda x: F.relu_(x * 1), sym(4, 6))
add("exp_", lambda x: (x * 1).exp_(), sym(4, 6), slack=4.0)
add("tanh_", lambda x: (x * 1).tanh_(), sym(4, 6), slack=4.0)
add("softmax_", lambda x: _weighted(F.softmax_(x * 1)), sym(2, 4, 5), slack=8.0)
add("zero_", lambda x: (x * 1).zero_() + x, pos(4, 6))
add("fill_", lambda x: (x * 1).fill_(2.0) + x, pos(4, 6), slack=2.0)
add("reshape_", lambda x: (x * 1).reshape_([3, 8]), pos(4, 6))
add("write to a view", lambda x: _write_to_view(x), pos(4, 6), slack=2.0)


def _write_to_view(x: Any) -> Any:
    with paddle.no_grad():
        y = x * 1
        part = y[1]
        part.scale_(3.0)
    return y * x


# Random and dropout: the device draws the same numbers as the CPU -------------------------------

add("dropout 0", lambda x: F.dropout(x, 0.0), pos(4, 6))
add("dropout eval", lambda x: F.dropout(x, 0.5, training=False), pos(4, 6))
add("dropout", lambda x: (paddle.seed(3), F.dropout(x, 0.5))[1], pos(4, 6), slack=2.0)
add("alpha_dropout eval", lambda x: F.alpha_dropout(x, 0.5, training=False), pos(4, 6))

# Layers of several kernels ----------------------------------------------------------------------

add("LSTM", _recurrent(lambda: nn.LSTM(6, 5)), sym(2, 4, 6), slack=32.0)
add("GRU", _recurrent(lambda: nn.GRU(6, 5)), sym(2, 4, 6), slack=32.0)
add("SimpleRNN", _recurrent(lambda: nn.SimpleRNN(6, 5)), sym(2, 4, 6), slack=32.0)
