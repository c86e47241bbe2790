"""Kernels that look rows up are charged for the rows, not for the table."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.needs_paddle, pytest.mark.needs_compiler]

Run = Callable[..., dict[str, Any]]


def test_forward_reads_rows_and_dense_gradients_write_the_table(run: Run, devices: Any) -> None:
    got = run(
        """
table = paddle.rand([10000, 64])
table.stop_gradient = False
ids = paddle.to_tensor(np.arange(32))
def moved(call):
    runtime.reset_clock()
    call().sum().backward()
    return {k.name: k.bytes for k in runtime.op_report()}
give(embedding=moved(lambda: paddle.nn.functional.embedding(ids, table)),
     gather=moved(lambda: paddle.gather(table, ids)),
     index_select=moved(lambda: paddle.index_select(table, ids)))
""",
        device=devices.a100,
    )
    rows, numbers, table = 32 * 64 * 4, 32 * 8, 10000 * 64 * 4
    for name, seen in got.items():
        if not name.startswith("_"):
            assert seen[name] <= 2 * rows + numbers + 64, name
            assert table <= seen[f"{name}_grad"] <= table + rows + numbers + 64, name
