"""``autoamp probe`` and ``autoamp devices`` as a user runs them: real processes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import fake_nvml
import msgspec
import pytest

from autoamp.probes.facts import DeviceKind, GpuModel, Machine, Severity
from autoamp.settings import Dtype, Level

SUPPORT = Path(fake_nvml.__file__).parent
MAIN = "from autoamp.cli.main import main; main()"
# What the probe must not have loaded when it ends: paddle by contract, the others for their time.
NEVER = ("paddle", "optuna", "sqlalchemy", "alembic")
MAIN_WATCHED = f"""
import atexit, sys
def tell():
    loaded = [m for m in {NEVER!r} if m in sys.modules]
    print("LOADED", loaded, file=sys.stderr)
atexit.register(tell)
{MAIN}
"""
FAKE_PYNVML = f"""
import os, sys
sys.path.insert(0, {str(SUPPORT)!r})
import fake_nvml
machine = fake_nvml.load(os.environ["TEST_MACHINE"])
if machine["package"] == "broken":
    raise SyntaxError("invalid syntax")
sys.modules["pynvml"] = fake_nvml.build(machine)
"""


class Probe:
    """Runs the command on a machine of tests/machines, with a Paddle that dies when imported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "fake").mkdir()
        (folder / "fake" / "pynvml.py").write_text(FAKE_PYNVML)

    def python(self, paddle: dict[str, Any]) -> Path:
        """An interpreter that has this Paddle and nothing else."""
        wheel = self.folder / "wheel"
        (wheel / "paddle" / "version").mkdir(parents=True, exist_ok=True)
        (wheel / "paddle" / "__init__.py").write_text("raise SystemExit('paddle was imported')\n")
        (wheel / "paddle" / "version" / "__init__.py").write_text(
            "".join(
                f"{key} = {value!r}\n"
                for key, value in paddle.items()
                if key not in ("installed", "found", "python_version", "plugins")
            )
        )
        for name, version in paddle["installed"].items():
            info = wheel / f"{name.replace('-', '_')}-{version}.dist-info"
            info.mkdir(exist_ok=True)
            (info / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            )
        wrapper = self.folder / "python"
        wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={wheel} exec {sys.executable} -S "$@"\n')
        wrapper.chmod(0o755)
        return wrapper

    def __call__(
        self, machine: str, *arguments: str, command: str = "probe", main: str = MAIN, **env: str
    ) -> "subprocess.CompletedProcess[str]":
        extra: tuple[str, ...] = ()
        if command == "probe":
            extra = ("--python", str(self.python(fake_nvml.load(machine)["paddle"])))
        return subprocess.run(
            [sys.executable, "-c", main, command, *extra, *arguments],
            cwd=self.folder,
            env={
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": str(self.folder / "fake"),
                "TEST_MACHINE": machine,
                "AUTOAMP_CACHE_DIR": str(self.folder / "cache"),
                "COLUMNS": "200",
                **env,
            },
            capture_output=True,
            encoding="utf-8",
            timeout=120,
        )


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    return Probe(tmp_path)


def decoded(done: "subprocess.CompletedProcess[str]") -> Machine:
    return msgspec.json.decode(done.stdout.encode(), type=Machine)


