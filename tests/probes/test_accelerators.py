"""Accelerators beside NVIDIA's: asked of a stand-in for paddle, and of the virtual device."""

import importlib.util
import sys
import textwrap
from pathlib import Path

import fake_nvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoamp.errors import MachineError
from autoamp.probes import catalogue, machine
from autoamp.probes.accelerators import accelerators, device_of, may_have_any
from autoamp.probes.facts import DeviceKind, PaddleInstall
from autoamp.probes.machine import probe
from autoamp.probes.virtual import virtual_device
from autoamp.settings import Dtype, Level

HERE = pytest.mark.skipif(
    importlib.util.find_spec("paddle") is None, reason="Paddle is not installed here"
)

# Two NPUs that take float16 only, as Paddle decides for devices that are not on its list; one
# of them refuses to be set. Prints of its own surround the answer, without a line's end.
FAKE_PADDLE = textwrap.dedent(
    """
    import contextlib, sys, warnings
    from types import SimpleNamespace
    sys.stdout.write("I1201 plug-in loaded")
    version = SimpleNamespace(full_version="3.1.0")
    kinds = {"npu": ["npu:0", "npu:1"], "mlu": ["mlu"]}
    core = SimpleNamespace(
        get_all_custom_device_type=lambda: list(kinds),
        get_available_custom_device=lambda: [d for names in kinds.values() for d in names],
    )
    base = SimpleNamespace(core=core)
    is_compiled_with_xpu = lambda: False
    state = SimpleNamespace(dtype=None)

    def set_device(name):
        if name == "npu:1":
            raise RuntimeError("stack\\n---\\n(External) device 1 does not answer.\\n  [Hint: x]")

    class amp:
        @staticmethod
        @contextlib.contextmanager
        def auto_cast(enable, level, dtype):
            warnings.warn("CustomPlace only support float16 amp.")
            state.dtype = "float16" if dtype == "float16" else None
            yield
            state.dtype = None

    def ones(shape):
        return None

    def matmul(x, y):
        return SimpleNamespace(dtype="paddle." + (state.dtype or "float32"))

    class device:
        @staticmethod
        def get_device_properties(name):
            if name.startswith("mlu"):
                raise ValueError("not for this device")
            return SimpleNamespace(total_memory=64 * 2**30)

        @staticmethod
        def get_device_name(name):
            return "Ascend 910B" if name.startswith("npu") else ""
    """
)


