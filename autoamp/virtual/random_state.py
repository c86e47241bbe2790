"""The state of random numbers: kernels of the virtual device draw from the CPU's generator.

Without this ``get_rng_state`` and ``set_rng_state`` save and restore a generator that nobody
uses, and a recomputed dropout drops other elements than the first time.
"""

from collections.abc import Sequence
from typing import Any

from autoamp.virtual.script_names import replace_everywhere


def install(paddle: Any) -> None:
    """Answer for the device's generator, and for "CUDA's", with the one that is drawn from."""
    core = paddle.base.core

    def generator(place: Any = None) -> Any:
        return core.default_cpu_generator()

    # What asks "which generator" with a virtual place takes the one branch or the other.
    for name in ("default_custom_device_generator", "default_cuda_generator"):
        if hasattr(core, name):
            setattr(core, name, generator)

    def get_cuda_rng_state() -> list[Any]:
        return [generator().get_state()]

    def set_cuda_rng_state(state_list: Sequence[Any]) -> None:
        if len(state_list) != 1:
            raise ValueError("Length of cuda state list should be equal to the cuda device count")
        generator().set_state(state_list[0])

    for function in (get_cuda_rng_state, set_cuda_rng_state):
        name = function.__name__
        replace_everywhere(name, getattr(paddle, name), function)
