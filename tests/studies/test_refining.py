"""The search below the ceilings: which runs a clock without noise makes needless."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from simulated_device import Simulated, ampere, drive, virtual

from autoamp.measurement import Measurement
from autoamp.studies.phases import Options, Proposal

HUNGRY = 1 << 20


def with_cost(simulated: Simulated, slower: float, more: int) -> Callable[[Proposal], Measurement]:
    """The simulated device, where doing without promotion costs time and memory."""

    def answer(proposal: Proposal) -> Measurement:
        found = simulated(proposal)
        peak, rate = found.memory_reserved_peak_bytes, found.throughput_samples_per_s
        if proposal.setting.use_promote is not False or peak is None or rate is None:
            return found
        return replace(
            found,
            memory_reserved_peak_bytes=peak + more,
            throughput_samples_per_s=rate / slower,
        )

    return answer


def variants(answer: Callable[[Proposal], Measurement], *, on_virtual: bool) -> list[Proposal]:
    on = virtual() if on_virtual else ampere()
    done = drive(answer, on, Options(trials=30))
    return [p for p in done.counted if p.setting.use_promote is False]


@pytest.mark.parametrize(("slower", "more"), [(1.0, 0), (1.0, HUNGRY), (1.001, 0)])
def test_a_knob_that_changes_nothing_is_run_once_on_a_virtual_device(
    slower: float, more: int
) -> None:
    answer = with_cost(Simulated(virtual=True), slower, more)
    ran = variants(answer, on_virtual=True)
    assert len(ran) == 1 if (slower, more) == (1.0, 0) else len(ran) > 1


def test_equal_times_of_a_real_device_are_chance() -> None:
    assert len(variants(with_cost(Simulated(), 1.0, 0), on_virtual=False)) > 1