@pytest.fixture
def fake_paddle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "paddle.py").write_text(FAKE_PADDLE, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.usefixtures("fake_paddle")
def test_name_memory_and_dtypes_are_paddles_own() -> None:
    first, second, third = accelerators(sys.executable)
    assert (first.paddle_name, first.name) == ("npu:0", "Ascend 910B")
    assert first.kind is DeviceKind.custom
    assert first.memory_total_bytes == 64 * 2**30
    assert first.allowed_dtypes == ("float16",)
    assert second.allowed_dtypes is None
    assert second.absent["allowed_dtypes"] == "device 1 does not answer."
    # No index in Paddle's list, no name, no memory: each absent value says why.
    assert (third.paddle_name, third.name) == ("mlu:0", "mlu:0")
    assert third.memory_total_bytes is None
    assert "not for this device" in third.absent["memory_total_bytes"]


@pytest.mark.usefixtures("fake_paddle")
def test_one_type_can_be_asked_for() -> None:
    assert [d.paddle_name for d in accelerators(sys.executable, "mlu")] == ["mlu:0"]
    assert accelerators(sys.executable, "gcu") == ()


@HERE
@pytest.mark.usefixtures("fake_paddle")
def test_a_named_accelerator_is_chosen_and_judged_by_paddles_answer() -> None:
    found = probe("npu:0")
    assert found.device.name == "Ascend 910B"
    half = found.verdict(Level.O1, Dtype.float16)
    brain = found.verdict(Level.O2, Dtype.bfloat16)
    assert half is not None and half.allowed and "asked" in half.reason
    assert brain is not None and not brain.allowed and not brain.forcible


@HERE
@pytest.mark.usefixtures("fake_paddle")
def test_one_that_is_not_here_is_named_with_those_that_are() -> None:
    with pytest.raises(MachineError, match=r"no npu:7; .*npu:0, npu:1") as caught:
        probe("npu:7")
    assert caught.value.slug == "device-not-found"


def test_a_paddle_that_breaks_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "paddle.py").write_text("raise OSError('libfoo.so: cannot open')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(MachineError, match=r"libfoo\.so: cannot open") as caught:
        accelerators(sys.executable)
    assert caught.value.slug == "paddle-child-failed"


def test_a_paddle_that_dies_without_a_word_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "paddle.py").write_text("import os\nos._exit(7)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(MachineError, match=r"no output .exit code 7"):
        accelerators(sys.executable)


def test_the_users_plan_does_not_reach_the_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "paddle.py").write_text(
        "import os\nraise OSError('plan ' + os.environ.get('AUTOAMP_PLAN', 'none'))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("AUTOAMP_PLAN", "/nowhere/plan.json")
    with pytest.raises(MachineError, match="plan none"):
        accelerators(sys.executable)


@pytest.mark.parametrize(
    ("paddle", "worth_asking"),
    [
        (PaddleInstall(python="py", version="3.1.0", build="cpu"), False),
        (PaddleInstall(python="py", version="3.1.0", build="xpu"), True),
        (PaddleInstall(python="py", version="3.1.0", build="cpu", plugins=("npu",)), True),
        (PaddleInstall(python="py"), False),
    ],
)
def test_paddle_is_asked_only_where_there_may_be_one(
    paddle: PaddleInstall, worth_asking: bool
) -> None:
    assert may_have_any(paddle) is worth_asking


def test_an_answer_with_nothing_but_the_place() -> None:
    found = device_of({"type": "xpu", "index": 3, "name": "xpu:3"})
    assert found.paddle_name == "xpu:3"
    assert found.memory_total_bytes is None and found.allowed_dtypes is None


@HERE
@pytest.mark.slow
@pytest.mark.needs_paddle
@pytest.mark.needs_compiler
def test_a_registered_custom_device_is_found_by_the_real_paddle() -> None:
    """The virtual accelerator is a custom device like any other when nothing maps its name."""
    from autoamp.virtual.build import ensure_built
    from autoamp.virtual.device import child_environment

    model = catalogue.find("t4")
    folder = ensure_built(sys.executable, lambda text: None)
    environment = child_environment(
        virtual_device(model, model.memory_bytes, numerics=True), folder
    )
    (found,) = accelerators(sys.executable, environment=environment)
    assert found.paddle_name == "vgpu:0"
    # Its type is not on Paddle's list for bfloat16.
    assert found.allowed_dtypes == ("float16",)
    assert accelerators(sys.executable, "npu", environment=environment) == ()


FRAME = "\n--------------------------------------\nC++ Traceback (most recent call last):\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "(NotFound) The kernel with key (CPU, Undefined(AnyLayout), float16) of kernel "
            "`matmul` is not registered. Selected wrong DataType `float16`.\n  [Hint: Expected "
            "kernel_iter != iter->second.end(), but received it.] (at kernel_factory.cc:252)",
            "Paddle has no kernel for this dtype on this device",
        ),
        (
            "\n\nOut of memory error on GPU 0. Cannot allocate 512MB on GPU 0.\n  [Hint: x]",
            "not enough free memory",
        ),
        (
            "(External) CUDNN error(8), CUDNN_STATUS_EXECUTION_FAILED. \n  [Hint: y] (at c.cc:1)",
            "a CUDA library failed, do driver and wheel fit?: "
            "CUDNN error(8), CUDNN_STATUS_EXECUTION_FAILED.",
        ),
        (
            FRAME + "(External) CUDA error(700), an illegal memory access. (at g.cc:3)",
            "CUDA failed, do driver and wheel fit?: CUDA error(700), an illegal memory access.",
        ),
        (
            "(InvalidArgument) The axis is 3. (at paddle/phi/a.cc:12)\n  [operator < x > error]",
            "The axis is 3.",
        ),
        (
            "  [Hint: Expected a == b, but received a:1 != b:2.]",
            "Expected a == b, but received a:1 != b:2.",
        ),
        ("", "RuntimeError"),
        ("plain words", "plain words"),
    ],
)
def test_paddles_texts_become_sentences(text: str, said: str) -> None:
    from autoamp.child.accelerators import reason

    assert reason(RuntimeError(text)) == said


@given(st.text(max_size=200))
def test_a_reason_is_one_line_and_no_hint(text: str) -> None:
    from autoamp.child.accelerators import reason

    found = reason(RuntimeError(text))
    assert found and "\n" not in found and not found.startswith("[Hint:")


def test_a_broken_plugin_leaves_the_rest_of_the_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "paddle.py").write_text("raise OSError('libascend.so: cannot open')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    paddle = PaddleInstall(
        python=sys.executable, version="3.1.0", build="cpu", gpu_build=False, plugins=("npu",)
    )
    monkeypatch.setattr(machine, "paddle_install", lambda python: paddle)
    fake_nvml.install(monkeypatch, fake_nvml.load("no-gpu"))
    found = probe()
    (problem,) = machine.blockers(found)
    assert problem.slug == "paddle-child-failed" and "libascend.so" in problem.sentence
    assert "npu" in problem.sentence and "virtual:" in problem.remedy
    assert found.host.hostname and found.verdicts and found.knobs
    # Asked for by name it is an error; another device by name needs no answer.
    with pytest.raises(MachineError, match="libascend"):
        probe("npu:0")
    for other in ("cpu", "virtual:t4"):
        assert not machine.blockers(probe(other))
