"""What a reader is warned of before trusting a recommendation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulated_device import Simulated, drive, t4

from autoamp.measurement import Measurement, Phase, Utilisation
from autoamp.probes.facts import POWER_CAP
from autoamp.studies.phases import Options, Proposal

HEAT = "software thermal slowdown"


@pytest.mark.parametrize("phase", [Phase.baseline, Phase.confirm])
@pytest.mark.parametrize(
    ("reasons", "told"), [((HEAT, POWER_CAP), True), ((POWER_CAP,), False), ((), False)]
)
def test_heat_in_any_run_that_a_ratio_rests_on_is_told(
    reasons: tuple[str, ...], told: bool, phase: Phase
) -> None:
    laws = Simulated()

    def answer(proposal: Proposal) -> Measurement:
        found = laws(proposal)
        slowed = reasons if proposal.phase is phase else ()
        return replace(found, utilisation=Utilisation(gpu_percent=90.0, throttle_reasons=slowed))

    found = [x for x in drive(answer, t4(), Options(trials=4)).result.caveats if "throttled" in x]
    assert len(found) == told
    assert all(HEAT in x and POWER_CAP not in x for x in found)
