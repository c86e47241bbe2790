import json
from pathlib import Path

import pytest

from autoamp import wire

DEVICE = wire.VirtualDevice(
    name="Tesla T4",
    alias="t4",
    architecture="Turing",
    compute_capability=(7, 5),
    memory_bytes=2**34,
    bandwidth_bytes_per_s=320e9,
    flops_per_s={"float32": 8.1e12, "float16": 65e12},
)


def test_plan_round_trip(tmp_path: Path) -> None:
    plan = wire.Plan(
        trial_dir=str(tmp_path),
        device="virtual",
        virtual=DEVICE,
        setting={"batch_size": 4},
        templated=("dtype",),
        loaders=(wire.LoaderPlan(ordinal=1, kind="BatchSampler", site="训练.py:3"),),
        seed=7,
    )
    assert wire.read_plan(wire.write_plan(plan)) == plan
    assert plan.scratch_dir == str(tmp_path / "scratch")


@pytest.mark.parametrize(("key", "value"), [("schema", 99), ("surprise", 1)])
def test_a_plan_of_another_version_is_refused(tmp_path: Path, key: str, value: int) -> None:
    path = Path(wire.write_plan(wire.Plan(trial_dir=str(tmp_path))))
    data = json.loads(path.read_text())
    data[key] = value
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=key):
        wire.read_plan(str(path))
