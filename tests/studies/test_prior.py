"""What a kept roofline says to a search: order, what is looked at, causes (made-up rooflines)."""

from dataclasses import replace

import pytest
from simulated_device import Finished, Simulated, ampere, drive, machine, t4, virtual

from autoamp.measurement import Label, Measurement, OpCalls, Phase
from autoamp.probes.facts import POWER_CAP, DeviceKind, Machine, MatmulRate, Roofline
from autoamp.settings import Dtype, Level, Setting
from autoamp.studies import prior
from autoamp.studies.budget import plan_line
from autoamp.studies.proposal import Options, Proposal
from autoamp.studies.space import allowed_precisions

O1_FP16 = Setting(amp_level=Level.O1, dtype=Dtype.float16)


def roofline(
    throttled: tuple[str, ...] = (), launch_s: float | None = 6e-6, **tflops: float
) -> Roofline:
    """Rates in TFLOP/s by dtype; an unaligned product of the same dtype is always slower."""
    products = []
    for dtype, rate in tflops.items():
        for size, share in ((8192, 1.0), (1024, 0.6), (4095, 0.3)):
            products.append(
                MatmulRate(dtype=dtype, m=size, n=size, k=size, flops_per_s=rate * share * 1e12)
            )
    return Roofline(
        device="A100",
        label=Label.measured,
        taken_at="2026-11-30T10:00:00Z",
        paddle="3.3.1",
        matmuls=tuple(products),
        copy_bytes_per_s=1.3e12,
        launch_s=launch_s,
        sm_clock_mhz=1410.0,
        power_w=310.0,
        throttle_reasons=throttled,
    )


FAST = roofline(float32=18, tf32=120, float16=240, bfloat16=235)
SLOW_HALF = roofline(float32=18, tf32=120, float16=9, bfloat16=235)
SLOW_BFLOAT = roofline(float32=18, tf32=120, float16=240, bfloat16=60)


def with_roofline(on: Machine, kept: Roofline | None) -> Machine:
    return replace(on, roofline=kept)


def order(kept: Roofline | None, *, fp32_in_tf32: bool = False) -> list[str]:
    precisions = allowed_precisions(ampere(), Options())[0]
    found = None if kept is None else prior.read(kept)
    return [p.name for p in prior.ordered(found, precisions, fp32_in_tf32=fp32_in_tf32)]


def first_looks(done: Finished) -> list[str]:
    names = [
        p.setting.precision() for p in done.phase(Phase.ceiling) if p.setting.batch_size == 32
    ]
    return list(dict.fromkeys(name for name in names if name != "FP32"))


def test_only_aligned_products_count() -> None:
    found = prior.read(FAST)
    tera = {name: rate / 1e12 for name, rate in found.rates.items()}
    assert tera == {"float32": 18, "tf32": 120, "float16": 240, "bfloat16": 235}
    assert found.gain("float16", fp32_in_tf32=False) == pytest.approx(240 / 18)
    assert found.gain("float16", fp32_in_tf32=True) == pytest.approx(2)
    assert found.gain("int8", fp32_in_tf32=False) is None


@pytest.mark.parametrize(
    ("kept", "last"),
    [
        (None, ["O1 float16", "O2 float16"]),
        (FAST, ["O1 float16", "O2 float16"]),
        (SLOW_HALF, ["O1 float16", "O2 float16"]),
        (roofline(float32=18, float16=240, bfloat16=9), ["O1 bfloat16", "O2 bfloat16"]),
        (SLOW_BFLOAT, ["O1 bfloat16", "O2 bfloat16"]),
        (roofline(float32=18, tf32=9, float16=240, bfloat16=230), ["O2 float16", "TF32"]),
        # What was not measured stays where it is.
        (roofline(float32=18), ["O1 float16", "O2 float16"]),
        (roofline(throttled=("thermal",), float32=18, bfloat16=9), ["O1 float16", "O2 float16"]),
        (roofline(bfloat16=9, float16=18), ["O1 float16", "O2 float16"]),
    ],
)
def test_slow_ones_stand_last(kept: Roofline | None, last: list[str]) -> None:
    names = order(kept)
    assert names[0] == "FP32" and names[-2:] == last
    assert sorted(names) == sorted(order(None))


