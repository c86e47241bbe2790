"""The probe on a real GPU: ``pytest -m gpu_nvml`` and ``-m gpu_paddle`` (docs/gpu.md)."""

import importlib.util
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import fake_nvml
import pytest
import real_gpu

from autoamp.probes import nvml
from autoamp.probes.bench import bench
from autoamp.probes.facts import DeviceKind, Severity
from autoamp.probes.machine import probe
from autoamp.probes.nvml_session import Session
from autoamp.probes.sampler import Sampler
from autoamp.probes.visible import child_environment
from autoamp.settings import Level

MIB = 2**20
# Children see GPUs in PCI order, as NVML does.
LIST_GPUS = """
import json, paddle
cuda = paddle.device.cuda
print("\\n" + json.dumps([
    {"name": cuda.get_device_name(i), "capability": list(cuda.get_device_capability(i)),
     "memory": cuda.get_device_properties(i).total_memory}
    for i in range(cuda.device_count())
]))
"""
AMP_WORKS = """
import json, sys, types, importlib.util, paddle
spec = importlib.util.spec_from_file_location("accelerators", sys.argv[1])
accelerators = importlib.util.module_from_spec(spec)
spec.loader.exec_module(accelerators)
paddle.set_device("gpu:0")
print("\\n" + json.dumps({d: accelerators.amp_works(paddle, d) for d in ("float16", "bfloat16")}))
"""


