"""``autoamp studies``: the history as tables for people and as JSON for programs. Pure text."""

import json
import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from autoamp.errors import UsageError
from autoamp.measurement import Label, Measurement, Outcome, Phase
from autoamp.rates import rate_text
from autoamp.report.text import bytes_text, estimated_text, ratio_text, setting_cells
from autoamp.settings import Setting
from autoamp.studies import codec
from autoamp.studies.history import fp32_of, timing
from autoamp.studies.records import LeaseRow, Study, StudySummary, Trial, TrialState

SCHEMA = 1
"""Of the JSON that ``--json`` prints; ``docs/files.md`` lists its keys."""

MARKS = {Label.modelled: "m", Label.counted: "c", Label.emulated: "e"}
"""Beside every number that was not measured; ``legend`` spells them out."""

SHORT_DTYPES = {"bfloat16": "bf16", "float16": "fp16"}
"""The longer name first: it holds the other."""

Table = Sequence[Sequence[str]]


def studies_table(studies: Sequence[StudySummary], *, now: datetime, width: int | None) -> str:
    """One line a study, newest first; ``width`` None leaves the lines as long as they are."""
    head = ("study", "script", "device", "trials", "best", "vs FP32", "state", "when")
    rows = [
        (
            s.name,
            s.script_path,
            s.device,
            str(s.trials),
            _short(s.best),
            _ratio(s.best_against_fp32, s.time_label),
            s.state,
            ago(s.updated_at, now),
        )
        for s in sorted(studies, key=lambda s: s.updated_at, reverse=True)
    ]
    text = columns([head, *rows], right={3, 5}, shrink=(1, 0, 2), width=width)
    return text + legend({s.time_label for s in studies if s.best_against_fp32 is not None})


def trials_table(trials: Sequence[Trial], *, width: int | None) -> str:
    """One line a trial, in the order they ran."""
    head = (
        *("#", "phase", "level", "dtype", "batch", "scale", "lists"),
        *("samples/s", "vs FP32", "memory", "skipped", "outcome"),
    )
    base = fp32_of(trials)
    timed = {t.number for t in timing(trials)}
    rows = [_trial_line(t, base, timed=t.number in timed) for t in trials]
    text = columns([head, *rows], right={0, 4, 5, 7, 8, 9, 10}, shrink=(11, 6), width=width)
    seen = [t.measurement for t in trials if t.measurement is not None]
    labels = {
        t.measurement.time_label
        for t in trials
        if t.measurement is not None and t.measurement.ok and t.number in timed
    }
    labels |= {m.memory_label for m in seen if _memory_bytes(m) is not None}
    return text + legend(labels)


def study_page(
    study: Study,
    trials: Sequence[Trial],
    *,
    state: str,
    lease: LeaseRow | None,
    recommendation: str | None,
    now: datetime,
) -> str:
    """Everything about one study but its single trials."""
    machine = study.machine
    parts = [machine.device]
    if machine.memory_gib is not None and ",memory=" not in machine.device:
        parts.append(f"{machine.memory_gib} GiB")
    parts += [f"MIG {machine.mig}"] if machine.mig else []
    parts += [f"paddle {machine.paddle}"] if machine.paddle else []
    parts += [f"CUDA {machine.cuda}"] if machine.cuda else []
    entry = f"-m {study.script.entry}" if study.script.is_module else study.script_path
    options = json.loads(study.options_json)
    lines = [
        ("study", f"{study.name}   {state}"),
        ("device", study.device),
        ("machine", ", ".join(parts)),
        ("script", " ".join([entry, *map(_quoted, study.arguments)])),
        ("folder", study.script.folder),
        ("files", ", ".join(f.path for f in study.script.files)),
        ("options", ", ".join(f"{k} {_value(v)}" for k, v in options.items() if _shown(k, v))),
        ("started", f"{_local(study.created_at)} with autoamp {study.autoamp_version}"),
        ("last trial", f"{_local(study.updated_at)} ({ago(study.updated_at, now)})"),
    ]
    if lease is not None and state == "running":
        lines.append(("tuner", f"process {lease.pid} on {lease.host}"))
    text = "".join(f"{key:<11} {value or '-'}\n" for key, value in lines)
    text += _recommendation(recommendation, study.name)
    return text + ("\n" + _counts(trials) if trials else "\nno trials yet\n")


