"""``autoamp studies``: looks at the history, never changes it."""

import os
import shutil
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from autoamp.cli.defaults import STORAGE

if TYPE_CHECKING:
    from autoamp.studies.reading import Reader

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Storage = Annotated[
    str,
    typer.Option("--storage", envvar="AUTOAMP_STORAGE", help="Database of the studies, as a URL."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON (keys: docs/files.md).")]
Name = Annotated[str, typer.Argument(help="Name of the study, as `studies list` shows it.")]


@app.command("list")
def list_studies(storage: Storage = STORAGE, as_json: Json = False) -> None:
    """All studies of a database, newest first."""
    from datetime import datetime, timezone

    from autoamp.report import history

    with _open(storage) as reader:
        studies = reader.studies()
        shown = reader.where.shown
    if as_json:
        _print(history.studies_json(studies))
    elif not studies:
        _print(f"no studies in {shown} yet: start one with `autoamp tune train.py`\n")
    else:
        now = datetime.now(timezone.utc)
        _print(history.studies_table(studies, now=now, width=_terminal_width()))


@app.command("show")
def show(name: Name, storage: Storage = STORAGE, as_json: Json = False) -> None:
    """One study: machine, script, options, recommendation, trials by phase and outcome."""
    from datetime import datetime, timezone

    from autoamp.report import history
    from autoamp.studies.history import shown_state
    from autoamp.studies.lease import is_alive

    with _open(storage) as reader:
        study = reader.study(name)
        trials = reader.trials(study.id)
        lease = reader.lease(study.id)
        recommendation = reader.recommendation(study.id)
    state = shown_state(study.state, holder_alive=lease is not None and is_alive(lease))
    if as_json:
        _print(history.study_json(study, trials, state=state, recommendation=recommendation))
        return
    _print(
        history.study_page(
            study,
            trials,
            state=state,
            lease=lease,
            recommendation=recommendation,
            now=datetime.now(timezone.utc),
        )
    )


@app.command("trials")
def trials(name: Name, storage: Storage = STORAGE, as_json: Json = False) -> None:
    """Every trial of one study, in the order they ran."""
    from autoamp.report import history

    with _open(storage) as reader:
        study = reader.study(name)
        found = reader.trials(study.id)
    if as_json:
        _print(history.trials_json(study, found))
    elif not found:
        _print(f"study {study.name} has no trials yet\n")
    else:
        _print(history.trials_table(found, width=_terminal_width()))


def _open(url: str) -> "Reader":
    from autoamp.studies.reading import open_reader

    return open_reader(url)


def _terminal_width() -> int | None:
    """None when the output is no terminal: a file or pipe gets whole lines."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return None
    return shutil.get_terminal_size().columns


def _print(text: str) -> None:
    # A terminal that is not UTF-8 shows Chinese as question marks instead of ending the command.
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
