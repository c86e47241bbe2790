"""Each order of events is a case: before, after, both, failing, absent."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from autoamp.child.import_hook import after_import


@pytest.fixture(autouse=True)
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "victim.py").write_text("value = 1\nseen = 'patched' in globals()\n")
    (tmp_path / "broken.py").write_text("raise RuntimeError('own fault')\n")
    package = tmp_path / "parent"
    package.mkdir()
    (package / "__init__.py").write_text("from parent import inner\nvalue = inner.value\n")
    (package / "inner.py").write_text("value = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = list(sys.meta_path)
    yield
    sys.meta_path[:] = before
    for name in ("victim", "broken", "parent", "parent.inner"):
        sys.modules.pop(name, None)


def test_runs_after_the_module_and_before_its_importer_goes_on() -> None:
    after_import("victim", lambda module: setattr(module, "value", module.value + 1))
    from victim import value  # type: ignore[import-not-found]

    assert value == 2


def test_runs_at_once_if_already_imported() -> None:
    import victim

    seen: list[ModuleType] = []
    after_import("victim", seen.append)
    assert seen == [victim]


def test_runs_once() -> None:
    seen: list[ModuleType] = []
    after_import("victim", seen.append)
    importlib.import_module("victim")
    sys.modules.pop("victim")
    importlib.import_module("victim")

    assert len(seen) == 1


def test_a_package_is_whole_when_the_action_runs() -> None:
    seen: list[int] = []
    after_import("parent", lambda module: seen.append(module.value))
    import parent  # type: ignore[import-not-found]  # noqa: F401

    assert seen == [3]


def test_a_module_that_fails_fails_as_before() -> None:
    seen: list[ModuleType] = []
    after_import("broken", seen.append)
    with pytest.raises(RuntimeError, match="own fault"):
        import broken  # type: ignore[import-not-found]  # noqa: F401
    assert seen == []


def test_an_absent_module_is_absent_as_before() -> None:
    after_import("no_such_module_anywhere", lambda module: None)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        import no_such_module_anywhere  # type: ignore[import-not-found]  # noqa: F401


def test_other_imports_pass_by() -> None:
    after_import("victim", lambda module: None)
    import parent

    assert parent.value == 3
