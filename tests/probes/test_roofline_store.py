"""The kept roofline: found for the same machine only, and never trusted when broken."""

from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from autoamp.measurement import Label
from autoamp.probes import roofline_store
from autoamp.probes.facts import Identity, MatmulRate, Roofline

IDENTITY = Identity(device="Tesla T4", memory_gib=16, mig=None, paddle="3.1", cuda="12.6")
ROOFLINE = Roofline(
    device="Tesla T4",
    label=Label.measured,
    taken_at="2026-12-01T00:00:00Z",
    paddle="3.1.0",
    matmuls=(
        MatmulRate(dtype="float16", m=4096, n=4096, k=4096, flops_per_s=4e13, share_of_peak=0.6),
    ),
    copy_bytes_per_s=2.5e11,
    absent={"tf32": "no TF32 on this device"},
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOAMP_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_is_kept_is_found_again(cache: Path) -> None:
    assert roofline_store.load(IDENTITY) is None
    path = roofline_store.save(IDENTITY, ROOFLINE)
    assert path.is_relative_to(cache) and list(path.parent.iterdir()) == [path]
    assert roofline_store.load(IDENTITY) == ROOFLINE
    later = replace(ROOFLINE, taken_at="2026-12-02T00:00:00Z")
    roofline_store.save(IDENTITY, later)
    assert roofline_store.load(IDENTITY) == later


@pytest.mark.parametrize("field", ["device", "memory_gib", "mig", "paddle", "cuda"])
def test_another_machine_has_its_own(field: str) -> None:
    roofline_store.save(IDENTITY, ROOFLINE)
    change: Any = {field: 8 if field == "memory_gib" else "other"}
    other = replace(IDENTITY, **change)
    assert roofline_store.load(other) is None


@pytest.mark.parametrize("options", [",numerics=off", ",memory=4GiB", ",memory=4GiB,numerics=off"])
def test_the_rates_of_a_virtual_gpu_are_those_of_its_model(options: str) -> None:
    plain = replace(IDENTITY, device="virtual:t4")
    roofline_store.save(plain, ROOFLINE)
    assert roofline_store.load(replace(plain, device=f"virtual:t4{options}", memory_gib=4))
    assert roofline_store.load(replace(plain, device=f"virtual:a10{options}")) is None
    # A real GPU's memory tells its models apart.
    assert roofline_store.load(replace(IDENTITY, device="t4")) is None


def test_a_virtual_gpus_rates_are_those_of_one_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its code, its data and the catalogue; a real GPU's do not depend on them."""
    plain = replace(IDENTITY, device="virtual:t4")
    real = resources.files
    for part in ("virtual/csrc", "virtual/data", "probes"):
        copy = tmp_path / part.replace("/", "-")
        for name, of in (
            ("virtual/csrc", real("autoamp")), ("virtual/data", real("autoamp")),
            ("probes", real("autoamp.probes").joinpath("..")),
        ):  # fmt: skip
            (copy / name).mkdir(parents=True)
            for file in of.joinpath(name).iterdir():
                if file.is_file() and file.name.endswith((".cc", ".h", ".json", ".csv")):
                    (copy / name / file.name).write_bytes(file.read_bytes())

        def files(package: str, copy: Path = copy) -> Path:
            return copy / "probes" if package == "autoamp.probes" else copy

        monkeypatch.setattr(roofline_store.resources, "files", files)
        roofline_store.save(plain, ROOFLINE)
        roofline_store.save(IDENTITY, ROOFLINE)
        assert roofline_store.load(plain) == ROOFLINE
        for file in (copy / part).iterdir():
            before = file.read_bytes()
            file.write_bytes(before + b" ")
            assert roofline_store.load(plain) is None, file
            assert roofline_store.load(IDENTITY) == ROOFLINE
            file.write_bytes(before)


@pytest.mark.parametrize("damage", [b"", b"{", b"null", b"[]", b"{}", b"\xff\xfe"])
def test_a_broken_file_is_no_roofline(damage: bytes) -> None:
    path = roofline_store.save(IDENTITY, ROOFLINE)
    path.write_bytes(damage)
    assert roofline_store.load(IDENTITY) is None


def test_another_schema_is_no_roofline() -> None:
    path = roofline_store.save(IDENTITY, ROOFLINE)
    path.write_text(path.read_text().replace('"schema": 2', '"schema": 1'))
    assert roofline_store.load(IDENTITY) is None


def test_alignment_is_that_of_every_side() -> None:
    rate = ROOFLINE.matmuls[0]
    assert rate.aligned
    for side in ("m", "n", "k"):
        change: Any = {side: 4095}
        assert not replace(rate, **change).aligned
