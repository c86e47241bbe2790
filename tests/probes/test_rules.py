"""The table of rules: every refusal has reason, source and a way out."""

from dataclasses import replace
from itertools import product

import pytest
from devices import DEVICES, PADDLE, PADDLES, custom, gpu, played
from hypothesis import given

from autoamp.probes import catalogue, rules
from autoamp.probes.facts import Device, DeviceKind, GpuModel, PaddleInstall
from autoamp.settings import Dtype, Level

AMP = (Level.O1, Level.O2)


def allowed(
    device: Device, dtype: Dtype, level: Level = Level.O1, paddle: PaddleInstall = PADDLE
) -> bool:
    return rules.judge(level, dtype, device, paddle).allowed


@pytest.mark.parametrize("model", catalogue.models(), ids=lambda m: m.alias)
def test_every_gpu_of_the_catalogue(model: GpuModel) -> None:
    """FP16 from 7.0 with Tensor Cores, BF16 from 8.0: what Paddle's gate and the chips allow."""
    device = played(model.alias)
    fp16 = model.tensor_core_generation > 0
    for level in AMP:
        assert allowed(device, Dtype.float16, level) == fp16
        assert allowed(device, Dtype.bfloat16, level) == (model.compute_capability >= (8, 0))
    assert allowed(device, Dtype.float32, Level.O0)


@pytest.mark.parametrize(
    ("capability", "fp16", "bf16"),
    [
        ((3, 7), False, False),
        ((6, 0), False, False),
        ((6, 1), False, False),
        ((6, 9), False, False),
        ((7, 0), True, False),
        ((7, 5), True, False),
        ((7, 9), True, False),
        ((8, 0), True, True),
        ((8, 9), True, True),
        ((12, 0), True, True),
        ((14, 0), True, True),
    ],
)
def test_unknown_gpus_by_capability(capability: tuple[int, int], fp16: bool, bf16: bool) -> None:
    device = gpu("NVIDIA Whatever", capability)
    assert allowed(device, Dtype.float16) == fp16
    assert allowed(device, Dtype.bfloat16) == bf16


@pytest.mark.parametrize(
    "name",
    [
        "GeForce GTX 1650",
        "NVIDIA GeForce GTX 1660 SUPER",
        "NVIDIA GeForce GTX 1650 Ti with Max-Q Design",
        "NVIDIA T1000 8GB",
        "Quadro T2000",
        "NVIDIA GeForce MX450",
    ],
)
def test_turing_without_tensor_cores_is_refused_and_may_be_forced(name: str) -> None:
    verdict = rules.judge(Level.O1, Dtype.float16, gpu(name, (7, 5)), PADDLE)
    assert not verdict.allowed and verdict.forcible
    assert "no Tensor Cores" in verdict.reason and "NaN" in verdict.reason
    assert "--allow-unsupported" in (verdict.instead or "")


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 2060", "Tesla T4", "Quadro RTX 4000"])
def test_turing_with_tensor_cores(name: str) -> None:
    assert allowed(gpu(name, (7, 5)), Dtype.float16)


def test_pascal_names_its_slow_arithmetic() -> None:
    reason = rules.judge(Level.O1, Dtype.float16, played("gtx1080"), PADDLE).reason
    assert "6.1" in reason and "Pascal" in reason and "1/64" in reason


def test_p100_is_refused_in_spite_of_its_fast_fp16() -> None:
    verdict = rules.judge(Level.O1, Dtype.float16, played("p100-pcie"), PADDLE)
    assert not verdict.allowed and not verdict.forcible
    assert "no Tensor Cores" in verdict.reason and "1/" not in verdict.reason


@pytest.mark.parametrize(("cuda", "bf16"), [("10.2", False), ("11.0", True), (None, True)])
def test_bf16_needs_cuda_11(cuda: str | None, bf16: bool) -> None:
    paddle = replace(PADDLE, cuda_version=cuda)
    assert allowed(gpu("NVIDIA A100-SXM4-40GB", (8, 0)), Dtype.bfloat16, paddle=paddle) == bf16


@pytest.mark.parametrize(("level", "dtype"), list(product(AMP, rules.BOTH)))
def test_a_cpu_has_no_amp(level: Level, dtype: Dtype) -> None:
    device = Device(kind=DeviceKind.cpu, paddle_name="cpu", name="CPU")
    verdict = rules.judge(level, dtype, device, PADDLE)
    assert not verdict.allowed and not verdict.forcible


