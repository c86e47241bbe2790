"""What the host has decides what emulation is granted: played machines and containers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from real_trials import trial

from autoamp.measurement import Outcome

pytestmark = [pytest.mark.needs_paddle, pytest.mark.needs_compiler]

Run = Callable[..., dict[str, Any]]

MIB = 1 << 20
GIB = 1 << 30
V2 = "/sys/fs/cgroup"
V1 = "/sys/fs/cgroup/memory"

ASK = """
asked = int(os.environ["ASKED"])
try:
    paddle.empty([asked], dtype="uint8")
    error = None
except MemoryError as failure:
    error = str(failure)
give(error=error, refusals=runtime.host_refusals(), last=runtime.host_refused_last())
"""


def host(
    folder: Path, total: int, available: int, cgroup: str = "", files: dict[str, Any] | None = None
) -> dict[str, str]:
    """The environment of a process that sees this machine."""
    written = {
        "/proc/meminfo": f"MemTotal: {total >> 10} kB\nMemFree: 1 kB\n"
        f"MemAvailable: {available >> 10} kB\n",
        "/proc/self/cgroup": cgroup,
        **(files or {}),
    }
    for name, text in written.items():
        path = folder / name[1:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")
    return {"AUTOAMP_VGPU_HOST_ROOT": str(folder)}


def version_2(group: str, limit: int | str, used: int, cache: int = 0) -> dict[str, Any]:
    folder = f"{V2}{group}"
    return {
        f"{folder}/memory.max": limit,
        f"{folder}/memory.current": used,
        f"{folder}/memory.stat": f"anon 5\ninactive_anon 7\ninactive_file {cache}",
    }


def version_1(group: str, limit: int, used: int, cache: int = 0) -> dict[str, Any]:
    folder = f"{V1}{group}"
    return {
        f"{folder}/memory.limit_in_bytes": limit,
        f"{folder}/memory.usage_in_bytes": used,
        f"{folder}/memory.stat": f"inactive_file 3\ntotal_inactive_file {cache}",
    }


HUGE = 512 * GIB
NO_LIMIT = 0x7FFFFFFFFFFFF000
# /proc/self/cgroup, the files there are, what is granted and what is not.
MACHINES: dict[str, tuple[str, dict[str, Any], int, int]] = {
    # Its reserve is a sixteenth of the container, not of the machine.
    "container on a large machine": (
        "0::/",
        version_2("", 16 * GIB, 2 * GIB),
        12 * GIB,
        14 * GIB,
    ),
    "files in its page cache": (
        "0::/",
        version_2("", 4 * GIB, 4 * GIB, cache=3 * GIB),
        2 * GIB,
        3 * GIB,
    ),
    "service's own group": (
        "0::/system.slice/train.service",
        version_2("/system.slice/train.service", 2 * GIB, 0),
        1 * GIB,
        2 * GIB,
    ),
    "group above": (
        "0::/jobs/7/step",
        {**version_2("/jobs/7/step", "max", 0), **version_2("/jobs/7", 2 * GIB, GIB)},
        512 * MIB,
        1 * GIB,
    ),
    "version 1": (
        "9:name=systemd:/\n4:cpu,memory:/docker/a\n0::/",
        version_1("/docker/a", 8 * GIB, 6 * GIB, cache=5 * GIB),
        6 * GIB,
        7 * GIB,
    ),
    "version 1, the path is the host's": (
        "4:memory:/docker/a\n0::/",
        version_1("", 2 * GIB, 0),
        1 * GIB,
        2 * GIB,
    ),
    "no limit": ("4:memory:/\n0::/", version_1("", NO_LIMIT, 9 * GIB), 400 * GIB, 480 * GIB),
    "no cgroups": ("", {}, 400 * GIB, 480 * GIB),
}


@pytest.mark.parametrize("name", MACHINES)
def test_limits_are_those_of_the_process(name: str, run: Run, tmp_path: Path) -> None:
    cgroup, files, granted, refused = MACHINES[name]
    for asked in (granted, refused):
        got = run(
            ASK,
            memory_bytes=1 << 50,
            environment={
                **host(tmp_path, HUGE, 500 * GIB, cgroup, files),
                "ASKED": str(asked),
            },
        )
        if asked == granted:
            assert got["error"] is None and got["refusals"] == 0, got
        else:
            assert "Out of memory error on vgpu:0" in got["error"]
            assert got["refusals"] >= 1 and got["last"]


MANY = """
kept = []
try:
    for _ in range(20):
        kept.append(paddle.empty([256 << 20], dtype="uint8"))
        if os.environ.get("TOUCH"):
            kept[-1].fill_(1)
