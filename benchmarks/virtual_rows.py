"""The published rows and what is known about each run: the facts that the clock may use."""

import csv
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

# What a graph-mode AMP program keeps in 16 bits although dynamic O1 would not: operators of
# the "grey" list follow their inputs there, so bias adds, GELU, dropout and layer norm stay
# in float16 between two matrix products (python/paddle/static/amp/fp16_lists.py).
GREY = ("elementwise_add", "dropout", "gelu", "layer_norm", "lookup_table_v2")
# PaddleSeg's own lists (paddleseg/core/train.py).
PADDLESEG_WHITE = ("elementwise_add", "batch_norm", "sync_batch_norm")
PADDLESEG_BLACK = ("bilinear_interp_v2",)


@dataclass(frozen=True)
class Run:
    """How to plan the step behind a row."""

    model: str
    arguments: dict[str, Any]
    level: str
    program: bool
    """A compiled (static) program: kernels are issued without Python in between."""
    white: tuple[str, ...] = ()
    black: tuple[str, ...] = ()
    steps: str = "optimizer"
    """What ends a step: "optimizer", or "accumulate" where gradients are only added up, or
    "forget" where they are dropped."""


@dataclass(frozen=True)
class Row:
    family: str
    """Models that are left out together."""
    gpu: str
    alias: str
    precision: str
    batch: int
    seconds: float
    """Published, per step."""
    run: Run
    source: str = field(repr=False)

    @property
    def name(self) -> str:
        return f"{self.family} {self.gpu} {self.precision} {self.batch}"


def bert_base(batch: int) -> dict[str, Any]:
    return {"batch": batch, "layers": 12, "width": 768, "heads": 12, "length": 128}


def run_of(row: dict[str, str]) -> tuple[str, Run]:
    """The family and the plan of a row of ``published.csv``."""
    batch = int(row["batch_size_per_gpu"])
    model, amp = row["model"], row["precision_effective"] == "fp16-amp"
    level = (row["amp_level"] or "O1") if amp else "O0"
    if model.startswith("ResNet50"):
        last = "NHWC" in row["input_size_or_seq_len"] + row["notes"]
        arguments: dict[str, Any] = {
            "batch": batch,
            "layout": "NHWC" if last else "NCHW",
            "channels": 4 if amp else 3,
            "level": level,
        }
        # Batch norm and adds run in float16 in graph mode AMP (grey list).
        white = ("elementwise_add", "batch_norm") if level == "O1" else ()
        return "ResNet-50", Run("resnet50", arguments, level, True, white)
    if model.startswith("BERT-base"):
        return "BERT-base", Run("bert", bert_base(batch), level, True, GREY if amp else ())
    if model.startswith("SimpleNet"):
        return "9 x Linear(8192)", Run("linears", {"batch": batch}, level, False)
    if model.startswith("FCN-HRNetW18"):
        white = PADDLESEG_WHITE if amp else ()
        black = PADDLESEG_BLACK if amp else ()
        return "HRNet-W18", Run("hrnet", {"batch": batch}, level, False, white, black)
    raise ValueError(f"no model for {model!r}")


def published() -> list[Row]:
    text = resources.files("autoamp.virtual").joinpath("data/published.csv").read_text("utf-8")
    rows = []
    for raw in csv.DictReader(text.splitlines()):
        family, run = run_of(raw)
        value, batch = float(raw["throughput_total"]), int(raw["batch_size_per_gpu"])
        seconds = value if raw["unit"] == "s per step" else batch / value
        volta = "V100" in raw["gpu"]
        memory = "32GB" if "32GB" in raw["gpu"] else "16GB"
        alias = f"v100-{memory.lower()}" if volta else "a100-80gb"
        precision = raw["amp_level"] or (
            "AMP" if run.level != "O0" else raw["precision_published"]
        )
        rows.append(
            Row(
                family,
                "V100" if volta else "A100",
                alias,
                precision,
                batch,
                seconds,
                run,
                raw["source"],
            )
        )
    return rows
