"""The one door to a played device: memory less what is estimated; too little is refused."""

import re
import sys
from pathlib import Path

import pytest
from simulated_device import Simulated, drive, virtual

from autoamp import full_run
from autoamp.errors import UsageError
from autoamp.launch import Target
from autoamp.played import played
from autoamp.probes import choice
from autoamp.probes.catalogue import models
from autoamp.probes.device_spec import parse_device
from autoamp.probes.facts import GpuModel
from autoamp.studies import recommend
from autoamp.studies.script_identity import ScriptIdentity

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("numerics", [True, False])
def test_estimates_are_filled_in(numerics: bool) -> None:
    device = choice.virtual(parse_device("virtual:t4"))
    found = played(device, numerics=numerics)
    assert found.numerics is numerics
    assert found.memory_bytes == device.memory_total_bytes
    assert 0 < found.context_bytes < found.overhead_bytes < found.memory_bytes


def test_of_a_size_that_was_asked_for_the_driver_keeps_nothing() -> None:
    found = played(choice.virtual(parse_device("virtual:t4,memory=4GiB")), numerics=True)
    assert found.driver_bytes == 0 and found.context_bytes > 0


def test_no_memory_beside_the_context_is_refused() -> None:
    device = choice.virtual(parse_device("virtual:t4,memory=500MiB"))
    with pytest.raises(UsageError, match=r"with 500MiB: .* at 729 MiB there") as caught:
        played(device, numerics=False)
    assert caught.value.slug == "virtual-memory-too-small"


def full(folder: Path, device: str) -> full_run.FullRun:
    (folder / "train.py").write_text("pass\n")
    config = recommend.build(
        drive(Simulated(virtual=True), virtual()).result,
        study="s",
        script=ScriptIdentity(entry="train.py", is_module=False, arguments=(), files=()),
        command="train.py",
        wall_s=1.0,
    )
    target = Target(
        entry="train.py", is_module=False, arguments=(), python=sys.executable, cwd=str(folder)
    )
    return full_run.prepare(config, target, device=device, keep_batch=False)


@pytest.mark.needs_paddle
def test_a_full_run_refuses_it_too(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        full(tmp_path, "virtual:t4,memory=500MiB")
    assert caught.value.slug == "virtual-memory-too-small"


@pytest.mark.needs_paddle
@pytest.mark.parametrize("asked", [True, False])
def test_a_virtual_device_that_was_asked_for_is_no_accelerator_missed(
    asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    notes = " ".join(full(tmp_path, "virtual:t4" if asked else "auto").notes)
    assert "training runs on a virtual" in notes
    assert ("no accelerator found" in notes) == (not asked)


def test_nobody_else_builds_one() -> None:
    """Each further place would forget a part of it."""
    users = [
        path.relative_to(ROOT).as_posix()
        for folder in ("autoamp", "probes", "studies")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"\b(virtual_device|with_overhead)\(", path.read_text(encoding="utf-8"))
    ]
    assert sorted(users) == [
        "autoamp/played.py", "autoamp/virtual/overhead.py", "probes/virtual.py",
    ]  # fmt: skip


@pytest.mark.parametrize("size", ["64GiB", "16385MiB", "64"])
def test_more_memory_than_the_board_has_is_refused(size: str) -> None:
    device = choice.virtual(parse_device(f"virtual:t4,memory={size}"))
    with pytest.raises(UsageError, match="the board has 16GiB") as caught:
        played(device, numerics=False)
    assert caught.value.slug == "virtual-memory-too-large"


@pytest.mark.parametrize("model", models(), ids=lambda m: m.alias)
def test_every_board_is_played_whole_and_the_refusals_name_the_real_estimate(
    model: GpuModel,
) -> None:
    whole = choice.virtual(parse_device(f"virtual:{model.alias},memory={model.memory_bytes}B"))
    context = played(whole, numerics=False).context_bytes
    least = choice.virtual(parse_device(f"virtual:{model.alias},memory={context}B"))
    with pytest.raises(UsageError, match=f"estimated at {-(-context // 2**20)} MiB"):
        played(least, numerics=False)
