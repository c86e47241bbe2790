"""The end of ``autoamp tune``: the recommendation as a table and a few plain sentences.

Every number that was not measured on the device carries its label.
"""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from autoamp.rates import rate_text
from autoamp.report.text import bytes_text, ratio_text, scale_text, seconds_text
from autoamp.studies.recommendation import Drift, Measured, Ratio, Recommendation

GAP = 3


def print_recommendation(console: Console, recommendation: Recommendation) -> None:
    """Print the whole ending; at most as wide as the console."""
    for line in lines(recommendation):
        console.print(Text(line), soft_wrap=True)


def lines(rec: Recommendation) -> list[str]:
    """The ending as lines of plain text."""
    out = ["", headline(rec)]
    out += [f"  {sentence}" for sentence in rec.why]
    out += ["", *table(rec)]
    out += _gain_lines(rec)
    out += [f"  {drift_line(check)}" for check in rec.drift]
    out += _batch_lines(rec)
    if rec.error_band and "modelled" in rec.labels:
        out.append(f"  modelled times: {rec.error_band}")
    out += [f"  note: {caveat}" for caveat in rec.caveats]
    search = rec.search
    extra = f" and {search.extra_runs} to prove the choice" if search.extra_runs else ""
    trials = "1 trial" if search.trials == 1 else f"{search.trials} trials"
    out += ["", f"  {trials}{extra}, {seconds_text(search.wall_s)}"]
    return out


def headline(rec: Recommendation) -> str:
    """``recommended: O2 float16, batch 192, ...`` or the reason to keep what is there."""
    if rec.verdict == "use":
        provisional = "" if rec.best.confirmed else " (provisional, not confirmed)"
        return f"recommended{provisional}: {rec.best.measured.description}"
    return rec.headline[0].upper() + rec.headline[1:]


def table(rec: Recommendation) -> list[str]:
    """As written, FP32 and recommended side by side, with the change."""
    fp32 = rec.fp32
    columns: list[tuple[str, Measured]] = [("as written", rec.as_written)]
    if fp32 is not None and not rec.script.calls_amp:
        # Without AMP in it the script as written is FP32: one run, one column.
        columns = [(_titled("as written: FP32", fp32), fp32)]
    elif fp32 is not None:
        columns.append((_titled("FP32", fp32), fp32))
    best = rec.best.measured
    shown = {m.setting for _, m in columns}
    if best.setting not in shown:
        columns.append((_titled("recommended", best), best))
    if rec.mixed is not None and rec.mixed.measured.setting not in shown | {best.setting}:
        mixed = rec.mixed.measured
        columns.append((_titled(mixed.description.split(",")[0], mixed), mixed))
    base = fp32 or rec.as_written
    changed = best if best.setting != base.setting else None
    if changed is None and rec.mixed is not None:
        changed = rec.mixed.measured
    rows = [
        ["", *(title for title, _ in columns), _change_title(base, changed, rec)],
        ["samples/s", *(_throughput(m) for _, m in columns), _throughput_change(base, changed)],
        ["memory peak", *(_memory(m) for _, m in columns), _memory_change(base, changed)],
        ["and context, workspaces", *(_estimated(m) for _, m in columns), ""],
        ["batch size", *(_plain(m.batch_size) for _, m in columns), _batch_change(base, changed)],
        ["GPU utilisation", *(_utilisation(m) for _, m in columns), ""],
        ["busy share", *(_busy_share(m) for _, m in columns), ""],
        ["data wait", *(_data_wait(m) for _, m in columns), ""],
        ["with this machine's loader", *(_with_loader(m) for _, m in columns), ""],
        [
            "time for 1,000 samples",
            *(_time(m) for _, m in columns),
            _time_change(base, changed),
        ],
        ["energy for 1,000 samples", *(_energy(m) for _, m in columns), ""],
        ["skipped steps", *(_skipped(m) for _, m in columns), ""],
        ["final loss scale", *(scale_text(m.numerics.final_loss_scale) for _, m in columns), ""],
    ]
    rows = [row for row in rows if row is rows[0] or any(x not in ("", "-") for x in row[1:])]
    notes = _null_reasons([m for _, m in columns])
    return _aligned(rows) + [f"  - {note}" for note in notes]


