"""Widening and rounding: every float16 and bfloat16 pattern, vector and scalar code alike."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.needs_paddle, pytest.mark.needs_compiler]

Run = Callable[..., dict[str, Any]]

# Runs in a process of its own: the library brings paddle's C++ libraries along.
BODY = """
import ctypes
lib = ctypes.CDLL(os.path.join(os.environ["CUSTOM_DEVICE_ROOT"], "libautoamp_vgpu.so"))
def pointer(a):
    return a.ctypes.data_as(ctypes.c_void_p)
def widen(kind, bits):
    out = np.empty(bits.size, "float32")
    lib.autoamp_vgpu_widen(kind, pointer(bits), pointer(out), ctypes.c_longlong(bits.size))
    return out
def rounded(kind, values):
    out = np.empty(values.size, "uint16")
    lib.autoamp_vgpu_round(kind, pointer(values), pointer(out), ctypes.c_longlong(values.size))
    return out
def same(a, b):
    return bool(((a == b) | (np.isnan(a) & np.isnan(b))).all())
patterns = np.arange(65536, dtype="uint16")
rng = np.random.default_rng(0)
# Every exponent, random mantissas, and the values on and next to each rounding border.
random = rng.integers(0, 2**32, 1_000_000, dtype="uint32").view("float32")
halves = patterns.view("float16").astype("float32")
finite = halves[np.isfinite(halves)]
steps = np.sort(finite)
middles = ((steps[1:].astype("float64") + steps[:-1]) / 2).astype("float32")
borders = np.concatenate([finite, middles, np.nextafter(middles, np.float32(np.inf)),
                          np.nextafter(middles, np.float32(-np.inf)),
                          np.float32([65519.996, 65520.0, -65520.0, 2**-25, 2**-24, np.inf])])
values = np.concatenate([random, borders.astype("float32")])
checks = {}
for scalar in (0, 1):
    lib.autoamp_vgpu_scalar_conversion(scalar)
    name = "scalar" if scalar else "best"
    checks[name + " widen float16"] = same(widen(0, patterns), halves)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype("float16").astype("float32")
    checks[name + " round float16"] = same(widen(0, rounded(0, values)), expected)
    checks[name + " widen bfloat16"] = same(widen(1, patterns),
                                            (patterns.astype("uint32") << 16).view("float32"))
    bits = values.view("uint32").astype("uint64")
    nearest = ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16).astype("uint16")
    got = rounded(1, values)
    nan = np.isnan(values)
    checks[name + " round bfloat16"] = bool((got[~nan] == nearest[~nan]).all())
    checks[name + " nan bfloat16"] = bool(np.isnan(widen(1, got[nan])).all())
give(checks=checks, vector=lib.autoamp_vgpu_has_vector_conversion())
"""


def test_every_pattern_both_ways(run: Run) -> None:
    got = run(BODY)
    assert len(got["checks"]) == 10
    assert all(got["checks"].values()), got["checks"]
