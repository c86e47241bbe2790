"""The rows that the clock is held against: sourced, on known GPUs, and none of them fitted."""

import csv
from importlib import resources
from pathlib import Path

from autoamp.probes import catalogue
from autoamp.virtual.calibration import error_band
from autoamp.virtual.clock_data import clock_data

ROWS = Path(__file__).parents[2] / "benchmarks" / "data" / "validation.csv"


def rows() -> list[dict[str, str]]:
    with ROWS.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_row_has_a_source_and_a_gpu_of_the_catalogue() -> None:
    for row in rows():
        assert row["source"].startswith("github:") and "@" in row["source"], row
        assert float(row["throughput"]) > 0 and int(row["batch_size"]) > 0
        tf32 = catalogue.find(row["gpu"]).compute_capability >= (8, 0)
        # What "FP32" meant is a fact of the GPU and the framework.
        assert row["precision"] != ("fp32" if tf32 else "tf32"), row
        assert (row["level"] == "O0") == (row["precision"] != "fp16-amp"), row


def test_no_row_of_the_fit_is_among_them() -> None:
    text = resources.files("autoamp.virtual").joinpath("data/published.csv").read_text("utf-8")
    fitted = {
        (row["throughput_total"], row["batch_size_per_gpu"])
        for row in csv.DictReader(text.splitlines())
    }
    for row in rows():
        assert (row["throughput"], row["batch_size"]) not in fitted, row


def test_bands_are_no_narrower_than_what_validation_rows_show() -> None:
    seen = clock_data()["validation"]
    for alias, kind in (("v100-16gb", "calibrated"), ("h100", "uncalibrated")):
        band = error_band(alias)
        assert band.throughput >= seen[kind]["throughput"] > 0
        assert band.ratio >= seen[kind]["ratio"] > 0
