"""Holds the virtual device's memory against published runs that fitted, or did not.

    python benchmarks/virtual_memory.py [--write] [--only TEXT]

Points: benchmarks/data/memory_points.csv, each with its source. ``--write`` puts the table into
docs/virtual.md. Everything runs in planning mode: half a minute of CPU time for ten points.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from virtual_rows import GREY

from autoamp.probes import catalogue
from autoamp.probes.virtual import virtual_device
from autoamp.virtual.build import ensure_built
from autoamp.virtual.device import child_environment
from autoamp.virtual.overhead import with_overhead

HERE = Path(__file__).parent
POINTS = HERE / "data" / "memory_points.csv"
PAGE = HERE.parent / "docs" / "virtual.md"
BEGIN, END = "<!-- memory: begin -->", "<!-- memory: end -->"

GIB = 2**30
IMAGE_BYTES = 3 * 224 * 224 * 4
SEARCHES = {"": 0, "fits": 1, "whole limit": 2}
BERTS = {"BERT-base": (12, 768, 12), "BERT-large": (24, 1024, 16)}
# Batch norm and adds keep to float16 under graph mode's AMP and PyTorch's.
VISION_WHITE = ("elementwise_add", "batch_norm")

# Why a point is not met, by model, precision, batch and facts.
APEX = (
    "another framework: Paddle at O2 keeps the operands of layer norm in float32, a tenth of the "
    "memory here; PyTorch with apex does not"
)
REASONS = {
    ("BERT-base 384 SQuAD", "O2", "320", "apex O2"): APEX,
    ("BERT-large 384 SQuAD", "O2", "112", "apex O2"): APEX,
    ("VGG-16", "O0", "32", ""): "Paddle 1.3 gave no memory back within a step "
    "(FLAGS_eager_delete_tensor_gb was -1), so gradients of activations stayed",
    ("ResNet-50 NHWC", "O1", "224", "DALI"): "0.1 GiB is left, and DALI decodes on the GPU in "
    "memory of its own, which no Paddle allocator sees",
}


@dataclass(frozen=True)
class Seen:
    """A published point and what the virtual device makes of it; bytes."""

    point: dict[str, str]
    fits: bool
    reserved: int
    workspace: int
    overhead: int
    memory: int

    @property
    def agrees(self) -> bool:
        return self.fits == (self.point["published"] == "fits")

    @property
    def needed(self) -> int:
        return self.reserved + self.workspace + self.overhead


def run_of(point: dict[str, str]) -> dict[str, Any]:
    """How to plan a point."""
    name, level, batch = point["model"], point["level"], int(point["batch"])
    run: dict[str, Any] = {"level": level, "white": (), "input_bytes": 1, "ahead": 2}
    words = name.split()
    if name.startswith("ResNet-50"):
        last, padded = words[1].startswith("NHWC"), words[1].endswith("4")
        arguments: dict[str, Any] = {
            "batch": batch,
            "layout": "NHWC" if last else "NCHW",
            "channels": 4 if padded else 3,
            "level": level,
        }
        run |= {"model": "resnet50", "input_bytes": IMAGE_BYTES * batch}
        run["white"] = VISION_WHITE if level == "O1" else ()
    elif name == "VGG-16":
        arguments = {"name": "vgg16", "batch": batch, "level": level}
        run |= {"model": "zoo", "input_bytes": IMAGE_BYTES * batch}
    elif name.startswith("BERT"):
        layers, width, heads = BERTS[words[0]]
        arguments = {"layers": layers, "width": width, "heads": heads, "length": int(words[1])}
        arguments["batch"] = batch
        run["model"] = "squad" if words[-1] == "SQuAD" else "bert"
        # Graph mode keeps biases, GELU and dropout in 16 bits between two products.
        run["white"] = GREY if level == "O1" else ()
    elif name == "HRNet-W18":
        arguments = {"batch": batch}
        run |= {"model": "hrnet", "input_bytes": 3 * 512 * 1024 * 4 * batch}
    else:
        arguments = {"batch": batch}
        run |= {"model": "linears", "ahead": 0}
    limit = point["workspace_limit_mib"]
    return run | {
        "arguments": arguments,
        "limit_mib": int(limit) if limit else 512,
        "search": SEARCHES[point["search"]],
    }


def look(point: dict[str, str], plugin: Path) -> Seen:
    model = catalogue.find(point["gpu"])
    device = with_overhead(virtual_device(model, model.memory_bytes, False), own_size=False)
    done = subprocess.run(
        [sys.executable, str(HERE / "virtual_memory_step.py"), json.dumps(run_of(point))],
        env={
            **os.environ,
            **child_environment(device, plugin),
            "BENCHMARK_DEVICE": json.dumps(asdict(device)),
        },
        check=True,
        capture_output=True,
        text=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return Seen(point=point, memory=device.memory_bytes, **found)


def table(rows: list[Seen]) -> str:
    lines = [
        "| run | GPU | precision | batch | published | virtual device | counted | + workspaces "
        "| + driver, context | of |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        p = row.point
        facts = [p["facts"]] if p["facts"] else []
        if p["workspace_limit_mib"]:
            searched = ", searched" if p["search"] else ""
            facts.append(f"workspaces up to {p['workspace_limit_mib']} MiB{searched}")
        name = f"{p['framework']} {p['version']}, {p['model']}"
        name += f" ({'; '.join(facts)})" if facts else ""
        published = p["published"]
        if p["reading_mib"]:
            published += f", {int(p['reading_mib']) / 1024:.1f} GiB read"
        says = "fits" if row.fits else "does not fit"
        says += "" if row.agrees else " **(not met)**"
        counted, workspace, overhead = (
            f"{x / GIB:.1f}" for x in (row.reserved, row.workspace, row.overhead)
        )
        lines.append(
            f"| {name} | {p['gpu']} | {p['level']} | {p['batch']} | {published} | {says} "
            f"| {counted} | {workspace} | {overhead} | {row.memory / GIB:.0f} GiB |"
        )
    met = sum(row.agrees for row in rows)
    lines += ["", f"{met} of {len(rows)} points are met. Not met:"]
    for row in rows:
        if not row.agrees:
            p = row.point
            key = (p["model"], p["level"], p["batch"], p["facts"])
            why = REASONS.get(key, "no reason is known")
            lines.append(f"- {p['model']}, {p['level']}, batch {p['batch']}, {p['gpu']}: {why}.")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    plugin = ensure_built(sys.executable, print)
    with POINTS.open(encoding="utf-8", newline="") as file:
        points = [p for p in csv.DictReader(file) if options.only in " ".join(p.values())]
    rows = []
    for point in points:
        rows.append(look(point, plugin))
        seen = rows[-1]
        print(
            f"{point['model']:22} {point['gpu']:11} {point['level']} {point['batch']:>5} "
            f"published {point['published']:12} here {seen.fits!s:5} needed "
            f"{seen.needed / GIB:.2f} of {seen.memory / GIB:.0f} GiB {point['facts']}",
            flush=True,
        )
    text = table(rows)
    print(text)
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        before, rest = page.split(BEGIN)
        after = rest.split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