def _shown(name: str, value: object) -> bool:
    """The machine's conditions are for comparing; --json has them."""
    return value is not None and name != "conditions"


def studies_json(studies: Sequence[StudySummary]) -> str:
    return _json({"studies": [_summary_json(s) for s in studies]})


def trials_json(study: Study, trials: Sequence[Trial]) -> str:
    return _json({"study": study.name, "trials": [_trial_json(t) for t in trials]})


def study_json(
    study: Study, trials: Sequence[Trial], *, state: str, recommendation: str | None
) -> str:
    by_phase: dict[str, dict[str, int]] = {}
    for (phase, outcome), count in sorted(_count(trials).items()):
        by_phase.setdefault(phase, {})[outcome] = count
    return _json(
        {
            "name": study.name,
            "state": state,
            "device": study.device,
            "machine": json.loads(codec.encode(study.machine)),
            "script_path": study.script_path,
            "arguments": study.arguments,
            "script": json.loads(codec.encode(study.script)),
            "options": json.loads(study.options_json),
            "space": None if study.space_json is None else json.loads(study.space_json),
            "recommendation": None if recommendation is None else json.loads(recommendation),
            "trials_by_phase": by_phase,
            "autoamp_version": study.autoamp_version,
            "created_at": study.created_at.isoformat(),
            "updated_at": study.updated_at.isoformat(),
        }
    )


def ago(then: datetime, now: datetime) -> str:
    """``2 h ago``, ``yesterday``, ``3 days ago``; the date beyond a month."""
    seconds = max(0.0, (now - then).total_seconds())
    if seconds < 60:
        return "just now"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min ago"
    days = (now.astimezone().date() - then.astimezone().date()).days
    if days == 0 or seconds < 6 * 3600:
        return f"{seconds / 3600:.0f} h ago"
    if days == 1:
        return "yesterday"
    return f"{days} days ago" if days <= 30 else then.astimezone().strftime("%Y-%m-%d")


def legend(labels: Collection[Label | None]) -> str:
    used = [f"{mark} = {label}" for label, mark in MARKS.items() if label in labels]
    return "\n" + "   ".join(used) + "\n" if used else ""


def columns(rows: Table, *, right: set[int], shrink: Sequence[int], width: int | None) -> str:
    """Aligned columns, two spaces between; too wide for ``width``, those of ``shrink`` are cut.

    Chinese characters take two cells on a terminal and are counted so.
    """
    widths = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    if width is not None:
        for index in (*shrink, *shrink):
            excess = sum(widths) + 2 * (len(widths) - 1) - width
            if excess > 0:
                least = 12 if widths[index] > 12 else 6
                widths[index] = max(min(widths[index], least), widths[index] - excess)
    lines = []
    for row in rows:
        parts = []
        for i, text in enumerate(row):
            text = cut(text, widths[i], keep_end=i == 1)
            pad = " " * (widths[i] - cells(text))
            parts.append(pad + text if i in right else text + pad)
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines) + "\n"