def _null_reasons(shown: list[Measured]) -> list[str]:
    """Why a row has no number, each reason once."""
    out = []
    for measured in shown:
        use = measured.utilisation
        if use.gpu_percent is None and use.modelled_busy_share is None and use.reason:
            out.append(f"GPU utilisation: {measured.utilisation.reason}")
        if measured.data_wait_share is None and measured.data_wait_reason:
            out.append(f"data wait: {measured.data_wait_reason}")
    without = [m for m in shown if m.numerics.reason]
    for reason in dict.fromkeys(m.numerics.reason for m in without):
        names = [m.description for m in without if m.numerics.reason == reason]
        which = "" if len(names) == len(shown) else f" ({'; '.join(names)})"
        out.append(f"skipped steps and loss scale: {reason}{which}")
    return list(dict.fromkeys(out))


def _gain_lines(rec: Recommendation) -> list[str]:
    best = rec.best
    if rec.verdict != "use" and best.against_fp32.value in (None, 1.0):
        return []
    out = []
    total = best.against_fp32
    if total.value is not None and total.value != 1.0:
        line = f"throughput against FP32: {_ratio(total)}"
        if best.precision_gain.value is not None and best.batch_gain is not None:
            line += (
                f": precision {ratio_text(best.precision_gain.value)}, "
                f"batch {ratio_text(best.batch_gain)}"
            )
        elif best.precision_gain.reason:
            line += f" (not split: {best.precision_gain.reason})"
        out.append(line)
    written = best.against_as_written
    if written.value is not None and rec.script.calls_amp:
        out.append(f"throughput against the script as written: {_ratio(written)}")
    return [f"  {line}" for line in out]


def drift_line(check: Drift) -> str:
    """The loss comparison in one line, with what was compared."""
    name = f"{check.description} against FP32"
    if check.batch_size is not None:
        name += f", both at batch {check.batch_size}"
    label = "" if check.label in ("measured", "not_computed") else f" ({check.label})"
    if check.passed is None or check.candidate_loss is None or not check.fp32_losses:
        return f"loss, {name}: {check.why}{label}"
    verdict = "inside" if check.passed else "OUTSIDE"
    line = (
        f"loss{label}, {name}, {check.steps} steps: {check.candidate_loss:.4g} / "
        f"{check.fp32_losses[0]:.4g}: {verdict} {check.tolerance_basis}"
    )
    if check.at_recommended_batch:
        line += f"; {check.at_recommended_batch}"
    return line


def _batch_lines(rec: Recommendation) -> list[str]:
    out = []
    own = rec.at_your_batch
    if rec.learning_rate_advice is not None:
        out += ["", f"  {rec.learning_rate_advice}"]
    if own.measured.setting != rec.best.measured.setting:
        text = own.measured.description
        fp32 = rec.fp32
        if fp32 is not None and own.measured.setting == fp32.setting:
            text = "FP32 stays the best"
        elif own.against_fp32.value is not None:
            text += f" gives {_ratio(own.against_fp32, basis=False)}"
        at = "at your own batch"
        if rec.as_written.setting.batch_size is not None:
            # The script's own does not fit.
            at = "at batch"
        out.append(f"  {at} {_plain(own.measured.batch_size)}: {text} (autoamp run --keep-batch)")
    if rec.default == "at_your_batch":
        batch = rec.at_your_batch.measured.batch_size
        where = "your own batch"
        if None not in (batch, rec.own_batch) and batch != rec.own_batch:
            where = f"batch {batch}, for your own {rec.own_batch} does not fit"
        out.append(f"  autoamp run takes the setting at {where}: {rec.default_reason}")
    return out


def _titled(name: str, measured: Measured) -> str:
    return name if measured.batch_size is None else f"{name} (batch {measured.batch_size})"


def _change_title(base: Measured, changed: Measured | None, rec: Recommendation) -> str:
    if changed is None:
        return ""
    against = "FP32" if rec.fp32 is not None else "as written"
    if changed.setting == rec.best.measured.setting:
        return f"change against {against}"
    return f"{changed.description.split(',')[0]} against {against}"


def _labelled(text: str, label: str) -> str:
    return text if label == "measured" or text == "-" else f"{text} {label}"


