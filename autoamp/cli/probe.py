"""``autoamp probe``: what this machine can do for mixed precision, and why not."""

import sys
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from autoamp import errors

if TYPE_CHECKING:
    from autoamp.wire import VirtualDevice


def probe(
    device: Annotated[
        str, typer.Option(help="auto, gpu:0, xpu:0, cpu, virtual:NAME[,memory=4GiB].")
    ] = "auto",
    python: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it at run time on Python 3.10
        typer.Option(help="Interpreter that has Paddle (default: this one)."),
    ] = None,
    bench: Annotated[
        bool, typer.Option("--bench", help="Measure products and copies through Paddle, keep it.")
    ] = False,
    allow_unsupported: Annotated[
        bool, typer.Option("--allow-unsupported", help="Show what the same option of tune does.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Say what this machine can do for mixed precision, each verdict with its reason."""
    from dataclasses import replace

    from rich.console import Console

    from autoamp.probes.facts import DeviceKind
    from autoamp.probes.machine import blockers, require
    from autoamp.probes.machine import probe as ask
    from autoamp.report import machine as report

    found = ask(device, python, allow_unsupported)
    virtual = None
    if found.device.kind is DeviceKind.virtual:
        from autoamp.played import played

        # The sizes that no other command would play are no answer here either. In planning mode:
        # --bench asks only the clock, no product is computed.
        virtual = played(found.device, numerics=False)
    if bench:
        from autoamp.probes.bench import bench as measure
        from autoamp.probes.roofline_store import save
        from autoamp.probes.visible import child_environment

        require(found)
        environment = child_environment(found.device)
        if virtual is not None:
            environment = _virtual_environment(virtual, found.paddle.python)
        doing = "measuring on" if virtual is None else "modelling the rates of"
        print(f"{doing} {found.device.name}: up to a minute", file=sys.stderr)
        roofline = measure(found, environment, virtual)
        try:
            save(found.identity, roofline)
        except OSError as error:
            print(f"the roofline is not kept: {error}", file=sys.stderr)
        found = replace(found, roofline=roofline)
    if as_json:
        sys.stdout.write(report.as_json(found))
    else:
        console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)
        # Written by ourselves: rich would end the program when the reader (head) has gone.
        with console.capture() as text:
            report.print_machine(console, found)
        sys.stdout.write(text.get())
    if blockers(found):
        raise typer.Exit(errors.EXIT_MACHINE)


def _virtual_environment(device: "VirtualDevice", python: str) -> dict[str, str]:
    """Build the virtual accelerator if need be, and what its child's environment holds."""
    from autoamp.virtual.build import ensure_built
    from autoamp.virtual.device import child_environment

    folder = ensure_built(python, lambda text: print(text, file=sys.stderr))
    return child_environment(device, folder)
