"""The table of ``autoamp plan``: one row a virtual GPU, every number with its label."""

from __future__ import annotations

from collections.abc import Sequence

from autoamp.report.text import bytes_text, estimated_text, rate_text
from autoamp.studies.plan_table import PlanRow, PlanTable, PrecisionRow

GAP = 2

TITLES = (
    "GPU",
    "recommended",
    "batch",
    "samples/s modelled",
    "against FP32 there",
    "memory counted",
    "FP16",
    "BF16",
)
LEFT = (0, 1, 6, 7)


def lines(table: PlanTable) -> list[str]:
    """The table, what stands behind its words, and how far it can be trusted."""
    body = [list(TITLES), *(cells(row) for row in table.rows)]
    widths = [max(len(row[i]) for row in body) for i in range(len(TITLES))]
    out = [""]
    for line in body:
        parts = [
            cell.ljust(width) if i in LEFT else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        out.append((" " * GAP).join(parts).rstrip())
    out.append("")
    out += _by_note(table.rows)
    out += trust(table)
    if table.stopped is not None:
        out.append(f"not every GPU was planned for: {table.stopped}")
    return out


def _by_note(rows: Sequence[PlanRow]) -> list[str]:
    """Each note once, behind the names of the GPUs it holds for."""
    whose: dict[str, list[str]] = {}
    for row in rows:
        for note in dict.fromkeys(notes(row)):
            whose.setdefault(note, []).append(row.device)
    every = len(rows) > 1
    return [
        f"{'every GPU' if every and len(names) == len(rows) else ', '.join(names)}: {note}"
        for note, names in whose.items()
    ]


def cells(row: PlanRow) -> list[str]:
    """A row of the table; a GPU without a recommendation says so in its place."""
    if row.problem is not None:
        word = {
            "baseline-out-of-memory": "does not fit",
            "refused-precision": "refused",
            "stopped-too-early": "no time",
        }.get(row.problem.slug, "failed")
        total = f"- of {bytes_text(row.memory_bytes)}"
        return [row.device, word, "-", "-", "-", total, "-", "-"]
    return [
        row.device,
        row.recipe or "-",
        "-" if row.batch_size is None else str(row.batch_size),
        _rate(row),
        _ratio(row),
        _memory(row),
        _state(row.float16),
        _state(row.bfloat16),
    ]


def sentence(row: PlanRow) -> str:
    """A GPU's answer in one line."""
    if row.problem is not None:
        return row.problem.message
    rate = _rate(row)
    return f"{row.headline} ({rate} samples/s modelled)"


def notes(row: PlanRow) -> list[str]:
    """What a reader of the row's short words must know."""
    if row.problem is not None:
        remedy = f" {row.problem.remedy}" if row.problem.remedy else ""
        return [f"{row.problem.message} [{row.problem.slug}]{remedy}"]
    out = []
    for name, found in (("FP16", row.float16), ("BF16", row.bfloat16)):
        if found is not None:
            out.append(f"{name} {_state(found)}: {found.reason}")
    if row.verdict != "use" and row.headline is not None:
        out.append(row.headline)
    return [*out, *row.caveats]


def trust(table: PlanTable) -> list[str]:
    """What the bands mean, and which GPU leads by more than they allow for."""
    out = [
        "No GPU ran. Times are modelled: samples/s ± the band of a GPU's throughput, the ratio ± "
        "its own; memory is counted as Paddle allocates it, and what is added (m) is modelled: "
        f"context and workspaces{_numerics(table)}"
    ]
    loose = [row.device for row in table.rows if not row.band.calibrated]
    if loose:
        names = ", ".join(loose)
        out.append(f"uncalibrated (no published figure for this GPU in the fit): {names}")
    timed = [(row.samples_per_s, row) for row in table.rows if row.samples_per_s]
    if len(timed) > 1:
        out.append(_leader(timed))
    return out


def _numerics(table: PlanTable) -> str:
    """The end of a sentence: which types were really emulated, in any row."""
    looked = [
        name
        for name, found in (
            ("FP16", [row.float16 for row in table.rows]),
            ("BF16", [row.bfloat16 for row in table.rows]),
        )
        if any(x is not None and x.state in ("stable", "unstable") for x in found)
    ]
    if not looked:
        return "; no 16-bit numerics were emulated."
    return f"; {' and '.join(looked)} {'were' if len(looked) > 1 else 'was'} emulated."


def _leader(timed: list[tuple[float, PlanRow]]) -> str:
    short = [row.device for _, row in timed if row.climb_cut_short is not None]
    if short:
        return (
            f"no fastest GPU is named: larger batches were not tried to the end on "
            f"{', '.join(short)} (more --trials or --timeout)"
        )
    rate, first = max(timed, key=lambda pair: pair[0])
    least = rate / (1 + first.band.throughput)
    near = [
        row.device
        for value, row in timed
        if row is not first and value * (1 + row.band.throughput) >= least
    ]
    text = f"fastest by the model: {first.device}"
    if near:
        text += f"; inside the bands it may tie with {', '.join(near)}"
    return text


def _rate(row: PlanRow) -> str:
    if not row.samples_per_s:
        return "-"
    rate = row.samples_per_s
    return f"{rate_text(rate)} ±{row.band.throughput:.0%}"


def _ratio(row: PlanRow) -> str:
    ratio = row.against_fp32
    if ratio is None or ratio.value is None:
        return "-"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.2f}x"
    return f"{ratio.value:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"


def _memory(row: PlanRow) -> str:
    peak = None if row.memory is None else row.memory.peak_bytes
    needed = None if row.memory is None else row.memory.needed_bytes
    extra = estimated_text(0 if peak is None or needed is None else needed - peak)
    return f"{bytes_text(peak)}{extra} of {bytes_text(row.memory_bytes)}"


def _state(found: PrecisionRow | None) -> str:
    return "-" if found is None else found.state.replace("_", " ")