def test_against_what_fp32_really_runs_in() -> None:
    """Paddle 2.6 runs FP32 in TF32: a 16-bit rate between the two is slow there."""
    between = roofline(float32=18, tf32=120, float16=60, bfloat16=235)
    name = "O1 float16"
    on = prior.read(between)
    assert prior.slow(on, O1_FP16, fp32_in_tf32=True) is not None
    assert prior.slow(on, O1_FP16, fp32_in_tf32=False) is None
    assert order(between, fp32_in_tf32=True)[-2] == name


def test_the_search_follows_and_says_so() -> None:
    kept = roofline(float32=18, float16=240, bfloat16=9)
    plain, moved = (
        drive(Simulated(), machine()),
        drive(Simulated(), with_roofline(machine(), kept)),
    )
    assert first_looks(plain)[0] == "O1 bfloat16" and first_looks(moved)[0] == "O1 float16"
    assert set(first_looks(plain)) == set(first_looks(moved))
    result = moved.result
    assert any("looked at last: bfloat16 products" in line for line in result.caveats)
    assert any("2026-11-30" in line and "used for the order" in line for line in result.why)
    # It moves the queue and nothing else: what was measured decides.
    assert result.best.setting.batch_size == plain.result.best.setting.batch_size
    assert not any("roofline" in line for line in plain.result.why)


@pytest.mark.parametrize("trials", [3, 4])
def test_few_trials_go_to_what_the_rates_promise(trials: int) -> None:
    kept = roofline(float32=18, float16=240, bfloat16=9)
    done = drive(Simulated(), with_roofline(machine(), kept), Options(trials=trials))
    assert all("float16" in name and "bfloat16" not in name for name in first_looks(done))
    skipped = {x.what: x.reason for x in done.result.skipped}
    assert "0.50x FP32's rate" in skipped["O1 bfloat16"]


def test_a_throttled_roofline_is_said_and_not_used() -> None:
    kept = roofline(throttled=("hardware slowdown",), float32=18, float16=240, bfloat16=9)
    done = drive(Simulated(), with_roofline(machine(), kept))
    assert first_looks(done)[0] == "O1 bfloat16"
    assert any("not used" in line and "hardware slowdown" in line for line in done.result.why)
    assert prior.limits(prior.read(kept), Simulated()(BASELINE), O1_FP16) == []


def test_a_roofline_of_a_gpu_that_others_used_is_said_and_not_used() -> None:
    shared = replace(
        roofline(float32=18, float16=240, bfloat16=9), other_processes=("python (pid 12)",)
    )
    done = drive(Simulated(), with_roofline(machine(), shared))
    assert first_looks(done)[0] == "O1 bfloat16"
    assert any("not used" in line and "python (pid 12)" in line for line in done.result.why)


def test_a_roofline_at_the_power_limit_is_used_and_says_so() -> None:
    """Any board under large products is there; a T4 in all of its work."""
    kept = roofline(throttled=(POWER_CAP,), float32=18, float16=240, bfloat16=9)
    done = drive(Simulated(), with_roofline(machine(), kept))
    assert first_looks(done)[0] == "O1 float16"
    assert any("at its power limit" in line and "used for the" in line for line in done.result.why)
    hot = replace(kept, throttle_reasons=(POWER_CAP, "software thermal slowdown"))
    assert not prior.read(hot).trusted and prior.read(hot).throttled == (
        "software thermal slowdown",
    )


@pytest.mark.parametrize("reason", (POWER_CAP, "hardware slowdown", "software thermal slowdown"))
def test_throttling_of_a_trial_is_recorded_and_condemns_nothing(reason: str) -> None:
    """Blocks and medians judge whether times repeat; a capped clock is that of training."""

    def throttled(proposal: Proposal) -> Measurement:
        m = Simulated()(proposal)
        return replace(m, utilisation=replace(m.utilisation, throttle_reasons=(reason,)))

    plain, held = drive(Simulated(), machine()).result, drive(throttled, machine()).result
    assert (held.verdict, held.best.setting) == (plain.verdict, plain.best.setting)


BASELINE = Proposal(phase=Phase.baseline, setting=Setting())


