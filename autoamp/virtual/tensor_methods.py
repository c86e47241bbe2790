"""What tensors are asked about the GPU, and told to do with it, by methods of their own."""

from typing import Any

from autoamp.virtual.script_names import (
    DEVICE_TYPE,
    asked_by_paddle,
    replace_everywhere,
    virtual_place,
)


def install(paddle: Any) -> None:
    """``tensor.cuda(0)``, ``is_cuda``, ``device``, ``static.cuda_places``, ``layer.to(place)``."""
    core = paddle.base.core
    classes = {paddle.Tensor, getattr(getattr(core, "eager", None), "Tensor", paddle.Tensor)}
    to_cuda = paddle.Tensor.cuda

    def cuda(self: Any, device_id: int | None = None, blocking: bool = True) -> Any:
        if device_id is not None:
            # Raises ValueError for the number of another GPU.
            virtual_place(core, device_id)
        if DEVICE_TYPE in str(paddle.base.framework._current_expected_place()):
            return to_cuda(self, None, blocking)
        moved = self._copy_to(virtual_place(core), blocking)
        moved.stop_gradient, moved.persistable = self.stop_gradient, self.persistable
        return moved

    def is_cuda(self: Any) -> bool:
        # Paddle's own code takes other ways for CUDA's tensors: lerp with a float64 weight.
        return DEVICE_TYPE in str(self.place) and not asked_by_paddle()

    def device(self: Any) -> str:
        return "cuda:0" if DEVICE_TYPE in str(self.place) else "cpu"

    for cls in classes:
        cls.cuda = cuda
        for name, answer in (("is_cuda", is_cuda), ("device", device)):
            # A name that this paddle version lacks stays lacking: scripts test for it.
            if hasattr(cls, name):
                setattr(cls, name, property(answer))

    cuda_places = paddle.static.cuda_places

    def places(device_ids: Any = None) -> list[Any]:
        return [virtual_place(core, int(index)) for index in (device_ids or [0])]

    replace_everywhere("cuda_places", cuda_places, places)
    if paddle.__version__.startswith("2."):
        _take_places(paddle.nn.Layer)


def _take_places(layer_class: Any) -> None:
    """``layer.to(place)`` of Paddle 2.6 takes a custom device's by name only."""
    to = layer_class.to

    def by_name(self: Any, device: Any = None, dtype: Any = None, blocking: Any = None) -> Any:
        return to(self, "gpu:0" if DEVICE_TYPE in str(device) else device, dtype, blocking)

    layer_class.to = by_name
