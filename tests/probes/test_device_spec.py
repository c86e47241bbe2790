"""``--device`` as people write it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoamp.errors import UsageError
from autoamp.probes.device_spec import parse_device, parse_size, size_text
from autoamp.probes.facts import DeviceKind

GIB = 2**30


def test_auto_has_no_kind() -> None:
    assert parse_device("auto").kind is None
    assert parse_device(" auto ").kind is None


@pytest.mark.parametrize(
    ("text", "kind", "name", "index"),
    [
        ("cpu", DeviceKind.cpu, "", 0),
        ("gpu", DeviceKind.gpu, "gpu", 0),
        ("gpu:3", DeviceKind.gpu, "gpu", 3),
        ("cuda:1", DeviceKind.gpu, "gpu", 1),
        ("xpu:0", DeviceKind.custom, "xpu", 0),
        ("npu", DeviceKind.custom, "npu", 0),
        ("intel_hpu:2", DeviceKind.custom, "intel_hpu", 2),
    ],
)
def test_real_devices(text: str, kind: DeviceKind, name: str, index: int) -> None:
    spec = parse_device(text)
    assert (spec.kind, spec.paddle_type, spec.index) == (kind, name, index)


def test_virtual_with_options() -> None:
    spec = parse_device("virtual:t4,memory=4GiB,numerics=off")
    assert spec.kind is DeviceKind.virtual
    assert (spec.model, spec.memory_bytes, spec.numerics) == ("t4", 4 * GIB, False)
    plain = parse_device("virtual:a100-80gb")
    assert (plain.memory_bytes, plain.numerics) == (None, True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "virtual",
        "virtual:",
        "virtual:t4,memory=much",
        "virtual:t4,memory=0GiB",
        "virtual:t4,numerics=maybe",
        "virtual:t4,speed=2",
        "gpu:x",
        "gpu:-1",
        "gpu:0:1",
        "cpu:0",
        "GPU 0",
        "gpu:0,1",
    ],
)
def test_what_is_no_device(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_device(text)
    assert caught.value.slug == "bad-device"
    assert caught.value.remedy is not None and "virtual:" in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4", 4 * GIB),
        ("4GiB", 4 * GIB),
        ("4 gib", 4 * GIB),
        ("1.5g", 3 * GIB // 2),
        ("512MiB", 512 * 2**20),
        ("80GB", 80 * 10**9),
        ("100MB", 10**8),
        ("4096B", 4096),
        ("4TiB", None),
        ("GiB", None),
        ("4GiBs", None),
        ("-4GiB", None),
        ("", None),
    ],
)
def test_sizes(text: str, size: int | None) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("900MiB", "900MiB"),
        ("0.5", "512MiB"),
        ("1536MiB", "1.5GiB"),
        ("4GB", "4GB"),
        ("100MB", "100MB"),
        ("2", "2GiB"),
        ("1234567B", "1234567B"),
    ],
)
def test_a_size_is_shown_as_a_person_writes_it(text: str, shown: str) -> None:
    assert size_text(parse_size(text) or 0) == shown


@given(st.integers(min_value=1, max_value=2**50))
def test_a_shown_size_is_the_very_size(size: int) -> None:
    assert parse_size(size_text(size)) == size
    assert len(size_text(size)) <= len(f"{size}B")


@given(st.text(max_size=40))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        parse_device(text)
    except UsageError as error:
        assert error.slug == "bad-device"
