"""What is made of single measurements: failures apart, reasons by the key of the value."""

from types import SimpleNamespace
from typing import Any

import pytest

from autoamp.child import bench
from autoamp.child.bench import Bench


class Tensor:
    def __init__(self, shape: list[int]) -> None:
        self.shape = shape

    def astype(self, dtype: str) -> "Tensor":
        if dtype == "bfloat16":
            raise RuntimeError("The kernel `matmul` is not registered.")
        return self


def paddle(largest: int) -> Any:
    """A Paddle with room for products up to ``largest``, and without bfloat16."""

    def randn(shape: list[int], dtype: str) -> Tensor:
        if shape[0] > largest:
            raise MemoryError("ResourceExhaustedError: Out of memory error on GPU 0.")
        return Tensor(shape)

    class NoGrad:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    return SimpleNamespace(
        set_device=lambda name: None,
        randn=randn,
        matmul=lambda x, y: None,
        no_grad=NoGrad,
        device=SimpleNamespace(synchronize=lambda: None),
        base=SimpleNamespace(core=SimpleNamespace()),
    )


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "TIMED_S", 1e-6)


@pytest.mark.parametrize(("largest", "sizes"), [(8192, 4), (4096, 3), (1024, 1), (100, 0)])
def test_a_product_that_does_not_fit_hides_no_smaller_one(largest: int, sizes: int) -> None:
    found = Bench(paddle(largest), {"device": "npu:0"})
    rates = found.products("float16")
    assert len(rates) == sizes and all(r["flops_per_s"] > 0 for r in rates)
    if sizes:
        names = {f"float16 product {n} x {n} x {n}" for n in (8192, 4096, 4095) if n > largest}
        assert set(found.absent) == names
    else:
        assert set(found.absent) == {"float16"}
    assert all(why == "not enough free memory" for why in found.absent.values())


def test_a_dtype_without_kernels_is_said_once() -> None:
    found = Bench(paddle(8192), {"device": "npu:0", "skip": {"tf32": "it has none"}})
    assert {r["dtype"] for r in found.matmuls()} == {"float32", "float16"}
    assert found.absent == {
        "tf32": "it has none",
        "bfloat16": "Paddle has no kernel for this dtype on this device",
    }
