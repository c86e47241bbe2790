"""``autoamp tune``: parse, call ``autoamp.tune.tune``, print."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Optional, TypeVar

import typer

from autoamp import errors
from autoamp.cli.defaults import STORAGE

if TYPE_CHECKING:
    from autoamp.report.live import View
    from autoamp.request import Stops
    from autoamp.settings import Dtype

FLAGS = ("--keep-batch", "--dry-run", "--allow-unsupported", "--yes", "-y", "--json", "--help")
"""Options without a value; ``main`` needs them to find where the script begins."""

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float:
    """``90``, ``90s``, ``30m`` or ``2h`` in seconds; raises UsageError."""
    number, unit = (text[:-1], text[-1]) if text and text[-1] in _UNITS else (text, "s")
    try:
        value = float(number) * _UNITS[unit]
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise errors.UsageError(
            f"{text!r} is no duration", slug="bad-duration", remedy="write 90s, 30m or 2h"
        )
    return value


def fraction(text: str) -> float:
    """``3%`` or ``0.03``; raises UsageError."""
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise errors.UsageError(
            f"{text!r} is no share", slug="bad-share", remedy="write 3% or 0.03"
        ) from None


def words(text: str | None) -> tuple[str, ...] | None:
    """A comma-separated list."""
    return None if text is None else tuple(w.strip() for w in text.split(",") if w.strip())


def tune(
    script: Annotated[
        Optional[list[str]],  # noqa: UP045 - typer reads it at run time on Python 3.10
        typer.Argument(metavar="SCRIPT [ARGS]...", help="The training script and its arguments."),
    ] = None,
    module: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("-m", "--module", help="Train a module, as in python -m."),
    ] = None,
    device: Annotated[
        str,
        typer.Option(help="auto, gpu:0, cpu, virtual:NAME[,memory=4GiB][,numerics=off]."),
    ] = "auto",
    python: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Interpreter that has Paddle (default: this one)."),
    ] = None,
    storage: Annotated[
        str,
        typer.Option(envvar="AUTOAMP_STORAGE", help="Database URL of the history."),
    ] = STORAGE,
    study: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Study to continue or create (default: script and a short hash)."),
    ] = None,
    trials: Annotated[int, typer.Option(help="Child runs before confirm.")] = 24,
    timeout: Annotated[str, typer.Option(help="Time for the whole search.")] = "30m",
    trial_timeout: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Limit of one trial (default: 10m, later five times the baseline)."),
    ] = None,
    steps: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Timed steps a trial (default: 3 s worth, 20 to 200)."),
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
    max_drift: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Loss difference to FP32 allowed (default: FP32's own spread)."),
    ] = None,
    min_gain: Annotated[str, typer.Option(help="A smaller gain counts as a tie.")] = "3%",
    confirm: Annotated[int, typer.Option(help="Pairs of fresh runs that confirm.")] = 3,
    objective: Annotated[str, typer.Option(help="What to maximise.")] = "throughput",
    output: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Recommended-config file (default: autoamp-STUDY.json)."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of search and trials.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run.")] = False,
    allow_unsupported: Annotated[
        bool, typer.Option("--allow-unsupported", help="Try what is advised against.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False,
) -> None:
    """Find the fastest batch size and AMP setting for a training script."""
    from autoamp.cli import script as cli_script
    from autoamp.report import live
    from autoamp.report import recommendation as report
    from autoamp.request import Interrupted, Request
    from autoamp.settings import Level
    from autoamp.studies.proposal import Options
    from autoamp.tune import describe_plan, tune

    if objective != "throughput":
        raise errors.UsageError(
            f"objective {objective!r} is unknown", slug="bad-objective", remedy="use throughput"
        )
    if steps is not None and steps < 4:
        raise errors.UsageError(
            f"--steps {steps} is too few to time", slug="bad-option", remedy="give 4 or more"
        )
    request = Request(
        target=cli_script.target(module, script or [], python, command="tune"),
        device=device,
        storage=storage,
        study=study,
        options=Options(
            trials=trials,
            timeout_s=seconds(timeout),
            levels=named(Level, words(levels), "--levels"),
            dtypes=dtypes_of(words(dtypes)),
            tf32=tf32_of(words(dtypes)),
            batch_sizes=batches(words(batch_sizes)),
            keep_batch=keep_batch,
            headroom=fraction(headroom),
            max_drift=None if max_drift is None else fraction(max_drift),
            min_gain=fraction(min_gain),
            confirm_pairs=confirm,
            seed=seed,
            allow_unsupported=allow_unsupported,
        ),
        steps=steps,
        trial_limit_s=None if trial_timeout is None else seconds(trial_timeout),
        output=output,
        allow_unsupported=allow_unsupported,
    )
    view = live.make_view(sys.stdout)
    if dry_run:
        for line in describe_plan(request):
            view.say(line)
        return
    with stop_on_signals(view) as stops:
        try:
            with view:
                tuned = tune(request, view, stops)
        except Interrupted:
            say_stopped()
            raise typer.Exit(errors.EXIT_INTERRUPTED) from None
    assert tuned.path is not None
    report.print_recommendation(view.console, tuned.recommendation)
    view.footer(tuned.study.name, tuned.path, request.target.shown)


@contextmanager
def stop_on_signals(view: "View") -> Iterator["Stops"]:
    """Ctrl-C once ends after the trial at hand, twice at once; so do SIGTERM and SIGHUP."""
    import signal

    from autoamp.request import Stops

    stops = Stops()

    def pressed(number: int, frame: object) -> None:
        stops.press()
        if number != signal.SIGINT:
            stops.now = True
        view.stopping(now=stops.now)

    # nohup and shells' background jobs ignore signals on purpose; that stays.
    before = {
        number: signal.signal(number, pressed)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield stops
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def say_stopped() -> None:
    """What is left after a stop at once."""
    print(
        "autoamp: stopped; finished trials are stored, the same command goes on from there",
        file=sys.stderr,
    )


_E = TypeVar("_E", bound=Enum)


TF32 = "tf32"
"""No dtype of AMP, but a person names it beside them."""


def dtypes_of(names: tuple[str, ...] | None) -> tuple["Dtype", ...] | None:
    """``--dtypes`` less TF32. Raises UsageError ``bad-option``."""
    from autoamp.settings import Dtype

    rest = None if names is None else tuple(name for name in names if name != TF32)
    return named(Dtype, rest, "--dtypes", extra=(TF32,))


def tf32_of(names: tuple[str, ...] | None) -> bool | None:
    """Whether ``--dtypes`` names TF32; None without the option: wherever the machine has it."""
    return None if names is None else TF32 in names


def named(
    kind: type[_E],
    names: tuple[str, ...] | None,
    option: str,
    *,
    extra: tuple[str, ...] = (),
) -> tuple[_E, ...] | None:
    if names is None:
        return None
    known = {member.value: member for member in kind}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise errors.UsageError(
            f"{option}: expected some of {', '.join((*known, *extra))}, found {unknown[0]!r}",
            slug="bad-option",
            remedy=f"write {option} {','.join(list(known)[1:3])}",
        )
    return tuple(known[name] for name in names)


def batches(names: tuple[str, ...] | None) -> tuple[int, ...] | None:
    if names is None:
        return None
    try:
        return tuple(int(name) for name in names)
    except ValueError:
        raise errors.UsageError(
            f"--batch-sizes: expected whole numbers, found {','.join(names)}",
            slug="bad-option",
            remedy="write 32,64,128",
        ) from None
