"""What Paddle 2.6 needs beyond 3.x to run on a virtual device."""

from typing import Any

from autoamp.virtual.script_names import replace_everywhere


def install(paddle: Any) -> None:
    """Switch off and replace what 2.6 has for real GPUs only."""
    # Its strided kernels call device functions that custom devices do not have.
    paddle.set_flags({"FLAGS_use_stride_kernel": False})
    _plain_attention(paddle)


def _plain_attention(paddle: Any) -> None:
    """It finds "gpu" in "vgpu:0" and takes flash attention, which its CPU library lacks."""
    attention = paddle.nn.functional.flash_attention
    # An attribute of that name may be the function; its globals are the module's either way.
    namespace = getattr(attention, "__globals__", None) or vars(attention)
    select, get_device = namespace["_select_sdp"], paddle.get_device

    def always_math(head_dim: int) -> str:
        return "math"

    replace_everywhere("_select_sdp", select, always_math)
    math = namespace["_math_attention"]

    class Unfused:
        """Paddle as that function sees it: its device's name is one without the fused mask."""

        def __getattr__(self, name: str) -> Any:
            return getattr(paddle, name)

        def get_device(self) -> str:
            name = str(get_device())
            return "xpu" if "vgpu" in name or name.startswith("gpu") else name

    math.__globals__["paddle"] = Unfused()
    whole = namespace["scaled_dot_product_attention"]

    def scaled_dot_product_attention(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        training: bool = True,
        name: str | None = None,
    ) -> Any:
        if attn_mask is None:
            return whole(query, key, value, None, dropout_p, is_causal, training, name)
        q, k, v = (paddle.transpose(x, [0, 2, 1, 3]) for x in (query, key, value))
        scores = paddle.matmul(q * query.shape[-1] ** -0.5, k, transpose_y=True) + attn_mask
        if is_causal:
            scores = scores + paddle.triu(paddle.full_like(scores, -1e4), diagonal=1)
        functional = paddle.nn.functional
        weights = functional.dropout(functional.softmax(scores), dropout_p, training=training)
        return paddle.transpose(paddle.matmul(weights, v), [0, 2, 1, 3])

    replace_everywhere("scaled_dot_product_attention", whole, scaled_dot_product_attention)


def stand_in_switches(core: Any) -> None:
    """CPU wheels of Paddle 2.6 lack the switches that scripts for GPUs may call; its GPU wheels
    begin with both on (read in 2.6.2), so that FP32 is TF32 there."""
    state = {"cublas": True, "cudnn": True}
    for name in state:

        def get_switch(name: str = name) -> bool:
            return state[name]

        def set_switch(on: bool, name: str = name) -> None:
            state[name] = bool(on)

        setattr(core, f"get_{name}_switch", get_switch)
        setattr(core, f"set_{name}_switch", set_switch)
