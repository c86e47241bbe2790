"""TF32 in the search: offered where FP32 has not all of it, proved like a mixed precision, and
named for what it is."""

from dataclasses import replace

import pytest
from simulated_device import (
    Finished,
    Simulated,
    ampere,
    drive,
    machine,
    t4,
    tf32_knob,
)

from autoamp.errors import MachineError
from autoamp.measurement import Effect, Measurement, OpCalls, Outcome, Phase
from autoamp.probes.facts import DeviceKind
from autoamp.settings import Dtype, Level, Setting
from autoamp.studies.proposal import Options, Proposal
from autoamp.studies.score import risk
from autoamp.studies.space import FP32, TF32, allowed_precisions, build_space

NO_LOOK = "too few trials to look at it"


def looked_at(done: Finished) -> list[str]:
    """Precisions of the first looks, in order."""
    return [
        p.setting.precision()
        for p in done.phase(Phase.ceiling)
        if p.setting.batch_size == 32 and p.setting.is_reduced
    ]


def why_not(done: Finished) -> str | None:
    return next((x.reason for x in done.result.skipped if x.what == TF32.name), None)


def test_it_stands_right_after_fp32() -> None:
    names = [p.name for p in allowed_precisions(ampere(), Options())[0]]
    assert names[:3] == ["FP32", "TF32", "O1 bfloat16"]
    assert looked_at(drive(Simulated(), ampere()))[0] == "TF32"


@pytest.mark.parametrize(
    ("switches", "offered"),
    [((False, True), True), ((False, False), True), ((True, True), False), ((None, None), False)],
)
def test_offered_where_the_baseline_has_not_all_of_it(
    switches: tuple[bool | None, bool | None], offered: bool
) -> None:
    baseline = Measurement(
        outcome=Outcome.ok, batch_size=32, tf32_matmul=switches[0], tf32_conv=switches[1]
    )
    space = build_space(ampere(), baseline, Simulated().facts(), Options())
    assert (TF32 in space.precisions) == offered
    reasons = [x.reason for x in space.exclusions if x.what == "TF32"]
    assert bool(reasons) != offered
    if switches == (None, None):
        with pytest.raises(MachineError, match="no switches"):
            build_space(ampere(), baseline, Simulated().facts(), Options(tf32=True))


def test_refused_hardware_gives_its_reason() -> None:
    on = t4(knobs=(tf32_knob(available=False, reason="TF32 came with Ampere"),))
    precisions, excluded = allowed_precisions(on, Options())
    assert TF32 not in precisions
    assert [x.reason for x in excluded if x.what == "TF32"] == ["TF32 came with Ampere"]
    with pytest.raises(MachineError) as caught:
        allowed_precisions(on, Options(tf32=True))
    assert caught.value.slug == "refused-precision" and "Ampere" in caught.value.message


def test_left_out_by_name_is_not_spoken_of() -> None:
    precisions, excluded = allowed_precisions(ampere(), Options(tf32=False))
    assert TF32 not in precisions and not [x for x in excluded if x.what == "TF32"]


@pytest.mark.parametrize("trials", range(2, 25))
def test_it_pushes_out_no_16_bit_type(trials: int) -> None:
    """With and without TF32 the same 16-bit precisions are looked at, at any budget."""
    without = drive(Simulated(), ampere(), Options(trials=trials, tf32=False))
    with_it = drive(Simulated(), ampere(), Options(trials=trials))
    mixed = [name for name in looked_at(with_it) if name != "TF32"]
    missing = set(looked_at(without)) - set(mixed)
    assert not missing
    assert ("TF32" in looked_at(with_it)) or why_not(with_it) == NO_LOOK


@pytest.mark.parametrize("trials", [4, 5, 8])
def test_asked_for_by_name_it_is_looked_at(trials: int) -> None:
    done = drive(Simulated(), ampere(), Options(trials=trials, tf32=True))
    names = looked_at(done)
    assert "TF32" in names and "O1 bfloat16" in names
    alone = drive(Simulated(), ampere(), Options(trials=trials, tf32=True, dtypes=()))
    assert looked_at(alone) == ["TF32"]


def slow_amp(**kwargs: object) -> Simulated:
    """16 bits bring nothing here, TF32 does."""
    return Simulated(
        per_sample_s={"O0": 0.002, "O1": 0.0021, "O2": 0.0021},
        bytes_per_sample={"O0": 2e8, "O1": 2e8, "O2": 2e8},
        tf32_per_sample_s=0.0010,
        **kwargs,  # type: ignore[arg-type]  # passed through
    )


def test_it_may_win_and_is_called_what_it_is() -> None:
    done = drive(slow_amp(), ampere())
    result = done.result
    assert result.verdict == "use"
    assert result.best.setting.precision() == "TF32" and result.best.confirmed
    words = " ".join((result.headline, *result.why))
    assert result.headline.startswith("use FP32 with TF32 products")
    assert "keep FP32" not in words and "10 bits" in words
    # The loss was compared with FP32's, as a mixed precision's is.
    (check,) = [c for c in result.drift if c.setting.precision() == "TF32"]
    assert check.passed
    assert result.mixed is not None and result.mixed.setting.is_mixed
    assert any("best mixed precision" in line for line in result.why)
    assert result.best.precision_gain is not None and result.best.precision_gain.ratio > 1.3


