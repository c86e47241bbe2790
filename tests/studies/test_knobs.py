"""Knobs beside level and dtype: tried only where this Paddle has them."""

from dataclasses import replace

from simulated_device import Simulated, drive, t4, tf32_knob

from autoamp.settings import Level
from autoamp.studies.proposal import Options


def test_knobs_that_this_paddle_has_not_are_not_tried() -> None:
    """Paddle 2.4 would take them without a word, and run without them."""
    old = tuple(
        replace(tf32_knob(available=False, reason="came with 2.6"), knob=name)
        for name in ("master_grad", "use_promote")
    )
    device = Simulated(unstable=lambda s: "overflow" if s.amp_level is Level.O2 else None)
    for simulated in (Simulated(), device):
        done = drive(simulated, t4(knobs=old), Options(trials=40))
        assert not [p for p in done.proposals if p.setting.master_grad is not None]
        assert not [p for p in done.proposals if p.setting.use_promote is not None]
    with_them = drive(device, t4(), Options(trials=40))
    assert [p for p in with_them.proposals if p.setting.master_grad]
