"""Derived values of a measurement: units, and no number where there is none."""

import json

import pytest

from autoamp.measurement import Label, Measurement, Outcome, Utilisation


def test_per_thousand_samples() -> None:
    found = Measurement(
        outcome=Outcome.ok,
        samples_timed=4000,
        throughput_samples_per_s=200.0,
        utilisation=Utilisation(energy_j=1200.0),
    )
    assert found.seconds_per_1000_samples == 5.0
    assert found.energy_j_per_1000_samples == 300.0


@pytest.mark.parametrize(
    "found",
    [
        Measurement(outcome=Outcome.no_steps, utilisation=Utilisation(energy_j=1.0)),
        Measurement(outcome=Outcome.ok, samples_timed=10),
    ],
)
def test_unknown_stays_unknown(found: Measurement) -> None:
    assert found.energy_j_per_1000_samples is None
    assert found.seconds_per_1000_samples is None


def test_an_outcome_reads_as_words_and_is_stored_as_it_was() -> None:
    assert f"{Outcome.unsupported_on_device}" == "unsupported on device"
    assert str(Outcome.unsupported_on_device) == "unsupported_on_device"
    assert json.dumps(Outcome.out_of_memory) == '"out_of_memory"'


@pytest.mark.parametrize(
    ("skipped", "label", "text"),
    [
        (3, Label.measured, "3"),
        (0, Label.emulated, "0"),
        (None, Label.not_computed, "-"),
        (0, Label.not_computed, "-"),
    ],
)
def test_skipped_steps_of_numbers_never_computed_are_no_result(
    skipped: int | None, label: Label, text: str
) -> None:
    m = Measurement(outcome=Outcome.ok, skipped_steps=skipped, numerics_label=label)
    assert m.skipped_text == text