def cells(text: str) -> int:
    """Width on a terminal."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def cut(text: str, width: int, *, keep_end: bool = False) -> str:
    """``text`` in at most ``width`` cells; of a path the end tells more than the start."""
    if cells(text) <= width:
        return text
    while text and cells(text) > width - 1:
        text = text[1:] if keep_end else text[:-1]
    return "…" + text if keep_end else text + "…"


def _trial_line(trial: Trial, base: float | None, *, timed: bool = True) -> tuple[str, ...]:
    """``timed``: the run was made for its speed, and not to look at numbers."""
    m, s = trial.measurement, trial.setting
    value = m.throughput_samples_per_s if m is not None and m.ok and timed else None
    return (
        str(trial.number),
        str(trial.phase),
        *setting_cells(s, None if m is None else m.batch_size),
        "-" if value is None or m is None else rate_text(value) + _mark(m.time_label),
        _ratio(value / base if value and base else None, m.time_label if m else None),
        _memory(m),
        "-" if m is None else m.skipped_text,
        _ending(trial),
    )


def _ending(trial: Trial) -> str:
    m = trial.measurement
    if m is None:
        return "running"
    name = "lost" if trial.state is TrialState.lost else f"{m.outcome}"
    if m.reason and not m.ok:
        # The first line: a table is no place for a traceback.
        name += f": {m.reason.splitlines()[0]}"
    return name if m.taken_from is None else f"{name} (from {m.taken_from})"


def _recommendation(text: str | None, name: str) -> str:
    if text is None:
        return "\nno recommendation yet\n"
    # rich and the file's types: imports that listing studies has no time for.
    from autoamp.report.recommendation import lines
    from autoamp.studies.recommendation import decode

    try:
        found = decode(text.encode(), source=f"the recommendation of {name}")
    except UsageError as e:
        return f"\n{e.message}\n"
    return "\n".join(lines(found)) + "\n"


def _counts(trials: Sequence[Trial]) -> str:
    counted = _count(trials)
    outcomes = list(dict.fromkeys(o for o in _outcome_names() if any(c[1] == o for c in counted)))
    rows = [["trials", *(o.replace("_", " ") for o in outcomes)]]
    for phase in Phase:
        if any(c[0] == str(phase) for c in counted):
            numbers = [counted[str(phase), o] for o in outcomes]
            rows.append([str(phase), *(str(n) if n else "-" for n in numbers)])
    return columns(rows, right=set(range(1, len(outcomes) + 1)), shrink=(), width=None)


def _outcome_names() -> list[str]:
    return [*map(str, Outcome), "running"]


def _count(trials: Sequence[Trial]) -> Counter[tuple[str, str]]:
    return Counter(
        (str(t.phase), "running" if t.measurement is None else str(t.measurement.outcome))
        for t in trials
    )


def _memory_bytes(m: Measurement) -> int | None:
    reserved = m.memory_reserved_peak_bytes
    return m.memory_allocated_peak_bytes if reserved is None else reserved


def _memory(m: Measurement | None) -> str:
    size = None if m is None else _memory_bytes(m)
    if m is None or size is None:
        return "-"
    return bytes_text(size) + _mark(m.memory_label) + estimated_text(m.memory_estimated_bytes)


def _mark(label: Label) -> str:
    return f" {MARKS[label]}" if label in MARKS else ""


def _ratio(ratio: float | None, label: Label | None) -> str:
    return "-" if ratio is None else ratio_text(ratio) + ("" if label is None else _mark(label))


def _short(setting: Setting | None) -> str:
    if setting is None:
        return "-"
    name = setting.precision()
    for long, short in SHORT_DTYPES.items():
        name = name.replace(long, short)
    return name if setting.batch_size is None else f"{name} {setting.batch_size}"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    return "yes" if value is True else "no" if value is False else str(value)


def _quoted(argument: str) -> str:
    plain = argument and not set(argument) & set(" \t\n'\"\\$*?;&|<>(){}[]`")
    return argument if plain else "'" + argument.replace("'", "'\\''") + "'"


def _local(when: datetime) -> str:
    return when.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _summary_json(s: StudySummary) -> dict[str, Any]:
    return {
        "name": s.name,
        "script_path": s.script_path,
        "device": s.device,
        "state": s.state,
        "trials": s.trials,
        "best": None if s.best is None else s.best.to_json(),
        "best_throughput_samples_per_s": s.best_throughput_samples_per_s,
        "best_against_fp32": s.best_against_fp32,
        "time_label": None if s.time_label is None else str(s.time_label),
        "has_recommendation": s.has_recommendation,
        "created_at": s.created_at.isoformat(),
        "updated_at": s.updated_at.isoformat(),
    }


def _trial_json(t: Trial) -> dict[str, Any]:
    return {
        "number": t.number,
        "phase": str(t.phase),
        "setting": t.setting.to_json(),
        "numerics": t.numerics,
        "state": str(t.state),
        "measurement": None if t.measurement is None else json.loads(codec.encode(t.measurement)),
        "started_at": t.started_at.isoformat(),
        "finished_at": None if t.finished_at is None else t.finished_at.isoformat(),
    }


def _json(body: dict[str, Any]) -> str:
    return json.dumps({"schema": SCHEMA, **body}, indent=2, ensure_ascii=False) + "\n"
