"""Scratch memory of convolutions: how much, when it counts, and that it is enforced."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.needs_paddle, pytest.mark.needs_compiler]

Run = Callable[..., dict[str, Any]]
MIB = 2**20

# One convolution of 32 images, 32 to 32 channels, 128 x 128: input and output are 64 MiB each in
# float32, half of it in float16.
CONV = """
import paddle.nn as nn
F = nn.functional
def conv(dtype="float32", layout="NCHW", window=3, channels=32, groups=1):
    shape = [32, channels, 128, 128] if layout == "NCHW" else [32, 128, 128, channels]
    x = paddle.zeros(shape, dtype)
    w = paddle.zeros([channels, channels // groups, window, window], dtype)
    y = F.conv2d(x, w, padding=window // 2, data_format=layout, groups=groups)
    return runtime.workspace_bytes()
"""
FLOAT32 = 2 * 64 * MIB
FLOAT16 = FLOAT32 // 2


KINDS = {
    "conv('float16')": FLOAT16,  # both operands copied to channels-last
    "conv('float16', 'NHWC')": 0,
    "conv('float32')": int(2.25 * FLOAT32),  # Winograd F(4x4, 3x3)
    "conv('float32', window=1)": 0,
    "conv('float16', groups=32)": 0,  # depthwise kernels need none
    "paddle.matmul(paddle.zeros([4096, 4096]), paddle.zeros([4096, 4096]))": 0,
}


def test_each_kind_of_convolution(run: Run) -> None:
    got = run(
        CONV
        + f"""
seen = {{}}
for call in {list(KINDS)!r}:
    eval(call)
    seen[call] = runtime.workspace_bytes()
    paddle.device.cuda.empty_cache()
    runtime._library().call("reset_peak")
give(seen=seen)
""",
        numerics=False,
    )
    for call, size in KINDS.items():
        # All tensors are alive when the workspace is taken: it is all on top of their peak.
        assert got["seen"][call] == pytest.approx(size, abs=64 * 1024), call


def test_an_algorithm_that_wants_more_than_the_limit_is_passed_over(run: Run) -> None:
    got = run(
        CONV
        + """
paddle.set_flags({"FLAGS_conv_workspace_size_limit": 256})
give(seen=conv())
""",
        numerics=False,
    )
    assert got["seen"] == 0


@pytest.mark.parametrize("where", ["environment", "script"])
def test_an_exhaustive_search_holds_more_and_only_once(run: Run, where: str) -> None:
    flags = {"FLAGS_cudnn_exhaustive_search": "1", "FLAGS_conv_workspace_size_limit": "4000"}
    told = "" if where == "environment" else f"paddle.set_flags({flags!r})\n"
    got = run(
        CONV
        + told
        + """
first = conv("float16")
runtime._library().call("reset_peak")
give(first=first, second=conv("float16"))
""",
        numerics=False,
        environment=flags if where == "environment" else None,
    )
    # Eight bytes for each value of input and output; then the choice is known.
    assert got["first"] == pytest.approx(4 * FLOAT16, abs=64 * 1024)
    assert got["second"] == pytest.approx(FLOAT16, abs=64 * 1024)


def test_what_does_not_fit_is_paddles_own_error(run: Run) -> None:
    body = (
        CONV
        + """
try:
    conv()
    give(error=None)
except MemoryError as error:
    give(error=str(error))
give(peak=runtime.reserved_peak_bytes(), allocated=runtime.allocated_peak_bytes())
"""
    )
    tensors = FLOAT32 + MIB
    room = run(body, numerics=False, memory_bytes=int(3.25 * FLOAT32) + 2 * MIB)
    assert room["error"] is None
    tight = run(body, numerics=False, memory_bytes=int(3.25 * FLOAT32) - 2 * MIB)
    assert "Out of memory error on vgpu:0" in tight["error"]
    for seen in (room, tight):
        assert seen["peak"] <= tensors and seen["allocated"] <= tensors


def test_the_context_is_taken_off_and_scripts_see_it(run: Run) -> None:
    got = run(
        """
total = paddle.device.cuda.get_device_properties().total_memory
held = []
try:
    while True:
        held.append(paddle.zeros([MIB], "uint8"))
except MemoryError as error:
    said = str(error)
give(total=total, held=len(held), said=said, overhead=runtime.overhead_bytes())
""".replace("MIB", str(MIB)),
        numerics=False,
        memory_bytes=64 * MIB,
        driver_bytes=4 * MIB,
        context_bytes=20 * MIB,
    )
    assert got["total"] == 60 * MIB
    assert got["overhead"] == 24 * MIB
    assert got["held"] == 40
    assert "Out of memory error on vgpu:0" in got["said"]
