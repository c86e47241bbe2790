"""TF32 in real trials: set before the script trains, kept, read back at the end."""

import subprocess
import sys
from pathlib import Path

import pytest
from real_trials import SCRIPTS, trial

from autoamp.measurement import Effect, Measurement, Outcome
from autoamp.settings import AS_WRITTEN, Dtype, Level, Setting

pytestmark = [pytest.mark.slow, pytest.mark.needs_paddle, pytest.mark.needs_compiler]

FP32 = Setting(amp_level=Level.O0, dtype=Dtype.float32)
TF32 = Setting(amp_level=Level.O0, dtype=Dtype.float32, tf32=True)
NO_TF32 = Setting(amp_level=Level.O0, dtype=Dtype.float32, tf32=False)


def switches(m: Measurement) -> tuple[bool | None, bool | None]:
    return m.tf32_matmul, m.tf32_conv


def effect(m: Measurement) -> Effect:
    (found,) = [x for x in m.effects if x.knob == "tf32"]
    return found


@pytest.mark.parametrize(("setting", "on"), [(TF32, True), (NO_TF32, False)])
def test_set_and_read_back(setting: Setting, on: bool, tmp_path: Path) -> None:
    m = trial(tmp_path, SCRIPTS / "plain_fp32.py", setting, numerics=False)
    assert m.outcome is Outcome.ok, (m.reason, m.log_tail)
    assert switches(m) == (on, on) and effect(m).effective
    (applied,) = [a for a in m.applied if a.knob == "tf32"]
    assert applied.value == str(on) and "products" in (applied.previous or "")


def test_the_setting_replaces_the_scripts_own_calls(tmp_path: Path) -> None:
    own = trial(tmp_path, SCRIPTS / "sets_tf32.py", numerics=False, name="own")
    assert switches(own) == (False, False)
    m = trial(tmp_path, SCRIPTS / "sets_tf32.py", TF32, numerics=False)
    assert m.outcome is Outcome.ok, (m.reason, m.log_tail)
    assert switches(m) == (True, True)
    places = {a.where.rpartition("/")[2]: a.previous for a in m.applied if a.knob == "tf32"}
    # Its two calls at the top and the one in the loop, whatever name it calls them by.
    assert [was for was in places.values()].count("False") == 3


def test_the_clock_follows_the_setting(tmp_path: Path) -> None:
    """A large product is what TF32 is for; the memory stays float32's."""
    script = tmp_path / "product.py"
    script.write_text(
        """import numpy as np
import paddle


class Data(paddle.io.Dataset):
    def __len__(self):
        return 12288

    def __getitem__(self, index):
        return np.ones(2048, "float32"), np.int64(index % 8)


model = paddle.nn.Sequential(paddle.nn.Linear(2048, 8192), paddle.nn.Linear(8192, 8))
optimizer = paddle.optimizer.SGD(parameters=model.parameters())
for x, y in paddle.io.DataLoader(Data(), batch_size=1024):
    loss = paddle.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
"""
    )
    plain = trial(tmp_path, script, FP32, numerics=False, steps=4, name="fp32")
    fast = trial(tmp_path, script, TF32, numerics=False, steps=4, name="tf32")
    assert plain.ok and fast.ok
    assert fast.throughput_samples_per_s and plain.throughput_samples_per_s
    assert fast.throughput_samples_per_s > 1.3 * plain.throughput_samples_per_s
    # Float32 stays float32 in memory; a block more or less is the allocator's.
    assert fast.memory_reserved_peak_bytes == pytest.approx(
        plain.memory_reserved_peak_bytes, rel=0.1
    )


def test_no_effect_where_the_gpu_has_none(tmp_path: Path) -> None:
    m = trial(tmp_path, SCRIPTS / "plain_fp32.py", TF32, device="v100-16gb", numerics=False)
    assert m.outcome is Outcome.not_effective
    assert "tf32" in (m.reason or "") and "no TF32" in (m.reason or "")
    own = trial(
        tmp_path,
        SCRIPTS / "plain_fp32.py",
        AS_WRITTEN,
        device="v100-16gb",
        numerics=False,
        name="own",
    )
    assert switches(own) == (False, False)


def test_no_effect_against_cudas_own_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    m = trial(tmp_path, SCRIPTS / "plain_fp32.py", TF32, numerics=False)
    assert m.outcome is Outcome.not_effective
    assert "NVIDIA_TF32_OVERRIDE" in (m.reason or "")


def test_with_mixed_precision_both_hold(tmp_path: Path) -> None:
    own = trial(tmp_path, SCRIPTS / "plain_fp32.py", name="own", numerics=False)
    both = Setting(amp_level=Level.O1, dtype=Dtype.bfloat16, tf32=True)
    m = trial(tmp_path, SCRIPTS / "plain_fp32.py", both, facts=own.facts, numerics=False)
    assert m.outcome is Outcome.ok, (m.reason, m.log_tail)
    assert switches(m) == (True, True)
    assert sum(o.bfloat16 for o in m.op_calls) > 0


def test_templated_the_script_does_it(tmp_path: Path) -> None:
    script = tmp_path / "templated.py"
    script.write_text(
        "import sys\nimport paddle\n"
        "on = sys.argv[1] == 'True'\n"
        "paddle.base.core.set_cublas_switch(on)\npaddle.base.core.set_cudnn_switch(on)\n"
        "sys.argv = sys.argv[:1]\n" + (SCRIPTS / "plain_fp32.py").read_text()
    )
    for setting, on in ((TF32, True), (FP32, False)):
        m = trial(
            tmp_path,
            script,
            setting,
            arguments=("{tf32}",),
            numerics=False,
            name=setting.precision(),
        )
        assert m.outcome is Outcome.ok, (m.reason, m.log_tail)
        assert switches(m) == (on, on)
        # The argument carries it: nothing is patched as well.
        assert not [a for a in m.applied if a.knob == "tf32"]


def test_the_snippet_does_the_same(tmp_path: Path) -> None:
    from autoamp.studies.snippet import snippet

    code = snippet(TF32) + (
        "core = paddle.base.core\nprint(core.get_cublas_switch(), core.get_cudnn_switch())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stdout.split()[-2:] == ["True", "True"]
