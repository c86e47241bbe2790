"""Whole searches against simulated devices: what is asked, and what is recommended."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulated_device import (
    GIB,
    NO_BF16,
    PASCAL,
    Finished,
    Simulated,
    drive,
    machine,
    t4,
    virtual,
)

from autoamp.errors import EXIT_MACHINE, EXIT_SCRIPT, MachineError, ScriptError
from autoamp.measurement import Measurement, Outcome, Phase, Scan
from autoamp.probes.facts import DeviceKind
from autoamp.settings import AS_WRITTEN, Dtype, Level, Setting
from autoamp.studies.phases import Options, Proposal, plan_line, search
from autoamp.studies.proposal import Choice, recipe
from autoamp.studies.score import peak_memory_bytes, standing

SLOW_AMP = {"O0": 0.0010, "O1": 0.0013, "O2": 0.0014}


def may_need(done: Finished) -> float | None:
    """Capacity less the headroom, or what the script takes today where its own batch fits."""
    limit = done.result.space.memory_limit_bytes
    if limit is None or done.result.script_batch != done.result.space.own_batch:
        return limit
    as_written = {AS_WRITTEN.key()}
    if done.result.fp32 is done.result.as_written and done.result.fp32_setting is not None:
        as_written.add(done.result.fp32_setting.key())
    today = [
        peak
        for t in done.result.trials
        if t.proposal.setting.key() in as_written and not t.proposal.scan and t.measurement.ok
        if (peak := peak_memory_bytes(t.measurement)) is not None
    ]
    return max(limit, *today)


def check_invariants(done: Finished) -> None:
    """What must hold whatever the device does."""
    result = done.result
    ran = {t.proposal.setting.key(): t for t in result.trials}
    reference = {AS_WRITTEN.key()}
    if result.fp32_setting is not None:
        reference.add(result.fp32_setting.key())
    if result.fp32 is result.as_written:
        assert result.fp32_setting is not None
        as_written = next(t for t in result.trials if t.measurement is result.as_written)
        ran.setdefault(result.fp32_setting.key(), as_written)
    halved = result.script_batch != result.space.own_batch
    assert len(done.counted) <= result.options.trials
    assert result.counted_trials == len(done.counted)
    for choice in (result.best, result.at_your_batch):
        key = choice.setting.key()
        assert key in ran, "only measured settings are recommended"
        if halved:
            assert choice.setting.batch_size and choice.setting.amp_level is not None
            limit = result.space.memory_limit_bytes
            assert standing(choice.first, memory_limit_bytes=limit).can_win
        assert all(m.ok and m.throughput_samples_per_s for m in choice.runs)
        if key not in reference:
            limit = may_need(done)
            assert all(standing(m, memory_limit_bytes=limit).can_win for m in choice.runs)
            if result.stopped is None:
                assert choice.confirmed and len(choice.runs) > 1, "never on the word of one run"
        failed = [
            t
            for t in result.trials
            if t.proposal.setting.key() == key and t.proposal.phase is not Phase.baseline
        ]
        if key not in reference:
            unseen = (Outcome.timed_out, Outcome.host_memory) if done.virtual else ()
            ends = {t.measurement.outcome for t in failed} - {Outcome.ok, *unseen}
            assert not ends, "a setting that failed never wins"
        if choice.setting.is_mixed and result.stopped is None:
            checks = [d for d in result.drift if recipe(d.setting) == recipe(choice.setting)]
            assert checks and checks[0].passed is not False
    own = result.space.own_batch
    at_own = result.at_your_batch.setting
    at_script = (None, own, result.script_batch)
    # Where the script was halved and FP32 is all that fits, that is what there is.
    only_fp32 = halved and at_own == result.fp32_setting
    assert at_own.batch_size in at_script or only_fp32, "at_your_batch is at the script's batch"
    assert result.verdict == (
        "use"
        if result.best.setting.is_mixed
        else "keep_as_written"
        if result.best.setting.is_as_written
        else "keep_fp32"
    )
    assert result.headline and result.why
    # Losses of different batches are never compared.
    for check in result.drift:
        if check.candidate_loss is not None:
            pairs = [
                t.proposal.setting.batch_size
                for t in result.trials
                if t.proposal.phase is Phase.drift and t.measurement.losses
            ]
            assert check.setting.batch_size in pairs


def best(done: Finished) -> Setting:
    return done.result.best.setting


def test_amp_pays() -> None:
    done = drive(Simulated())
    check_invariants(done)
    assert done.result.verdict == "use"
    assert best(done).amp_level is Level.O2 and best(done).dtype is Dtype.float16
    assert best(done).init_loss_scaling == 2.0**15
    choice = done.result.best
    assert choice.against_fp32 is not None and choice.against_fp32.ratio > 2.5
    assert choice.precision_gain is not None and choice.batch_gain is not None
    total = choice.precision_gain.ratio * choice.batch_gain
    assert total == pytest.approx(choice.against_fp32.ratio)
    assert done.result.at_your_batch.setting.batch_size == 32
    assert done.result.default == "best"


def test_phases_come_in_order_and_the_baseline_first() -> None:
    done = drive(Simulated())
    assert done.proposals[0].setting == AS_WRITTEN
    assert done.proposals[0].phase is Phase.baseline
    order = [p.phase for p in done.proposals]
    firsts = [order.index(x) for x in dict.fromkeys(order)]
    assert firsts == sorted(firsts)
    phases = list(dict.fromkeys(order))
    assert phases == [
        Phase.baseline,
        Phase.scan,
        Phase.ceiling,
        Phase.search,
        Phase.drift,
        Phase.confirm,
    ]
    assert all(p.steps is not None and p.steps > 60 for p in done.phase(Phase.drift))


def test_a_script_without_amp_needs_no_second_baseline() -> None:
    done = drive(Simulated())
    assert len(done.phase(Phase.baseline)) == 1
    assert done.result.fp32 is done.result.as_written


def test_a_script_with_amp_gets_an_fp32_baseline_and_may_stay_as_it_is() -> None:
    own = Setting(amp_level=Level.O2, dtype=Dtype.float16)
    done = drive(Simulated(script_amp=own), options=Options(keep_batch=True))
    check_invariants(done)
    assert [p.setting.amp_level for p in done.phase(Phase.baseline)] == [None, Level.O0]
    # Its own O2 is as fast as ours at this batch: nothing to gain by changing it.
    assert done.result.verdict == "keep_as_written"
    assert best(done) == AS_WRITTEN


def test_a_script_with_slower_amp_is_improved() -> None:
    own = Setting(amp_level=Level.O1, dtype=Dtype.float16)
    done = drive(Simulated(script_amp=own))
    check_invariants(done)
    assert done.result.verdict == "use"
    ratio = done.result.best.against_as_written
    assert ratio is not None and 1.2 < ratio.ratio < 3


def test_fp32_that_does_not_fit_at_the_scripts_batch() -> None:
    own = Setting(amp_level=Level.O2, dtype=Dtype.float16)
    done = drive(Simulated(script_amp=own, own_batch=256))
    check_invariants(done)
    assert done.result.fp32_setting is not None
    assert done.result.fp32_setting.batch_size == 128
    assert done.result.fp32_reason is not None and "256" in done.result.fp32_reason
    assert done.result.at_your_batch.setting.batch_size in (None, 256)


def test_fp32_that_never_fits_leaves_the_script_as_reference() -> None:
    own = Setting(amp_level=Level.O2, dtype=Dtype.float16)
    heavy = Simulated(
        script_amp=own,
        own_batch=8,
        tunable=False,
        bytes_per_sample={"O0": 4 * GIB, "O1": 1.5 * GIB, "O2": 1.0 * GIB},
    )
    done = drive(heavy)
    check_invariants(done)
    assert done.result.fp32 is None
    assert done.result.best.against_fp32 is None
    assert done.result.fp32_reason is not None


def test_amp_slower_keeps_fp32_with_the_number() -> None:
    done = drive(Simulated(per_sample_s=SLOW_AMP, data_wait=0.61))
    check_invariants(done)
    assert done.result.verdict == "keep_fp32"
    assert "does not pay" in done.result.headline and "0." in done.result.headline
    assert any("61%" in sentence for sentence in done.result.why)
    assert done.result.mixed is not None and done.result.mixed.confirmed
    assert not done.phase(Phase.drift), "a precision that cannot win needs no drift check"


def test_nothing_larger_fits() -> None:
    tight = Simulated(capacity=4.5 * GIB)
    done = drive(tight, t4(memory_bytes=int(4.5 * GIB)))
    check_invariants(done)
    batches = {p.setting.batch_size for p in done.phase(Phase.ceiling)}
    assert best(done).batch_size is not None
    assert tight.memory(best(done)) <= tight.memory(AS_WRITTEN) > 0.9 * 4.5 * GIB
    assert any(b is not None and b > 32 for b in batches), "O2 has room, and it is looked for"


def test_amp_out_of_memory_at_once_goes_down_or_keeps_fp32() -> None:
    odd = Simulated(
        capacity=5 * GIB, bytes_per_sample={"O0": 0.1 * GIB, "O1": 0.2 * GIB, "O2": 0.3 * GIB}
    )
    done = drive(odd, t4(memory_bytes=5 * GIB))
    check_invariants(done)
    assert done.result.at_your_batch.setting.amp_level in (None, Level.O0)


def test_unstable_fp16_leaves_bf16() -> None:
    def overflow(setting: Setting) -> str | None:
        return "overflow in conv2d" if setting.dtype is Dtype.float16 else None

    done = drive(Simulated(unstable=overflow), machine(name="A100"))
    check_invariants(done)
    assert best(done).dtype is Dtype.bfloat16
    assert best(done).init_loss_scaling is None
    skipped = {x.what: x.reason for x in done.result.skipped}
    assert "O1 float16" in skipped and "overflow" in skipped["O1 float16"]


def test_overflowing_operators_go_to_the_black_list() -> None:
    scan = Scan(
        grad_exponent_min=-20,
        grad_exponent_max=-3,
        grad_exponents=((-10, 100),),
        overflow_ops=("reduce_sum", "exp"),
    )

    def overflow(setting: Setting) -> str | None:
        listed = {"exp", "reduce_sum"} <= set(setting.custom_black_list)
        return None if listed or setting.dtype is not Dtype.float16 else "exp overflows"

    done = drive(Simulated(unstable=overflow, scan=scan))
    check_invariants(done)
    assert best(done).custom_black_list == ("exp", "reduce_sum")


def test_with_many_trials_the_list_is_cut_to_what_is_needed() -> None:
    scan = Scan(
        grad_exponent_min=-20,
        grad_exponent_max=-3,
        grad_exponents=((-10, 100),),
        overflow_ops=("exp", "reduce_sum", "square"),
    )

    def overflow(setting: Setting) -> str | None:
        bad = setting.dtype is Dtype.float16 and "exp" not in setting.custom_black_list
        return "exp overflows" if bad else None

    def cost(simulated: Simulated, setting: Setting) -> float:
        return Simulated.throughput(simulated, setting) * (
            1 - 0.05 * len(setting.custom_black_list)
        )

    class Costly(Simulated):
        def throughput(self, setting: Setting) -> float:
            return cost(self, setting)

    done = drive(Costly(unstable=overflow, scan=scan), options=Options(trials=60))
    check_invariants(done)
    assert best(done).custom_black_list == ("exp",)


def test_o2_that_underflows_is_cured_by_master_grad() -> None:
    def underflow(setting: Setting) -> str | None:
        bad = setting.amp_level is Level.O2 and setting.master_grad is not True
        return "gradients underflow" if bad else None

    done = drive(Simulated(unstable=underflow))
    check_invariants(done)
    assert best(done).amp_level is Level.O2
    assert best(done).master_grad is True


def test_drift_sends_the_search_to_the_next_leader() -> None:
    def drift(setting: Setting) -> float:
        return 1.0 if setting.amp_level is Level.O2 else 0.0

    done = drive(Simulated(drifts=drift))
    check_invariants(done)
    assert best(done).amp_level is Level.O1
    failed = [c for c in done.result.drift if c.passed is False]
    assert failed and all(c.setting.amp_level is Level.O2 for c in failed)


def test_all_precisions_drifting_keeps_fp32() -> None:
    done = drive(Simulated(drifts=lambda setting: 1.0))
    check_invariants(done)
    assert done.result.verdict == "keep_fp32"
    assert any("loss" in sentence for sentence in done.result.why)


def test_failure_at_the_recommended_batch_takes_a_smaller_one() -> None:
    def unstable(proposal: Proposal) -> tuple[Outcome, str] | None:
        big = (proposal.setting.batch_size or 0) > 64 and proposal.setting.is_mixed
        if big and proposal.phase is Phase.drift:
            return Outcome.not_finite, "loss is NaN at step 59"
        return None

    done = drive(Simulated(fails=unstable))
    check_invariants(done)
    assert done.result.verdict == "use"
    assert best(done).batch_size is not None and best(done).batch_size <= 64


def test_a_winner_that_fails_in_confirm_is_replaced() -> None:
    def flaky(proposal: Proposal) -> tuple[Outcome, str] | None:
        if proposal.phase is Phase.confirm and (proposal.setting.batch_size or 0) > 64:
            return Outcome.out_of_memory, "out of memory at step 12"
        return None

    done = drive(Simulated(fails=flaky))
    check_invariants(done)
    assert best(done).batch_size is not None and best(done).batch_size <= 64
    assert any("step 12" in x.reason for x in done.result.skipped)


def test_launch_bound_is_said() -> None:
    bound = Simulated(
        overhead_s=0.5,
        per_sample_s={"O0": 1e-5, "O1": 9e-6, "O2": 9e-6},
        amp_overhead_s=0.1,
        gpu_percent=12.0,
    )
    done = drive(bound)
    check_invariants(done)
    text = " ".join(done.result.why)
    assert done.result.verdict == "keep_fp32"
    assert "kernel launches" in text and "12 %" in text


@pytest.mark.parametrize("has_loader", [True, False])
def test_batch_not_tunable(has_loader: bool) -> None:
    done = drive(Simulated(tunable=False, has_loader=has_loader))
    check_invariants(done)
    assert {p.setting.batch_size for p in done.proposals} == {None}
    assert done.result.best.setting == done.result.at_your_batch.setting
    assert done.result.space.batch_reason


def test_tiny_dataset_keeps_steps_in_an_epoch() -> None:
    done = drive(Simulated(dataset_length=200))
    check_invariants(done)
    assert max(p.setting.batch_size or 0 for p in done.proposals) <= 50


def test_noise_is_not_a_gain() -> None:
    same = {"O0": 0.002, "O1": 0.002, "O2": 0.002}
    wins = 0
    for seed in range(12):
        noisy = Simulated(per_sample_s=same, amp_overhead_s=0.0, noise=0.01, seed=seed)
        done = drive(noisy, options=Options(keep_batch=True))
        check_invariants(done)
        wins += done.result.verdict != "keep_fp32"
    assert wins == 0


def test_pascal_tunes_the_batch_in_fp32() -> None:
    done = drive(Simulated(), machine(refused=PASCAL, tensor_cores=0, name="GTX 1080"))
    check_invariants(done)
    assert done.result.verdict == "keep_fp32"
    assert best(done).batch_size is not None and best(done).batch_size > 32
    assert not any(p.setting.is_mixed for p in done.proposals)
    assert any("Pascal" in sentence for sentence in done.result.why)


def test_cpu_tunes_the_batch_in_fp32() -> None:
    done = drive(Simulated(), machine(kind=DeviceKind.cpu, name="cpu", memory_bytes=None))
    check_invariants(done)
    assert not any(p.setting.is_mixed or p.scan for p in done.proposals)
    assert done.result.verdict == "keep_fp32"


def test_refused_precision_asked_for_by_name() -> None:
    for options in (
        Options(dtypes=(Dtype.bfloat16,)),
        Options(dtypes=(Dtype.bfloat16, Dtype.float16)),
    ):
        with pytest.raises(MachineError) as caught:
            drive(Simulated(), machine(refused=NO_BF16), options)
        assert caught.value.slug == "refused-precision"
        assert caught.value.exit_code == EXIT_MACHINE
        assert "compute capability 8.0" in caught.value.message


def test_refused_precision_may_be_forced_only_where_the_verdict_says_so() -> None:
    options = Options(dtypes=(Dtype.bfloat16,), allow_unsupported=True)
    with pytest.raises(MachineError):
        drive(Simulated(), machine(refused=NO_BF16), options)
    done = drive(Simulated(), machine(refused=NO_BF16, forcible=True), options)
    assert best(done).dtype is Dtype.bfloat16


@pytest.mark.parametrize("outcome", [Outcome.crashed, Outcome.no_steps, Outcome.timed_out])
def test_a_baseline_that_fails_stops_tuning(outcome: Outcome) -> None:
    def fail(proposal: Proposal) -> tuple[Outcome, str] | None:
        return outcome, "ModuleNotFoundError: No module named 'ppdet'"

    for on in (t4(), virtual()):
        with pytest.raises(ScriptError) as caught:
            drive(Simulated(fails=fail), on)
        assert caught.value.slug == "baseline-failed"
        assert caught.value.exit_code == EXIT_SCRIPT
        assert f"{outcome}" in caught.value.message
        assert "ppdet" in caught.value.message and "Traceback: boom" in caught.value.message


def test_what_a_device_refuses_is_said_without_a_traceback() -> None:
    def fail(proposal: Proposal) -> tuple[Outcome, str] | None:
        return Outcome.unsupported_on_device, "NotImplementedError: no collectives for 2 ranks"

    with pytest.raises(ScriptError) as caught:
        drive(Simulated(fails=fail), virtual())
    assert caught.value.slug == "baseline-failed" and caught.value.exit_code == EXIT_SCRIPT
    assert "no collectives for 2 ranks" in caught.value.message
    assert "Traceback" not in caught.value.message
    assert "device that can do it" in str(caught.value.remedy)


def test_amp_that_has_no_effect_never_wins() -> None:
    def no_effect(proposal: Proposal) -> tuple[Outcome, str] | None:
        if proposal.setting.is_mixed:
            return Outcome.not_effective, "no operator ran in float16"
        return None

    done = drive(Simulated(fails=no_effect))
    check_invariants(done)
    assert done.result.verdict == "keep_fp32"
    assert any("no operator ran in float16" in sentence for sentence in done.result.why)


@pytest.mark.parametrize("trials", range(1, 9))
def test_small_budgets(trials: int) -> None:
    done = drive(Simulated(), options=Options(trials=trials))
    check_invariants(done)
    assert len(done.counted) <= trials
    mixed = [p for p in done.counted if p.setting.is_mixed]
    assert bool(mixed) == (trials > 1)
    if trials == 4:
        assert [p.setting.precision() for p in done.counted] == [
            "as written",
            "O1 float16",
            "O2 float16",
            "O2 float16",
        ]
        assert done.counted[-1].setting.batch_size == 64


@pytest.mark.parametrize("stop_after", [1, 2, 3, 5, 9, 14, 20, 24, 30])
def test_stopping_early_recommends_from_what_is_there(stop_after: int) -> None:
    done = drive(Simulated(), stop_after=stop_after)
    check_invariants(done)
    assert len(done.proposals) == stop_after
    assert done.result.stopped is not None
    assert any("stopped" in x for x in done.result.caveats)
    if best(done).is_mixed and not done.result.best.confirmed:
        assert any("not confirmed" in x for x in done.result.caveats)


def test_stopping_before_fp32_was_run() -> None:
    own = Setting(amp_level=Level.O1, dtype=Dtype.float16)
    done = drive(Simulated(script_amp=own), stop_after=1)
    check_invariants(done)
    assert done.result.fp32 is None and done.result.verdict == "keep_as_written"


def test_the_timeout_leaves_time_for_the_proof() -> None:
    done = drive(Simulated(), options=Options(timeout_s=300.0), seconds_per_trial=10.0)
    check_invariants(done)
    assert len(done.proposals) <= 31
    assert done.result.stopped is None, "search ended in time for drift and confirm"
    assert len(done.counted) < 19
    assert done.result.verdict == "use" and done.result.best.confirmed


def test_a_timeout_too_short_for_anything_still_answers() -> None:
    done = drive(Simulated(), options=Options(timeout_s=15.0), seconds_per_trial=10.0)
    check_invariants(done)
    assert any("15 s" in x for x in done.result.caveats)
    assert any("15 s" in x for x in done.result.why)


def test_resume_by_replay_asks_the_same_questions() -> None:
    first = drive(Simulated(noise=0.01))
    answers = {t.proposal.key: t.measurement for t in first.result.trials}
    again: list[Proposal] = []

    def replay(proposal: Proposal) -> Measurement:
        again.append(proposal)
        return answers[proposal.key]

    second = drive(replay)
    assert [p.key for p in again] == [p.key for p in first.proposals]
    assert second.result.best.setting == first.result.best.setting


def test_keys_are_unique() -> None:
    done = drive(Simulated(noise=0.02), options=Options(trials=40))
    keys = [p.key for p in done.proposals]
    assert len(set(keys)) == len(keys)


def test_iterations_make_the_scripts_batch_the_default() -> None:
    done = drive(Simulated(scheduled_by="iterations"))
    assert done.result.default == "at_your_batch"
    assert "iterations" in done.result.default_reason
    # Where both are the same there is nothing to prefer.
    for simulated in (
        Simulated(scheduled_by="iterations", has_loader=False),
        Simulated(scheduled_by="iterations", per_sample_s=SLOW_AMP, overhead_s=0.0),
    ):
        same = drive(simulated, options=Options(trials=6)).result
        assert same.best.setting.batch_size == same.at_your_batch.setting.batch_size
        assert same.default == "best"
    kept = drive(Simulated(), options=Options(keep_batch=True))
    assert kept.result.default == "at_your_batch"
    assert {p.setting.batch_size for p in kept.proposals} <= {None, 32}


def test_fixed_batch_sizes() -> None:
    done = drive(Simulated(), options=Options(batch_sizes=(16, 48, 96, 100_001)))
    check_invariants(done)
    tried = {p.setting.batch_size for p in done.proposals}
    assert tried <= {None, 16, 32, 48, 96}
    assert 96 in tried
    assert any("100000 samples" in x.reason for x in done.result.skipped)


# Virtual devices


def test_virtual_uses_planning_for_time_and_full_numerics_at_the_scripts_batch() -> None:
    done = drive(Simulated(virtual=True), virtual())
    check_invariants(done)
    for proposal in done.proposals:
        if proposal.phase in (Phase.scan, Phase.numerics, Phase.drift):
            assert proposal.numerics == "full"
            assert proposal.setting.batch_size == 32
        elif proposal.phase is not Phase.confirm:
            assert proposal.numerics == "planning"
    assert {p.numerics for p in done.phase(Phase.confirm)} == {"planning", "full"}
    assert done.result.verdict == "use"


def test_virtual_ties_inside_the_error_band_go_to_fp32() -> None:
    weak = {"O0": 0.0012, "O1": 0.0010, "O2": 0.0010}
    done = drive(Simulated(virtual=True, per_sample_s=weak), virtual(), ratio_band=0.6)
    check_invariants(done)
    assert done.result.verdict == "keep_fp32"
    narrow = drive(Simulated(virtual=True, per_sample_s=weak), virtual(), ratio_band=0.01)
    check_invariants(narrow)
    assert narrow.result.verdict == "use"


def test_an_uncalibrated_band_is_wide_and_said() -> None:
    done = drive(Simulated(virtual=True), virtual(), ratio_band=None)
    check_invariants(done)
    ratio = done.result.best.against_fp32
    assert ratio is not None and "uncalibrated" in ratio.basis


def test_virtual_fp16_overflow_is_seen_in_full_numerics_only() -> None:
    def overflow(setting: Setting) -> str | None:
        return "overflow" if setting.amp_level is Level.O2 else None

    done = drive(Simulated(virtual=True, unstable=overflow), virtual())
    check_invariants(done)
    assert best(done).amp_level is Level.O1


def test_planning_only_says_what_was_not_computed() -> None:
    done = drive(Simulated(virtual=True), virtual(numerics=False))
    check_invariants(done)
    assert {p.numerics for p in done.proposals} == {"planning"}
    assert not done.phase(Phase.drift)
    assert any("not computed" in x for x in done.result.caveats)
    assert done.result.verdict == "use"


def test_a_script_that_planning_mode_breaks_runs_in_full() -> None:
    def fragile(proposal: Proposal) -> tuple[Outcome, str] | None:
        if proposal.numerics == "planning":
            return Outcome.crashed, "AssertionError: loss is not finite"
        return None

    done = drive(Simulated(virtual=True, fails=fragile), virtual())
    check_invariants(done)
    assert {p.numerics for p in done.proposals[1:]} == {"full"}
    assert any("planning mode does not run this script" in x for x in done.result.caveats)


def test_emulation_that_takes_too_long_is_a_caveat_not_a_failure() -> None:
    def slow(proposal: Proposal) -> tuple[Outcome, str] | None:
        if proposal.numerics == "full":
            return Outcome.timed_out, "no step in 120 s"
        return None

    done = drive(Simulated(virtual=True, fails=slow), virtual())
    check_invariants(done)
    assert done.result.verdict == "use"
    assert any("not compared" in x for x in done.result.caveats)


def test_heavy_steps_are_emulated_at_a_smaller_batch() -> None:
    done = drive(Simulated(virtual=True, step_flops=1e12), virtual())
    check_invariants(done)
    emulated = {p.setting.batch_size for p in done.proposals if p.numerics == "full"}
    assert emulated == {2}, "a step at batch 32 would take this host a minute"
    assert {c.batch for c in done.result.drift} == {2}
    assert any("batch 2" in x for x in done.result.caveats)


def test_a_drift_check_too_long_to_emulate_is_left_out_and_said() -> None:
    done = drive(Simulated(virtual=True, full_step_s=5.0), virtual())
    check_invariants(done)
    assert not done.phase(Phase.drift)
    assert [c.passed for c in done.result.drift] and not any(c.passed for c in done.result.drift)
    assert any("check it on the GPU" in x for x in done.result.caveats)


# What is said about the result


def test_the_gain_is_split_where_fp32_needs_a_smaller_batch() -> None:
    own = Setting(amp_level=Level.O1, dtype=Dtype.float16)
    done = drive(Simulated(script_amp=own, own_batch=160))
    check_invariants(done)
    choice = done.result.best
    assert done.result.fp32_setting is not None
    assert done.result.fp32_setting.batch_size == 80
    assert choice.precision_gain is not None, choice.split_reason
    # Nobody asked for this batch but to split the gain by it.
    extra = [p for p in done.phase(Phase.confirm) if p.setting.batch_size == 80 and p.repeat == 0]
    assert [p.setting.precision() for p in extra] == [choice.setting.precision()]


def test_a_drifting_precision_is_not_checked_variant_by_variant() -> None:
    done = drive(Simulated(drifts=lambda setting: 1.0), options=Options(trials=30))
    checked = [c.setting for c in done.result.drift]
    for level in (Level.O1, Level.O2):
        # Once as it is, and once more only where master gradients or a list may cure it.
        assert len([x for x in checked if x.amp_level is level]) <= 2


def test_the_scripts_own_amp_is_compared_in_fresh_runs() -> None:
    own = Setting(amp_level=Level.O1, dtype=Dtype.float16)
    done = drive(Simulated(script_amp=own, noise=0.002))
    ratio = done.result.best.against_as_written
    assert ratio is not None and ratio.known and "fresh runs" in ratio.basis


def test_fp32_over_the_headroom_is_kept_with_a_caveat() -> None:
    slow = Simulated(per_sample_s=SLOW_AMP, capacity=4.3 * GIB)
    done = drive(slow, t4(memory_bytes=int(4.3 * GIB)), Options(keep_batch=True))
    check_invariants(done)
    assert done.result.verdict == "keep_fp32"
    assert any("headroom" in x for x in done.result.caveats)


@pytest.mark.parametrize("on_virtual", [False, True])
@pytest.mark.parametrize("amp", [None, Setting(amp_level=Level.O1, dtype=Dtype.float16)])
def test_what_needs_no_more_than_runs_today_may_win_without_headroom(
    amp: Setting | None, on_virtual: bool
) -> None:
    """The script leaves less than the headroom already: the smaller precision is no worse."""
    level = "O0" if amp is None else "O1"
    needs = 1.02 * (1.0 + {"O0": 0.10, "O1": 0.09, "O2": 0.09}[level] * 32)
    close = {"O0": 0.10 * GIB, "O1": 0.09 * GIB, "O2": 0.09 * GIB}
    laws = Simulated(
        capacity=needs * GIB, bytes_per_sample=close, virtual=on_virtual, script_amp=amp
    )
    on = (virtual if on_virtual else t4)(memory_bytes=int(needs * GIB))
    done = drive(laws, on, Options(trials=4), ratio_band=0.05)
    check_invariants(done)
    result = done.result
    (told,) = [x for x in result.caveats if "headroom" in x]
    if amp is None:
        assert result.verdict == "use" and best(done).batch_size == 32
        assert told.startswith("recommended although") and told.endswith("what runs today")
        # FP32 can grow no further, nor need it shrink: no trial goes there.
        assert all(p.setting.is_reduced or p.setting.is_as_written for p in done.counted)
    else:
        assert result.verdict == "keep_as_written" and told.endswith("it is what runs today")


def test_a_precision_out_for_want_of_headroom_alone_is_named_so() -> None:
    hungry = {"O0": 0.10 * GIB, "O1": 0.11 * GIB, "O2": 0.11 * GIB}
    laws = Simulated(capacity=4.6 * GIB, bytes_per_sample=hungry)
    done = drive(laws, t4(memory_bytes=int(4.6 * GIB)), Options(trials=4, keep_batch=True))
    check_invariants(done)
    assert done.result.headline == (
        "keep FP32: mixed precision works, but leaves less than the headroom"
    )
    (o1,) = [x for x in done.result.why if x.startswith("O1 float16")]
    assert o1.startswith("O1 float16, batch 32: works, but peak memory")


def test_every_precision_gain_compares_equal_batches() -> None:
    for simulated in (Simulated(), Simulated(noise=0.02), Simulated(own_batch=16)):
        done = drive(simulated)
        gain = done.result.best.precision_gain
        assert gain is not None
        wanted = replace(best(done), batch_size=simulated.own_batch)
        fp32 = Setting(batch_size=simulated.own_batch, amp_level=Level.O0, dtype=Dtype.float32)
        true = simulated.throughput(wanted) / simulated.throughput(fp32)
        assert gain.ratio == pytest.approx(true, rel=0.1)


# The same, for whatever a device may be

LEVELS = st.fixed_dictionaries(
    {"O0": st.floats(1e-5, 5e-3), "O1": st.floats(1e-5, 5e-3), "O2": st.floats(1e-5, 5e-3)}
)
MEMORY = st.fixed_dictionaries(
    {
        "O0": st.floats(1e6, 3e8),
        "O1": st.floats(1e6, 3e8),
        "O2": st.floats(1e6, 3e8),
    }
)
BAD = st.sets(
    st.tuples(st.sampled_from(["O1", "O2"]), st.sampled_from(["float16", "bfloat16"])), max_size=4
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_invariants_hold_on_any_device(data: st.DataObject) -> None:
    unstable = set(data.draw(BAD))
    drifting = data.draw(BAD)
    crash_seed = data.draw(st.integers(0, 5))
    is_virtual = data.draw(st.booleans())

    def overflow(setting: Setting) -> str | None:
        return "inf" if (str(setting.amp_level), str(setting.dtype)) in unstable else None

    def drifts(setting: Setting) -> float:
        return 1.0 if (str(setting.amp_level), str(setting.dtype)) in drifting else 0.0

    def crashes(proposal: Proposal) -> tuple[Outcome, str] | None:
        # Now and then a run fails for no reason of the setting's.
        odd = hash_of(proposal.key) % 11 == crash_seed
        baseline = proposal.phase is Phase.baseline
        return (Outcome.crashed, "segmentation fault") if odd and not baseline else None

    # The script as written runs: that is where tuning starts from.
    unstable -= {("O1", "float16")}
    own_amp = data.draw(st.sampled_from([None, Setting(amp_level=Level.O1, dtype=Dtype.float16)]))
    simulated = Simulated(
        own_batch=data.draw(st.integers(1, 300)),
        dataset_length=data.draw(st.sampled_from([None, 10, 500, 100_000])),
        tunable=data.draw(st.booleans()),
        script_amp=own_amp,
        fixed_bytes=data.draw(st.floats(1e8, 8e9)),
        bytes_per_sample=data.draw(MEMORY),
        capacity=1e12,
        per_sample_s=data.draw(LEVELS),
        noise=data.draw(st.sampled_from([0.0, 0.01, 0.1])),
        unstable=overflow,
        drifts=drifts,
        fails=crashes,
        virtual=is_virtual,
    )
    need = simulated.memory(AS_WRITTEN)
    # Below 1 the script's own batch does not fit; a little above, it leaves no headroom.
    simulated.capacity = max(need * data.draw(st.floats(0.3, 6.0)), 1e8)
    on = (virtual if is_virtual else machine)(memory_bytes=int(simulated.capacity))
    options = Options(
        trials=data.draw(st.integers(1, 40)),
        confirm_pairs=data.draw(st.integers(1, 4)),
        seed=data.draw(st.integers(0, 3)),
        keep_batch=data.draw(st.booleans()),
        max_drift=data.draw(st.sampled_from([None, 0.05])),
    )
    stop_after = data.draw(st.none() | st.integers(0, 40))
    try:
        done = drive(simulated, on, options, stop_after=stop_after)
    except ScriptError as error:
        if error.slug == "stopped-too-early":
            assert stop_after is not None
        else:
            assert error.slug == "baseline-out-of-memory"
            assert need > simulated.capacity
    else:
        check_invariants(done)


def hash_of(text: str) -> int:
    return sum(ord(c) * (i + 1) for i, c in enumerate(text))


def test_plan_line_names_phases_counts_and_time() -> None:
    text = plan_line(t4(), Options(), seconds_per_trial=20.0)
    assert "up to 24" in text and "O2 float16" in text and "min" in text
    assert "bfloat16: needs compute capability 8.0" in text
    assert "known after the first run" in plan_line(virtual(), Options(trials=3))


def test_search_is_a_generator_that_starts_nothing_by_itself() -> None:
    steps = search(t4(), Options(), clock=lambda: 0.0, stop=lambda: False)
    proposal = next(steps)
    assert proposal.setting == AS_WRITTEN
    steps.close()


def test_choice_first_is_the_first_run() -> None:
    done = drive(Simulated())
    choice: Choice = done.result.best
    assert choice.first is choice.runs[0]
    assert math.isfinite(choice.first.throughput_samples_per_s or math.nan)
    assert replace(choice, confirmed=False).confirmed is False


class TestOwnBatchDoesNotFit:
    """A script whose own batch is too large for the device is tuned from the one that fits."""

    @pytest.mark.parametrize("amp", [None, Setting(amp_level=Level.O1, dtype=Dtype.float16)])
    @pytest.mark.parametrize("on_virtual", [False, True])
    def test_the_search_starts_at_the_halved_batch(
        self, amp: Setting | None, on_virtual: bool
    ) -> None:
        own = 512
        simulated = Simulated(own_batch=own, script_amp=amp, virtual=on_virtual)
        done = drive(simulated, virtual() if on_virtual else t4())
        result = done.result
        assert simulated.memory(Setting()) > simulated.capacity
        fitting = result.as_written_setting.batch_size
        assert fitting is not None and own % fitting == 0 and fitting < own
        assert result.script_batch == own
        assert result.as_written.ok and result.fp32 is not None
        assert any("does not fit this device" in x for x in result.caveats)
        # Never what does not fit, and never "as written", which would run at its own batch.
        for choice in (result.best, result.at_your_batch):
            assert not choice.setting.is_as_written
            assert choice.setting.amp_level is not None
            assert choice.first.ok
        assert result.best.setting.is_mixed

    def test_a_larger_batch_may_be_reached_in_another_precision(self) -> None:
        simulated = Simulated(own_batch=192)
        assert simulated.memory(Setting()) > simulated.capacity
        result = drive(simulated).result
        assert result.best.setting.batch_size is not None
        assert result.best.setting.batch_size >= 192

    @pytest.mark.parametrize(
        "simulated",
        [
            Simulated(own_batch=512, tunable=False),
            Simulated(own_batch=512, has_loader=False),
            Simulated(own_batch=512, bytes_per_sample={"O0": 16 * GIB, "O1": 1, "O2": 1}),
        ],
        ids=["batch cannot be set", "no loader", "not even one sample"],
    )
    def test_where_nothing_fits_the_error_is_about_memory(self, simulated: Simulated) -> None:
        with pytest.raises(ScriptError) as error:
            drive(simulated)
        assert error.value.slug == "baseline-out-of-memory"

    def test_keep_batch_forbids_it(self) -> None:
        with pytest.raises(ScriptError) as error:
            drive(Simulated(own_batch=512), options=Options(keep_batch=True))
        assert error.value.slug == "baseline-out-of-memory"

    @pytest.mark.parametrize("amp", [None, Setting(amp_level=Level.O1, dtype=Dtype.float16)])
    @pytest.mark.parametrize("trials", range(1, 9))
    def test_few_trials_end_in_an_answer_or_the_error(
        self, trials: int, amp: Setting | None
    ) -> None:
        heavy = {"O0": 0.30 * GIB, "O1": 0.07 * GIB, "O2": 0.05 * GIB}
        simulated = Simulated(own_batch=256, script_amp=amp, bytes_per_sample=heavy)
        assert simulated.memory(AS_WRITTEN) > simulated.capacity
        try:
            done = drive(simulated, options=Options(trials=trials))
        except ScriptError as error:
            assert error.slug == "baseline-out-of-memory"
            assert trials < 6
        else:
            check_invariants(done)
            assert done.result.verdict != "keep_as_written"
            assert simulated.memory(best(done)) <= 0.9 * simulated.capacity


def test_a_larger_batch_that_only_ties_is_named_beside_the_recommendation() -> None:
    """The table shows it as faster: the reader is told why it was not taken."""
    laws = Simulated(virtual=True, overhead_s=0.002)
    done = drive(laws, virtual(), ratio_band=0.5)
    best, own = done.result.best, done.result.at_your_batch
    assert best is not None and own is not None and best.setting.batch_size == 32
    ran = [p.setting for p in done.proposals if p.setting.is_mixed]
    fastest = max(ran, key=laws.throughput)
    assert fastest.batch_size is not None and fastest.batch_size > 32
    assert best.reason.startswith(f"ties with {fastest.precision()}, batch {fastest.batch_size}")


def test_the_choice_at_the_scripts_batch_is_compared_at_that_batch() -> None:
    done = drive(Simulated(virtual=True, overhead_s=0.05), virtual(), ratio_band=0.1)
    best, own = done.result.best, done.result.at_your_batch
    assert best is not None and own is not None
    assert best.setting.batch_size != own.setting.batch_size == 32
    assert f"batch {best.setting.batch_size}" not in own.reason