@pytest.mark.parametrize(
    ("kind", "version", "bf16"),
    [
        ("xpu", "2.6.2", False),
        ("xpu", "3.3.1", True),
        ("npu", "2.6.2", False),
        ("npu", "3.3.1", True),
        ("intel_hpu", "3.3.1", True),
        ("mlu", "3.3.1", False),
        ("custom_cpu", "3.3.1", False),
    ],
)
def test_other_accelerators_by_paddles_own_list(kind: str, version: str, bf16: bool) -> None:
    paddle = replace(PADDLE, version=version, gpu_build=False, cuda_version=None)
    assert allowed(custom(kind), Dtype.float16, paddle=paddle)
    assert allowed(custom(kind), Dtype.bfloat16, paddle=paddle) == bf16


@pytest.mark.parametrize("said", [(), ("float16",), ("bfloat16",), ("float16", "bfloat16")])
def test_what_paddle_answered_decides(said: tuple[str, ...]) -> None:
    for dtype in rules.BOTH:
        verdict = rules.judge(Level.O1, dtype, custom("mlu", said), PADDLE)
        assert verdict.allowed == (str(dtype) in said)
        assert "asked" in verdict.reason


def test_levels_that_old_paddles_lack() -> None:
    old = replace(PADDLE, version="2.4.2")
    assert not allowed(played("t4"), Dtype.float16, Level.OD, old)
    assert allowed(played("t4"), Dtype.float16, Level.OD)
    assert allowed(played("t4"), Dtype.float16, Level.O1, old)


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda r: r.name)
def test_every_rule_says_why_from_where_and_what_instead(rule: rules.Rule) -> None:
    assert rule.source and rule.instead and rule.dtypes and rule.levels
    reason = rule.reason(custom("npu", ()), PADDLE)
    assert len(reason) > 20


def test_forcing_changes_advice_only_and_says_so() -> None:
    for alias in ("gtx1660", "gtx1080", "t4", "a100-80gb"):
        before = rules.verdicts(played(alias), PADDLE)
        after = rules.verdicts(played(alias), PADDLE, allow_unsupported=True)
        for old, new in zip(before, after, strict=True):
            assert new.allowed == (old.allowed or old.forcible)
            if old.allowed:
                assert new == old
            elif old.forcible:
                assert "forced by --allow-unsupported, against this advice" in new.reason
            else:
                assert "--allow-unsupported cannot" in new.reason
                assert "Paddle itself" in new.reason


@pytest.mark.parametrize("version", ["2.4.2", "2.5.2", "2.6.0", "3.3.1", "0.0.0"])
@pytest.mark.parametrize("dtype", rules.BOTH)
def test_what_closes_a_gate_depends_on_the_version(version: str, dtype: Dtype) -> None:
    """Before 2.6 Paddle only warns: nothing may say that it does the refusing there."""
    paddle = replace(PADDLE, version=version)
    verdict = rules.judge(Level.O1, dtype, played("p40"), paddle, allow_unsupported=True)
    assert not verdict.allowed and "--allow-unsupported cannot" in verdict.reason
    warns = version.startswith(("2.4", "2.5"))
    assert ("Paddle itself" in verdict.reason) == (not warns)
    assert ("an upgrade takes away" in verdict.reason) == warns
    assert (f"Paddle {version} would run it" in verdict.reason) == warns


def test_what_old_versions_do_not_do_either() -> None:
    old = replace(PADDLE, version="2.4.2")
    cpu = Device(kind=DeviceKind.cpu, paddle_name="cpu", name="CPU")
    for device, level in ((cpu, Level.O1), (played("t4"), Level.OD)):
        verdict = rules.judge(level, Dtype.float16, device, old, allow_unsupported=True)
        assert not verdict.allowed and verdict.reason.endswith("Paddle itself does it")


@given(DEVICES, PADDLES)
def test_no_combination_of_facts_raises(device: Device, paddle: PaddleInstall) -> None:
    found = rules.verdicts(device, paddle)
    assert found[0].level is Level.O0 and found[0].allowed
    forced = rules.verdicts(device, paddle, allow_unsupported=True)
    for verdict in (*found, *forced):
        assert verdict.reason and verdict.source
        assert verdict.allowed or verdict.instead


@pytest.mark.parametrize("model", catalogue.models(), ids=lambda m: m.alias)
def test_what_is_advised_instead_can_be_done_there(model: GpuModel) -> None:
    device = played(model.alias)
    for verdict in rules.verdicts(device, PADDLE):
        if verdict.instead is not None and "float16" in verdict.instead:
            assert allowed(device, Dtype.float16), verdict
