"""The clock over every GPU of the catalogue: what must hold whatever its parameters are."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from autoamp.probes import bench, catalogue, choice
from autoamp.probes.device_spec import DeviceSpec
from autoamp.probes.facts import DeviceKind
from autoamp.probes.virtual import virtual_device
from autoamp.virtual.clock_data import parameters_for

pytestmark = [pytest.mark.needs_paddle, pytest.mark.needs_compiler]

MEMORY, MATMUL, CONV = 0, 2, 4
FLOAT32, FLOAT16, BFLOAT16 = 1, 2, 3


def product(kind: int, unit: int, m: int, n: int, k: int, layout: str = "NHWC") -> str:
    size = 4 if unit == FLOAT32 else 2
    moved = size * (m * k + k * n + m * n)
    transposed = size * (m * k // 9 + m * n) if layout == "NCHW" else 0
    return f"k product {kind} {unit} {size} {moved} 0 {transposed} 64 0 0 1 {m} {n} {k} 1\n"


def stream(unit: int, elements: int) -> str:
    size = 4 if unit == FLOAT32 else 2
    return f"k stream {MEMORY} {unit} {size} {2 * size * elements} 0 0 64 0 0 0\n"


def depthwise(unit: int) -> str:
    size, channels, places = (4 if unit == FLOAT32 else 2), 256, 64 * 56 * 56
    moved = size * 2 * channels * places
    return f"k depthwise {CONV} {unit} {size} {moved} 0 {moved} 1 0 0 1 {places} 1 9 {channels}\n"


def workload(name: str, unit: int) -> str:
    """A step's kernels, in one precision."""
    if name == "products":
        return product(MATMUL, unit, 8192, 4096, 4096) * 8
    if name == "convolutions":
        return "".join(
            product(CONV, unit, 64 * 28 * 28, 256, 1152, layout) + stream(unit, 64 * 28 * 28 * 256)
            for layout in ("NHWC", "NCHW")
        )
    if name == "depthwise":
        return depthwise(unit) + stream(unit, 64 * 56 * 56 * 256)
    # Small kernels, and as many casts as AMP adds none here: the host decides.
    return (product(MATMUL, unit, 32, 64, 64) + stream(unit, 2048)) * 200


SQUARES = (8192, 4096, 1024, 4095)
"""Products of ``autoamp probe --bench``."""


def square(size: int, unit: int) -> str:
    bytes_each = 4 if unit == FLOAT32 else 2
    odd = 1 if size % 2 else 64
    moved = 3 * bytes_each * size * size
    return (
        f"k product {MATMUL} {unit} {bytes_each} {moved} 0 0 {odd} 0 0 1 {size} {size} {size} 1\n"
    )


WORKLOADS = ("products", "convolutions", "depthwise", "small")

REPLAY = """
import json, sys
from autoamp.virtual.library import Library
library = Library(sys.argv[1])
asked = json.load(open(sys.argv[2]))
numbers = {name: library.text_call("trace_load", path) for name, path in asked["traces"].items()}
seconds = {}
for alias, values in asked["gpus"].items():
    for name, value in values.items():
        library.set_parameter(name, value)
    for tf32 in (0, 1):
        library.call("set_tf32", tf32, tf32)
        for name, number in numbers.items():
            seconds[f"{alias} {name} {tf32}"] = library.replay(number, False)
print(json.dumps(seconds))
"""


