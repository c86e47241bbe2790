"""Errors a person can act on: what was expected, what was found, what to do.

Every raise carries a slug; ``docs/messages.md`` has one entry for each (cause and cure).
They are caught once, in ``autoamp.cli.main``. A trial that fails is no error: it is a
measurement with an outcome.
"""

EXIT_OK = 0
EXIT_USAGE = 2
EXIT_MACHINE = 3
EXIT_SCRIPT = 4
EXIT_STORAGE = 5
EXIT_MISMATCH = 6
EXIT_REGRESSION = 7
EXIT_INTERRUPTED = 130


class AutoampError(Exception):
    """Base of all; ``exit_code`` is what the command ends with."""

    exit_code = EXIT_USAGE

    def __init__(self, message: str, *, slug: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.slug = slug
        self.remedy = remedy


class UsageError(AutoampError):
    """The command line or a file given on it is wrong."""

    exit_code = EXIT_USAGE


class MachineError(AutoampError):
    """The machine cannot do what was asked."""

    exit_code = EXIT_MACHINE


class ScriptError(AutoampError):
    """The user's script cannot be tuned: missing, failing, never stepping."""

    exit_code = EXIT_SCRIPT


class StorageError(AutoampError):
    """The database cannot be read or written."""

    exit_code = EXIT_STORAGE


class MismatchError(AutoampError):
    """A study or config belongs to another machine, script or version."""

    exit_code = EXIT_MISMATCH
