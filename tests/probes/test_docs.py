"""docs/probes.md names every key, rule and check there is, and no rule or check that is not."""

import ast
import dataclasses
import re
from pathlib import Path

import pytest

from autoamp.probes import facts, nvml, rules
from autoamp.probes.knobs import knob_verdicts

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "probes.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def first_cells(text: str) -> set[str]:
    """The names in backticks in the first column of a section's table."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def check_slugs() -> set[str]:
    """Slugs of the calls of ``problem(…)`` in probes/, and those that NVML's start errors give."""
    found = set()
    for path in (ROOT / "probes").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "problem":
                found |= {
                    str(k.value.value)
                    for k in node.keywords
                    if k.arg == "slug" and isinstance(k.value, ast.Constant)
                }
    return found


@pytest.mark.parametrize(
    "shape",
    [
        facts.Machine,
        facts.Device,
        facts.NvmlGpu,
        facts.GpuProcess,
        facts.GpuModel,
        facts.Host,
        facts.PaddleInstall,
        facts.Verdict,
        facts.KnobVerdict,
        facts.Problem,
        facts.Identity,
        facts.Roofline,
        facts.MatmulRate,
    ],
)
def test_every_key_is_documented(shape: type) -> None:
    text = section("JSON")
    missing = [f.name for f in dataclasses.fields(shape) if f"`{f.name}`" not in text]
    assert not missing


def test_every_rule_is_in_the_table() -> None:
    assert first_cells(section("Verdicts")) == {r.name for r in rules.RULES}
    for rule in rules.RULES:
        (row,) = [x for x in section("Verdicts").splitlines() if x.startswith(f"| `{rule.name}` ")]
        assert row.rstrip("| ").endswith("yes" if rule.forcible else "no")


def test_every_check_is_in_the_table() -> None:
    documented = first_cells(section("Checks"))
    found = check_slugs()
    assert len(found) > 20
    assert found <= documented
    started = {slug for slug in documented - found if slug.startswith("nvml-")}
    assert documented - found == started
    source = Path(nvml.__file__).read_text(encoding="utf-8")
    assert all(f'"{slug}"' in source for slug in started)


def test_every_knob_is_in_the_table() -> None:
    paddle = facts.PaddleInstall(python="py", version="3.1.0")
    device = facts.Device(kind=facts.DeviceKind.cpu, paddle_name="cpu", name="CPU")
    assert first_cells(section("Knobs")) == {k.knob for k in knob_verdicts(device, paddle)}
