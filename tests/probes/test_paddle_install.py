"""Paddle as installed, read from metadata; paddle itself is never imported."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoamp.errors import MachineError
from autoamp.probes import paddle_metadata
from autoamp.probes.paddle_install import paddle_install, read_answer
from autoamp.probes.paddle_metadata import DISTRIBUTIONS

CPU: dict[str, Any] = {
    "python_version": "3.11.9",
    "installed": {"paddlepaddle": "3.3.1", "numpy": "2.1.3"},
    "full_version": "3.3.1",
    "cuda_version": "False",
    "cudnn_version": "False",
    "found": True,
}
GPU: dict[str, Any] = {
    **CPU,
    "installed": {"paddlepaddle-gpu": "3.1.0", "numpy": "1.26.4"},
    "full_version": "3.1.0",
    "cuda_version": "12.6",
    "cudnn_version": "9.5.1",
    "compiled_cuda_archs": "[61, 70, 75, 80, 86, 89, 90]",
}


def test_a_cpu_build() -> None:
    found = read_answer("py", CPU)
    assert (found.version, found.distribution, found.gpu_build) == ("3.3.1", "paddlepaddle", False)
    assert found.build == "cpu" and found.cuda_version is None
    assert "CPU build" in found.absent["cuda_version"]
    assert found.numpy_version == "2.1.3" and found.python_version == "3.11.9"


def test_a_gpu_build() -> None:
    found = read_answer("py", GPU)
    assert found.gpu_build is True and found.build == "cuda"
    assert (found.cuda_version, found.cudnn_version) == ("12.6", "9.5.1")
    assert found.cuda_archs == (61, 70, 75, 80, 86, 89, 90)


@pytest.mark.parametrize(
    ("text", "archs"),
    [("[]", ()), ("['7.5', '8.0']", (75, 80)), ("[90, 100, 120]", (90, 100, 120)), (None, ())],
)
def test_architectures(text: str | None, archs: tuple[int, ...]) -> None:
    assert read_answer("py", {**GPU, "compiled_cuda_archs": text}).cuda_archs == archs


def test_both_wheels_over_each_other() -> None:
    both = {**GPU, "installed": {"paddlepaddle": "3.1.0", "paddlepaddle-gpu": "3.1.0"}}
    found = read_answer("py", both)
    assert found.distribution is None and "paddlepaddle-gpu" in found.absent["distribution"]
    # The files on top say which one would be imported.
    assert found.gpu_build is True
    assert read_answer("py", {**both, "cuda_version": "False"}).gpu_build is False


def test_no_paddle() -> None:
    found = read_answer("py", {"python_version": "3.10.1", "installed": {}, "found": False})
    assert found.version is None and found.absent["version"]
    assert found.gpu_build is None


def test_a_wheel_whose_folder_is_gone() -> None:
    found = read_answer("py", {"installed": {"paddlepaddle": "3.3.1"}, "found": False})
    assert found.version == "3.3.1" and "gone" in found.absent["build"]
    assert found.gpu_build is None


def test_a_source_build_has_a_version_and_no_distribution() -> None:
    found = read_answer("py", {**GPU, "installed": {}})
    assert found.version == "3.1.0" and found.distribution is None


def test_other_builds() -> None:
    xpu = read_answer("py", {**CPU, "xpu_xre_version": "5.0.21.10"})
    assert xpu.build == "xpu" and xpu.gpu_build is False
    rocm = read_answer("py", {**CPU, "hip_version": "5.7"})
    assert rocm.build == "rocm"


def test_plugins_are_named() -> None:
    found = read_answer("py", {**CPU, "plugins": ["libpaddle-custom-npu.so", "other.so"]})
    assert found.plugins == ("npu", "other.so")


VALUES = st.none() | st.text(max_size=8) | st.integers() | st.lists(st.text(max_size=3))


@given(
    st.dictionaries(
        st.sampled_from([*GPU, "plugins", "hip_version", "xpu_version", "unreadable"]),
        VALUES | st.dictionaries(st.sampled_from([*DISTRIBUTIONS, "numpy"]), st.text(max_size=5)),
    )
)
def test_no_answer_raises(answer: dict[str, Any]) -> None:
    read_answer("py", answer)


def test_this_interpreter() -> None:
    found = paddle_install()
    assert found.python == sys.executable
    assert found.python_version == sys.version.split()[0]
    assert found.version is not None or found.absent["version"]


@pytest.mark.parametrize("command", ["/no/such/python", "/bin/false", "/bin/echo"])
def test_what_is_no_python(command: str) -> None:
    with pytest.raises(MachineError) as caught:
        paddle_install(command)
    assert caught.value.slug == "interpreter-broken" and command in caught.value.message


def fake_wheel(folder: Path, distribution: str, version_file: str) -> Path:
    """A folder as pip leaves it, for PYTHONPATH; importing its paddle would raise."""
    paddle = folder / "paddle"
    (paddle / "version").mkdir(parents=True)
    (paddle / "__init__.py").write_text("raise SystemExit('paddle was imported')\n")
    (paddle / "version" / "__init__.py").write_text(version_file)
    info = folder / f"{distribution.replace('-', '_')}-3.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 3.1.0\n"
    )
    return folder


def test_a_wheels_files_are_read_and_not_run(tmp_path: Path) -> None:
    folder = fake_wheel(
        tmp_path,
        "paddlepaddle-gpu",
        "full_version     = '3.1.0'\ncuda_version     = '12.6'\ncudnn_version    = '9.5.1'\n"
        "compiled_cuda_archs     = [70, 75, 80]\n",
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", Path(paddle_metadata.__file__).read_text()],
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    found = read_answer("py", json.loads(done.stdout))
    assert (found.version, found.cuda_version) == ("3.1.0", "12.6")
    assert found.distribution == "paddlepaddle-gpu" and found.cuda_archs == (70, 75, 80)


def test_another_interpreter_is_asked_the_same(tmp_path: Path) -> None:
    """A link to our own interpreter counts as another one: it may be a venv's."""
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    assert paddle_install(str(link)).python == str(link)
    assert paddle_install(str(link)).python_version == paddle_install().python_version


