"""What scripts say about GPUs works on the virtual device unchanged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.needs_paddle, pytest.mark.needs_compiler]

Run = Callable[..., dict[str, Any]]


def test_every_way_to_name_the_gpu(run: Run, devices: Any) -> None:
    got = run(
        """
places = {}
for name in ("gpu", "gpu:0", "cuda", "cuda:0", "GPU:0"):
    paddle.set_device("cpu")
    paddle.set_device(name)
    places[f"set_device {name}"] = str(paddle.ones([1]).place)
paddle.device.set_device("gpu")
x = paddle.ones([2])
cpu = x.cpu()
places["place object"] = str(paddle.to_tensor([1.0], place=paddle.CUDAPlace(0)).place)
places["place text"] = str(paddle.to_tensor([1.0], place="gpu:0").place)
places["cuda()"] = str(cpu.cuda().place)
places["to"] = str(cpu.to("gpu").place)
places["to place"] = str(cpu.to(paddle.CUDAPlace(0)).place)
places["layer to"] = str(paddle.nn.Linear(2, 2).to("gpu").weight.place)
places["set_device place"] = str(paddle.set_device(paddle.CUDAPlace(0)))
pinned = paddle.to_tensor([1.0], place=paddle.CUDAPinnedPlace())
kept = {"cpu()": str(cpu.place), "pinned": str(pinned.place)}
paddle.set_device("cpu")
kept["set_device cpu"] = str(paddle.ones([1]).place)
paddle.set_device("gpu")
give(places=places, kept=kept,
     answers=[paddle.is_compiled_with_cuda(), paddle.device.is_compiled_with_cuda(),
              paddle.base.core.is_compiled_with_cuda(),
              x.place.is_gpu_place(), isinstance(x.place, paddle.CUDAPlace),
              paddle.get_device() == "gpu:0", paddle.device.get_device() == "gpu:0",
              not cpu.place.is_gpu_place(), not isinstance(cpu.place, paddle.CUDAPlace)])
wrong = []
for call in (lambda: paddle.set_device("gpu:1"), lambda: paddle.CUDAPlace(3)):
    try:
        call()
    except ValueError as error:
        wrong.append(str(error))
give(wrong=wrong)
"""
    )
    assert {name: place for name, place in got["places"].items() if "vgpu" not in place} == {}
    assert {name: place for name, place in got["kept"].items() if "cpu" not in place} == {}
    assert all(got["answers"]), got["answers"]
    assert len(got["wrong"]) == 2


def test_the_cuda_module_answers_for_the_gpu_played(run: Run, devices: Any) -> None:
    got = run(
        """
cuda = paddle.device.cuda
x = paddle.ones([1024, 1024])
start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
start.record()
y = x @ x
end.record()
cuda.synchronize(); cuda.empty_cache(); paddle.device.synchronize()
with cuda.stream_guard(cuda.Stream()):
    x + x
cuda.current_stream().synchronize()
del y
give(count=cuda.device_count(), name=cuda.get_device_name(),
     capability=list(cuda.get_device_capability()),
     total=cuda.get_device_properties(0).total_memory,
     now=cuda.memory_allocated(), peak=cuda.max_memory_allocated("gpu:0"),
     reserved=cuda.max_memory_reserved(paddle.CUDAPlace(0)), ms=start.elapsed_time(end))
"""
    )
    v100 = devices.v100
    assert got["count"] == 1 and got["name"] == v100.name
    assert tuple(got["capability"]) == v100.compute_capability
    assert got["total"] == v100.memory_bytes
    assert 4 << 20 <= got["now"] < 5 << 20
    assert 8 << 20 <= got["peak"] <= got["reserved"]
    # 2 * 1024^3 operations cannot take less than at the peak rate.
    assert got["ms"] >= 2 * 1024**3 / v100.flops_per_s["float32"] * 1e3


@pytest.mark.slow
def test_every_function_of_the_gpu_modules(run: Run) -> None:
    got = run(
        f"""
sys.path.insert(0, {str(Path(__file__).parent)!r})
import gpu_tour
give(**gpu_tour.tour())
"""
    )
    assert got["count"] >= 90
    assert not got["wrong"], "\n".join(f"{k}: {v}" for k, v in got["wrong"].items())


@pytest.mark.slow
def test_flags_of_a_cuda_build_do_no_harm(run: Run) -> None:
    got = run(
        """
paddle.set_flags({"FLAGS_cudnn_batchnorm_spatial_persistent": 1, "FLAGS_check_nan_inf": 0})
try:
    paddle.set_flags({"FLAGS_no_such_thing": 1})
    give(unknown=None)
except ValueError as error:
    give(unknown=str(error))
"""
    )
    assert "FLAGS_no_such_thing" in got["unknown"]


def test_ranges_name_the_operators_that_leave_float16(run: Run) -> None:
    got = run(
        """
x = paddle.full([4, 8], 300.0)
runtime.start_range_tracking()
paddle.matmul(x, x, transpose_y=True)
x + x
(x * 1000.0).sum()
paddle.log(paddle.zeros([3]))
give(rows=runtime.stop_range_tracking())
paddle.exp(paddle.full([2], 50.0))
give(after=runtime.stop_range_tracking())
"""
    )
    rows = {name: (peak, bad) for name, peak, bad in got["rows"]}
    assert rows["matmul_v2"] == (pytest.approx(720000.0), 0)
    assert rows["log"] == (0.0, 3)
    assert rows["reduce_sum"][0] > 65504 > rows["elementwise_add"][0]
    assert "exp" not in {name for name, _, _ in got["after"]}
