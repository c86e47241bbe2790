"""How ``--dtypes`` becomes options."""

import pytest

from autoamp import errors
from autoamp.cli import tune
from autoamp.settings import Dtype


@pytest.mark.parametrize(
    ("text", "dtypes", "tf32"),
    [
        (None, None, None),
        ("bfloat16", (Dtype.bfloat16,), False),
        ("tf32", (), True),
        ("tf32,float16", (Dtype.float16,), True),
        ("float16, tf32 ,bfloat16", (Dtype.float16, Dtype.bfloat16), True),
        ("float32", (Dtype.float32,), False),
    ],
)
def test_tf32_is_named_beside_the_dtypes(
    text: str | None, dtypes: tuple[Dtype, ...] | None, tf32: bool | None
) -> None:
    words = tune.words(text)
    assert (tune.dtypes_of(words), tune.tf32_of(words)) == (dtypes, tf32)


def test_an_unknown_name_is_told_all_it_may_be() -> None:
    with pytest.raises(errors.UsageError) as caught:
        tune.dtypes_of(("tf32", "int8"))
    assert "'int8'" in caught.value.message and "tf32" in caught.value.message