def _throughput(m: Measured) -> str:
    value = m.throughput
    if value.samples_per_s is None:
        return "-"
    rate = value.samples_per_s
    text = rate_text(rate)
    if value.low is not None and value.high is not None and value.samples_per_s:
        half = (value.high - value.low) / 2 / value.samples_per_s
        text += f" ± {half * 100:.1f} %"
    elif value.spread is not None and value.label == "measured":
        text += f" ± {value.spread * 100:.1f} %"
    return _labelled(text, value.label)


def _memory(m: Measured) -> str:
    return _labelled(bytes_text(m.memory.peak_bytes), m.memory.label)


def _estimated(m: Measured) -> str:
    """What the model adds to the counted peak of a virtual device."""
    parts = [x for x in (m.memory.overhead_bytes, m.memory.workspace_bytes) if x is not None]
    if not parts or m.memory.needed_label is None:
        return "-"
    return _labelled(bytes_text(sum(parts)), m.memory.needed_label)


def _with_loader(m: Measured) -> str:
    """Samples/s of a virtual device's step that waits for the loader of the machine at hand."""
    rate = None if m.loading is None else m.loading.samples_per_s
    if m.loading is None or rate is None:
        return "-"
    text = rate_text(rate)
    return _labelled(f"{text}/s", m.loading.label)


def _data_wait(m: Measured) -> str:
    return _labelled(_share(m.data_wait_share), m.data_wait_label)


def _utilisation(m: Measured) -> str:
    percent = m.utilisation.gpu_percent
    return "-" if percent is None else f"{percent:.0f} %"


def _busy_share(m: Measured) -> str:
    """Of a virtual device, where no utilisation was sampled: docs/virtual.md."""
    share = m.utilisation.modelled_busy_share
    return "-" if share is None else _labelled(_share(share), "modelled")


def _energy(m: Measured) -> str:
    """Mean power of the device over the time that many samples take; its host is not in it."""
    power, seconds = m.utilisation.power_mean_w, m.seconds_per_1000_samples
    return "-" if power is None or seconds is None else f"{power * seconds:.3g} J"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.0f} %"


def _plain(value: int | None) -> str:
    return "-" if value is None else str(value)


def _time(m: Measured) -> str:
    value = m.seconds_per_1000_samples
    return "-" if value is None else _labelled(f"{value:.3g} s", m.throughput.label)


def _skipped(m: Measured) -> str:
    count = m.numerics.skipped_steps
    if count is None:
        return "-"
    return _labelled(f"{count} of {m.numerics.steps}", m.numerics.label)


def _throughput_change(base: Measured, changed: Measured | None) -> str:
    if changed is None:
        return ""
    before, after = base.throughput.samples_per_s, changed.throughput.samples_per_s
    if not before or not after:
        return ""
    return _labelled(ratio_text(after / before), changed.throughput.label)


def _time_change(base: Measured, changed: Measured | None) -> str:
    if changed is None:
        return ""
    before, after = base.seconds_per_1000_samples, changed.seconds_per_1000_samples
    if not before or not after:
        return ""
    return _labelled(_change(before, after), changed.throughput.label)


def _memory_change(base: Measured, changed: Measured | None) -> str:
    if changed is None:
        return ""
    before, after = base.memory.peak_bytes, changed.memory.peak_bytes
    if not before or not after:
        return ""
    return _labelled(_change(before, after), changed.memory.label)


def _change(before: float, after: float) -> str:
    return f"{(after / before - 1) * 100:+.0f} %"


def _batch_change(base: Measured, changed: Measured | None) -> str:
    if changed is None or not base.batch_size or not changed.batch_size:
        return ""
    if base.batch_size == changed.batch_size:
        return "the same"
    return f"{changed.batch_size / base.batch_size:.3g}x"


def _ratio(ratio: Ratio, *, basis: bool = True) -> str:
    if ratio.value is None:
        return f"unknown ({ratio.reason})"
    if ratio.low is None or ratio.high is None:
        return f"{ratio_text(ratio.value)} ({ratio.basis})"
    tail = f", {ratio.basis}" if basis else ""
    return f"{ratio_text(ratio.value)} ({ratio.low:.2f} to {ratio.high:.2f}{tail})"


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    out = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True)]
        cells.append(row[-1].ljust(widths[-1]))
        out.append(("  " + (" " * GAP).join(cells)).rstrip())
    return out
