"""The first runs: what is accepted as a baseline, and what a search without one ends in."""

from __future__ import annotations

import pytest
from simulated_device import GIB, Simulated, drive, t4, virtual

from autoamp.errors import ScriptError
from autoamp.measurement import Measurement, Outcome, Phase
from autoamp.settings import AS_WRITTEN, Dtype, Level, Setting
from autoamp.studies.baseline import baseline_failed
from autoamp.studies.phases import Options, Proposal
from autoamp.studies.score import standing

AMP = Setting(amp_level=Level.O1, dtype=Dtype.float16)
HEAVY_FP32 = {"O0": 0.30 * GIB, "O1": 0.07 * GIB, "O2": 0.05 * GIB}


def stumbles(proposal: Proposal) -> tuple[Outcome, str] | None:
    planning = proposal.numerics == "planning"
    return (Outcome.crashed, "AssertionError: loss is zero") if planning else None


SCRIPTS = {
    "fits": lambda: (Simulated(), t4()),
    "own AMP": lambda: (Simulated(script_amp=AMP), t4()),
    "too large": lambda: (Simulated(own_batch=512), t4()),
    "own AMP, too large": lambda: (
        Simulated(own_batch=256, script_amp=AMP, bytes_per_sample=HEAVY_FP32),
        t4(),
    ),
    "FP32 alone too large": lambda: (
        Simulated(own_batch=128, script_amp=AMP, bytes_per_sample=HEAVY_FP32),
        t4(),
    ),
    "planning stumbles": lambda: (Simulated(virtual=True, fails=stumbles), virtual()),
}


