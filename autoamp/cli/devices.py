"""``autoamp devices``: the GPU catalogue and the virtual devices, with their short names."""

import sys
from typing import Annotated

import typer


def devices(
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """List every GPU that --device virtual:NAME can play."""
    from autoamp.report import machine as report

    if as_json:
        sys.stdout.write(report.catalogue_json())
    else:
        for line in report.catalogue_lines():
            print(line)
