"""Brings an older schema to this autoamp's, within the caller's transaction."""

import os

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from autoamp.studies import migrations


def config() -> Config:
    """Alembic's configuration without an ini file."""
    made = Config()
    made.set_main_option("script_location", os.path.dirname(__file__).replace("%", "%%"))
    made.set_main_option("path_separator", "os")
    return made


def upgrade(connection: sa.Connection, revision: str | None = None) -> None:
    """Run the revisions up to ``revision`` (default: the newest); the caller commits."""
    made = config()
    made.attributes["connection"] = connection
    command.upgrade(made, revision or migrations.HEAD)