def slow_launches(proposal: Proposal) -> Measurement:
    """A step of 10 ms with 1,200 operator calls, whatever the precision."""
    calls = (OpCalls(op="matmul_v2", float32=800), OpCalls(op="relu", float16=400))
    m = Simulated(per_sample_s={"O0": 0.002, "O1": 0.00205, "O2": 0.00205}, own_batch=8)(proposal)
    return replace(m, op_calls=calls, timed_s=0.010 * m.steps_timed)


def test_launches_explain_why_amp_does_not_pay() -> None:
    done = drive(slow_launches, with_roofline(t4(), FAST), Options(keep_batch=True))
    assert done.result.verdict == "keep_fp32"
    (line,) = [x for x in done.result.why if x.startswith("kernel launches")]
    assert "6 us" in line and "1200 operator calls" in line and "72%" in line
    without = drive(slow_launches, t4(), Options(keep_batch=True))
    assert not [x for x in without.result.why if x.startswith("kernel launches")]


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        (roofline(float32=18, float16=20), "1.11x"),
        (roofline(float32=18, float16=9), "they gain nothing"),
        (roofline(float32=18, float16=200), None),
        (roofline(float32=18), None),
    ],
)
def test_the_rate_bounds_the_gain(kept: Roofline, words: str | None) -> None:
    kept = replace(kept, launch_s=None)
    found = prior.limits(prior.read(kept), slow_launches(BASELINE), O1_FP16)
    assert bool(found) == (words is not None)
    assert words is None or words in found[0]


def test_counted_work_is_held_against_the_rates() -> None:
    m = replace(slow_launches(BASELINE), op_calls=(), step_flops=18e9, step_bytes=6.5e9)
    (line,) = prior.limits(prior.read(FAST), m, O1_FP16)
    # 1 ms of arithmetic and 5 ms of traffic in a step of 10 ms.
    assert "arithmetic would take 10%" in line and "50%" in line
    heavy = replace(m, step_flops=18e10)
    assert prior.limits(prior.read(FAST), heavy, O1_FP16) == []


@pytest.mark.parametrize("missing", ["timed_s", "op_calls", "launch_s"])
def test_nothing_is_said_of_what_was_not_seen(missing: str) -> None:
    m, kept = slow_launches(BASELINE), FAST
    if missing == "launch_s":
        kept = replace(kept, launch_s=None)
    else:
        m = replace(m, **{missing: None if missing == "timed_s" else ()})
    assert prior.launch_share(prior.read(kept), m) is None


def test_no_prior_on_a_cpu() -> None:
    on = machine(kind=DeviceKind.cpu, name="cpu")
    assert prior.prior_of(with_roofline(on, FAST)) is None


def test_the_plan_in_words_names_it() -> None:
    text = plan_line(with_roofline(ampere(), SLOW_HALF), Options())
    assert "2026-11-30T10:00:00Z" in text and "SM clock 1410 MHz" in text
    assert "looked at last: float16 products" in text


@pytest.mark.parametrize("on", [machine(), ampere(), virtual()], ids=["gpu", "ampere", "virtual"])
@pytest.mark.parametrize("trials", [4, 9, 24])
def test_a_roofline_may_appear_between_two_sessions(on: Machine, trials: int) -> None:
    """Stored runs answer by what was asked, not by when: a finished study that is continued after
    ``probe --bench`` runs again only what another order really asks anew."""
    device = Simulated(virtual=on.device.kind is DeviceKind.virtual)
    options = Options(trials=trials)
    first = drive(device, on, options)
    kept = roofline(float32=18, tf32=120, float16=240, bfloat16=9)
    stored = {p.key: device(p) for p in first.proposals}
    fresh = []

    def answer(proposal: Proposal) -> Measurement:
        if proposal.key not in stored:
            fresh.append(proposal)
        return stored.get(proposal.key) or device(proposal)

    second = drive(answer, with_roofline(on, kept), options)
    assert second.result.counted_trials <= trials
    assert second.result.best.setting.is_reduced == first.result.best.setting.is_reduced
    if trials == 24:
        # With room for every precision the same ones are looked at.
        assert not [p for p in fresh if p.setting.batch_size == 32 and p.phase is Phase.ceiling]
