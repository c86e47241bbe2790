"""Alembic's entry: runs the revisions on the connection that ``upgrade`` hands over."""

from alembic import context

from autoamp.studies import migrations, models

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=models.metadata,
    version_table=migrations.VERSION_TABLE,
    # SQLite changes a table by copying it.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
