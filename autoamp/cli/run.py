"""``autoamp run``: the full training with the recommended setting."""

import sys
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from autoamp import errors

if TYPE_CHECKING:
    from autoamp.studies.recommendation import Recommendation

FLAGS = ("--keep-batch", "--help")


def run(
    config: Annotated[str, typer.Option(help="Recommended-config JSON of autoamp tune.")],
    script: Annotated[
        Optional[list[str]],  # noqa: UP045 - typer reads it at run time on Python 3.10
        typer.Argument(metavar="SCRIPT [ARGS]...", help="The training script and its arguments."),
    ] = None,
    module: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("-m", "--module", help="Train a module, as in python -m."),
    ] = None,
    device: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Device (default: the best one here)."),
    ] = None,
    python: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Interpreter that has Paddle (default: this one)."),
    ] = None,
    keep_batch: Annotated[
        bool, typer.Option("--keep-batch", help="Use the setting at the script's own batch size.")
    ] = False,
) -> None:
    """Train in full with a recommended setting; the script's output and exit code pass through."""
    from autoamp import full_run
    from autoamp.cli import script as cli_script
    from autoamp.studies import recommendation

    def say(text: str) -> None:
        # The script's own stdout stays exactly its own.
        print(text, file=sys.stderr, flush=True)

    try:
        found = recommendation.load(config)
        target = cli_script.target(module, script or [], python, command="run")
        full = full_run.prepare(
            found, target, device=device or default_device(found), keep_batch=keep_batch
        )
    except errors.AutoampError as error:
        from autoamp.cli.main import report_error

        report_error(error)
        raise typer.Exit(full_run.EXIT_OWN_FAILURE) from None
    for note in full.notes:
        say(f"autoamp run: {note}")
    say(f"autoamp run: {full.setting.describe()}")
    try:
        code = full_run.run(full, found, say)
    except (errors.AutoampError, OSError) as error:
        say(f"autoamp run: {error}")
        raise typer.Exit(full_run.EXIT_OWN_FAILURE) from None
    raise typer.Exit(code)


def default_device(found: "Recommendation") -> str:
    """``auto``, unless only the CPU was tuned: then the CPU."""
    return "cpu" if found.machine.device_kind == "cpu" else "auto"