@pytest.fixture(scope="module")
def seconds(plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Seconds by ``"ALIAS WORKLOAD-UNIT TF32"``."""
    folder = tmp_path_factory.mktemp("traces")
    traces = {}
    for name in WORKLOADS:
        for unit in (FLOAT32, FLOAT16):
            path = folder / f"{name}-{unit}.txt"
            path.write_text(workload(name, unit), encoding="utf-8")
            traces[f"{name}-{unit}"] = str(path)
    for size in SQUARES:
        for unit in (FLOAT32, FLOAT16, BFLOAT16):
            path = folder / f"square{size}-{unit}.txt"
            path.write_text(square(size, unit), encoding="utf-8")
            traces[f"square{size}-{unit}"] = str(path)
    gpus: dict[str, Any] = {}
    for model in catalogue.models():
        device = virtual_device(model, model.memory_bytes, numerics=False)
        gpus[model.alias] = {
            "bandwidth_bytes_per_s": device.bandwidth_bytes_per_s,
            "sm_count": device.sm_count,
            "boost_clock_mhz": device.boost_clock_mhz,
            **{
                f"{dtype}_flops_per_s": device.flops_per_s.get(dtype, 0.0)
                for dtype in ("float32", "tf32", "float16", "bfloat16")
            },
            **parameters_for(device),
        }
    asked = folder / "asked.json"
    asked.write_text(json.dumps({"traces": traces, "gpus": gpus}), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", REPLAY, str(plugin), str(asked)],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def gain(seconds: dict[str, float], alias: str, name: str, tf32: int) -> float:
    return seconds[f"{alias} {name}-1 {tf32}"] / seconds[f"{alias} {name}-2 {tf32}"]


def test_no_gpu_is_above_its_peaks(seconds: dict[str, float]) -> None:
    for model in catalogue.models():
        device = virtual_device(model, 1, numerics=False)
        rates = device.flops_per_s
        for name in WORKLOADS:
            for unit, dtype in ((1, "float32"), (2, "float16")):
                lines = [line.split() for line in workload(name, unit).splitlines()]
                moved = sum(float(line[5]) for line in lines)
                flops = sum(
                    2 * float(x[12]) * float(x[13]) * float(x[14]) * float(x[15])
                    for x in lines
                    if int(x[11])
                )
                for tf32 in (0, 1):
                    peak = max(rates.get(dtype, 0.0), rates["float32"])
                    if tf32 and unit == 1:
                        peak = max(peak, rates.get("tf32", 0.0))
                    took = seconds[f"{model.alias} {name}-{unit} {tf32}"]
                    assert took > flops / peak, (model.alias, name, dtype)
                    if name != "small":  # small operands lie in the cache
                        assert took > moved / device.bandwidth_bytes_per_s, (model.alias, name)


def test_no_product_of_a_roofline_is_above_its_peak(seconds: dict[str, float]) -> None:
    units = {"float32": (1, 0), "tf32": (1, 1), "float16": (2, 0), "bfloat16": (3, 0)}
    for model in catalogue.models():
        device = choice.virtual(DeviceSpec(kind=DeviceKind.virtual, model=model.alias))
        for dtype, peak in bench.ceilings(device)[0].items():
            unit, tf32 = units[dtype]
            for size in SQUARES:
                rate = 2.0 * size**3 / seconds[f"{model.alias} square{size}-{unit} {tf32}"]
                assert 0 < rate <= peak.tflops * 1e12, (model.alias, dtype, size)


def test_16_bits_gain_what_arithmetic_or_bytes_allow(seconds: dict[str, float]) -> None:
    for model in catalogue.models():
        rates = virtual_device(model, 1, numerics=False).flops_per_s
        arithmetic = max(1.0, rates.get("float16", 0.0) / rates["float32"])
        for name in WORKLOADS:
            for tf32 in (0, 1):
                found = gain(seconds, model.alias, name, tf32)
                # Half the bytes double the speed of what memory bounds.
                assert found <= max(2.0, arithmetic) * 1.05, (model.alias, name, found)
        if arithmetic == 1.0:
            assert gain(seconds, model.alias, "products", 0) < 1.1, model.alias
        elif model.tensor_core_generation:
            assert gain(seconds, model.alias, "products", 0) > 1.3, model.alias


def test_small_models_gain_next_to_nothing(seconds: dict[str, float]) -> None:
    for model in catalogue.models():
        assert 0.9 < gain(seconds, model.alias, "small", 0) < 1.1, model.alias


def test_tf32_never_slows_down(seconds: dict[str, float]) -> None:
    for model in catalogue.models():
        for name in WORKLOADS:
            off = seconds[f"{model.alias} {name}-1 0"]
            assert seconds[f"{model.alias} {name}-1 1"] <= off * 1.0001, (model.alias, name)


def test_more_of_everything_is_not_slower(seconds: dict[str, float]) -> None:
    """Within an architecture; a tenth is left to waves over another number of SMs."""

    def has(alias: str) -> tuple[float, ...]:
        device = virtual_device(catalogue.find(alias), 1, numerics=False)
        # What the power limit leaves: boards with twice the SMs and the same watts clock lower.
        share = parameters_for(device)["sustained_clock"]
        return (
            device.bandwidth_bytes_per_s,
            device.sm_count * device.boost_clock_mhz * share,
            device.sm_count,
            *[device.flops_per_s.get(d, 0.0) * share for d in ("float32", "tf32", "float16")],
        )

    compared = 0
    models = [m for m in catalogue.models() if m.tdp_w and m.boost_clock_mhz]
    for small in models:
        for large in models:
            if small is large or small.compute_capability != large.compute_capability:
                continue
            if any(b < a for a, b in zip(has(small.alias), has(large.alias), strict=True)):
                continue
            compared += 1
            for name in ("products", "convolutions", "depthwise"):
                for unit in (1, 2):
                    key = f"{name}-{unit} 1"
                    assert (
                        seconds[f"{large.alias} {key}"] <= seconds[f"{small.alias} {key}"] * 1.1
                    ), (small.alias, large.alias, key)
    assert compared > 20


def test_half_rate_boards_lose_less_to_feeding() -> None:
    feeds = {
        m.alias: parameters_for(virtual_device(m, 1, numerics=False))["tensor_feed"]
        for m in catalogue.models()
    }
    for alias, feed in feeds.items():
        model = catalogue.find(alias)
        if not model.tensor_core_generation:
            assert feed == 1, alias
        elif "GeForce" in model.name and model.compute_capability > (7, 0):
            assert feed > 1.5, alias
    assert feeds["a100-80gb"] == feeds["v100-32gb"] == feeds["h100"] == 1


def test_a_power_limit_slows_products_and_leaves_memory_alone() -> None:
    model = next(m for m in catalogue.models() if m.tdp_w)
    device = virtual_device(model, 1, numerics=False)
    full = parameters_for(device)
    capped = parameters_for(type(device)(**{**vars(device), "tdp_w": device.tdp_w / 4}))
    unknown = parameters_for(type(device)(**{**vars(device), "tdp_w": 0.0}))
    assert capped["sustained_clock"] < full["sustained_clock"] <= unknown["sustained_clock"] == 1
    assert {k: v for k, v in capped.items() if k != "sustained_clock"} == {
        k: v for k, v in full.items() if k != "sustained_clock"
    }
    assert asdict(device)["tdp_w"] == model.tdp_w