@pytest.mark.parametrize(
    ("machine", "code"),
    [
        ("no-gpu", 0),
        ("h100-idle", 0),
        ("gtx1080", 3),
        ("mixed-gpus", 0),
        ("a100-mig", 0),
        ("gpu-lost", 0),
        ("abandoned-pynvml", 0),
        ("wrong-pynvml", 0),
        ("pynvml-does-not-import", 0),
        ("cpu-paddle-on-gpu", 3),
        ("driver-too-old", 3),
        ("rtx5090-old-wheel", 3),
        ("gpu-prohibited", 3),
        ("a100-mig-empty", 3),
    ],
)
def test_exit_code_and_json(machine: str, code: int, probe: Probe) -> None:
    done = probe(machine, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    found = decoded(done)
    blocked = any(p.severity is Severity.blocker for p in found.problems)
    assert blocked == (code == 3)
    assert done.stderr == ""


def test_neither_paddle_nor_the_search_is_loaded(probe: Probe) -> None:
    done = probe("h100-idle", main=MAIN_WATCHED)
    assert done.returncode == 0
    assert "LOADED []" in done.stderr


def test_problems_come_first_in_the_text(probe: Probe) -> None:
    text = probe("driver-too-old").stdout
    assert text.splitlines()[0].startswith("BLOCKER")
    assert text.index("[driver-too-old]") < text.index("Tesla V100-SXM2-16GB, ")


def test_one_panel_a_gpu_and_the_chosen_one_marked(probe: Probe) -> None:
    text = probe("mixed-generations", "--device", "gpu:1").stdout
    assert "NVIDIA GeForce GTX 1080" in text and "NVIDIA GeForce RTX 3090" in text
    (chosen,) = [line for line in text.splitlines() if "chosen" in line]
    assert "gpu:1" in chosen


@pytest.mark.parametrize("machine", ["no-gpu", "h100-idle", "cpu-paddle-on-gpu"])
def test_pascals_refusal_on_any_laptop(machine: str, probe: Probe) -> None:
    done = probe(machine, "--device", "virtual:gtx1080", "--json")
    assert done.returncode == 0
    found = decoded(done)
    assert found.device.kind is DeviceKind.virtual
    verdict = found.verdict(Level.O1, Dtype.float16)
    assert verdict is not None and not verdict.allowed and "6.1" in verdict.reason


def test_forcing_says_what_it_cannot_do(probe: Probe) -> None:
    forced = probe("gtx1660-ti", "--allow-unsupported").stdout
    assert "forced by --allow-unsupported, against this advice" in forced
    shut = probe("gtx1080", "--allow-unsupported").stdout
    assert "--allow-unsupported cannot change that: Paddle itself does it" in shut


@pytest.mark.parametrize(
    ("device", "code", "slug"),
    [
        ("virtual:nosuchgpu", 2, "unknown-device"),
        ("virtual:v100", 2, "ambiguous-device"),
        ("virtual:t4,memory=much", 2, "bad-device"),
        ("gpu 0", 2, "bad-device"),
        ("gpu:7", 3, "device-not-found"),
    ],
)
def test_devices_that_cannot_be(device: str, code: int, slug: str, probe: Probe) -> None:
    done = probe("h100-idle", "--device", device)
    assert done.returncode == code
    assert f"[{slug}]" in done.stderr and done.stdout == ""


def test_an_interpreter_that_is_none(probe: Probe) -> None:
    done = probe("no-gpu", "--python", "/bin/false")
    assert done.returncode == 3 and "[interpreter-broken]" in done.stderr


def test_visible_devices_are_heeded(probe: Probe) -> None:
    hidden = decoded(probe("h100-idle", "--json", CUDA_VISIBLE_DEVICES=""))
    assert hidden.devices == () and hidden.device.kind is DeviceKind.virtual
    second = decoded(probe("mixed-generations", "--json", CUDA_VISIBLE_DEVICES="1"))
    assert [d.name for d in second.devices] == ["NVIDIA GeForce RTX 3090"]


def test_devices_lists_every_model_by_a_name_of_its_own(probe: Probe) -> None:
    done = probe("no-gpu", "--json", command="devices")
    models = msgspec.json.decode(done.stdout.encode(), type=list[GpuModel])
    assert done.returncode == 0 and len(models) >= 50
    text = probe("no-gpu", command="devices").stdout
    words = text.split()
    for model in models:
        assert words.count(model.alias) >= 1 and model.name in text
    assert len({m.alias for m in models}) == len(models)
    assert "virtual:NAME" in text


def test_every_name_that_devices_prints_is_taken(probe: Probe) -> None:
    """The short names go back into --device: spot-checked through the whole command."""
    for alias in ("gtx1060", "v100-32gb", "rtx5090"):
        done = probe("no-gpu", "--device", f"virtual:{alias}", "--json")
        assert json.loads(done.stdout)["identity"]["device"] == f"virtual:{alias}"