@pytest.mark.parametrize("by_time", [False, True], ids=["Ctrl-C", "--timeout"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_stopped_at_any_baseline_run(script: str, by_time: bool) -> None:
    """Either something that fits is recommended, or the error says that nothing was found."""
    simulated, on = SCRIPTS[script]()
    whole = drive(simulated, on, Options(trials=12))
    baselines = len(whole.phase(Phase.baseline))
    for after in range(baselines + 2):
        simulated, on = SCRIPTS[script]()
        options = Options(trials=12, timeout_s=10.0 * after or 0.001) if by_time else Options()
        try:
            done = drive(simulated, on, options, stop_after=None if by_time else after)
        except ScriptError as error:
            assert error.slug == "stopped-too-early" and error.remedy
            found = simulated.calls[-1] if simulated.calls else None
            assert (found is None) == ("nothing was run" in error.message)
            assert after < baselines
        else:
            result = done.result
            assert result.stopped is not None or by_time
            assert simulated.memory(result.best.setting) <= simulated.capacity
            halved = result.script_batch != result.space.own_batch
            assert not (halved and result.best.setting.is_as_written)


def test_before_the_first_run_nothing_is_asked() -> None:
    with pytest.raises(ScriptError, match="nothing was run") as caught:
        drive(Simulated(), stop_after=0)
    assert caught.value.slug == "stopped-too-early"


def test_the_last_run_is_named() -> None:
    with pytest.raises(ScriptError, match="ended out of memory: ") as caught:
        drive(Simulated(own_batch=512), stop_after=1)
    assert "as written" in caught.value.message


@pytest.mark.parametrize("amp", [None, AMP])
def test_halving_goes_on_until_the_headroom_is_left(amp: Setting | None) -> None:
    """The halved batch is nobody's today: it gets no more memory than any other candidate."""
    simulated = Simulated(own_batch=256, script_amp=amp, bytes_per_sample=dict.fromkeys(
        ("O0", "O1", "O2"), 0.11 * GIB))  # fmt: skip
    tight = Setting(batch_size=128, amp_level=Level.O0, dtype=Dtype.float32)
    assert 0.9 * simulated.capacity < simulated.memory(tight) < simulated.capacity
    result = drive(simulated, t4()).result
    assert result.as_written_setting == Setting(batch_size=64)
    assert result.fp32_setting is not None and result.fp32_setting.batch_size == 64
    assert not any("what runs today" in x for x in result.caveats)
    limit = result.space.memory_limit_bytes
    for choice in (result.best, result.at_your_batch):
        assert standing(choice.first, memory_limit_bytes=limit).can_win


def test_fp32_beside_a_halved_script_leaves_the_headroom_too() -> None:
    bytes_per_sample = {"O0": 0.11 * GIB, "O1": 0.09 * GIB, "O2": 0.09 * GIB}
    simulated = Simulated(own_batch=256, script_amp=AMP, bytes_per_sample=bytes_per_sample)
    result = drive(simulated, t4()).result
    assert result.as_written_setting.batch_size == 128
    assert result.fp32_setting is not None and result.fp32_setting.batch_size == 64
    assert result.fp32_reason is not None and "headroom" in result.fp32_reason


def test_fp32_at_the_scripts_batch_is_the_comparison_headroom_or_not() -> None:
    bytes_per_sample = {"O0": 0.11 * GIB, "O1": 0.09 * GIB, "O2": 0.09 * GIB}
    simulated = Simulated(own_batch=128, script_amp=AMP, bytes_per_sample=bytes_per_sample)
    result = drive(simulated, t4()).result
    assert result.fp32_setting is not None and result.fp32_setting.batch_size == 128
    assert result.fp32_reason is None


def test_the_error_says_what_was_halved_to() -> None:
    nothing = Simulated(own_batch=64, bytes_per_sample=dict.fromkeys(("O0", "O1", "O2"), 16 * GIB))
    with pytest.raises(ScriptError) as caught:
        drive(nothing)
    assert caught.value.slug == "baseline-out-of-memory"
    assert "halved down to batch 1: " in caught.value.message


def test_halving_ends_where_the_weights_alone_break_the_headroom() -> None:
    laws = Simulated(own_batch=512, fixed_bytes=14.6 * GIB, bytes_per_sample=dict.fromkeys(
        ("O0", "O1", "O2"), 0.005 * GIB))  # fmt: skip
    with pytest.raises(ScriptError) as caught:
        drive(laws)
    assert [p.setting.batch_size for p in laws.calls] == [None, 256, 128, 64]
    assert "leaves less than the headroom" in caught.value.message
    assert caught.value.remedy is not None and "--headroom" in caught.value.remedy


def test_a_halved_run_that_fails_otherwise_is_named() -> None:
    def fails(proposal: Proposal) -> tuple[Outcome, str] | None:
        halved = proposal.setting == Setting(batch_size=256)
        return (Outcome.crashed, "shapes differ") if halved else None

    with pytest.raises(ScriptError, match="batch 256: crashed: shapes differ"):
        drive(Simulated(own_batch=512, fails=fails))


def test_too_few_trials_for_fp32_ask_for_more() -> None:
    simulated = Simulated(own_batch=256, script_amp=AMP, bytes_per_sample=HEAVY_FP32)
    with pytest.raises(ScriptError) as caught:
        drive(simulated, options=Options(trials=3))
    assert caught.value.slug == "baseline-out-of-memory"
    assert caught.value.remedy is not None and "--trials" in caught.value.remedy


@pytest.mark.parametrize("own", [192, 256])
def test_at_your_batch_is_at_the_scripts_own_where_another_precision_fits(own: int) -> None:
    done = drive(Simulated(own_batch=own))
    result = done.result
    assert result.space.own_batch != own == result.script_batch
    tried = [t for t in result.trials if t.proposal.setting.batch_size == own]
    fits = any(t.measurement.ok and t.proposal.setting.is_mixed for t in tried)
    assert fits, "the batch is climbed by doubling, so it comes by its own"
    assert result.at_your_batch.setting.batch_size == own
    assert result.at_your_batch.setting.is_mixed and result.at_your_batch.confirmed


def test_of_two_that_tie_the_nearer_to_the_scripts_own_batch_is_taken() -> None:
    """Its learning rate was chosen for 512, and not for what 512 was halved to."""
    laws = Simulated(own_batch=512, virtual=True, overhead_s=0.002, amp_overhead_s=0.0)
    result = drive(laws, virtual(), ratio_band=0.3).result
    best = result.best.setting
    same = [
        t.proposal.setting.batch_size or 0
        for t in result.trials
        if t.proposal.setting.arithmetic == best.arithmetic
        and t.measurement.ok
        and standing(t.measurement, memory_limit_bytes=result.space.memory_limit_bytes).can_win
    ]
    assert best.batch_size == max(same) > (result.space.own_batch or 0)


def test_as_written_is_never_the_reference_of_a_halved_script() -> None:
    result = drive(Simulated(own_batch=512, script_amp=AMP)).result
    assert result.as_written_setting != AS_WRITTEN
    assert AS_WRITTEN not in (result.best.setting, result.at_your_batch.setting)


def test_a_halved_fp32_that_is_alone_is_confirmed_too() -> None:
    """What nobody runs today needs a fresh run, also where there is nothing to compare with."""

    def refuses(proposal: Proposal) -> tuple[Outcome, str] | None:
        return (Outcome.crashed, "boom") if proposal.setting.is_mixed else None

    result = drive(Simulated(own_batch=512, fails=refuses)).result
    assert result.verdict == "keep_fp32" and result.best.confirmed


FRAMES = """Epoch 1/2
--------------------------------------
C++ Traceback (most recent call last):
--------------------------------------
0   paddle::pybind::eager_api_matmul(_object*, _object*, _object*)
12  phi::memory::Allocate(phi::Place const&, unsigned long)
13  std::string phi::enforce::GetCompleteTraceBackString<std::string >(std::string&&, int)
----------------------
Error Message Summary:
----------------------
InvalidArgumentError: the shapes do not match
3 epochs were asked for
step 12 loss 0.3 (best 0.2)"""


@pytest.mark.parametrize("outcome", [Outcome.crashed, Outcome.out_of_memory, Outcome.no_steps])
def test_native_frames_are_not_the_scripts_last_words(outcome: Outcome) -> None:
    failed = Measurement(outcome=outcome, reason="the reason", log_tail=FRAMES)
    message = str(baseline_failed(failed, "as written").message)
    assert "phi::" not in message and "Traceback" not in message and "---" not in message
    assert "the reason" in message
    # Where memory was short the reason has Paddle's sentence.
    assert ("the shapes do not match" in message) == (outcome is not Outcome.out_of_memory)
    assert ("3 epochs were asked for" in message) == (outcome is not Outcome.out_of_memory)
    assert ("step 12 loss 0.3 (best 0.2)" in message) == (outcome is not Outcome.out_of_memory)
