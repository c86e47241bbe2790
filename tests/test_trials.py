"""Real trials of real script forms: real Paddle on the virtual accelerator, fresh processes."""

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest
from real_trials import SCRIPTS, trial

from autoamp.measurement import Label, Measurement, Outcome, ScriptFacts
from autoamp.settings import AS_WRITTEN, Dtype, Level, Setting

pytestmark = [pytest.mark.slow, pytest.mark.needs_paddle, pytest.mark.needs_compiler]

O1_FP16 = Setting(
    batch_size=24, amp_level=Level.O1, dtype=Dtype.float16, init_loss_scaling=32768.0
)
O2_FP16 = Setting(amp_level=Level.O2, dtype=Dtype.float16, init_loss_scaling=1024.0)
O2_BF16 = Setting(amp_level=Level.O2, dtype=Dtype.bfloat16)
O0 = Setting(amp_level=Level.O0, dtype=Dtype.float32)

# Form: AMP calls that the script makes itself.
FORMS = {
    "raw_minimize.py": ("auto_cast", "scaler"),
    "raw_step_update.py": ("auto_cast", "scaler"),
    "raw_unscale_clip.py": ("auto_cast", "scaler"),
    "decorate_o2.py": ("auto_cast", "scaler", "decorate"),
    "from_import_names.py": ("auto_cast", "scaler", "decorate"),
    "module_alias.py": ("auto_cast", "scaler"),
    "plain_fp32.py": (),
    "hapi_fit.py": ("auto_cast", "scaler"),
    "hapi_plain.py": ("auto_cast",),
    "to_static.py": ("auto_cast", "scaler"),
    "loader_batch_size.py": ("auto_cast", "scaler"),
    "batch_sampler.py": ("auto_cast", "scaler"),
    "distributed_batch_sampler.py": ("auto_cast", "scaler"),
    "nested_disable.py": ("auto_cast", "scaler"),
    "scaler_subclass.py": ("auto_cast", "scaler"),
    "partial_autocast.py": ("auto_cast", "scaler"),
    "enable_flag_false.py": ("auto_cast", "scaler"),
    "grad_accumulation.py": ("auto_cast", "scaler"),
    "two_optimizers.py": ("auto_cast", "scaler"),
    "iterable_dataset.py": None,
}


def facts_of(measurement: Measurement) -> ScriptFacts:
    assert measurement.outcome is Outcome.ok, (measurement.reason, measurement.log_tail)
    assert measurement.facts is not None
    return measurement.facts


@pytest.mark.parametrize("form", FORMS)
def test_form(form: str, tmp_path: Path) -> None:
    script = SCRIPTS / form
    own = trial(tmp_path, script, name="own")
    facts = facts_of(own)
    calls = FORMS[form]
    if calls is not None:
        seen = (facts.calls_auto_cast, facts.calls_scaler, facts.calls_decorate)
        assert seen == tuple(c in calls for c in ("auto_cast", "scaler", "decorate"))
    fp32 = ("plain_fp32.py", "hapi_plain.py", "enable_flag_false.py")
    assert facts.amp_in_effect == (form not in fp32)
    assert (own.time_label, own.memory_label) == (Label.modelled, Label.counted)
    assert own.batch_size == 16 and own.losses and own.memory_reserved_peak_bytes
    assert facts.loaders and all(x.tunable for x in facts.loaders)
    for setting in (O1_FP16, O2_FP16, O2_BF16, O0):
        seen_here = trial(
            tmp_path, script, setting, facts=facts, name=setting.precision().replace(" ", "-")
        )
        assert seen_here.outcome is Outcome.ok, (setting, seen_here.reason, seen_here.log_tail)
        assert seen_here.batch_size == (setting.batch_size or 16)
        assert all(effect.effective for effect in seen_here.effects)
        low = sum(o.float16 + o.bfloat16 for o in seen_here.op_calls)
        assert (low > 0) == setting.is_mixed
        scales = [x.value for x in seen_here.loss_scales]
        assert scales[:1] == ([setting.init_loss_scaling] if setting.init_loss_scaling else [])
        assert not [c for c in seen_here.caveats if c.startswith("hook:")]


def test_a_setting_without_effect_says_so(tmp_path: Path) -> None:
    m = trial(tmp_path, SCRIPTS / "no_effect.py")
    assert m.outcome is Outcome.not_effective
    assert "device" in (m.reason or "")


