"""Where Paddle keeps its core, by version."""

from types import SimpleNamespace

import pytest

from autoamp.child.paddle_base import base


def test_the_core_is_found_under_both_names() -> None:
    old, new = SimpleNamespace(fluid=object()), SimpleNamespace(base=object(), fluid=object())
    assert base(old) is old.fluid
    assert base(new) is new.base


@pytest.mark.needs_paddle
def test_the_installed_paddle_has_what_is_asked_of_it() -> None:
    paddle = pytest.importorskip("paddle")
    assert base(paddle).core.eager.Tensor
    assert callable(base(paddle).framework._current_expected_place)
