"""Every function of ``paddle.device.cuda`` and ``paddle.device``, and what tensors and layers do.

Not a test module: it runs on the virtual device, under each version of Paddle.
"""

import inspect
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import paddle.nn as nn

# Arguments where none will not do.
ARGUMENTS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "set_device": lambda: ("gpu:0",),
    "set_default_device": lambda: ("gpu",),
    "manual_seed": lambda: (3,),
    "manual_seed_all": lambda: (3,),
    "is_compiled_with_custom_device": lambda: ("vgpu",),
    "get_device_module": lambda: ("cuda",),
    "extract_cuda_device_id": lambda: ("gpu:0", "the tour"),
    "extract_device_id": lambda: ("gpu:0", "the tour"),
    "device_to_place": lambda: ("gpu:0",),
    "allocate_record_guard": lambda: (True,),
}
# What there is no such thing as here; Paddle or autoamp says so.
LACKING = {
    "cuda.vmm_compact": "not supported",
    "device.vmm_compact": "not supported",
    "cuda.cuda_graphed_layer": "",
    "cuda.allocate_record_table": "not supported",
    "cuda.allocate_record_plot": "not supported",
}
GPU_NAMES = (0, "gpu:0")


def names_of(module: Any) -> list[str]:
    """What it exports, and every public function of its own besides."""
    name = module.__name__
    own = {
        key
        for key in dir(module)
        if not key.startswith("_")
        and not inspect.isclass(getattr(module, key))
        and callable(getattr(module, key))
        and str(getattr(getattr(module, key), "__module__", "")).startswith(
            (name, "autoamp.virtual")
        )
    }
    return sorted(own | set(getattr(module, "__all__", ())))


def calls() -> dict[str, Callable[[], Any]]:
    cuda, device = paddle.device.cuda, paddle.device
    found: dict[str, Callable[[], Any]] = {}
    for prefix, module in (("cuda", cuda), ("device", device)):
        for name in names_of(module):
            function = getattr(module, name)
            key = f"{prefix}.{name}"
            if not callable(function) or name in ("cuda", "xpu", "custom_device", "nvtx"):
                continue
            if "stream" in name and ("guard" in name or name in ("stream", "set_stream")):
                continue  # below
            if name in (
                "IPUPlace",
                "XPUPlace",
                "get_stream_from_external",
                "StreamContext",
                "Device",
                "device_guard",
            ):
                continue
            if name == "set_rng_state":
                state = module.get_rng_state
                found[key] = lambda function=function, state=state: function(state())
                continue
            arguments = ARGUMENTS.get(name, tuple)
            found[key] = lambda function=function, arguments=arguments: function(*arguments())
            if prefix == "cuda" and ("memory" in name or name.startswith("get_device")):
                for gpu in (*GPU_NAMES, paddle.CUDAPlace(0)):
                    found[f"{key}({gpu})"] = lambda function=function, gpu=gpu: function(gpu)
    found.update(
        {
            "streams of cuda": lambda: with_stream(cuda),
            "streams": lambda: with_stream(device),
            "events of cuda": lambda: timed(cuda),
            "tensor.cuda": lambda: on_gpu(host().cuda()),
            "tensor.cuda(0)": lambda: on_gpu(host().cuda(0)),
            "tensor.cuda, not waiting": lambda: on_gpu(host().cuda(blocking=False)),
            "tensor.to": lambda: on_gpu(host().to("gpu")),
            "tensor.to, not waiting": lambda: on_gpu(host().to("gpu", blocking=False)),
            "tensor.to place": lambda: on_gpu(host().to(paddle.CUDAPlace(0))),
            "pinned": lambda: on_gpu(host().pin_memory().cuda(blocking=False)),
            "pinned place": lambda: paddle.to_tensor([1.0], place=paddle.CUDAPinnedPlace()),
            "layer.to": lambda: on_gpu(nn.Linear(2, 2).to("gpu:0").weight),
            "layer.to place": lambda: on_gpu(nn.Linear(2, 2).to(paddle.CUDAPlace(0)).weight),
            "places": lambda: paddle.static.cuda_places(),
            "is_compiled_with_cuda": lambda: require(paddle.is_compiled_with_cuda()),
            "generator": seeds_repeat,
            "random state": lambda: paddle.set_cuda_rng_state(paddle.get_cuda_rng_state()),
            "from the disk": from_disk,
            "model": fit,
        }
    )
    if hasattr(nn.Layer, "cuda"):
        found["layer.cuda"] = lambda: on_gpu(nn.Linear(2, 2).cuda().weight)
    if hasattr(paddle.Tensor, "is_cuda"):
        found["is_cuda"] = lambda: require(host().cuda().is_cuda and not host().is_cuda)
    if hasattr(device, "Event"):
        found["events"] = lambda: timed(device)
    return found