def test_hooks_that_cannot_load_say_so(tmp_path: Path) -> None:
    isolated = tmp_path / "python-isolated"
    isolated.write_text(f'#!/bin/sh\nexec {sys.executable} -I "$@"\n')
    isolated.chmod(0o755)
    m = trial(tmp_path, SCRIPTS / "plain_fp32.py", device="cpu", python=str(isolated))
    assert m.outcome is Outcome.no_steps
    assert "hooks did not load" in (m.reason or "")


@pytest.mark.parametrize("device", ["cpu", "gtx1080"])
def test_amp_that_paddle_switches_off_is_not_effective(device: str, tmp_path: Path) -> None:
    facts = facts_of(trial(tmp_path, SCRIPTS / "raw_step_update.py", device=device, name="own"))
    m = trial(
        tmp_path, SCRIPTS / "raw_step_update.py", O1_FP16, facts=facts, device=device, name="o1"
    )
    assert m.outcome is Outcome.not_effective
    assert "amp_level" in (m.reason or "")


@pytest.mark.parametrize(
    ("form", "reason"),
    [("premade_minibatches.py", "made before the sampler"), ("no_loader.py", None)],
)
def test_batches_that_must_stay(form: str, reason: str | None, tmp_path: Path) -> None:
    facts = facts_of(trial(tmp_path, SCRIPTS / form))
    assert not [x for x in facts.loaders if x.tunable]
    if reason:
        assert reason in (facts.loaders[0].reason or "")


def test_templated_arguments_are_filled_and_not_patched_as_well(tmp_path: Path) -> None:
    arguments = ("--bs", "{batch_size:16}", "--level", "{amp_level}", "--dtype", "{dtype:float16}")
    script = SCRIPTS / "templated.py"
    own = trial(tmp_path, script, arguments=arguments, name="own")
    facts = facts_of(own)
    m = trial(tmp_path, script, O1_FP16, arguments=arguments, facts=facts, name="o1")
    assert m.outcome is Outcome.ok, (m.reason, m.log_tail)
    assert m.batch_size == 24
    assert not {a.knob for a in m.applied} & {"batch_size", "amp_level", "dtype"}


FAILING = {
    "crash_at_import.py": (Outcome.crashed, "a_module_that_nobody_has"),
    "exits_before_step.py": (Outcome.no_steps, "optimizer step"),
    "never_steps.py": (Outcome.no_steps, "optimizer step"),
    "hangs.py": (Outcome.timed_out, "no optimizer step"),
    "ignores_sigterm.py": (Outcome.timed_out, ""),
    "nan_loss.py": (Outcome.not_finite, "step 20"),
}


@pytest.mark.parametrize("form", FAILING)
def test_failing_script(form: str, tmp_path: Path) -> None:
    outcome, reason = FAILING[form]
    limit_s = 20.0 if outcome is Outcome.timed_out else 120.0
    m = trial(tmp_path, SCRIPTS / form, steps=30, limit_s=limit_s)
    assert m.outcome is outcome, (m.reason, m.log_tail)
    assert reason in (m.reason or "")


def test_out_of_memory_is_paddles_own(tmp_path: Path) -> None:
    m = trial(tmp_path, SCRIPTS / "oom.py", steps=200, memory_bytes=2**30)
    assert m.outcome is Outcome.out_of_memory
    assert "Out of memory error on" in (m.reason or "")


def test_huge_loss_scale_skips_and_halves(tmp_path: Path) -> None:
    script = SCRIPTS / "raw_step_update.py"
    facts = facts_of(trial(tmp_path, script, name="own"))
    setting = replace(O1_FP16, init_loss_scaling=2.0**30)
    m = trial(tmp_path, script, setting, facts=facts, steps=20, name="huge")
    assert m.skipped_steps > 0
    values = [x.value for x in m.loss_scales]
    assert values[:2] == [2.0**30, 2.0**29]
    assert len(values) == m.skipped_steps + 1


def test_planning_mode_times_without_computing(tmp_path: Path) -> None:
    m = trial(tmp_path, SCRIPTS / "raw_step_update.py", numerics=False)
    assert m.outcome is Outcome.ok
    assert m.numerics_label is Label.not_computed
    assert m.throughput_samples_per_s and m.step_flops and m.step_bytes


