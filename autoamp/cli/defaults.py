"""Defaults that several commands share."""

STORAGE = "sqlite:///autoamp.db"
"""A file in the working folder: beside the script, where its history belongs."""
