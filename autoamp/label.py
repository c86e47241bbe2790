"""Label: where a number comes from. Apart from ``measurement``, which costs a probe its time."""

from enum import Enum


class Label(str, Enum):
    """Where a number comes from; never shown as ``measured`` when it is not."""

    measured = "measured"
    emulated = "emulated"
    counted = "counted"
    modelled = "modelled"
    not_computed = "not_computed"

    def __str__(self) -> str:
        return self.value