def test_scan_reads_gradient_exponents(tmp_path: Path) -> None:
    m = trial(tmp_path, SCRIPTS / "plain_fp32.py", O0, scan=True)
    assert m.scan is not None and m.scan.grad_exponents
    assert m.scan.grad_exponent_min is not None and m.scan.grad_exponent_max is not None
    assert m.scan.grad_exponent_min < m.scan.grad_exponent_max < 16


def test_equal_seeds_give_equal_losses(tmp_path: Path) -> None:
    first = trial(tmp_path, SCRIPTS / "plain_fp32.py", name="a")
    second = trial(tmp_path, SCRIPTS / "plain_fp32.py", name="b")
    assert first.losses and first.losses == second.losses


def listing(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".autoamp" not in path.parts
    }


@pytest.mark.parametrize(
    "form", ["rotates_checkpoints.py", "saves_and_loads.py", "writes_everywhere.py"]
)
def test_the_users_files_stay_byte_identical(form: str, tmp_path: Path) -> None:
    """Run the script once alone, so that its files are there; then tune: nothing may change."""
    script = tmp_path / form
    shutil.copy(SCRIPTS / form, script)
    alone = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True
    )
    assert alone.returncode == 0, alone.stderr
    before = listing(tmp_path)
    assert len(before) > 2
    for name, setting in (("own", AS_WRITTEN), ("o0", O0)):
        m = trial(tmp_path, script.name, setting, steps=40, name=name)
        assert m.outcome is Outcome.ok, (m.reason, m.log_tail)
        assert m.refused_writes == ()
        assert listing(tmp_path) == before


def test_no_process_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    monkeypatch.setenv("AUTOAMP_TEST_MARKER", str(tmp_path))
    m = trial(tmp_path, SCRIPTS / "spawns_children.py")
    assert m.outcome is Outcome.ok, (m.reason, m.log_tail)
    left = [
        p
        for p in psutil.process_iter(["environ"])
        if (p.info["environ"] or {}).get("AUTOAMP_TEST_MARKER") == str(tmp_path)
        and p.pid != os.getpid()
    ]
    assert left == []


def test_another_interpreter_needs_nothing_of_ours(tmp_path: Path) -> None:
    """An environment that has Paddle and not autoamp: the hooks load by path."""
    env = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(env)], check=True)
    site = next((env / "lib").glob("python*/site-packages"))
    ours = Path(sysconfig.get_paths()["purelib"])
    for entry in ours.iterdir():
        if "autoamp" not in entry.name and not entry.name.endswith(".pth"):
            (site / entry.name).symlink_to(entry)
    python = env / "bin" / "python"
    check = subprocess.run([python, "-c", "import autoamp"], cwd="/", capture_output=True)
    assert check.returncode != 0
    m = trial(tmp_path, SCRIPTS / "plain_fp32.py", python=str(python), device="cpu")
    assert m.outcome is Outcome.ok, (m.reason, m.log_tail)


def test_users_own_sitecustomize_still_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = SCRIPTS / "user_sitecustomize"
    monkeypatch.setenv("PYTHONPATH", str(folder))
    m = trial(tmp_path, folder / "train.py", device="cpu")
    assert m.outcome is Outcome.ok, (m.reason, m.log_tail)


