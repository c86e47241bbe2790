import os
import subprocess
import sys
from pathlib import Path

import pytest

from autoamp import launch, wire
from autoamp.errors import UsageError
from autoamp.settings import AS_WRITTEN, Dtype, Level, Setting

FULL = Setting(
    batch_size=64,
    amp_level=Level.O2,
    dtype=Dtype.bfloat16,
    init_loss_scaling=1024.0,
    custom_black_list=("exp", "softmax"),
)


def target(*arguments: str, entry: str = "train.py", module: bool = False) -> launch.Target:
    return launch.Target(
        entry=entry, is_module=module, arguments=arguments, python=sys.executable, cwd="."
    )


@pytest.mark.parametrize(
    ("template", "setting", "expected"),
    [
        ("--bs={batch_size:32}", AS_WRITTEN, "--bs=32"),
        ("--bs={batch_size:32}", FULL, "--bs=64"),
        ("{batch_size}", FULL, "64"),
        ("Global.use_amp={use_amp}", AS_WRITTEN, "Global.use_amp=False"),
        ("Global.use_amp={use_amp}", FULL, "Global.use_amp=True"),
        ("--tf32={tf32}", AS_WRITTEN, "--tf32=False"),
        ("--tf32={tf32:True}", AS_WRITTEN, "--tf32=True"),
        ("--tf32={tf32}", Setting(amp_level=Level.O0, tf32=True), "--tf32=True"),
        ("{amp_level}", AS_WRITTEN, "O0"),
        ("{amp_level}", FULL, "O2"),
        ("{dtype}", AS_WRITTEN, "float32"),
        ("{dtype}", FULL, "bfloat16"),
        ("{init_loss_scaling}", AS_WRITTEN, "32768"),
        ("{init_loss_scaling}", FULL, "1024"),
        ("{custom_black_list}", FULL, "exp,softmax"),
        ("{custom_white_list}", FULL, ""),
        ('{"json": 1}', FULL, '{"json": 1}'),
        ("{unknown_word}", FULL, "{unknown_word}"),
        ("a b 'c' \"d\"", FULL, "a b 'c' \"d\""),
    ],
)
def test_templates(template: str, setting: Setting, expected: str) -> None:
    assert launch.fill((template,), setting) == (expected,)


def test_own_batch_size_must_be_known() -> None:
    with pytest.raises(UsageError) as caught:
        launch.fill(("{batch_size}",), AS_WRITTEN)
    assert caught.value.slug == "template-needs-start"


def test_templated_knobs_are_named_once() -> None:
    arguments = ("{use_amp}", "--level", "{amp_level:O1}", "{batch_size:8}", "{tf32}")
    assert launch.templated_knobs(arguments) == ("amp_level", "batch_size", "tf32")


def test_command_of_script_and_module() -> None:
    assert launch.command(target("--lr", "1"), FULL) == [
        sys.executable,
        "train.py",
        "--lr",
        "1",
    ]
    assert launch.command(target(entry="pkg.train", module=True), FULL) == [
        sys.executable,
        "-m",
        "pkg.train",
    ]


def test_environment_keeps_the_users_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    env = launch.environment("/plan.json", "cpu", {"EXTRA": "1"})
    first, second = env["PYTHONPATH"].split(os.pathsep)
    assert (Path(first) / "sitecustomize.py").exists()
    assert second == "/somewhere"
    assert env[wire.ENV_PLAN] == "/plan.json"
    assert env["EXTRA"] == "1"


@pytest.mark.parametrize(
    ("visible", "device", "expected"),
    [
        (None, "gpu:1", "1"),
        ("3,5", "gpu:1", "5"),
        ("GPU-aa,GPU-bb", "gpu:0", "GPU-aa"),
    ],
)
def test_only_the_chosen_gpu_is_visible(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, device: str, expected: str
) -> None:
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    env = launch.environment("p", device, {})
    assert env["CUDA_VISIBLE_DEVICES"] == expected
    assert launch.child_device(device) == "gpu:0"


def run(
    tmp_path: Path, code: str, limit_s: float | None = 60.0, stop_after: float | None = None
) -> tuple[wire.Plan, launch.Ended]:
    script = tmp_path / "a script 训练.py"
    script.write_text(code, encoding="utf-8")
    folder = tmp_path / "trial"
    folder.mkdir()
    plan = wire.Plan(trial_dir=str(folder), divert_files=False)
    import time

    start = time.monotonic()
    ended = launch.run(
        launch.Target(
            entry=str(script),
            is_module=False,
            arguments=("x y", 'q"'),
            python=sys.executable,
            cwd=str(tmp_path),
        ),
        plan,
        device="cpu",
        extra_env={},
        limit_s=limit_s,
        stop=lambda: stop_after is not None and time.monotonic() - start > stop_after,
    )
    return plan, ended


def test_a_run_is_the_real_script(tmp_path: Path) -> None:
    plan, ended = run(
        tmp_path, "import sys, os\nprint(__name__, sys.argv[1:], os.getcwd())\nsys.exit(5)\n"
    )
    assert ended.exit.code == 5
    text = Path(plan.trial_dir, wire.LOG_FILE).read_text()
    assert text == f"__main__ ['x y', 'q\"'] {tmp_path}\n"


def test_limit_kills(tmp_path: Path) -> None:
    _, ended = run(tmp_path, "import time; time.sleep(600)", limit_s=0.5)
    assert ended.timed_out and ended.exit.killed_by_us


def test_stop_kills(tmp_path: Path) -> None:
    _, ended = run(tmp_path, "import time; time.sleep(600)", stop_after=0.3)
    assert ended.interrupted and not ended.timed_out


def test_a_full_run_keeps_the_users_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    env = launch.environment("p", "gpu:0", {}, trial=False)
    assert env["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    assert not {"PYTHONUNBUFFERED", wire.ENV_GUARDED, "FLAGS_gpu_allocator_retry_time"} & set(env)


def test_an_unarmed_trial_runs_nothing_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"schema": 99}')
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    env = launch.environment(str(tmp_path / "plan.json"), "cpu", {})
    code = f"open({str(victim)!r}, 'w').write('gone')"
    done = subprocess.run([sys.executable, "-c", code], env=env)
    assert done.returncode == 86
    assert victim.read_text() == "precious"
    assert "schema" in (tmp_path / wire.ARMING_FAILED_FILE).read_text()
