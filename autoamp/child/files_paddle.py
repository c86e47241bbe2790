"""Paddle's savers and loaders that open files in C++.

``paddle.save`` and ``paddle.load`` go through Python's ``open`` and need nothing. Checked in the
source of 3.3.1: ``jit.save``, ``static.save_inference_model`` and their loaders reach C++
functions of ``paddle.base.core`` with a path; in 2.6 they run ``save`` and ``load`` operators
with a path attribute, so there the public functions are wrapped.
"""

import functools
import os
from collections.abc import Callable
from typing import Any

from autoamp.child.files_c_writers import CWriters
from autoamp.child.paddle_base import base

# Function of paddle.base.core: index and name of its path argument (unnamed in the binding: "").
_CORE_SAVERS = {
    "save_func": (2, ""),
    "save_combine_func": (2, ""),
    "save_dense_tensor": (1, ""),
    "save_selected_rows": (1, ""),
    "serialize_pir_program": (1, "file_path"),
}
_CORE_LOADERS = {
    "load_func": (0, ""),
    "load_combine_func": (0, ""),
    "load_dense_tensor": (1, ""),
    "load_selected_rows": (1, ""),
    "deserialize_pir_program": (0, "file_path"),
    "load_profiler_result": (0, ""),
}
# Public functions of releases without the above: module, name, index, argument.
_OPERATOR_SAVERS = (
    ("jit", "save", 1, "path"),
    ("static", "save_inference_model", 0, "path_prefix"),
    ("static", "save", 1, "model_path"),
)
_OPERATOR_LOADERS = (
    ("jit", "load", 0, "path"),
    ("static", "load_inference_model", 0, "path_prefix"),
    ("static", "load", 1, "model_path"),
)


class PaddleSavers:
    def __init__(self, writers: CWriters) -> None:
        self._writers = writers

    def install(self, paddle: Any) -> None:
        core = base(paddle).core
        for name, (index, keyword) in _CORE_SAVERS.items():
            self._writers.wrap_path(core, name, index, keyword, writes=True)
        for name, (index, keyword) in _CORE_LOADERS.items():
            self._writers.wrap_path(core, name, index, keyword, writes=False)
        if not hasattr(core, "save_combine_func"):
            for module, name, index, keyword in _OPERATOR_SAVERS:
                self._wrap_prefix(getattr(paddle, module), name, index, keyword, self._to_write)
            for module, name, index, keyword in _OPERATOR_LOADERS:
                self._wrap_prefix(getattr(paddle, module), name, index, keyword, self._to_read)
        inference = getattr(paddle, "inference", None)
        profiler = getattr(core, "_ProfilerResult", None)
        if inference is not None:
            self._inference(inference)
        if profiler is not None and hasattr(profiler, "save"):
            self._writers.wrap_path(profiler, "save", 1, "", writes=True)

    def _wrap_prefix(
        self, owner: Any, name: str, index: int, keyword: str, exchange: Callable[[Any], Any]
    ) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def diverted(*args: Any, **kwargs: Any) -> Any:
            if len(args) > index:
                args = (*args[:index], exchange(args[index]), *args[index + 1 :])
            elif keyword in kwargs:
                kwargs[keyword] = exchange(kwargs[keyword])
            return original(*args, **kwargs)

        setattr(owner, name, diverted)

    def _to_write(self, prefix: Any) -> Any:
        """These savers make the prefix's folder themselves."""
        folder = os.path.dirname(os.fsdecode(prefix))
        if folder:
            os.makedirs(folder, exist_ok=True)
        return self._writers.to_write(prefix, keep=False)

    def _to_read(self, prefix: Any) -> Any:
        """The upper side if the trial wrote a file of this prefix."""
        folder, name = os.path.split(os.fsdecode(prefix))
        try:
            mine = [n for n in os.listdir(folder or ".") if n.startswith(name + ".")]
        except OSError:
            return prefix
        for entry in mine:
            path = os.path.join(folder, entry)
            real = self._writers.to_read(path)
            if real != path:
                return real[: len(real) - len(entry) + len(name)]
        return prefix

    def _inference(self, inference: Any) -> None:
        """``inference.Config(model, params)`` reads its files in C++."""
        start = inference.Config.__init__

        @functools.wraps(start)
        def diverted(config: Any, *paths: Any) -> None:
            start(config, *(self._writers.to_read(path) for path in paths))

        inference.Config.__init__ = diverted
