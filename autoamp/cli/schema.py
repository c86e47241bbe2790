"""``autoamp schema``: the JSON Schema of the recommended config."""


def schema() -> None:
    """Print the JSON Schema of the recommended-config file."""
    from autoamp.studies.recommendation import json_schema_text

    print(json_schema_text(), end="")
