"""Runs every scenario in a forked process of its own; what became of each. Not a test module."""

import json
import os
import signal
import sys
import tempfile
from typing import Any

import scenarios

LIMIT_S = 120


def outcome_of(name: str) -> dict[str, Any] | None:
    """In the parent what became of it; None in the child, which must now end by itself."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        with os.fdopen(read) as pipe:
            said = pipe.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return {"code": code, "error": json.loads(said) if said else "never came to its end"}
    os.close(read)
    os.chdir(tempfile.mkdtemp())
    # Default action: whatever hangs is ended by a signal, too.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(LIMIT_S)
    error = None
    try:
        scenarios.SCENARIOS[name]()
    except BaseException as failure:
        error = f"{type(failure).__name__}: {failure}"
    os.write(write, json.dumps(error).encode()[:60000])
    os.close(write)
    return None


def run(names: list[str] | None = None) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name in names or list(scenarios.SCENARIOS):
        outcome = outcome_of(name)
        if outcome is None:
            # A plain end of the interpreter, with all that the scenario left alive.
            sys.exit(0)
        found[name] = outcome
    return found
