"""``CUDA_VISIBLE_DEVICES`` as CUDA reads it."""

import fake_nvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoamp.probes import nvml
from autoamp.probes.facts import NvmlGpu
from autoamp.probes.visible import order_is_doubtful, visible


def gpus_of(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[NvmlGpu, ...]:
    fake_nvml.install(monkeypatch, fake_nvml.load(name))
    return nvml.read().gpus


FOUR = tuple(
    NvmlGpu(index=n, name="NVIDIA A10", uuid=f"GPU-{n}{n}{n}{n}0000-0000-0000-0000-00000000000{n}")
    for n in range(4)
)


@pytest.mark.parametrize(
    ("setting", "indices"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("0", [0]),
        ("2,0", [2, 0]),
        (" 1 , 3 ", [1, 3]),
        ("0,9,1", [0]),
        ("-1", []),
        ("0,-1,1", [0]),
        ("none", []),
        ("NoDevFiles", []),
        ("1,1", []),
        ("GPU-2222", [2]),
        ("GPU-2222,GPU-0000", [2, 0]),
        ("GPU-3333,1", [3, 1]),
        ("GPU-", []),
        ("MIG-GPU-2222/0/0", []),
    ],
)
def test_settings(setting: str | None, indices: list[int]) -> None:
    assert [g.index for g in visible(FOUR, setting)] == indices


def test_mig_instances_by_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = gpus_of("a100-mig", monkeypatch)
    third = gpus[2]
    assert third.uuid is not None
    assert visible(gpus, third.uuid) == (third,)
    assert visible(gpus, third.uuid[:12]) == (third,)


def test_an_index_takes_the_first_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = gpus_of("a100-mig-beside-whole", monkeypatch)
    assert visible(gpus, "0") == (gpus[0],)
    assert [g.index for g in visible(gpus, "1")] == [1]


def test_an_old_drivers_mig_names() -> None:
    old = NvmlGpu(index=0, name="NVIDIA A100", uuid="MIG-GPU-aaaa/7/0", mig_profile="1g.5gb")
    assert visible((old,), "MIG-GPU-aaaa/7/0") == (old,)
    assert visible((old,), "MIG-GPU-aaaa/9/0") == ()


def test_doubtful_order(monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = gpus_of("mixed-generations", monkeypatch)
    assert order_is_doubtful(mixed, {})
    assert order_is_doubtful(mixed, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"})
    assert not order_is_doubtful(mixed, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert not order_is_doubtful(FOUR, {})


@given(st.lists(st.sampled_from(["0", "1", "3", "7", "GPU-1111", "GPU-", "", "x", "-2"])))
def test_never_more_than_there_is_and_never_twice(entries: list[str]) -> None:
    shown = visible(FOUR, ",".join(entries))
    assert len({g.index for g in shown}) == len(shown) <= len(entries)
