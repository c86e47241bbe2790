"""Alembic migrations of the autoamp_ tables."""
