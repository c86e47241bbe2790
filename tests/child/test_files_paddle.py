"""Paddle's savers and loaders, those in C++ too, leave existing files alone and find their own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.needs_paddle, pytest.mark.slow]
Run = Callable[..., str]

SAVES = """
    import os, warnings; warnings.simplefilter("ignore")
    import paddle, numpy as np
    from paddle.static import InputSpec
    if "TRIAL" in os.environ: files.paddle_savers(paddle)
    class Net(paddle.nn.Layer):
        def __init__(self): super().__init__(); self.fc = paddle.nn.Linear(4, 2)
        def forward(self, x): return self.fc(x)
    net = Net(); adam = paddle.optimizer.Adam(parameters=net.parameters())
    x = paddle.ones([1, 4]); want = net(x).numpy()
    os.makedirs("out", exist_ok=True)
    paddle.save(net.state_dict(), "out/net.pdparams")
    paddle.save(adam.state_dict(), "new/a.pdopt")
    other = Net(); other.set_state_dict(paddle.load("out/net.pdparams"))
    print(np.allclose(other(x).numpy(), want), os.path.exists("new/a.pdopt"))
    paddle.jit.save(net, "out/jit/net", input_spec=[InputSpec([None, 4], "float32")])
    print(np.allclose(paddle.jit.load("out/jit/net")(x).numpy(), want))
    paddle.jit.save(net, "old", input_spec=[InputSpec([None, 4], "float32")])
    print(np.allclose(paddle.jit.load("old")(x).numpy(), want), sorted(os.listdir("out/jit")))
    config = paddle.inference.Config("old.json", "old.pdiparams")
    config.disable_glog_info()
    predictor = paddle.inference.create_predictor(config)
    handle = predictor.get_input_handle(predictor.get_input_names()[0])
    handle.copy_from_cpu(np.ones((1, 4), "float32")); predictor.run()
    got = predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()
    print(np.allclose(got, want))
    specs = InputSpec([None, 4], "float32", "x"), InputSpec([None, 2], "float32", "y")
    model = paddle.Model(Net(), *specs)
    model.prepare(paddle.optimizer.SGD(parameters=model.parameters()), paddle.nn.MSELoss())
    data = [(np.ones(4, "float32"), np.ones(2, "float32"))] * 4
    model.fit(data, batch_size=2, epochs=1, save_dir="hapi", verbose=0)
    model.save("hapi/last")
    model.load("hapi/last")
    model.save("hapi/infer", training=False)
    print(sorted(os.listdir("hapi")))
    paddle.enable_static()
    main, start = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, start):
        data = paddle.static.data("x", [None, 4]); y = paddle.static.nn.fc(data, 2)
        exe = paddle.static.Executor(); exe.run(start)
        paddle.static.save_inference_model("static/m", [data], [y], exe)
        program, feeds, fetches = paddle.static.load_inference_model("static/m", exe)
        paddle.static.save(main, "static/p"); paddle.static.load(main, "static/p", exe)
    print(feeds, sorted(os.listdir("static")))
"""


def test_paddle_saves_and_loads_its_own(run: Run, project: Path, tmp_path: Path) -> None:
    for name in ("old.json", "old.pdiparams"):
        (project / name).write_bytes(b"of another day")
        os.utime(project / name, (1, 1))
    lines = [line for line in run(SAVES).splitlines() if not line.startswith("save checkpoint")]
    assert lines == [
        "True True",
        "True",
        "True ['net.json', 'net.pdiparams']",
        "True",
        "['0.pdparams', 'final.pdparams', 'infer.json', 'infer.pdiparams', 'last.pdparams']",
        "['x'] ['m.json', 'm.pdiparams', 'p.json', 'p.pdopt', 'p.pdparams']",
    ]
    for name in ("old.json", "old.pdiparams"):
        assert (project / name).read_bytes() == b"of another day"
        (project / name).unlink()
    upper = str(tmp_path / "trial" / "scratch") + str(project)
    assert sorted(os.listdir(upper))[:2] == ["hapi", "new"]


def test_loader_workers_write_where_the_script_reads(run: Run) -> None:
    assert run("""
        import os, paddle
        class Data(paddle.io.Dataset):
            def __len__(self): return 8
            def __getitem__(self, i):
                with open("config.json", "w") as f: f.write(str(i))
                open(f"seen_{i}", "w").close(); return i
        for batch in paddle.io.DataLoader(Data(), batch_size=4, num_workers=2): pass
        print(sorted(n for n in os.listdir() if n.startswith("seen_"))[-1])
        print(open("config.json").read().isdigit())
    """).splitlines()[-2:] == ["seen_7", "True"]


SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.mark.parametrize("script", ["saves_and_loads", "rotates_checkpoints", "writes_everywhere"])
def test_a_second_training_leaves_the_first_ones_files_as_they_were(
    script: str, tmp_path: Path, snapshot_of: Callable[[Path], object]
) -> None:
    folder, trial = tmp_path / "folder", tmp_path / "trial"
    folder.mkdir()
    trial.mkdir()
    path = SCRIPTS / f"{script}.py"
    subprocess.run([sys.executable, path], cwd=folder, check=True, capture_output=True)
    before = snapshot_of(folder)
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "from autoamp.child import files\n"
        f"files.install({str(trial / 'scratch')!r}, {str(trial)!r}, lambda path: print('REFUSED'))"
    )
    done = subprocess.run(
        [sys.executable, path],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "REFUSED" not in done.stdout and "step 120" in done.stdout
    assert snapshot_of(folder) == before
    assert os.listdir(str(trial / "scratch") + str(folder))
