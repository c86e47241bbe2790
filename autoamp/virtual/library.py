"""The plug-in's own functions, called through ctypes in the process that has paddle loaded."""

import ctypes
import os
from collections.abc import Callable
from typing import Any, cast

LIBRARY = "libautoamp_vgpu.so"


class Library:
    """One handle to the library that paddle itself loaded from ``CUSTOM_DEVICE_ROOT``."""

    def __init__(self, folder: str) -> None:
        path = os.path.join(folder, LIBRARY)
        # dlopen of a library that is already loaded returns the same one, counters and all.
        self._functions = ctypes.CDLL(path)

    def _function(self, name: str, result: type | None, *arguments: type) -> Callable[..., Any]:
        function: Any = getattr(self._functions, f"autoamp_vgpu_{name}")
        function.restype = result
        function.argtypes = list(arguments)
        return cast(Callable[..., Any], function)

    def call(self, name: str, *arguments: int) -> None:
        """A function that takes ints and returns nothing."""
        self._function(name, None, *[ctypes.c_int] * len(arguments))(*arguments)

    def seconds(self, name: str) -> float:
        return float(self._function(name, ctypes.c_double)())

    def count(self, name: str) -> int:
        return int(self._function(name, ctypes.c_ulonglong)())

    def rows(self, name: str) -> list[list[str]]:
        """A report: one list of columns a line."""
        text = self._function(name, ctypes.c_char_p)()
        return [line.split("\t") for line in text.decode().splitlines()]

    def text_call(self, name: str, text: str) -> int:
        """A function that takes a text and returns an int."""
        return int(self._function(name, ctypes.c_int, ctypes.c_char_p)(text.encode()))

    def set_parameter(self, name: str, value: float) -> None:
        """Set a number of the device or its clock. Raises KeyError for an unknown name."""
        function = self._function("set_parameter", ctypes.c_int, ctypes.c_char_p, ctypes.c_double)
        if not function(name.encode(), value):
            raise KeyError(name)

    def replay(self, trace: int, as_program: bool) -> float:
        """Modelled seconds of a loaded trace under the present parameters."""
        function = self._function("trace_replay", ctypes.c_double, ctypes.c_int, ctypes.c_int)
        return float(function(trace, int(as_program)))
