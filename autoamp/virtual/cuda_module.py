"""``paddle.device.cuda`` (and ``paddle.cuda``) for the virtual device."""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from autoamp import wire
from autoamp.virtual.script_names import DEVICE_TYPE, asked_by_paddle, replace_everywhere


class DeviceProperties(NamedTuple):
    """The fields of Paddle's own ``_gpuDeviceProperties``; memory in bytes."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int


def _check_index(device: Any) -> int:
    """0 for whatever names the one virtual GPU; raises ValueError otherwise."""
    if device is None or (isinstance(device, int) and device in (0, -1)):
        return 0
    text = str(device).lower()
    match = re.search(r"(?:gpu|cuda|dcu|" + DEVICE_TYPE + r")(?::(\d+))?", text)
    if match and int(match.group(1) or 0) == 0:
        return 0
    raise ValueError(
        f"The device {device!r} is not the virtual GPU: it is 'gpu:0', and the only one."
    )


def stream_classes(clock_s: Callable[[], float]) -> tuple[type, type]:
    """Stream and Event on the modelled clock: everything runs at once, in order."""

    class Event:
        """A mark on the modelled clock; ``elapsed_time`` is in modelled milliseconds."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._at: float | None = None

        def record(self, stream: Any = None) -> None:
            self._at = clock_s()

        def query(self) -> bool:
            return True

        def synchronize(self) -> None:
            return None

        def elapsed_time(self, end: "Event") -> float:
            if self._at is None or end._at is None:
                raise RuntimeError("elapsed_time needs two recorded events")
            return (end._at - self._at) * 1e3

    class Stream:
        """A stream in name only."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            return None

        def wait_event(self, event: Any) -> None:
            return None

        def wait_stream(self, stream: Any) -> None:
            return None

        def record_event(self, event: Any = None) -> Any:
            event = Event() if event is None else event
            event.record(self)
            return event

        def query(self) -> bool:
            return True

        def synchronize(self) -> None:
            return None

    return Stream, Event


def install(paddle: Any, device: wire.VirtualDevice, clock_s: Callable[[], float]) -> None:
    """Make the module's questions and memory functions answer for the virtual device."""
    core = paddle.base.core
    stream_class, event_class = stream_classes(clock_s)
    the_stream = stream_class()

    def properties(device_name: Any = None) -> DeviceProperties:
        _check_index(device_name)
        major, minor = device.compute_capability
        # As CUDA says it: without what the driver keeps.
        total = device.memory_bytes - device.driver_bytes
        return DeviceProperties(device.name, major, minor, total, device.sm_count)

    def name(device_name: Any = None) -> str:
        return properties(device_name).name

    def capability(device_name: Any = None) -> tuple[int, int]:
        return properties(device_name)[1:3]

    def memory(kind: str, read: str) -> Callable[..., int]:
        function = getattr(core, read)

        def value(device_name: Any = None) -> int:
            return int(function(kind, _check_index(device_name)))

        return value

    def reset(kind: str) -> Callable[..., None]:
        def do(device_name: Any = None) -> None:
            core.device_memory_stat_reset_peak_value(kind, _check_index(device_name))

        return do

    def device_count() -> int:
        # Asked by paddle itself the answer stays "no CUDA device".
        return 0 if asked_by_paddle() else 1

    def nothing(*args: Any, **kwargs: Any) -> None:
        return None

    def empty_cache() -> None:
        release = getattr(core, "device_empty_cache", None)
        if release is not None:
            release()

    def memory_info(device_name: Any = None) -> tuple[int, int]:
        _check_index(device_name)
        used = core.device_memory_stat_current_value("Reserved", 0)
        return device.usable_bytes - int(used), device.memory_bytes - device.driver_bytes

    def memory_summary(device_name: Any = None) -> str:
        _check_index(device_name)
        return "\n".join(
            f"{kind.lower()} bytes, {when}: {getattr(core, read)(kind, 0)}"
            for kind in ("Allocated", "Reserved")
            for when, read in (
                ("now", "device_memory_stat_current_value"),
                ("peak", "device_memory_stat_peak_value"),
            )
        )

    @contextlib.contextmanager
    def stream_guard(stream: Any) -> Iterator[None]:
        yield

    answers: dict[str, Any] = {
        "get_device_properties": properties,
        "get_device_name": name,
        "get_device_capability": capability,
        "device_count": device_count,
        "is_available": lambda: True,
        "synchronize": nothing,
        "empty_cache": empty_cache,
        "mem_get_info": memory_info,
        "current_stream": lambda device_name=None: the_stream,
        "stream_guard": stream_guard,
        "memory_summary": memory_summary,
        "ipc_collect": nothing,
        "Stream": stream_class,
        "Event": event_class,
        "create_stream": stream_class,
        "create_event": event_class,
        "extract_cuda_device_id": lambda device, op_name=None: _check_index(device),
        "max_memory_allocated": memory("Allocated", "device_memory_stat_peak_value"),
        "max_memory_reserved": memory("Reserved", "device_memory_stat_peak_value"),
        "memory_allocated": memory("Allocated", "device_memory_stat_current_value"),
        "memory_reserved": memory("Reserved", "device_memory_stat_current_value"),
    }
    if hasattr(core, "device_memory_stat_reset_peak_value"):
        answers["reset_max_memory_allocated"] = reset("Allocated")
        answers["reset_max_memory_reserved"] = reset("Reserved")
        answers["reset_peak_memory_stats"] = reset("Allocated")
    for key in ("allocate_record_table", "allocate_record_plot"):
        answers[key] = _refusal(f"paddle.device.cuda.{key}")
    always = {"get_device_properties", "get_device_name", "get_device_capability", "is_available"}
    for module in (paddle.device.cuda, sys.modules.get("paddle.cuda")):
        for key, answer in answers.items() if module is not None else ():
            # Names that this paddle version lacks stay lacking: scripts test for them.
            if hasattr(module, key) or key in always:
                setattr(module, key, answer)
    for key in ("get_device_properties", "get_device_name", "get_device_capability"):
        if hasattr(paddle.device, key):
            replace_everywhere(key, getattr(paddle.device, key), answers[key])
    if hasattr(paddle.device, "synchronize"):
        replace_everywhere("synchronize", paddle.device.synchronize, nothing)
    if hasattr(paddle.device, "ipc_collect"):
        replace_everywhere("ipc_collect", paddle.device.ipc_collect, nothing)
    if hasattr(paddle.device, "extract_device_id"):
        replace_everywhere(
            "extract_device_id",
            paddle.device.extract_device_id,
            answers["extract_cuda_device_id"],
        )
    if hasattr(paddle.device, "get_default_device"):

        def get_default_device() -> Any:
            # Paddle's own finds "gpu" within the virtual device's name.
            return paddle.device(paddle.get_device().replace("gpu", "cuda"))

        replace_everywhere(
            "get_default_device", paddle.device.get_default_device, get_default_device
        )
    if hasattr(paddle.device, "Event"):
        _time_events(paddle.device.Event, clock_s)


def _refusal(name: str) -> Callable[..., None]:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"{name} is not supported on the virtual device (vgpu)")

    return refuse


def _time_events(event_class: Any, clock_s: Callable[[], float]) -> None:
    """``paddle.device.Event``, made for every device, measures on the modelled clock, too."""
    record = event_class.record

    def marked(self: Any, stream: Any = None) -> None:
        record(self, stream)
        self.modelled_at = clock_s()

    def elapsed_time(self: Any, end_event: Any) -> float:
        marks = [getattr(event, "modelled_at", None) for event in (self, end_event)]
        if marks[0] is None or marks[1] is None:
            raise RuntimeError("elapsed_time needs two recorded events")
        return float((marks[1] - marks[0]) * 1e3)

    event_class.record, event_class.elapsed_time = marked, elapsed_time