def test_it_is_safer_than_16_bits_and_not_as_safe_as_fp32() -> None:
    order = [
        FP32.setting(32),
        TF32.setting(32),
        Setting(batch_size=32, amp_level=Level.O1, dtype=Dtype.bfloat16),
        Setting(batch_size=32, amp_level=Level.O1, dtype=Dtype.float16),
    ]
    assert sorted(order[::-1], key=lambda x: risk(x, 32)) == order


def test_a_tie_with_bfloat16_goes_to_tf32() -> None:
    tie = Simulated(
        per_sample_s={"O0": 0.002, "O1": 0.00100, "O2": 0.00100},
        bytes_per_sample={"O0": 2e8, "O1": 2e8, "O2": 2e8},
        tf32_per_sample_s=0.00101,
        amp_overhead_s=0.0,
    )
    assert drive(tie, ampere()).result.best.setting.precision() == "TF32"


def test_what_drifts_does_not_win() -> None:
    drifting = slow_amp(drifts=lambda s: 1.0 if s.tf32 else 0.0)
    result = drive(drifting, ampere()).result
    assert result.best.setting.precision() == "FP32"
    assert any(line.startswith("TF32: loss") and "outside" in line for line in result.why)


def test_without_effect_it_cannot_win() -> None:
    device = slow_amp()

    def run(proposal: Proposal) -> Measurement:
        m = device(proposal)
        if proposal.setting.tf32 is None:
            return m
        off = Effect(knob="tf32", wanted="on", seen="products off", effective=False)
        return replace(m, outcome=Outcome.not_effective, reason="tf32: ...", effects=(off,))

    result = drive(run, ampere()).result
    assert not result.best.setting.is_reduced
    assert any("TF32" in line for line in (*result.why, *(x.what for x in result.skipped)))


def test_fp32_is_kept_in_the_right_words() -> None:
    nothing = Simulated(
        per_sample_s={"O0": 0.002, "O1": 0.0021, "O2": 0.0021}, tf32_per_sample_s=0.002
    )
    both = drive(nothing, ampere(), Options(keep_batch=True)).result
    assert both.verdict == "keep_fp32" and "AMP does not pay" in both.headline
    assert any("TF32 products" in line for line in both.why)
    alone = drive(nothing, ampere(), Options(keep_batch=True, tf32=True, dtypes=())).result
    assert alone.headline.startswith("keep FP32: TF32 does not pay here")
    assert any("FP32 ran its convolutions in TF32" in line for line in alone.why)
    has_it = Simulated(tf32=(True, True))
    told = drive(has_it, ampere(), Options(tf32=True, dtypes=())).result
    assert "it has TF32 already" in told.headline
    assert any("matrix products and convolutions in TF32" in line for line in told.why)
    calls = (OpCalls(op="matmul_v2", float32=9),)
    dense = drive(lambda p: replace(nothing(p), op_calls=calls), ampere()).result
    # Without a convolution there is nothing to say of convolutions.
    assert not any("FP32 ran its" in line for line in dense.why)
    none_of_it = drive(Simulated(tf32=(False, False)), ampere()).result
    assert not any("FP32 ran its" in line for line in none_of_it.why)
    unasked = drive(has_it, t4(knobs=(tf32_knob(available=False),)), Options(levels=(Level.O0,)))
    assert "no mixed precision was asked for" in unasked.result.headline


def test_a_script_with_amp_of_its_own_is_compared_with_fp32() -> None:
    """Where only TF32 is asked for, as written is still not FP32."""
    own = Setting(amp_level=Level.O1, dtype=Dtype.float16)
    done = drive(slow_amp(script_amp=own), ampere(), Options(tf32=True, dtypes=()))
    assert [p.setting.precision() for p in done.phase(Phase.baseline)] == ["as written", "FP32"]
    assert done.result.best.setting.precision() == "TF32"
    assert any("AMP is switched off" in line for line in done.result.why)


def test_virtual_devices_do_not_pretend_to_compare_losses() -> None:
    on = machine(kind=DeviceKind.virtual, name="A100", knobs=(tf32_knob(),))
    done = drive(slow_amp(virtual=True), on, ratio_band=0.1)
    assert done.result.best.setting.precision() == "TF32"
    assert not [p for p in done.proposals if p.setting.tf32 and p.numerics == "full"]
    (check,) = [c for c in done.result.drift if c.setting.precision() == "TF32"]
    assert check.passed is None and "not emulate" in check.why
    assert any("not emulate" in line for line in done.result.caveats)


@pytest.mark.parametrize("trials", [12, 13, 16, 20, 24, 32])
def test_more_precisions_or_more_trials_do_not_cost_the_leader_its_climb(trials: int) -> None:
    """Trials for the ceilings go to the fastest first: neither TF32 nor a larger budget that
    spreads them may end with a slower setting."""

    def best(**options: object) -> float:
        wanted = Options(**options)  # type: ignore[arg-type]  # passed through
        found = drive(Simulated(), ampere(), wanted).result.best
        return found.first.throughput_samples_per_s or 0.0

    least = 0.97 * best(trials=12, tf32=False)
    assert best(trials=trials) >= least
    assert best(trials=trials, tf32=False) >= least
