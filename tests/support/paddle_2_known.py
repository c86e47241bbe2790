"""What is known to differ under Paddle 2.6.2, each with its reason. Not a test module."""

HALVES = ("float16", "bfloat16")

_TAKES_NO_HALF = "Paddle's own Python code takes no 16-bit tensor here, on a GPU either"
_NOT_THERE = "this version does not have it"
_NO_CPU_KERNEL = "its CPU library refuses the case, so that there is nothing to compare with"
_FLOAT32_GRADIENT = "values are right, gradients come in float32"

_CASES: dict[str, str] = {
    **dict.fromkeys(("nan_to_num", "cosine_embedding", "gaussian_nll", "dice"), _TAKES_NO_HALF),
    **dict.fromkeys(
        ("F.prelu", "multi_dot", "smooth_l1_loss", "huber", "affine_grid"), _FLOAT32_GRADIENT
    ),
}

SWEEP: dict[str, str] = {
    **{f"{name} {dtype}": why for name, why in _CASES.items() for dtype in HALVES},
    "sigmoid_focal bfloat16": "Paddle's own Python code writes alpha as an integer: 0",
}
"""``name dtype`` of the sweep: reason."""

NO_REFERENCE: dict[str, str] = {
    **dict.fromkeys(
        ("gammaln", "lp_pool2d", "masked_scatter", "sigmoid", "swapaxes", "swiglu"), _NOT_THERE
    ),
    **dict.fromkeys(("atan2 broadcast", "attention causal", "group_norm"), _NO_CPU_KERNEL),
    **dict.fromkeys(("as_strided", "view"), "strided kernels are switched off"),
}
"""Cases of the sweep that the CPU of this version does not do."""

HAZARDS: dict[str, tuple[str, str]] = {
    "sizes of zero": ("empty list", "Paddle's Python code takes no empty list in concat"),
    "writing in place to views": ("AssertionError", "views are copies, as every result says"),
    "integers and truth values": ("kernel", "its CPU library lacks an integer kernel"),
    "branches and loops in a program": ("holder_", "branches of compiled programs do not run"),
    "a static program": ("fetch_v2", "static programs cannot fetch from custom devices"),
}
"""Scenario: what its error holds, and why it is not what 3.x does."""

WORKS: dict[str, str] = {"least squares": "this version does not ask for the device's name"}
"""Scenarios that 3.x refuses."""

ENDS: dict[str, str] = {
    "one of several results": "qr_grad reads the gradient that is missing, as on a plain CPU"
}
"""Scenarios that end the process by a signal."""

RACES: dict[str, str] = {
    "an end with everything alive": "the loader's threads outlive what they use: about one end in "
    "a hundred is by a signal, on a plain CPU, too"
}
"""Scenarios that end by a signal now and then."""
