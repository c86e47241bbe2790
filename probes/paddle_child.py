"""Questions that only an imported Paddle can answer, put to a child process."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoamp.errors import MachineError

MARK = "autoamp-answer "
"""Begins the answer's line: Paddle and its plug-ins print lines of their own."""

# Makes `autoamp` importable by path, as the child's sitecustomize does: the interpreter with
# paddle may not have autoamp, and our own site-packages must not shadow its packages.
_BOOT = f"""
import importlib, importlib.util, json, os, sys
package, module, question = sys.argv[1:4]
spec = importlib.util.spec_from_file_location(
    "autoamp", os.path.join(package, "__init__.py"), submodule_search_locations=[package])
sys.modules["autoamp"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["autoamp"])
answer = importlib.import_module(module).main(json.loads(question))
print("\\n{MARK}" + json.dumps(answer), flush=True)
"""


def ask(
    python: str,
    module: str,
    question: Mapping[str, Any],
    *,
    environment: Mapping[str, str] | None = None,
    timeout_s: float,
) -> dict[str, Any]:
    """Run ``module.main(question)`` of autoamp.child under ``python``; returns its answer.

    Raises MachineError ``paddle-child-failed`` with the last line of what it printed.
    """
    # A probe that asks nothing must not pay for the import.
    from autoamp import process

    package = str(Path(process.__file__).parent)
    env = {**os.environ, "GLOG_minloglevel": "1", **(environment or {})}
    # A plan in our own environment is none of this child's business.
    env.pop("AUTOAMP_PLAN", None)
    try:
        done = process.run_quick(
            [python, "-c", _BOOT, package, module, json.dumps(question)],
            env=env,
            timeout_s=timeout_s,
            cwd="/",
        )
    except (OSError, TimeoutError) as error:
        raise _failed(python, str(error)) from None
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            answer: dict[str, Any] = json.loads(line[len(MARK) :])
            return answer
    said = (done.stderr or done.stdout).strip().splitlines()
    # Paddle ends its tracebacks with empty lines and rulers.
    last = next((x.strip() for x in reversed(said) if any(c.isalnum() for c in x)), "no output")
    raise _failed(python, f"{last} (exit code {done.returncode})")


def _failed(python: str, reason: str) -> MachineError:
    return MachineError(
        f"Paddle in {python} did not answer: {reason}",
        slug="paddle-child-failed",
        remedy=f"try it yourself: {python} -c 'import paddle; paddle.utils.run_check()'",
    )
