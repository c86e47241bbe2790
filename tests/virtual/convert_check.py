"""What widening and rounding must give, by numpy: every 16-bit pattern, and every rounding border.

Not a test module: it runs where the conversion runs, in a child or beside an emulator.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

FLOAT16, BFLOAT16 = 0, 1


def same(a: Any, b: Any) -> bool:
    return bool(((a == b) | (np.isnan(a) & np.isnan(b))).all())


def patterns() -> Any:
    return np.arange(65536, dtype="uint16")


def values() -> Any:
    """Every exponent with random mantissas, and the values on and next to each border."""
    rng = np.random.default_rng(0)
    random = rng.integers(0, 2**32, 1_000_000, dtype="uint32").view("float32")
    halves = patterns().view("float16").astype("float32")
    finite = halves[np.isfinite(halves)]
    steps = np.sort(finite)
    middles = ((steps[1:].astype("float64") + steps[:-1]) / 2).astype("float32")
    borders = [
        finite,
        middles,
        np.nextafter(middles, np.float32(np.inf)),
        np.nextafter(middles, np.float32(-np.inf)),
        np.float32([65519.996, 65520.0, -65520.0, 2**-25, 2**-24, np.inf]),
    ]
    return np.concatenate([random, *(b.astype("float32") for b in borders)])


def check(widen: Callable[[int, Any], Any], rounded: Callable[[int, Any], Any]) -> dict[str, bool]:
    """``widen(kind, bits)`` and ``rounded(kind, values)`` against numpy, by name."""
    halves = patterns().view("float16").astype("float32")
    given = values()
    with np.errstate(over="ignore", invalid="ignore"):
        expected = given.astype("float16").astype("float32")
    bits = given.view("uint32").astype("uint64")
    nearest = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("uint16")
    got = rounded(BFLOAT16, given)
    nan = np.isnan(given)
    upper = (patterns().astype("uint32") << 16).view("float32")
    return {
        "widen float16": same(widen(FLOAT16, patterns()), halves),
        "round float16": same(widen(FLOAT16, rounded(FLOAT16, given)), expected),
        "widen bfloat16": same(widen(BFLOAT16, patterns()), upper),
        "round bfloat16": bool((got[~nan] == nearest[~nan]).all()),
        "nan bfloat16": bool(np.isnan(widen(BFLOAT16, got[nan])).all()),
    }
