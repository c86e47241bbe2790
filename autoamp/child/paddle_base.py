"""The package inside Paddle that holds its compiled core: ``paddle.base`` since 2.6."""

from typing import Any


def base(paddle: Any) -> Any:
    """``paddle.base``; 2.4 and 2.5 have the same under ``paddle.fluid`` (read in their source, not
    run: PyPI serves none before 2.6.2)."""
    return paddle.base if hasattr(paddle, "base") else paddle.fluid
