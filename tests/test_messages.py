"""Every error's slug has its cause and cure in docs/messages.md, and nothing there is stale."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def slugs_in_code() -> dict[str, str]:
    found = {}
    for folder in ("autoamp", "probes", "studies"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call):
                    continue
                for keyword in node.keywords:
                    if keyword.arg == "slug" and isinstance(keyword.value, ast.Constant):
                        found[str(keyword.value.value)] = f"{path.name}:{node.lineno}"
    return found


def test_every_slug_is_explained() -> None:
    text = (ROOT / "docs" / "messages.md").read_text(encoding="utf-8")
    documented = {line[3:].strip() for line in text.splitlines() if line.startswith("## ")}
    used = slugs_in_code()
    missing = {slug: where for slug, where in used.items() if slug not in documented}
    assert not missing, f"no entry in docs/messages.md for {missing}"
    assert not documented - set(used), f"stale entries: {documented - set(used)}"


def test_every_entry_has_cause_and_cure() -> None:
    text = (ROOT / "docs" / "messages.md").read_text(encoding="utf-8")
    for entry in text.split("\n## ")[1:]:
        assert "Cause" in entry and "Cure" in entry, entry.splitlines()[0]