@pytest.mark.gpu_nvml
def test_nvml_agrees_with_nvidia_smi() -> None:
    reading = real_gpu.require_nvml()
    fields = (
        "index,name,uuid,pci.bus_id,memory.total,power.limit,clocks.max.sm,"
        "compute_cap,driver_version"
    )
    done = subprocess.run(
        [
            real_gpu.require_nvidia_smi(),
            f"--query-gpu={fields}",
            "--format=csv,noheader,nounits",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [[value.strip() for value in line.split(",")] for line in done.stdout.splitlines()]
    for gpu in reading.gpus:
        row = next(r for r in rows if r[0] == str(gpu.index))
        assert gpu.name == row[1] and reading.driver_version == row[8]
        if gpu.mig_profile is not None:
            continue
        assert gpu.uuid == row[2] and (gpu.pci_bus_id or "").lower() == row[3].lower()
        assert (gpu.memory_total_bytes or 0) // MIB == int(row[4])
        assert gpu.compute_capability == tuple(int(x) for x in row[7].split("."))
        if gpu.power_limit_w is not None and row[5][:1].isdigit():
            assert gpu.power_limit_w == pytest.approx(float(row[5]), abs=1)
        if gpu.sm_clock_max_mhz is not None and row[6][:1].isdigit():
            assert gpu.sm_clock_max_mhz == int(row[6])


@pytest.mark.gpu_nvml
def test_every_absent_value_has_its_reason() -> None:
    for gpu in real_gpu.require_nvml().gpus:
        assert gpu.name and gpu.uuid and gpu.compute_capability
        for field in ("memory_total_bytes", "power_w", "sm_clock_mhz", "utilisation_percent"):
            assert getattr(gpu, field) is not None or gpu.absent[field]


@pytest.mark.gpu_nvml
def test_the_recorder_keeps_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `tests/machines/record.py` writes here, the fake pynvml reads back."""
    before = real_gpu.require_nvml()
    spec = importlib.util.spec_from_file_location("record", fake_nvml.MACHINES / "record.py")
    assert spec is not None and spec.loader is not None
    recorder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recorder)
    machine: dict[str, Any] = json.loads(json.dumps(recorder.record()))
    fake_nvml.install(monkeypatch, machine)
    after = nvml.read()
    assert [(g.name, g.uuid, g.compute_capability, g.mig_profile) for g in after.gpus] == [
        (g.name, g.uuid, g.compute_capability, g.mig_profile) for g in before.gpus
    ]


@pytest.mark.gpu_nvml
def test_the_sampler_sees_power_and_clocks() -> None:
    real_gpu.require_nvml()
    device = next(d for d in probe("auto").devices if d.kind is DeviceKind.gpu)
    sampler = Sampler(device)
    start = time.monotonic()
    sampler.start()
    time.sleep(2)
    end = time.monotonic()
    sampler.stop()
    session = Session(device)
    reading = session.look().power_w
    session.close()
    seen = sampler.window(start, end)
    assert sampler.cost_s_per_look is not None
    if device.mig is not None:
        assert seen.memory_used_peak_bytes is not None and seen.reason
        return
    assert seen.memory_used_peak_bytes is not None and seen.power_mean_w is not None
    assert seen.energy_j == pytest.approx(seen.power_mean_w * (end - start))
    # Counter and reading are two ways to the same watts.
    assert reading is not None and seen.power_mean_w == pytest.approx(reading, rel=0.5)


@pytest.mark.gpu_paddle
def test_paddle_sees_the_gpus_that_the_probe_sees() -> None:
    python = real_gpu.require_gpu_paddle()
    machine = probe("auto", python)
    assert not [p for p in machine.problems if p.severity is Severity.blocker]
    told = json.loads(real_gpu.run_python(python, LIST_GPUS).splitlines()[-1])
    gpus = [d for d in machine.devices if d.kind is DeviceKind.gpu]
    assert len(told) == len(gpus)
    for theirs, ours in zip(told, gpus, strict=True):
        assert theirs["name"] == ours.name
        assert tuple(theirs["capability"]) == ours.compute_capability
        assert ours.memory_total_bytes == pytest.approx(theirs["memory"], rel=0.05)


@pytest.mark.gpu_paddle
def test_verdicts_are_what_auto_cast_does() -> None:
    """The table of rules against Paddle's own gate on this GPU."""
    python = real_gpu.require_gpu_paddle()
    machine = probe("gpu:0", python)
    source = Path(sys.modules["autoamp"].__path__[0]) / "child" / "accelerators.py"
    works = json.loads(real_gpu.run_python(python, AMP_WORKS, str(source)).splitlines()[-1])
    for verdict in machine.verdicts:
        if verdict.level is Level.O1:
            assert works[str(verdict.dtype)] == (verdict.allowed or verdict.forcible)


@pytest.mark.gpu_paddle
@pytest.mark.slow
def test_the_roofline_stays_below_the_peaks() -> None:
    python = real_gpu.require_gpu_paddle()
    machine = probe("gpu:0", python)
    found = bench(replace(machine, roofline=None), child_environment(machine.device))
    assert found.matmuls and found.copy_bytes_per_s and found.launch_s
    for rate in found.matmuls:
        # Boost clocks above the data sheet's give a few per cent more.
        assert rate.share_of_peak is None or 0 < rate.share_of_peak < 1.25
    assert found.copy_share_of_peak is None or 0.3 < found.copy_share_of_peak < 1.1


TF32_PRODUCT = """
import json
import paddle

core = paddle.base.core
paddle.set_device("gpu:0")
paddle.seed(1)
x = paddle.rand([1024, 1024])
exact = x.astype("float64")
exact = paddle.matmul(exact, exact)
errors = {}
for on in (False, True):
    core.set_cublas_switch(on)
    found = paddle.matmul(x, x).astype("float64")
    errors[str(on)] = float(((found - exact).abs() / exact).max())
print(json.dumps(errors))
"""


@pytest.mark.gpu_paddle
def test_the_switch_is_what_the_knob_says() -> None:
    """TF32 shows in the result: 10 bits of mantissa instead of 23."""
    python = real_gpu.require_gpu_paddle()
    knob = probe("gpu:0", python).knob("tf32")
    assert knob is not None
    errors = json.loads(real_gpu.run_python(python, TF32_PRODUCT).splitlines()[-1])
    rounded = errors["True"] > 10 * errors["False"]
    assert rounded == knob.available
