"""The script part of a command line: a path or ``-m module``, and its arguments."""

import os
import sys

from autoamp.errors import MachineError, ScriptError, UsageError
from autoamp.launch import Target

USAGE = {
    "tune": "autoamp tune [options] train.py [args of the script]",
    "run": "autoamp run --config best.json train.py [args of the script]",
    "plan": "autoamp plan --device virtual:NAME train.py [args of the script]",
}


def target(module: str | None, words: list[str], python: str | None, *, command: str) -> Target:
    """The Target that the words of ``autoamp command`` name.

    Raises UsageError without a script, ScriptError for one that is missing or is no Python,
    MachineError for an interpreter that is not there.
    """
    interpreter = _interpreter(python)
    cwd = os.getcwd()
    if module is not None:
        return Target(
            entry=module,
            is_module=True,
            arguments=tuple(words),
            python=interpreter,
            cwd=cwd,
        )
    if not words:
        raise UsageError(
            "no script given: expected a training script after the options",
            slug="no-script",
            remedy=USAGE[command],
        )
    path, arguments = words[0], tuple(words[1:])
    _check_script(path)
    return Target(entry=path, is_module=False, arguments=arguments, python=interpreter, cwd=cwd)


def _interpreter(python: str | None) -> str:
    import shutil

    if python is None:
        return sys.executable
    found = shutil.which(python)
    if found is None:
        raise MachineError(
            f"no interpreter at {python!r}",
            slug="no-interpreter",
            remedy="give --python the path of the Python that runs your training",
        )
    # Not resolved further: a virtual environment's python is a link.
    return os.path.abspath(found)


def _check_script(path: str) -> None:
    if os.path.isdir(path):
        raise ScriptError(
            f"{path} is a folder; expected a training script",
            slug="script-is-folder",
            remedy="name the script itself, or use -m for a package",
        )
    try:
        with open(path, "rb") as f:
            source = f.read()
    except FileNotFoundError:
        raise ScriptError(
            f"script {path} not found in {os.getcwd()}",
            slug="script-missing",
            remedy="check the path; options of autoamp stand before the script",
        ) from None
    except OSError as error:
        raise ScriptError(
            f"script {path} cannot be read: {error.strerror}",
            slug="script-unreadable",
            remedy="check its permissions",
        ) from None
    try:
        compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f" (line {line})" if line else ""
        raise ScriptError(
            f"{path} is no Python that this interpreter can read{where}: "
            f"{getattr(error, 'msg', error)}",
            slug="script-not-python",
            remedy="expected a training script in Python 3",
        ) from None
