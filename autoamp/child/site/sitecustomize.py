"""Loaded by the user's interpreter at start, before any of the user's code.

Standard library only, silent whatever happens: a fault here must never become the user's.
Arms the hooks if a plan is set, then runs the ``sitecustomize`` that this one hides.
"""

import os
import sys


def _arm() -> None:
    """Make ``autoamp`` importable by path (the user's interpreter may not have it) and arm."""
    import importlib.util

    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if "autoamp" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "autoamp",
            os.path.join(package, "__init__.py"),
            submodule_search_locations=[package],
        )
        if spec is None or spec.loader is None:
            return
        module = importlib.util.module_from_spec(spec)
        sys.modules["autoamp"] = module
        spec.loader.exec_module(module)
    from autoamp.child.arm import arm

    arm(os.environ["AUTOAMP_PLAN"])


def _run_hidden() -> None:
    """Run the next ``sitecustomize`` on the path, as Python would have without us."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    rest = [p for p in sys.path if os.path.abspath(p or ".") != here]
    spec = PathFinder.find_spec("sitecustomize", rest)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get("AUTOAMP_PLAN"):
    try:
        _arm()
    except Exception as error:
        try:
            plan_dir = os.path.dirname(os.environ["AUTOAMP_PLAN"])
            with open(os.path.join(plan_dir, "arming-failed.txt"), "a") as f:
                f.write(f"{type(error).__name__}: {error}\n")
        except OSError:
            pass
        if os.environ.get("AUTOAMP_GUARDED"):
            # A trial without its hooks would train in full and write over the user's files.
            os._exit(86)
_run_hidden()