def test_a_paddle_folder_of_the_users_own_is_no_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "paddle").mkdir()
    (tmp_path / "paddle" / "__init__.py").write_text("raise SystemExit('mine')\n")
    before = paddle_install()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    assert paddle_install() == before


def test_folder_names_tell_what_importlib_tells() -> None:
    """For every distribution of this interpreter whose metadata is a folder."""
    from importlib import metadata

    quick = paddle_metadata.versions([p for p in sys.path if p])
    slow = paddle_metadata.slow_versions()
    assert quick == slow
    for found in metadata.distributions():
        folder = getattr(found, "_path", None)
        name = getattr(folder, "name", "")
        match = paddle_metadata._METADATA.match(name)
        if name.endswith((".dist-info", ".egg-info")) and match is not None:
            # "+" of local versions and "-" are normalised alike in folder names of wheels.
            assert match.group(2).replace("_", "+") == found.version.replace("-", "+")


@pytest.mark.parametrize(
    ("folder", "name", "version"),
    [
        ("paddlepaddle_gpu-2.6.2.post120.dist-info", "paddlepaddle-gpu", "2.6.2.post120"),
        ("PaddlePaddle-3.0.0b1.dist-info", "paddlepaddle", "3.0.0b1"),
        ("numpy-1.26.4-py3.8.egg-info", "numpy", "1.26.4"),
        ("paddlepaddle_xpu-3.0.0.dist-info", "paddlepaddle-xpu", "3.0.0"),
    ],
)
def test_metadata_folders_by_name(folder: str, name: str, version: str, tmp_path: Path) -> None:
    for other in ("paddleocr-2.7.dist-info", "numpy_financial-1.0.dist-info", "numpy", folder):
        (tmp_path / other).mkdir()
    later = tmp_path / "later"
    (later / f"{name.replace('-', '_')}-0.1.dist-info").mkdir(parents=True)
    found = paddle_metadata.versions(["/nowhere", str(tmp_path), str(later)])
    assert found == {name: version}
