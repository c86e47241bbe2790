"""Widening and rounding: every float16 and bfloat16 pattern, on each way the code can run."""

import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoamp.virtual import build

pytestmark = [pytest.mark.needs_paddle, pytest.mark.needs_compiler]

Run = Callable[..., dict[str, Any]]

HERE = Path(__file__).parent

# Runs in a process of its own: the library brings paddle's C++ libraries along.
BODY = f"""
import ctypes
sys.path.insert(0, {str(HERE)!r})
import convert_check
lib = ctypes.CDLL(os.path.join(os.environ["CUSTOM_DEVICE_ROOT"], "libautoamp_vgpu.so"))
def pointer(a):
    return a.ctypes.data_as(ctypes.c_void_p)
def widen(kind, bits):
    out = np.empty(bits.size, "float32")
    lib.autoamp_vgpu_widen(kind, pointer(bits), pointer(out), ctypes.c_longlong(bits.size))
    return out
def rounded(kind, values):
    out = np.empty(values.size, "uint16")
    lib.autoamp_vgpu_round(kind, pointer(values), pointer(out), ctypes.c_longlong(values.size))
    return out
checks = {{}}
for scalar in (0, 1):
    lib.autoamp_vgpu_scalar_conversion(scalar)
    for name, right in convert_check.check(widen, rounded).items():
        checks[("scalar " if scalar else "best ") + name] = right
give(checks=checks, vector=lib.autoamp_vgpu_has_vector_conversion())
"""

# The conversion alone, without paddle's libraries: it can run where they cannot.
HARNESS = """
#include <cstdio>
#include <vector>
#include "convert.cc"
// Tells which code ran; then answers requests: kind (0, 1: widen; 2, 3: round), count, data.
int main() {
  std::printf("%d\\n", vgpu::HasVectorConversion());
  std::fflush(stdout);
  int request[2];
  while (std::fread(request, 4, 2, stdin) == 2) {
    const auto type = request[0] % 2 ? phi::DataType::BFLOAT16 : phi::DataType::FLOAT16;
    std::vector<uint16_t> halves(request[1]);
    std::vector<float> floats(request[1]);
    if (request[0] < 2) {
      std::fread(halves.data(), 2, request[1], stdin);
      vgpu::Widen(type, halves.data(), floats.data(), request[1]);
      std::fwrite(floats.data(), 4, request[1], stdout);
    } else {
      std::fread(floats.data(), 4, request[1], stdin);
      vgpu::Round(type, floats.data(), halves.data(), request[1]);
      std::fwrite(halves.data(), 2, request[1], stdout);
    }
    std::fflush(stdout);
  }
}
"""

HAS_F16C = Path("/proc/cpuinfo").exists() and " f16c " in Path("/proc/cpuinfo").read_text()

# Processor: compiler, how the program is started, whether the vector code must be chosen.
PROCESSORS: dict[str, tuple[str, tuple[str, ...], bool]] = {
    "this one": ("g++", (), platform.machine() == "x86_64" and HAS_F16C),
    "x86-64 without F16C": ("x86_64-linux-gnu-g++", ("qemu-x86_64", "-cpu", "Westmere"), False),
    "x86-64 with F16C": ("x86_64-linux-gnu-g++", ("qemu-x86_64", "-cpu", "max"), True),
    "aarch64": ("aarch64-linux-gnu-g++", ("qemu-aarch64",), False),
}


def test_every_pattern_both_ways(run: Run) -> None:
    got = run(BODY)
    assert len(got["checks"]) == 10
    assert all(got["checks"].values()), got["checks"]
    if platform.machine() == "x86_64":
        assert got["vector"] == HAS_F16C


@pytest.mark.slow
@pytest.mark.parametrize("processor", PROCESSORS)
def test_the_code_is_chosen_at_run_time(processor: str, tmp_path: Path) -> None:
    """The same program on processors with and without the vector instructions."""
    numpy = pytest.importorskip("numpy")
    compiler, start, vector = PROCESSORS[processor]
    for program in (compiler, *start[:1]):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program} (Debian: g++-aarch64-linux-gnu, qemu-user)")
    headers = build.find_paddle(sys.executable).folder / "include"
    (tmp_path / "harness.cc").write_text(HARNESS, encoding="utf-8")
    program = tmp_path / "harness"
    subprocess.run(
        [
            *(compiler, "-std=c++17", "-O2", "-ftree-vectorize", "-w", "-static"),
            *(f"-I{build.SOURCES}", f"-I{headers}", f"-I{headers / 'third_party'}"),
            *(str(tmp_path / "harness.cc"), "-o", str(program)),
        ],
        check=True,
    )
    sys.path.insert(0, str(HERE))
    try:
        import convert_check
    finally:
        sys.path.remove(str(HERE))
    with subprocess.Popen(
        [*start, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as running:
        assert running.stdin is not None and running.stdout is not None
        to, back = running.stdin, running.stdout

        def ask(kind: int, data: Any, answer: str) -> Any:
            to.write(numpy.int32([kind, data.size]).tobytes() + data.tobytes())
            to.flush()
            width = numpy.dtype(answer).itemsize
            return numpy.frombuffer(back.read(data.size * width), answer)

        chosen = int(back.readline())
        checks = convert_check.check(
            lambda kind, bits: ask(kind, bits, "float32"),
            lambda kind, given: ask(2 + kind, given, "uint16"),
        )
        to.close()
    assert chosen == vector
    assert len(checks) == 5 and all(checks.values()), checks
