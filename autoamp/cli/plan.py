"""``autoamp plan``: parse, call ``autoamp.plan.plan``, print."""

import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from autoamp import errors
from autoamp.cli import tune as tune_cli
from autoamp.cli.defaults import STORAGE

if TYPE_CHECKING:
    from autoamp.request import Request

FLAGS = ("--keep-batch", "--allow-unsupported", "--json", "--help")


def config_words(request: "Request") -> str:
    """``autoamp tune``'s words behind the device: the storage, if it was given, and the script."""
    storage = "" if request.storage == STORAGE else f" --storage {shlex.quote(request.storage)}"
    return f"{storage} {request.target.shown}".lstrip()


def plan(
    script: Annotated[
        Optional[list[str]],  # noqa: UP045 - typer reads it at run time on Python 3.10
        typer.Argument(metavar="SCRIPT [ARGS]...", help="The training script and its arguments."),
    ] = None,
    device: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="virtual:NAME[,memory=4GiB][,numerics=off]; once for each GPU."),
    ] = None,
    module: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("-m", "--module", help="Train a module, as in python -m."),
    ] = None,
    python: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Interpreter that has Paddle (default: this one)."),
    ] = None,
    storage: Annotated[
        str,
        typer.Option(envvar="AUTOAMP_STORAGE", help="Database URL of the history."),
    ] = STORAGE,
    trials: Annotated[int, typer.Option(help="Child runs a GPU, before confirm.")] = 24,
    timeout: Annotated[str, typer.Option(help="Time for the search of each GPU.")] = "30m",
    trial_timeout: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Limit of one trial (default: 10m, later five times the baseline)."),
    ] = None,
    levels: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="AMP levels to consider, e.g. O1,O2."),
    ] = None,
    dtypes: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Dtypes to consider: tf32,bfloat16,float16."),
    ] = None,
    batch_sizes: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Batch sizes to consider, e.g. 32,64,128."),
    ] = None,
    keep_batch: Annotated[bool, typer.Option("--keep-batch", help="Never change it.")] = False,
    headroom: Annotated[str, typer.Option(help="Device memory left free.")] = "10%",
    min_gain: Annotated[str, typer.Option(help="A smaller gain counts as a tie.")] = "3%",
    seed: Annotated[int, typer.Option(help="Seed of search and trials.")] = 0,
    allow_unsupported: Annotated[
        bool, typer.Option("--allow-unsupported", help="Try what is advised against.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the table as JSON (keys: docs/files.md).")
    ] = False,
) -> None:
    """Compare virtual GPUs for a training script: batch, AMP setting, speed, memory."""
    from autoamp.cli import script as cli_script
    from autoamp.plan import plan
    from autoamp.report import live
    from autoamp.report import plan as report
    from autoamp.request import Interrupted, Request
    from autoamp.settings import Level
    from autoamp.studies import plan_table, storage_url
    from autoamp.studies.proposal import Options

    if not device:
        raise errors.UsageError(
            "no GPU to plan for: expected --device virtual:NAME at least once",
            slug="plan-no-device",
            remedy="autoamp plan --device virtual:t4 --device virtual:a100-40gb train.py",
        )
    request = Request(
        target=cli_script.target(module, script or [], python, command="plan"),
        device=device[0],
        storage=storage,
        study=None,
        options=Options(
            trials=trials,
            timeout_s=tune_cli.seconds(timeout),
            levels=tune_cli.named(Level, tune_cli.words(levels), "--levels"),
            dtypes=tune_cli.dtypes_of(tune_cli.words(dtypes)),
            tf32=tune_cli.tf32_of(tune_cli.words(dtypes)),
            batch_sizes=tune_cli.batches(tune_cli.words(batch_sizes)),
            keep_batch=keep_batch,
            headroom=tune_cli.fraction(headroom),
            min_gain=tune_cli.fraction(min_gain),
            seed=seed,
            allow_unsupported=allow_unsupported,
            all_numerics=True,
        ),
        steps=None,
        trial_limit_s=None if trial_timeout is None else tune_cli.seconds(trial_timeout),
        output=None,
        allow_unsupported=allow_unsupported,
    )
    # With --json the standard output is the JSON alone.
    view = live.make_view(sys.stderr if as_json else sys.stdout, compact=True)
    with tune_cli.stop_on_signals(view) as stops:
        try:
            with view:
                planned = plan(request, device, view, stops)
        except Interrupted:
            tune_cli.say_stopped()
            raise typer.Exit(errors.EXIT_INTERRUPTED) from None
    if as_json:
        sys.stdout.write(plan_table.encode(planned.table).decode())
    else:
        for line in report.lines(planned.table):
            view.say(line)
        view.say("")
        view.say(f"Each GPU is a study in {storage_url.address(storage)}: autoamp studies list")
        for line in report.next_step(planned.table, config_words(request)):
            view.say(line)
    if planned.error is not None:
        raise planned.error
    if planned.interrupted:
        tune_cli.say_stopped()
        raise typer.Exit(errors.EXIT_INTERRUPTED)
