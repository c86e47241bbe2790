"""The import table of docs/decisions.md, checked over the syntax tree: lazy imports count."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = {"autoamp": ROOT / "autoamp", "autoamp.probes": ROOT / "probes"}
OURS["autoamp.studies"] = ROOT / "studies"

# Who may import what, beyond the standard library; the longest matching prefix holds.
CONTRACT = {
    "autoamp.wire",
    "autoamp.settings",
    "autoamp.label",
    "autoamp.measurement",
    "autoamp.errors",
    "autoamp.rates",
}
LAUNCHING = CONTRACT | {"autoamp.guard", "autoamp.process", "autoamp.launch", "psutil"}
PROBES = CONTRACT | {"autoamp.process", "autoamp.probes", "numpy", "psutil", "msgspec"}
STUDIES = CONTRACT | {"autoamp.probes.facts", "autoamp.studies", "numpy", "msgspec"}
FRONT = {"autoamp", "typer", "rich", "msgspec"}
MAY_IMPORT: dict[str, set[str]] = {
    "autoamp": set(),
    "autoamp.errors": set(),
    "autoamp.settings": set(),
    "autoamp.label": set(),
    "autoamp.rates": set(),
    "autoamp.measurement": {"autoamp.label"},
    "autoamp.wire": CONTRACT,
    "autoamp.guard": set(),
    "autoamp.process": {"autoamp.guard"},
    "autoamp.launch": LAUNCHING,
    "autoamp.collect": LAUNCHING,
    "autoamp.child": {
        "autoamp.wire",
        "autoamp.settings",
        "autoamp.child",
        "autoamp.virtual.runtime",
    }
    | {"numpy", "paddle"},
    "autoamp.virtual": CONTRACT | {"autoamp.virtual", "autoamp.process"},
    "autoamp.virtual.runtime": {"autoamp.wire", "autoamp.virtual", "numpy", "paddle"},
    "autoamp.probes": PROBES,
    "autoamp.probes.nvml": PROBES | {"pynvml"},
    "autoamp.studies": STUDIES,
    "autoamp.studies.search": STUDIES | {"optuna"},
    "autoamp.studies.mirror": STUDIES | {"optuna"},
    "autoamp.studies.store": STUDIES | {"sqlalchemy"},
    "autoamp.studies.engine": STUDIES | {"sqlalchemy"},
    "autoamp.studies.models": STUDIES | {"sqlalchemy"},
    "autoamp.studies.migrations": STUDIES | {"sqlalchemy", "alembic"},
    "autoamp.script_source": LAUNCHING,
    "autoamp.full_run": LAUNCHING
    | {"autoamp.collect", "autoamp.played", "autoamp.probes", "autoamp.studies"}
    | {"autoamp.virtual"},
    "autoamp.request": CONTRACT | {"autoamp.launch", "autoamp.studies.proposal"},
    "autoamp.outputs": CONTRACT | {"autoamp.request", "autoamp.studies"},
    "autoamp.opening": CONTRACT
    | {"autoamp.request", "autoamp.played"}
    | {"autoamp.probes", "autoamp.studies", "autoamp.virtual", "msgspec"},
    "autoamp.runner": LAUNCHING
    | {"autoamp.collect", "autoamp.played", "autoamp.request", "autoamp.script_source"}
    | {"autoamp.script_watch", "autoamp.shared_runs"}
    | {"autoamp.probes", "autoamp.studies.proposal", "autoamp.virtual"},
    "autoamp.tune": CONTRACT
    | {"autoamp.opening", "autoamp.outputs", "autoamp.request", "autoamp.runner"}
    | {"autoamp.script_watch", "autoamp.shared_runs"}
    | {"autoamp.probes", "autoamp.studies", "autoamp.virtual"},
    "autoamp.shared_runs": CONTRACT,
    "autoamp.played": CONTRACT | {"autoamp.probes", "autoamp.virtual"},
    "autoamp.script_watch": CONTRACT | {"autoamp.studies"},
    "autoamp.plan": CONTRACT
    | {"autoamp.tune", "autoamp.opening", "autoamp.request"}
    | {"autoamp.shared_runs", "autoamp.script_watch"}
    | {"autoamp.probes", "autoamp.studies", "autoamp.virtual"},
    "autoamp.cli": FRONT,
    "autoamp.report": FRONT,
}
NEVER = {
    "autoamp.cli": {"autoamp.child"},
    "autoamp.report": {"autoamp.child"},
    "autoamp.tune": {"autoamp.child"},
    "autoamp.opening": {"autoamp.child", "autoamp.launch", "autoamp.runner"},
    "autoamp.runner": {"autoamp.child", "autoamp.studies.phases", "autoamp.studies.store"},
    "autoamp.studies": {
        "autoamp.launch",
        "autoamp.process",
        "autoamp.cli",
        "autoamp.child",
        "autoamp.tune",
        "autoamp.collect",
        "autoamp.report",
    },
    "autoamp.probes": {
        "autoamp.studies",
        "autoamp.launch",
        "autoamp.child",
        "autoamp.cli",
        "autoamp.tune",
        "autoamp.virtual.runtime",
    },
}


# Whoever starts a process: its end, its limit and Ctrl-C are looked after in one place. The
# hooks in the child replace functions of subprocess and start nothing of ours.
STARTS_PROCESSES = {"autoamp.process", "autoamp.child.commands"}
PROCESS_LIBRARIES = {"subprocess", "multiprocessing", "pty"}


def modules() -> Iterator[tuple[str, Path]]:
    for package, folder in OURS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [*package.split("."), *path.relative_to(folder).with_suffix("").parts]
            if parts[-1] == "__init__":
                parts.pop()
            yield ".".join(parts), path


def imports(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield (
                    (name if node.module.split(".")[0] == "autoamp" else node.module),
                    node.lineno,
                )


def rule(table: dict[str, set[str]], module: str) -> set[str] | None:
    name = module
    while name:
        if name in table:
            return table[name]
        name = name.rpartition(".")[0]
    return None


def covers(allowed: set[str], name: str) -> bool:
    """``autoamp`` in a rule allows every module of ours; another prefix what lies below it."""
    return any(name == a or name.startswith(a + ".") for a in allowed)


@pytest.mark.parametrize(("module", "path"), list(modules()), ids=lambda v: str(v))
def test_imports_follow_the_table(module: str, path: Path) -> None:
    allowed = rule(MAY_IMPORT, module)
    assert allowed is not None, f"{module} has no row in the table"
    never = rule(NEVER, module) or set()
    wrong = []
    for name, line in imports(path):
        top = name.split(".")[0]
        if top in PROCESS_LIBRARIES and module not in STARTS_PROCESSES:
            wrong.append(f"{path.relative_to(ROOT)}:{line} starts processes by itself ({name})")
        if top in sys.stdlib_module_names or name == "__future__":
            continue
        own = allowed | {"autoamp.__version__"}
        if not covers(own, name) or covers(never, name):
            wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_the_table_catches_a_planted_import(tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text("def f():\n    import paddle\n    from autoamp.child import meter\n")
    found = [name for name, _ in imports(planted)]
    assert found == ["paddle", "autoamp.child.meter"]
    assert not covers(MAY_IMPORT["autoamp.studies"], "paddle")
    assert covers(NEVER["autoamp.studies"], "autoamp.child.meter")
