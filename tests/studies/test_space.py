"""What may vary, and the reasons why not more."""

import pytest
from simulated_device import NO_BF16, PASCAL, Simulated, machine, t4

from autoamp.errors import MachineError
from autoamp.measurement import Loader, Measurement, Outcome, ScriptFacts
from autoamp.probes.facts import DeviceKind
from autoamp.settings import Dtype, Level
from autoamp.studies.proposal import Options
from autoamp.studies.space import (
    FP32,
    KEEP_BATCH,
    MAX_BATCH,
    Precision,
    Space,
    allowed_precisions,
    build_space,
)


def space(simulated: Simulated | None = None, **options: object) -> Space:
    simulated = simulated or Simulated()
    baseline = Measurement(outcome=Outcome.ok, batch_size=simulated.own_batch)
    wanted = Options(**options)  # type: ignore[arg-type]  # passed through
    return build_space(t4(), baseline, simulated.facts(), wanted)


def test_fp32_is_always_in_and_first() -> None:
    for on in (t4(), machine(refused=PASCAL), machine(kind=DeviceKind.cpu, name="cpu")):
        assert allowed_precisions(on, Options())[0][0] == FP32


def test_bfloat16_is_tried_before_float16() -> None:
    names = [p.name for p in allowed_precisions(machine(), Options())[0]]
    assert names == ["FP32", "O1 bfloat16", "O2 bfloat16", "O1 float16", "O2 float16"]


def test_each_refusal_carries_its_reason() -> None:
    _, excluded = allowed_precisions(machine(refused=PASCAL), Options())
    assert {x.what for x in excluded} == {
        "O1 float16",
        "O2 float16",
        "O1 bfloat16",
        "O2 bfloat16",
    }
    assert all(x.reason in PASCAL.values() for x in excluded)


def test_od_only_when_asked_for() -> None:
    assert not any(p.level is Level.OD for p in space().precisions)
    asked = space(levels=(Level.OD,))
    assert [p.level for p in asked.mixed] == [Level.OD]


@pytest.mark.parametrize(
    "options",
    [
        Options(dtypes=(Dtype.float16,)),
        Options(levels=(Level.O1,)),
        Options(levels=(Level.O2,), dtypes=(Dtype.bfloat16,)),
    ],
)
def test_a_refused_name_is_an_error_with_the_reason(options: Options) -> None:
    with pytest.raises(MachineError) as caught:
        allowed_precisions(machine(refused=PASCAL, name="GTX 1080"), options)
    assert caught.value.slug == "refused-precision"
    assert "GTX 1080" in caught.value.message and caught.value.remedy
    assert "--allow-unsupported" not in caught.value.remedy
    with pytest.raises(MachineError) as forcible:
        allowed_precisions(machine(refused=PASCAL, forcible=True), options)
    assert "--allow-unsupported" in (forcible.value.remedy or "")


def test_a_name_with_one_allowed_partner_is_no_error() -> None:
    precisions, excluded = allowed_precisions(
        machine(refused=NO_BF16), Options(levels=(Level.O1,))
    )
    assert Precision(level=Level.O1, dtype=Dtype.float16) in precisions
    assert [x.what for x in excluded] == ["O1 bfloat16"]


def test_fp32_alone_may_be_asked_for() -> None:
    for options in (Options(levels=(Level.O0,)), Options(dtypes=(Dtype.float32,))):
        precisions, excluded = allowed_precisions(machine(refused=PASCAL), options)
        assert precisions == (FP32,) and not excluded


def test_cpu_says_why() -> None:
    _, excluded = allowed_precisions(machine(kind=DeviceKind.cpu, name="cpu"), Options())
    assert {x.reason for x in excluded} == {"Paddle's AMP does nothing on the CPU"}


@pytest.mark.parametrize(
    ("length", "own", "cap"),
    [
        (None, 32, MAX_BATCH),
        (1000, 32, 250),
        (100, 32, 32),
        (10_000_000, 32, MAX_BATCH),
        (10, 32, 32),
    ],
)
def test_batch_cap_by_dataset(length: int | None, own: int, cap: int) -> None:
    assert space(Simulated(dataset_length=length, own_batch=own)).max_batch == cap


def test_the_shortest_of_several_loaders_bounds_the_batch() -> None:
    loaders = tuple(
        Loader(
            ordinal=i,
            kind="DataLoader",
            site=f"train.py:{i}",
            batch_size=8,
            dataset_length=length,
            tunable=tunable,
        )
        for i, (length, tunable) in enumerate([(4000, True), (400, True), (40, False)])
    )
    baseline = Measurement(outcome=Outcome.ok, batch_size=8)
    found = build_space(t4(), baseline, ScriptFacts(loaders=loaders), Options())
    assert found.max_batch == 100


def test_reasons_for_a_fixed_batch() -> None:
    baked = space(Simulated(tunable=False))
    assert not baked.batch_free and baked.batch_reason == "the batch is baked into the dataset"
    assert baked.setting_batch is None
    none = space(Simulated(has_loader=False))
    assert none.batch_reason is not None and "DataLoader" in none.batch_reason
    kept = space(keep_batch=True)
    assert kept.batch_reason == KEEP_BATCH
    # The batch is known and may be set, only not varied.
    assert kept.setting_batch == 32
    unseen = space(Simulated(own_batch=None))
    assert unseen.batch_reason == "the script's own batch size could not be seen"


def test_fixed_batches_are_sorted_and_cut_at_the_dataset() -> None:
    found = space(Simulated(dataset_length=100), batch_sizes=(64, 16, 16, 128))
    assert found.batches == (16, 64)
    assert [x.what for x in found.exclusions if "batch" in x.what] == ["batch 128"]


def test_memory_limit_leaves_the_headroom() -> None:
    found = space(headroom=0.25)
    assert found.memory_total_bytes is not None
    assert found.memory_limit_bytes == pytest.approx(0.75 * found.memory_total_bytes)


def test_o2_without_master_weights_is_a_caveat() -> None:
    facts = ScriptFacts(optimizer="RMSProp", optimizer_has_master_weights=False)
    baseline = Measurement(outcome=Outcome.ok)
    assert any("RMSProp" in x for x in build_space(t4(), baseline, facts, Options()).caveats)
    only_o1 = build_space(t4(), baseline, facts, Options(levels=(Level.O1,)))
    assert not only_o1.caveats
