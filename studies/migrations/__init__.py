"""Schema revisions, oldest first; the list is kept here so that a check needs no Alembic.

A revision is never edited once released: add ``versions/vNNNN_what.py`` and name it here,
change ``models.py``, and keep a database of the previous one in ``tests/data/old-databases``.
"""

REVISIONS = ("0001",)
HEAD = REVISIONS[-1]
VERSION_TABLE = "autoamp_alembic_version"
