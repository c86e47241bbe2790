"""The flags that decide how much scratch memory a GPU's convolutions take.

A build without CUDA has neither flag, so what a script sets is noted here; what stands in the
environment the plug-in reads itself.
"""

from collections.abc import Callable
from typing import Any

from autoamp.virtual.script_names import replace_everywhere

LIMIT = "FLAGS_conv_workspace_size_limit"
SEARCH = "FLAGS_cudnn_exhaustive_search"
DEFAULT_LIMIT_MIB = 512
NO_SEARCH, SEARCH_THAT_FITS = 0, 1


def install(paddle: Any, environment: dict[str, str], tell: Callable[[int, int], None]) -> None:
    """Call ``tell(limit in MiB, kind of search)`` whenever the script changes one of them."""
    seen: dict[str, Any] = {LIMIT: environment.get(LIMIT), SEARCH: environment.get(SEARCH)}
    set_flags = paddle.set_flags

    def noted(flags: Any) -> None:
        if isinstance(flags, dict) and not {LIMIT, SEARCH}.isdisjoint(flags):
            seen.update({key: flags[key] for key in (LIMIT, SEARCH) if key in flags})
            tell(limit_mib(seen[LIMIT]), SEARCH_THAT_FITS if is_on(seen[SEARCH]) else NO_SEARCH)
        set_flags(flags)

    # Whoever replaces it after us looks for it by its name.
    noted.__name__ = set_flags.__name__
    replace_everywhere("set_flags", set_flags, noted)


def limit_mib(value: Any) -> int:
    """A flag's value as Paddle would take it; negative means what the device has left."""
    try:
        return int(value)
    except (TypeError, ValueError):
        return DEFAULT_LIMIT_MIB


def is_on(value: Any) -> bool:
    """Whether a value switches a flag on, as gflags reads it."""
    return str(value).lower() in ("1", "true", "t", "yes", "y")
