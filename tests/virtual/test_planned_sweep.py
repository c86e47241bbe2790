"""Planned operators give the shapes and dtypes that computed ones give, or are refused by name.

In a plug-in built for this test every tensor counts as large, so that the sweep's small cases are
planned and not computed.
"""

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoamp.virtual import build
from autoamp.virtual.device import child_environment

pytestmark = [pytest.mark.needs_paddle, pytest.mark.needs_compiler, pytest.mark.slow]

Run = Callable[..., dict[str, Any]]

HERE = str(Path(__file__).parent)

BODY = f"""
sys.path.insert(0, {HERE!r})
from operators import CASES
def looks(case, dtype):
    inputs = [paddle.to_tensor(x).astype(dtype) for x in case.inputs]
    for tensor in inputs:
        tensor.stop_gradient = False
    out = case.call(*inputs)
    if out.is_floating_point() and not out.stop_gradient:
        out.astype("float32").sum().backward()
    return [f"{{list(t.shape)}} {{t.dtype}}" for t in (out, *(t.grad for t in inputs))
            if t is not None]
def of(case, dtype):
    try:
        return looks(case, dtype)
    except Exception as error:
        return f"{{type(error).__name__}}: {{str(error)[-300:]}}"
paddle.set_device("gpu")
give(seen={{f"{{name}} {{dtype}}": of(case, dtype)
           for name, case in CASES.items() for dtype in ("float32", "float16")}})
"""

BY_NAME = ("index mask", "masked_select", "nonzero", "unique", "bincount", "sequence_mask")
"""Cases whose result has a shape that depends on values."""

NOT_PLANNED = {
    "sigmoid_focal": "reads a shape from paddle.shape(), whose result is small elsewhere",
}


def test_shapes_and_dtypes_are_those_of_computed_operators(
    run: Run, devices: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = run(BODY, device=devices.a100)["seen"]
    sources = tmp_path / "csrc"
    shutil.copytree(build.SOURCES, sources)
    header = sources / "planning.h"
    text = header.read_text(encoding="utf-8")
    line = "constexpr int64_t kLargeElements = 65536;"
    assert line in text
    header.write_text(text.replace(line, line.replace("65536", "1")), encoding="utf-8")
    monkeypatch.setattr(build, "SOURCES", sources)
    monkeypatch.setenv("AUTOAMP_CACHE_DIR", str(tmp_path / "cache"))
    everything_is_large = build.ensure_built(sys.executable, print)
    device = replace(devices.a100, numerics=False)
    planned = run(BODY, device=device, environment=child_environment(device, everything_is_large))[
        "seen"
    ]
    ran = {name: seen for name, seen in computed.items() if isinstance(seen, list)}
    assert len(ran) > 700
    refused = {
        name for name in ran if isinstance(planned[name], str) and "numerics=off" in planned[name]
    }
    assert {name.rsplit(" ", 1)[0] for name in refused} == set(BY_NAME)
    wrong = {
        name: (planned[name], seen)
        for name, seen in ran.items()
        if name not in refused
        and planned[name] != seen
        and name.rsplit(" ", 1)[0] not in NOT_PLANNED
    }
    assert not wrong, "\n".join(f"{k}: {v}" for k, v in wrong.items())
