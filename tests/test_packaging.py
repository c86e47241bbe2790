import sys
from pathlib import Path

import pytest

import autoamp
import autoamp.probes
import autoamp.studies

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli", reason="Python 3.10 has no TOML reader of its own")

ROOT = Path(__file__).resolve().parent.parent
SETUP = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FOLDERS = {"autoamp": "autoamp", "probes": "autoamp.probes", "studies": "autoamp.studies"}


def packages_on_disk() -> set[str]:
    found = set()
    for folder, package in FOLDERS.items():
        for init in (ROOT / folder).rglob("__init__.py"):
            found.add(".".join([package, *init.parent.relative_to(ROOT / folder).parts]))
    return found


def test_every_folder_is_a_listed_package() -> None:
    assert set(SETUP["tool"]["setuptools"]["packages"]) == packages_on_disk()


def test_every_python_file_lies_in_a_package() -> None:
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            assert (path.parent / "__init__.py").exists(), path


def test_data_files_are_listed() -> None:
    data = SETUP["tool"]["setuptools"]["package-data"]
    for folder, package in FOLDERS.items():
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".pyc") or path.is_dir():
                continue
            patterns = [
                (name, pattern)
                for name, several in data.items()
                for pattern in several
                if name.startswith(package)
            ]
            base = {name: ROOT / _folder(name) for name, _ in patterns}
            assert any(path in set(base[name].glob(pattern)) for name, pattern in patterns), (
                f"{path} would be missing from the wheel"
            )


def _folder(package: str) -> str:
    for folder, name in FOLDERS.items():
        if folder != "autoamp" and (package == name or package.startswith(name + ".")):
            return "/".join([folder, *package[len(name) :].strip(".").split(".")]).rstrip("/")
    return package.replace(".", "/")


def test_one_copy_under_one_name() -> None:
    assert Path(autoamp.__file__).parent.name == "autoamp"
    for module in (autoamp.probes, autoamp.studies):
        assert module.__name__.startswith("autoamp.")
    assert "probes" not in sys.modules
    assert "studies" not in sys.modules


def test_version_stands_once() -> None:
    assert SETUP["project"]["version"] == autoamp.__version__


def test_paddle_is_no_hard_dependency() -> None:
    assert not [d for d in SETUP["project"]["dependencies"] if d.startswith("paddle")]
