"""What scripts say when they mean the GPU, mapped to the virtual device.

Paddle's own code must go on seeing a build without CUDA: it would call CUDA functions that are
not there. So what is answered depends on who asks, told by the caller's module.
"""

import re
import sys
from typing import Any

DEVICE_TYPE = "vgpu"
_GPU_NAME = re.compile(r"^(gpu|cuda|dcu)(:(\d+))?$")


TOLD_GPU: set[str] = set()
"""Modules of paddle's that are told a virtual place is a GPU place (see ``amp_gates``)."""


def asked_by_paddle(depth: int = 2) -> bool:
    """True if the function that calls the caller of this one belongs to paddle."""
    name = str(sys._getframe(depth).f_globals.get("__name__", ""))
    return name == "paddle" or name.startswith("paddle.")


def _asked_by_hapi_prepare(depth: int = 2) -> bool:
    # paddle.Model decorates for O2 only if paddle was built with CUDA; without it O2 would
    # run with float32 parameters, which no GPU does (hapi/model.py, prepare).
    frame = sys._getframe(depth)
    return (
        frame.f_globals.get("__name__") == "paddle.hapi.model"
        and frame.f_code.co_name == "prepare"
    )


def replace_everywhere(name: str, old: Any, new: Any) -> None:
    """Put ``new`` wherever a loaded paddle module holds ``old`` under ``name``."""
    namespaces = [
        vars(module)
        for key, module in list(sys.modules.items())
        if key.split(".", 1)[0] == "paddle"
    ]
    # paddle.device is a callable stand-in with a copy of the names that the functions in it
    # really use: those live in the functions' own globals.
    namespaces.append(getattr(old, "__globals__", {}))
    namespaces.append(sys.modules["paddle"].device.set_device.__globals__)
    for namespace in namespaces:
        if namespace.get(name) is old:
            namespace[name] = new


def install(paddle: Any) -> None:
    """Map device names, places and "is this a CUDA build" to the virtual device."""
    core = paddle.base.core
    _map_places(paddle, core)
    _map_strings(paddle, core)
    _map_build_questions(paddle, core)
    _tolerate_cuda_flags(paddle)


def virtual_place(core: Any, index: int = 0) -> Any:
    if index != 0:
        raise ValueError(
            f"The device id {index} exceeds gpu card number 1: the virtual device is one GPU."
        )
    return core.CustomPlace(DEVICE_TYPE, 0)


def _is_virtual(place: Any) -> bool:
    return "vgpu" in str(place)


def _map_places(paddle: Any, core: Any) -> None:
    cuda_place, pinned_place = core.CUDAPlace, core.CUDAPinnedPlace
    custom_place, any_place = core.CustomPlace, core.Place

    class PlaceMeta(type):
        def __call__(cls, device_id: int = 0) -> Any:
            return virtual_place(core, device_id)

        def __instancecheck__(cls, place: Any) -> bool:
            if isinstance(place, cuda_place):
                return True
            if asked_by_paddle():
                return False
            return isinstance(place, (custom_place, any_place)) and _is_virtual(place)

    class CUDAPlace(metaclass=PlaceMeta):
        """Stands for ``paddle.CUDAPlace``; makes places of the virtual device."""

    class PinnedMeta(type):
        def __call__(cls) -> Any:
            # Pinned memory is host memory here: all of it can be copied from alike.
            return core.CPUPlace()

        def __instancecheck__(cls, place: Any) -> bool:
            return isinstance(place, pinned_place)

    class CUDAPinnedPlace(metaclass=PinnedMeta):
        """Stands for ``paddle.CUDAPinnedPlace``; makes CPU places."""

    replace_everywhere("CUDAPlace", cuda_place, CUDAPlace)
    replace_everywhere("CUDAPinnedPlace", pinned_place, CUDAPinnedPlace)

    is_gpu_place, gpu_device_id = any_place.is_gpu_place, any_place.gpu_device_id
    is_custom_place = any_place.is_custom_place

    def told_gpu() -> bool:
        return str(sys._getframe(2).f_globals.get("__name__")) in TOLD_GPU

    def answers_gpu(self: Any) -> bool:
        if is_gpu_place(self):
            return True
        return (told_gpu() or not asked_by_paddle()) and _is_virtual(self)

    def answers_custom(self: Any) -> bool:
        return bool(is_custom_place(self)) and not told_gpu()

    def answers_id(self: Any) -> int:
        return 0 if _is_virtual(self) else int(gpu_device_id(self))

    any_place.is_gpu_place = answers_gpu
    any_place.is_custom_place = answers_custom
    any_place.gpu_device_id = answers_id


def _map_strings(paddle: Any, core: Any) -> None:
    device_module = paddle.device
    framework = paddle.base.framework

    def gpu_place(name: Any) -> Any:
        """The virtual place if ``name`` is a GPU's name, else None."""
        if not isinstance(name, str):
            return None
        match = _GPU_NAME.match(name.lower())
        if match is None:
            return None
        return virtual_place(core, int(match.group(3) or 0))

    convert = device_module._convert_to_place

    def convert_to_place(device: Any) -> Any:
        place = gpu_place(device)
        return convert(device) if place is None else place

    replace_everywhere("_convert_to_place", convert, convert_to_place)

    get_place = framework._get_paddle_place

    def get_paddle_place(place: Any) -> Any:
        if isinstance(place, str) and place.lower() == "gpu_pinned":
            return core.CPUPlace()
        found = gpu_place(place)
        return get_place(place) if found is None else found

    replace_everywhere("_get_paddle_place", get_place, get_paddle_place)

    get_device = device_module.get_device

    def answers_device(*args: Any, **kwargs: Any) -> Any:
        name = get_device(*args, **kwargs)
        if isinstance(name, str) and name.startswith(DEVICE_TYPE) and not asked_by_paddle():
            return "gpu" + name[len(DEVICE_TYPE) :]
        return name

    replace_everywhere("get_device", get_device, answers_device)


def _map_build_questions(paddle: Any, core: Any) -> None:
    for holder in (core, paddle.base.framework):
        original = holder.is_compiled_with_cuda

        def is_compiled_with_cuda() -> bool:
            return not asked_by_paddle() or _asked_by_hapi_prepare()

        replace_everywhere("is_compiled_with_cuda", original, is_compiled_with_cuda)

    if not hasattr(core, "get_cuda_device_count"):
        # Only a CUDA build has it; who was told "CUDA" goes on to ask for the number.
        core.get_cuda_device_count = lambda: 0 if asked_by_paddle() else 1


def _tolerate_cuda_flags(paddle: Any) -> None:
    """Flags that only a CUDA build knows are dropped, as scripts set them when told "GPU"."""
    set_flags = paddle.set_flags
    is_public = paddle.base.core.globals().is_public

    def set_known_flags(flags: Any) -> None:
        if isinstance(flags, dict) and not asked_by_paddle():
            flags = {
                key: value
                for key, value in flags.items()
                if is_public(key) or not _CUDA_FLAG.match(str(key))
            }
        if flags != {}:
            set_flags(flags)

    replace_everywhere("set_flags", set_flags, set_known_flags)


_CUDA_FLAG = re.compile(
    r"^FLAGS_(cudnn_|cublas|gemm_|conv_workspace|conv2d_disable|gpu_|nccl|cuda)"
)