def test_module_target_and_odd_names(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    shutil.copy(SCRIPTS / "plain_fp32.py", package / "train.py")
    m = trial(tmp_path, "pkg.train", module=True, device="cpu", name="module")
    assert m.outcome is Outcome.ok, (m.reason, m.log_tail)
    odd = tmp_path / "一个 folder"
    odd.mkdir()
    shutil.copy(SCRIPTS / "训练 脚本.py", odd)
    m = trial(tmp_path, "一个 folder/训练 脚本.py", device="cpu", name="odd")
    assert m.outcome is Outcome.ok, (m.reason, m.log_tail)


def test_output_and_exit_code_are_those_of_plain_python(tmp_path: Path) -> None:
    """A script that ends by itself prints the same under autoamp as alone (stdout, code)."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, paddle\n"
        "print(__name__, sys.argv, sys.path[0], __file__, __spec__)\n"
        "print(paddle.__version__, type(paddle.amp.GradScaler), paddle.amp.auto_cast.__name__)\n"
        "print(sorted(n for n in dir() if not n.startswith('_')))\n"
        "class Mine(paddle.amp.GradScaler):\n    pass\n"
        "print(issubclass(Mine, paddle.amp.AmpScaler), Mine(enable=False).is_enable())\n"
        "sys.exit(3)\n"
    )
    alone = subprocess.run(
        [sys.executable, "script.py", "a b"], cwd=tmp_path, capture_output=True, text=True
    )
    m = trial(tmp_path, "script.py", arguments=("a b",), device="cpu")
    assert m.exit_code == alone.returncode == 3
    ours = (tmp_path / ".autoamp" / "trial" / "log.txt").read_text()
    for line in alone.stdout.splitlines():
        assert line in ours.splitlines()


HEAD = """
import numpy as np, paddle, paddle.nn as nn, sys
class D(paddle.io.Dataset):
    def __len__(self): return 640
    def __getitem__(self, i):
        return np.random.RandomState(i).randn(16).astype("float32"), np.int64(i % 4)
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
loader = paddle.io.DataLoader(D(), batch_size=16, shuffle=True)
ce = nn.CrossEntropyLoss()
"""


def script_of(folder: Path, body: str) -> Path:
    path = folder / "script.py"
    path.write_text(HEAD + body)
    return path


def test_amp_by_argument_is_not_added_a_second_time(tmp_path: Path) -> None:
    """The suites' way: no AMP call at all unless the argument asks for it."""
    body = (
        "level = sys.argv[1]\n"
        "opt = paddle.optimizer.AdamW(1e-3, parameters=net.parameters())\n"
        "scaler = paddle.amp.GradScaler(init_loss_scaling=1024.0) if level != 'O0' else None\n"
        "for x, y in loader:\n"
        "    if scaler is None:\n"
        "        loss = ce(net(x), y); loss.backward(); opt.step()\n"
        "    else:\n"
        "        with paddle.amp.auto_cast(level=level):\n"
        "            loss = ce(net(x), y)\n"
        "        scaler.scale(loss).backward(); scaler.step(opt); scaler.update()\n"
        "    opt.clear_grad()\n"
    )
    script = script_of(tmp_path, body)
    own = trial(tmp_path, script, arguments=("{amp_level}",), name="own")
    assert not facts_of(own).calls_auto_cast
    setting = Setting(amp_level=Level.O1, dtype=Dtype.float16)
    m = trial(tmp_path, script, setting, arguments=("{amp_level}",), facts=own.facts, name="o1")
    assert m.outcome is Outcome.ok, (m.reason, m.log_tail)
    assert [x.value for x in m.loss_scales] == [1024.0]


AMP_WORDS = {
    "disabled": (
        "opt = paddle.optimizer.AdamW(1e-3, parameters=net.parameters())\n"
        "scaler = paddle.amp.GradScaler(enable=False)\n"
        "net, opt = paddle.amp.decorate(net, opt, level='O1')\n"
        "for x, y in loader:\n"
        "    with paddle.amp.auto_cast(enable=False):\n"
        "        loss = ce(net(x), y)\n"
        "    scaler.scale(loss).backward(); scaler.step(opt); scaler.update(); opt.clear_grad()\n"
    ),
    "level O0": (
        "opt = paddle.optimizer.AdamW(1e-3, parameters=net.parameters())\n"
        "for x, y in loader:\n"
        "    with paddle.amp.auto_cast(level='O0'):\n"
        "        loss = ce(net(x), y)\n"
        "    loss.backward(); opt.step(); opt.clear_grad()\n"
    ),
}


@pytest.mark.parametrize("words", AMP_WORDS)
def test_calls_that_switch_amp_off_are_no_amp_and_still_take_a_setting(
    words: str, tmp_path: Path
) -> None:
    script = script_of(tmp_path, AMP_WORDS[words])
    facts = facts_of(trial(tmp_path, script, name="own"))
    assert not facts.amp_in_effect and facts.own_level is None
    m = trial(tmp_path, script, replace(O2_FP16, batch_size=None), facts=facts, name="o2")
    assert m.outcome is Outcome.ok, (m.reason, m.log_tail)
    assert all(effect.effective for effect in m.effects) and m.effects
    # One scaler and one decorate, the script's own or ours.
    assert [x.value for x in m.loss_scales] == [O2_FP16.init_loss_scaling]


def test_evaluation_in_between_is_no_training_sample(tmp_path: Path) -> None:
    body = (
        "opt = paddle.optimizer.SGD(1e-3, parameters=net.parameters())\n"
        "test = paddle.io.DataLoader(D(), batch_size=64)\n"
        "for i, (x, y) in enumerate(loader):\n"
        "    loss = ce(net(x), y); loss.backward(); opt.step(); opt.clear_grad()\n"
        "    for x, y in test:\n"
        "        net(x)\n"
    )
    m = trial(tmp_path, script_of(tmp_path, body), device="cpu")
    assert m.outcome is Outcome.ok, (m.reason, m.log_tail)
    assert m.samples_timed == 16 * m.steps_timed
    assert [x.batch_size for x in facts_of(m).loaders] == [16]


def test_fp32_part_beside_the_amp_region_stays_fp32(tmp_path: Path) -> None:
    body = (
        "opt = paddle.optimizer.SGD(1e-3, parameters=net.parameters())\n"
        "scaler = paddle.amp.GradScaler()\n"
        "for x, y in loader:\n"
        "    with paddle.amp.auto_cast():\n"
        "        out = net(x)\n"
        "    with paddle.amp.auto_cast(enable=False):\n"
        "        half = paddle.matmul(x, x, transpose_y=True)\n"
        "        assert half.dtype == paddle.float32, half.dtype\n"
        "        loss = ce(out, y) + 0 * half.sum()\n"
        "    scaler.scale(loss).backward(); scaler.step(opt); scaler.update(); opt.clear_grad()\n"
    )
    script = script_of(tmp_path, body)
    facts = facts_of(trial(tmp_path, script, name="own"))
    assert facts.own_level == "O1"
    m = trial(tmp_path, script, replace(O1_FP16, batch_size=None), facts=facts, name="o1")
    assert m.outcome is Outcome.ok, (m.reason, m.log_tail)


def test_an_optimizer_of_the_scripts_own_is_counted(tmp_path: Path) -> None:
    body = (
        "class Plain(paddle.optimizer.Optimizer):\n"
        "    def step(self):\n"
        "        with paddle.no_grad():\n"
        "            for p in self._parameter_list:\n"
        "                p.set_value(p - 1e-3 * p.grad)\n"
        "opt = Plain(1e-3, parameters=net.parameters())\n"
        "for x, y in loader:\n"
        "    loss = ce(net(x), y); loss.backward(); opt.step(); opt.clear_grad()\n"
    )
    script = script_of(tmp_path, body)
    own = trial(tmp_path, script, name="own")
    assert facts_of(own).optimizer == "Plain"
    m = trial(tmp_path, script, O1_FP16, facts=own.facts, name="o1")
    assert m.outcome is Outcome.ok, (m.reason, m.log_tail)
    assert m.losses[-1] < 2 * m.losses[0]


def test_skips_at_a_static_loss_scale_are_counted(tmp_path: Path) -> None:
    script = SCRIPTS / "raw_step_update.py"
    facts = facts_of(trial(tmp_path, script, name="own"))
    setting = replace(O1_FP16, init_loss_scaling=2.0**40, dynamic_loss_scaling=False)
    m = trial(tmp_path, script, setting, facts=facts, steps=20, name="static")
    assert m.outcome is Outcome.scale_collapsed
    assert m.skipped_steps >= m.steps_done - 2


def test_hapi_keeps_its_own_configs_beside_the_settings(tmp_path: Path) -> None:
    body = (
        "model = paddle.Model(net)\n"
        "model.prepare(paddle.optimizer.AdamW(1e-3, parameters=net.parameters()), ce,\n"
        "    amp_configs={'level': 'O1', 'init_loss_scaling': 512.0})\n"
        "model.fit(D(), batch_size=16, epochs=2, verbose=0)\n"
    )
    script = script_of(tmp_path, body)
    facts = facts_of(trial(tmp_path, script, name="own"))
    setting = Setting(amp_level=Level.O2, dtype=Dtype.float16)
    m = trial(tmp_path, script, setting, facts=facts, name="o2")
    assert m.outcome is Outcome.ok, (m.reason, m.log_tail)
    assert [x.value for x in m.loss_scales] == [512.0]
