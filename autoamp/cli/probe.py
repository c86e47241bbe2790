"""``autoamp probe``: what this machine can do for mixed precision, and why not."""

import sys
from typing import Annotated, Optional

import typer

from autoamp import errors


def probe(
    device: Annotated[
        str, typer.Option(help="auto, gpu:0, cpu, virtual:NAME[,memory=4GiB][,numerics=off].")
    ] = "auto",
    python: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it at run time on Python 3.10
        typer.Option(help="Interpreter that has Paddle (default: this one)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Say what this machine can do for mixed precision, each verdict with its reason."""
    from autoamp.probes.facts import Severity
    from autoamp.probes.machine import probe as ask
    from autoamp.report import machine as report

    found = ask(device, python)
    if as_json:
        sys.stdout.write(report.as_json(found))
    else:
        for line in report.lines(found):
            print(line)
    if any(p.severity is Severity.blocker for p in found.problems):
        raise typer.Exit(errors.EXIT_MACHINE)