def require(true: bool) -> None:
    assert true


def host() -> Any:
    return paddle.to_tensor([1.0, 2.0], place=paddle.CPUPlace())


def on_gpu(tensor: Any) -> None:
    assert tensor.place.is_gpu_place() and isinstance(tensor.place, paddle.CUDAPlace)


def with_stream(module: Any) -> None:
    if not hasattr(module, "Stream"):
        return
    stream = module.Stream()
    with module.stream_guard(stream):
        paddle.ones([4]) * 2
    stream.wait_stream(module.current_stream())
    stream.wait_event(stream.record_event())
    stream.synchronize()
    assert stream.query()


def timed(module: Any) -> None:
    start, end = module.Event(enable_timing=True), module.Event(enable_timing=True)
    start.record()
    paddle.ones([64, 64]) @ paddle.ones([64, 64])
    end.record()
    end.synchronize()
    if hasattr(end, "elapsed_time"):
        assert start.elapsed_time(end) > 0


def seeds_repeat() -> None:
    """Whoever seeds or restores: the same numbers come again."""
    holders = [paddle.device.cuda, paddle.device, paddle]
    for holder in holders:
        for name in ("manual_seed", "manual_seed_all", "seed"):
            if hasattr(holder, name):
                seed = getattr(holder, name)
                seed(7)
                first = paddle.rand([4]).numpy()
                seed(7)
                assert (paddle.rand([4]).numpy() == first).all(), name
        if hasattr(holder, "get_rng_state"):
            state = holder.get_rng_state()
            first = paddle.rand([4]).numpy()
            holder.set_rng_state(state)
            assert (paddle.rand([4]).numpy() == first).all()


def from_disk() -> None:
    net = nn.Linear(2, 2)
    paddle.save(net.state_dict(), "tour.pdparams")
    kept = paddle.load("tour.pdparams")
    paddle.load("tour.pdparams", return_numpy=True)
    net.set_state_dict(kept)
    on_gpu(net.weight)
    os.remove("tour.pdparams")


class Rows(paddle.io.Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> Any:
        return np.full([4], i, "float32"), np.int64(i % 2)


def fit() -> None:
    """``paddle.Model``, a compiled layer and loader workers, on the GPU by its names."""
    paddle.set_device("gpu")
    net = nn.Sequential(nn.Linear(4, 2))
    model = paddle.Model(net)
    model.prepare(paddle.optimizer.SGD(0.1, parameters=net.parameters()), nn.CrossEntropyLoss())
    loader = paddle.io.DataLoader(
        Rows(), places=paddle.CUDAPlace(0), batch_size=4, num_workers=2, return_list=True
    )
    model.fit(loader, verbose=0)
    on_gpu(net[0].weight)
    compiled = paddle.jit.to_static(nn.Linear(4, 2), full_graph=True)
    for x, _ in loader:
        on_gpu(x)
        on_gpu(compiled(x))


def tour() -> dict[str, Any]:
    """``count`` of calls, and what went ``wrong`` with which."""
    wrong = {}
    found = calls()
    for name, call in found.items():
        try:
            call()
        except Exception as error:
            expected = LACKING.get(name.split("(")[0])
            if expected is None or expected not in str(error):
                wrong[name] = f"{type(error).__name__}: {str(error)[-300:]}"
    paddle.set_device("gpu")
    return {"count": len(found), "wrong": wrong}
