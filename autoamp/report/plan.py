"""The table of ``autoamp plan``: one row a virtual GPU, every number with its label."""

from __future__ import annotations

from collections.abc import Sequence

from autoamp.rates import rate_text
from autoamp.report.text import bytes_text, estimated_text, ratio_text
from autoamp.studies.plan_table import PlanRow, PlanTable, PrecisionRow
from autoamp.studies.recommendation import Ratio

GAP = 2

TITLES = (
    "GPU",
    "recommended",
    "batch",
    "samples/s modelled",
    "FP32 modelled",
    "gain",
    "by precision",
    "by batch",
    "memory counted",
    "FP16",
    "BF16",
)
LEFT = (0, 1, 9, 10)

GAIN = (
    "gain: over FP32 at the batch in its column; by precision: AMP's (or TF32's) alone, at that "
    "batch; by batch: the rest"
)


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
    out += batches(table)
    out += trust(table)
    if table.stopped is not None:
        out.append(f"not every GPU was planned for: {table.stopped}")
    return out


def next_step(table: PlanTable, words: str) -> list[str]:
    """How a row becomes a config; ``words`` stand behind the device in ``autoamp tune``."""
    found = [row.device for row in table.rows if row.problem is None]
    if not found:
        return []
    return [
        f"Use one: autoamp tune --device {found[0]} {words} goes on from this history and writes "
        "its config"
    ]


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
        return [row.device, word, *["-"] * 6, total, "-", "-"]
    return [
        row.device,
        row.recipe or "-",
        "-" if row.batch_size is None else str(row.batch_size),
        _rate(row),
        _fp32(row),
        _ratio(row.against_fp32),
        _gain(row),
        "-" if row.batch_gain is None else ratio_text(row.batch_gain),
        _memory(row),
        _state(row.float16),
        _state(row.bfloat16),
    ]


def sentence(row: PlanRow) -> str:
    """A GPU's answer in one line."""
    if row.problem is not None:
        return row.problem.message
    parts = [f"{_rate(row)} samples/s modelled"]
    if row.batch_size != row.fp32_batch_size and row.batch_gain is not None:
        parts.insert(0, f"precision {_gain(row)}, batch {ratio_text(row.batch_gain)}")
    return f"{row.headline} ({'; '.join(parts)})"


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


def batches(table: PlanTable) -> list[str]:
    """What the gains are gains of, and which GPUs are compared at unequal batches."""
    rows = [row for row in table.rows if row.problem is None]
    out = [GAIN] if any(row.against_fp32 is not None for row in rows) else []
    whose: dict[int, list[str]] = {}
    for row in rows:
        if row.batch_size is not None and row.samples_per_s:
            whose.setdefault(row.batch_size, []).append(row.device)
    if len(whose) > 1:
        told = ", ".join(f"{batch} on {' and '.join(who)}" for batch, who in sorted(whose.items()))
        out.append(
            f"the GPUs' samples/s are at unequal batches: {told}; --keep-batch compares them at "
            "the script's own"
        )
    return out


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


def _fp32(row: PlanRow) -> str:
    if not row.fp32_samples_per_s:
        return "-"
    at = "" if row.fp32_batch_size is None else f" at {row.fp32_batch_size}"
    return rate_text(row.fp32_samples_per_s) + at


def _gain(row: PlanRow) -> str:
    """Of the precision; its interval stands in the JSON, and the whole gain's in the table."""
    gain = row.precision_gain
    return "-" if gain is None or gain.value is None else ratio_text(gain.value)


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None or ratio.value is None:
        return "-"
    if ratio.low is None or ratio.high is None:
        return ratio_text(ratio.value)
    return f"{ratio_text(ratio.value)} ({ratio.low:.2f} to {ratio.high:.2f})"


def _memory(row: PlanRow) -> str:
    peak = None if row.memory is None else row.memory.peak_bytes
    needed = None if row.memory is None else row.memory.needed_bytes
    extra = estimated_text(0 if peak is None or needed is None else needed - peak)
    return f"{bytes_text(peak)}{extra} of {bytes_text(row.memory_bytes)}"


def _state(found: PrecisionRow | None) -> str:
    return "-" if found is None else found.state.replace("_", " ")