except MemoryError:
    pass
given = len(kept)
del kept[0]
try:
    kept.append(paddle.empty([256 << 20], dtype="uint8"))
    again = True
except MemoryError:
    again = False
give(given=given, again=again, refusals=runtime.host_refusals())
"""


def test_requests_add_up_before_their_pages_are_touched(run: Run, tmp_path: Path) -> None:
    """Each alone would fit for ever: the host counts pages at their first touch only."""
    environment = host(tmp_path, 2 * GIB, 2 * GIB)
    got = run(MANY, memory_bytes=80 * GIB, environment=environment)
    assert (got["given"], got["again"]) == (7, True)
    assert got["refusals"] >= 1
    # Touched pages are the host's to count; the played one never does.
    touched = run(
        MANY.replace("range(20)", "range(9)"),
        memory_bytes=80 * GIB,
        environment={**environment, "TOUCH": "1"},
    )
    assert touched["given"] == 9 and touched["refusals"] == 0


def test_planning_mode_needs_no_host_memory_for_large_tensors(run: Run, tmp_path: Path) -> None:
    got = run(
        MANY,
        memory_bytes=80 * GIB,
        numerics=False,
        environment=host(tmp_path, 2 * GIB, 64 * MIB),
    )
    assert got == {**got, "given": 20, "again": True, "refusals": 0}


def test_widened_copies_are_refused_before_they_hurt(run: Run, tmp_path: Path) -> None:
    got = run(
        """
small = paddle.ones([1 << 20], dtype="float16")
large = paddle.ones([64 << 20], dtype="float16")
try:
    large * 2
    error = None
except MemoryError as failure:
    error = str(failure)
give(error=error, last=runtime.host_refused_last(), still=float((small * 2).max()))
""",
        environment=host(tmp_path, 256 * MIB, 200 * MIB),
    )
    assert "no memory for the float32 copy (256 MiB)" in got["error"]
    assert got["last"] and got["still"] == 2.0


SCRIPT = """
import sys
import numpy as np, paddle, paddle.nn as nn
class D(paddle.io.Dataset):
    def __len__(self): return 4000
    def __getitem__(self, i): return np.full((1024,), i % 7, "float32"), np.int64(i % 10)
def train():
    width = int(sys.argv[2])
    net = nn.Sequential(nn.Linear(1024, width), nn.Linear(width, 10))
    opt = paddle.optimizer.SGD(1e-3, parameters=net.parameters())
    for x, y in paddle.io.DataLoader(D(), batch_size=16):
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward(); opt.step(); opt.clear_grad()
try:
    train()
except MemoryError as error:
    if sys.argv[1] == "raise":
        raise
    print(str(error)[-2000:])
    sys.exit(1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["raise", "catch"])
def test_a_trial_tells_the_host_from_the_gpu(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    files = version_2("", GIB, GIB - MIB)
    full = host(tmp_path / "host", 64 * GIB, 60 * GIB, "0::/", files)
    small = trial(tmp_path, script, arguments=(how, "131072"), memory_bytes=GIB, name="gpu")
    assert small.outcome is Outcome.out_of_memory, (small.reason, small.log_tail)
    monkeypatch.setenv(*full.popitem())
    m = trial(tmp_path, script, arguments=(how, "8192"), name="host")
    assert m.outcome is Outcome.host_memory, (m.reason, m.log_tail)
    assert "emulate" in str(m.reason) and "numerics=off" in str(m.reason)
    planned = trial(tmp_path, script, arguments=(how, "8192"), numerics=False, name="planned")
    assert planned.outcome is Outcome.ok, (planned.reason, planned.log_tail)
