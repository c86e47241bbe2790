"""Replacing functions and methods of paddle so that classes stay classes."""

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any


def replace_function(original: Callable[..., Any], replacement: Callable[..., Any]) -> int:
    """Put ``replacement`` wherever a loaded paddle module holds ``original``; returns how often.

    Paddle's own modules import functions from one another by name, so one place is not enough.
    """

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return replacement(*args, **kwargs)

    name = original.__name__
    count = 0
    namespaces = [
        vars(module)
        for module_name, module in list(sys.modules.items())
        if module_name.split(".", 1)[0] == "paddle"
    ]
    # paddle.device is a stand-in in 3.x: the names its functions really use are their globals.
    namespaces.append(getattr(original, "__globals__", {}))
    for names in namespaces:
        if names.get(name) is original:
            names[name] = wrapped
            count += 1
    return count


def wrap_method(
    owner: type, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    """Replace a method defined by ``owner`` itself with ``around(method)``."""
    original = owner.__dict__[name]
    setattr(owner, name, functools.wraps(original)(around(original)))


def bind(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> inspect.BoundArguments | None:
    """The call's arguments by name with defaults, None if the call itself is wrong.

    A wrong call is passed through unchanged, so that the user sees paddle's own error.
    """
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    return bound


def optimizer_classes(paddle: Any) -> list[type]:
    """Every optimizer class that is loaded: subclasses define their own ``step``."""
    found: list[type] = []
    todo: list[type] = [paddle.optimizer.Optimizer]
    while todo:
        cls = todo.pop()
        if cls not in found:
            found.append(cls)
            todo.extend(cls.__subclasses__())
    return found


def parameters_of(optimizer: Any) -> list[Any]:
    """The optimizer's parameters, parameter groups flattened."""
    out: list[Any] = []
    for item in getattr(optimizer, "_parameter_list", None) or ():
        out.extend(item["params"] if isinstance(item, dict) else [item])
    return out
