"""Where a study's files go: the trials' folder and the recommended config."""

import hashlib
import os
from pathlib import Path

from autoamp.errors import UsageError
from autoamp.request import Request
from autoamp.studies import recommendation


def trials_folder(storage: str, study: str) -> Path:
    """Logs and plans of a study's trials: ``.autoamp/DATABASE/STUDY`` beside the database file."""
    file = storage_file(storage)
    if file is None:
        digest = hashlib.sha256(storage.encode()).hexdigest()[:8]
        return Path.cwd() / ".autoamp" / f"server-{digest}" / study
    path = Path(file).absolute()
    return path.parent / ".autoamp" / path.stem / study


def storage_file(url: str) -> str | None:
    """The path of an SQLite URL, None for a server."""
    return url[len("sqlite:///") :] if url.startswith("sqlite:///") else None


def save(found: recommendation.Recommendation, path: Path) -> None:
    """Write the JSON; the database has it already. Raises UsageError ``output-unwritable``."""
    try:
        recommendation.save(found, path)
    except OSError as error:
        raise output_unwritable(path, error.strerror or str(error)) from None


def output_unwritable(path: Path, why: str) -> UsageError:
    return UsageError(
        f"{path} cannot be written: {why}",
        slug="output-unwritable",
        remedy="give --output a path in a folder that exists and may be written; the history "
        "keeps the recommendation (autoamp studies show)",
    )


def output_path(request: Request, study: str) -> Path:
    """Where the JSON goes; raises UsageError rather than overwrite another study's file."""
    path = Path(request.output or f"autoamp-{study}.json")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise output_unwritable(path, f"there is no folder {folder}")
    if not os.access(folder, os.W_OK):
        raise output_unwritable(path, f"no permission to write in {folder}")
    if path.exists():
        owner = recommendation.study_of(path)
        if owner != study:
            raise UsageError(
                f"{path} exists and belongs to "
                + (f"study {owner}" if owner else "something else than autoamp"),
                slug="output-exists",
                remedy="give --output another path, or move the file",
            )
    return path
