"""Names of the lines that make a loader."""

import pytest

from autoamp.child.call_site import same_site


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("cnn.py:19", "cnn.py:19", True),
        ("cnn.py:19", "same/cnn.py:19", True),
        ("sub/data.py:8 < sub/cnn.py:19", "data.py:8 < cnn.py:19", True),
        ("cnn.py:19", "cnn.py:20", False),
        ("cnn.py:19", "my_cnn.py:19", False),
        ("a/cnn.py:19", "b/cnn.py:19", False),
        ("data.py:8 < cnn.py:19", "cnn.py:19", False),
        ("data.py:8 < cnn.py:19", "data.py:8 < cnn.py:20", False),
    ],
)
def test_a_site_is_known_from_another_folder(first: str, second: str, same: bool) -> None:
    assert same_site(first, second) is same_site(second, first) is same
