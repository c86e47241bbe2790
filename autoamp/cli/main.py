"""The ``autoamp`` command: registers one function a command, catches errors once."""

import os
import sys
from typing import Annotated

import typer

from autoamp import __version__, errors
from autoamp.cli import devices, plan, probe, run, schema, studies, tune

app = typer.Typer(
    name="autoamp",
    help="Tune PaddlePaddle mixed-precision (AMP) training for the GPU at hand.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help: rich's would cost more than all the rest of `autoamp --help`.
    rich_markup_mode=None,
)

# Everything after the script is the script's own.
SCRIPT_COMMANDS = ("tune", "run", "plan")
SCRIPT_COMMAND = {"allow_interspersed_args": False, "ignore_unknown_options": False}

app.command("tune", context_settings=SCRIPT_COMMAND)(tune.tune)
app.command("run", context_settings=SCRIPT_COMMAND)(run.run)
app.command("plan", context_settings=SCRIPT_COMMAND)(plan.plan)
app.command("probe")(probe.probe)
app.command("devices")(devices.devices)
app.command("schema")(schema.schema)
app.add_typer(studies.app, name="studies", help="Inspect the history of studies.")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"autoamp {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Tune PaddlePaddle mixed-precision (AMP) training for the GPU at hand."""


def end_options(argv: list[str]) -> list[str]:
    """Put ``--`` behind ``-m MODULE``: what follows a module is the script's, as in python."""
    if not argv or argv[0] not in SCRIPT_COMMANDS:
        return argv
    flags = set(tune.FLAGS) | set(run.FLAGS) | set(plan.FLAGS)
    index = 1
    while index < len(argv):
        token = argv[index]
        if token in ("-m", "--module"):
            return [*argv[: index + 2], "--", *argv[index + 2 :]]
        if not token.startswith("-") or token == "--":
            break
        index += 1 if token in flags or "=" in token else 2
    return argv


def take_debug(argv: list[str]) -> tuple[list[str], bool]:
    """``--debug`` anywhere among autoamp's own words, never among the script's."""
    own = [i for i, token in enumerate(argv) if token == "--debug"]
    if own and all(token.startswith("-") or i == 0 for i, token in enumerate(argv[: own[0]])):
        return argv[: own[0]] + argv[own[0] + 1 :], True
    if argv and argv[0] not in SCRIPT_COMMANDS and own:
        return [token for token in argv if token != "--debug"], True
    return argv, bool(os.environ.get("AUTOAMP_DEBUG"))


def report_error(error: errors.AutoampError) -> None:
    """Message and remedy on stderr, with the slug that docs/messages.md explains."""
    print(f"autoamp: {error.message} [{error.slug}]", file=sys.stderr)
    if error.remedy:
        print(f"         {error.remedy}", file=sys.stderr)


def main() -> None:
    """Entry point. Exit codes: architecture's table, see docs/messages.md."""
    argv, debug = take_debug(sys.argv[1:])
    if sys.platform != "linux":
        print("autoamp runs on Linux (native or WSL); this is " + sys.platform, file=sys.stderr)
        sys.exit(errors.EXIT_MACHINE)
    try:
        app(args=end_options(argv))
    except errors.AutoampError as error:
        if debug:
            raise
        report_error(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader (head, less) has gone; so would any program's output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


if __name__ == "__main__":
    main()
