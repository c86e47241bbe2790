"""Several ranks end in one refusal whichever way they are started; one rank trains."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from real_trials import trial

from autoamp.measurement import Outcome

pytestmark = [pytest.mark.needs_paddle, pytest.mark.needs_compiler]

Run = Callable[..., dict[str, Any]]

REFUSAL = "is one GPU and does not support {} ranks: it has no collectives"

SCRIPT = """
import sys
import numpy as np
import paddle
import paddle.distributed as dist

class Data(paddle.io.Dataset):
    def __len__(self):
        return 1024
    def __getitem__(self, i):
        return np.full([8], i % 7, "float32"), np.int64(i % 4)

def main():
    if "fleet" in sys.argv:
        from paddle.distributed import fleet
        fleet.init(is_collective=True)
    else:
        dist.init_parallel_env()
    net = paddle.DataParallel(paddle.nn.Linear(8, 4))
    opt = paddle.optimizer.SGD(0.1, parameters=net.parameters())
    sampler = paddle.io.DistributedBatchSampler(Data(), 16, shuffle=True)
    for x, y in paddle.io.DataLoader(Data(), batch_sampler=sampler):
        loss = paddle.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        opt.clear_grad()
    assert dist.get_rank() == 0 and dist.get_world_size() == 1
    assert x.place.is_gpu_place(), x.place

if __name__ == "__main__":
    if "spawn" in sys.argv:
        dist.spawn(main, nprocs=int(sys.argv[-1]))
    else:
        main()
"""


def test_every_way_in_refuses_by_name(run: Run) -> None:
    got = run(
        """
import argparse
from paddle.distributed import fleet
from paddle.distributed.fleet import launch_utils
from paddle.distributed.launch.context import Context
said = {}
def attempt(name, call):
    try:
        call()
        said[name] = None
    except NotImplementedError as error:
        said[name] = str(error)
def launched(*options):
    sys.argv = ["launch", *options, "train.py"]
    return lambda: Context()
def launched_the_old_way(**options):
    return lambda: launch_utils.get_device_proc_info(argparse.Namespace(**options))
for name, options in {
    "nproc_per_node": ["--nproc_per_node", "2"],
    "devices": ["--devices", "0,1"],
    "gpus": ["--gpus", "0,1"],
    "nodes": ["--nnodes", "2", "--nproc_per_node", "1"],
    "elastic": ["--nnodes", "2:4"],
}.items():
    attempt("launch " + name, launched(*options))
attempt("another GPU", launched("--devices", "3"))
attempt("old launcher", launched_the_old_way(gpus="0,1", backend="nccl", nproc_per_node=None))
attempt("old launcher, two machines",
        launched_the_old_way(gpus="0", ips="10.0.0.1,10.0.0.2", nproc_per_node=None))
for name, options in {"default": {}, "nccl": {"backend": "nccl"}, "gpus": {"gpus": "0,1"}}.items():
    attempt("spawn " + name, lambda: paddle.distributed.spawn(print, nprocs=2, **options))
os.environ.update(PADDLE_TRAINERS_NUM="2", PADDLE_TRAINER_ID="0",
                  PADDLE_CURRENT_ENDPOINT="127.0.0.1:6170",
                  PADDLE_TRAINER_ENDPOINTS="127.0.0.1:6170,127.0.0.1:6171")
for backend in ("auto", "nccl", "xccl"):
    os.environ["PADDLE_DISTRI_BACKEND"] = backend
    attempt("init_parallel_env " + backend, paddle.distributed.init_parallel_env)
del os.environ["PADDLE_DISTRI_BACKEND"]
attempt("fleet", lambda: fleet.init(is_collective=True))
give(said=said)
"""
    )
    said = got["said"]
    assert len(said) == 15
    assert "number 0, and does not support --devices 3" in said.pop("another GPU")
    for name, text in said.items():
        assert text is not None, f"{name} was not refused"
        assert REFUSAL.format(2) in text, (name, text)
        assert "vgpu" in text and "\n" not in text


def test_one_rank_works_by_every_way_in(run: Run) -> None:
    got = run(
        """
import argparse
from paddle.distributed.fleet import launch_utils
from paddle.distributed.launch.context import Context
replicas = []
for options in ([], ["--nproc_per_node", "1"], ["--devices", "0"], ["--gpus", "0"]):
    sys.argv = ["launch", *options, "train.py"]
    replicas.append(Context().node.device.count)
old = launch_utils.get_device_proc_info(argparse.Namespace(gpus="0", nproc_per_node=None))[1]
paddle.distributed.init_parallel_env()
net = paddle.DataParallel(paddle.nn.Linear(4, 4))
with net.no_sync():
    net(paddle.ones([2, 4])).sum().backward()
give(replicas=replicas, old=old, place=str(net.parameters()[0].grad.place),
     world=paddle.distributed.get_world_size())
"""
    )
    assert got["replicas"] == [1] * 4 and got["old"] == [0]
    assert "vgpu" in got["place"] and got["world"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "arguments", "ranks"),
    [
        ("paddle.distributed.launch", ("--nproc_per_node", "2", "train.py"), 2),
        ("paddle.distributed.fleet.launch", ("--gpus", "0,1", "train.py"), 2),
        (None, ("spawn", "2"), 2),
        ("paddle.distributed.launch", ("--nproc_per_node", "1", "train.py"), 1),
        ("paddle.distributed.fleet.launch", ("--gpus", "0", "train.py"), 1),
        (None, ("spawn", "1"), 1),
        (None, (), 1),
        (None, ("fleet",), 1),
    ],
)
def test_trials(
    tmp_path: Path, module: str | None, arguments: tuple[str, ...], ranks: int
) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    seen = trial(
        tmp_path, module or "train.py", arguments=arguments, module=module is not None, steps=8
    )
    if ranks == 1:
        assert seen.outcome is Outcome.ok, (seen.reason, seen.log_tail)
        assert seen.batch_size == 16
        return
    assert seen.outcome is Outcome.unsupported_on_device, (seen.reason, seen.log_tail)
    assert seen.reason is not None and REFUSAL.format(ranks) in seen.reason
