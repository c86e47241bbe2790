"""Several ranks are refused by name on the virtual device, whichever way they are started.

There is one virtual GPU and no collective between two: Paddle would call null pointers, or
train on the CPU by gloo without a word. One rank works by every way in.
"""

import functools
import inspect
import os
import sys
from typing import Any

from autoamp.virtual.script_names import DEVICE_TYPE, replace_everywhere

CPU_BACKEND = "gloo"
"""Asked for by name it means training on the CPU, on a machine with GPUs as well."""


def refuse(ranks: int, instead: str) -> None:
    """Raise NotImplementedError, in one line, if there is more than one rank."""
    if ranks > 1:
        raise NotImplementedError(
            f"the virtual device ({DEVICE_TYPE}) is one GPU and does not support {ranks} ranks: "
            f"it has no collectives. {instead}"
        )


def install(paddle: Any) -> None:
    """Guard the launchers, ``spawn`` and ``init_parallel_env`` (which ``fleet.init`` calls)."""
    _guard_launcher()
    _guard_old_launcher()
    _guard_spawn(paddle)
    _guard_initialisation(paddle)


def _list(text: Any) -> list[str]:
    return [x.strip() for x in str(text or "").split(",") if x.strip()]


def _nodes(text: Any) -> int:
    # "2", or "2:4" for an elastic job.
    first = str(text or "1").split(":")[0]
    return int(first) if first.isdigit() else 1


def launched_ranks(arguments: Any) -> int:
    """Ranks that ``python -m paddle.distributed.launch`` would start with these arguments."""
    ranks = int(getattr(arguments, "nproc_per_node", None) or 0)
    ranks = ranks or len(_list(getattr(arguments, "devices", None))) or 1
    trainers = int(getattr(arguments, "trainer_num", None) or 0)
    return max(ranks, trainers) * _nodes(getattr(arguments, "nnodes", None))


def _refuse_index(devices: Any) -> None:
    if _list(devices) not in ([], ["0"]):
        raise NotImplementedError(
            f"the virtual device ({DEVICE_TYPE}) is one GPU, number 0, and does not support "
            f"--devices {devices}. Launch with --devices 0."
        )


def _guard_launcher() -> None:
    module: Any = sys.modules.get("paddle.distributed.launch.context")
    if module is None:
        return
    start = module.Context.__init__

    @functools.wraps(start)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        start(self, *args, **kwargs)
        refuse(
            launched_ranks(self.args),
            "Launch one: --nproc_per_node 1, or --devices 0, and --nnodes 1.",
        )
        _refuse_index(getattr(self.args, "devices", None))

    module.Context.__init__ = checked


def _guard_old_launcher() -> None:
    """``python -m paddle.distributed.fleet.launch``, which runs as ``__main__``."""
    module: Any = sys.modules.get("paddle.distributed.fleet.launch_utils")
    if module is None:
        return

    def devices(arguments: Any) -> Any:
        """The one GPU for the one process; Paddle's own function looks for CUDA's."""
        gpus = getattr(arguments, "gpus", None)
        ranks = int(getattr(arguments, "nproc_per_node", None) or 0) or len(_list(gpus)) or 1
        ranks *= len(_list(getattr(arguments, "ips", None))) or 1
        refuse(ranks, "Launch one: --gpus 0, without --ips of other machines.")
        _refuse_index(gpus)
        return module.DeviceMode.GPU, [0]

    module.get_device_proc_info = devices


def _on_virtual(paddle: Any) -> bool:
    return DEVICE_TYPE in str(paddle.base.framework._current_expected_place())


def _guard_spawn(paddle: Any) -> None:
    spawn = paddle.distributed.spawn
    signature = inspect.signature(spawn)

    @functools.wraps(spawn)
    def checked(*args: Any, **kwargs: Any) -> Any:
        asked = signature.bind(*args, **kwargs)
        asked.apply_defaults()
        options = asked.arguments["options"]
        backend = options.get("backend") or "auto"
        if backend == "nccl" or (backend == "auto" and _on_virtual(paddle)):
            # Paddle takes every device whose name contains "gpu" for one of CUDA's.
            options["backend"] = "xccl"
            ranks = int(asked.arguments["nprocs"])
            if ranks == -1:
                ranks = asked.arguments["nprocs"] = 1
            refuse(ranks, "Call spawn(…, nprocs=1).")
        return spawn(*asked.args, **asked.kwargs)

    replace_everywhere("spawn", spawn, checked)


def _guard_initialisation(paddle: Any) -> None:
    start = paddle.distributed.init_parallel_env

    @functools.wraps(start)
    def init_parallel_env(*args: Any, **kwargs: Any) -> Any:
        if os.environ.get("PADDLE_DISTRI_BACKEND", "auto") != CPU_BACKEND:
            refuse(
                int(os.environ.get("PADDLE_TRAINERS_NUM", "1") or 1),
                "Start the script as one process, with PADDLE_TRAINERS_NUM unset or 1.",
            )
        return start(*args, **kwargs)

    replace_everywhere("init_parallel_env", start, init_parallel_env)
