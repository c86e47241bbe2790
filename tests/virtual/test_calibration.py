"""The clock's data: every number with its source, bands that follow from the fit."""

from dataclasses import replace

import pytest

from autoamp.probes import catalogue
from autoamp.probes.virtual import virtual_device
from autoamp.virtual.calibration import error_band
from autoamp.virtual.clock_data import clock_data, parameters_for


def test_every_parameter_has_unit_and_source() -> None:
    data = clock_data()
    for name, entry in data["parameters"].items():
        assert entry["value"] > 0 and entry["unit"] and len(entry["source"]) > 20, name
        # What is fitted says so, and what is not has no prior.
        assert entry["source"].startswith("fitted") == ("prior" in entry), name
    for capability, cache in data["cache_by_capability"].items():
        assert cache["source"], capability
        assert 1e6 < cache["l2_bytes"] < 1e9
        assert 8 < cache["l2_bytes_per_clock_per_sm"] < 128


def test_no_efficiency_is_above_the_peak() -> None:
    for name, entry in clock_data()["parameters"].items():
        if name.endswith("_efficiency"):
            assert 0.3 <= entry["value"] <= 1.0, name


def test_an_unknown_capability_gets_the_default_cache() -> None:
    a100 = virtual_device(catalogue.find("a100-80gb"), 1 << 30, numerics=False)
    known = parameters_for(a100)
    unknown = parameters_for(replace(a100, compute_capability=(99, 0)))
    assert known.keys() == unknown.keys()
    default = clock_data()["cache_by_capability"]["default"]
    assert unknown["l2_bytes"] == default["l2_bytes"]


def test_gpus_with_published_rows_have_the_narrower_band() -> None:
    v100, a100 = error_band("v100-32gb"), error_band("a100-80gb")
    h100 = error_band("h100")
    assert v100 == a100
    assert v100.calibrated and not h100.calibrated
    assert 0 < v100.ratio < h100.ratio < 1
    assert 0 < v100.throughput < h100.throughput < 1
    assert "uncalibrated" in h100.note and "uncalibrated" not in v100.note


@pytest.mark.parametrize("alias", ["v100s-32gb", "v100-pcie-16gb", "a100-40gb", "a100-pcie-80gb"])
def test_a_relative_of_a_published_gpu_is_uncalibrated(alias: str) -> None:
    """Another board: other clocks, watts and bandwidth, and no row that says how it does."""
    assert not error_band(alias).calibrated


def test_steps_bound_by_the_host_are_known_worst() -> None:
    for alias in ("v100-32gb", "h100"):
        band = error_band(alias)
        assert band.host_bound_ratio > band.ratio
        assert band.host_bound_throughput > band.throughput
