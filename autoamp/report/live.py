"""What ``autoamp tune`` shows while it runs: a live view on a terminal, plain lines in a pipe."""

import shlex
import time
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from autoamp import __version__
from autoamp.measurement import Label, Measurement, Outcome, Phase, ScriptFacts
from autoamp.probes.facts import DeviceKind, Machine, Severity
from autoamp.rates import rate_text
from autoamp.report import plan as plan_report
from autoamp.report.machine import emulated
from autoamp.report.text import (
    bytes_text,
    estimated_text,
    ratio_text,
    seconds_text,
    setting_cells,
)
from autoamp.request import Request
from autoamp.settings import Level
from autoamp.studies import storage_url
from autoamp.studies.plan_table import PlanRow
from autoamp.studies.prior import prior_of
from autoamp.studies.proposal import NUMERICS_FULL, Proposal
from autoamp.studies.records import Study

REFRESH_PER_S = 4


class View:
    """Plain lines; ``TerminalView`` adds a line that moves."""

    def __init__(self, console: Console, *, compact: bool = False) -> None:
        self.console = console
        self._compact = compact
        """One line a study instead of one a trial: a plan runs several."""
        self._baseline: float | None = None
        self._best: tuple[float, str] | None = None
        self._trials = 0
        self._counted = 0
        self._wanted = 0
        self._times_in_full = False
        """Planning mode does not run this script: its full runs carry the times."""
        self._search_over = False
        """The counted trials have ended: what follows proves the choice."""
        self._head_shown = False
        self._device = ""
        self._started = time.monotonic()

    def __enter__(self) -> "View":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End whatever moves."""

    def say(self, text: str) -> None:
        """One line for the reader."""
        self.console.print(Text(text), soft_wrap=True)

    def header(
        self,
        study: Study,
        machine: Machine,
        request: Request,
        *,
        new: bool,
        ratio_band: float | None,
    ) -> None:
        """Study, machine and script, problems first."""
        self._forget()
        self._wanted = request.options.trials
        self._times_in_full = False
        if self._compact:
            return
        state = "new" if new else "continued"
        shown = storage_url.address(request.storage)
        self.say(f"autoamp {__version__}  study {study.name} ({state}) in {shown}")
        self.say("")
        if machine.device.kind is DeviceKind.virtual:
            self.say(banner(machine, ratio_band))
        for problem in machine.problems:
            if problem.severity is not Severity.note:
                self.say(f"{problem.severity}: {problem.sentence} {problem.remedy}")
        self.say("machine   " + machine_line(machine))
        self.say("          " + verdict_line(machine))
        prior = prior_of(machine)
        if prior is not None:
            self.say("          " + prior.sentence())
        self.say(f"script    {request.target.shown}")

    def _forget(self) -> None:
        """What was seen so far is another study's."""
        self._wanted = self._trials = self._counted = 0
        self._baseline = self._best = None
        self._search_over = False

    def facts(self, facts: ScriptFacts, baseline: Measurement) -> None:
        """What the first run taught about the script."""
        if self._compact:
            return
        parts = []
        if baseline.batch_size:
            where = facts.loaders[0].site.split(" < ")[0] if facts.loaders else "first input"
            kind = facts.loaders[0].kind if facts.loaders else "no DataLoader"
            own = facts.loaders[0].batch_size if facts.loaders else None
            size = f"own batch size {baseline.batch_size}"
            if (
                own is not None
                and own > baseline.batch_size
                and "batch_size" in {knob.knob for knob in baseline.applied}
            ):
                size = f"own batch size {own} does not fit"
            parts.append(f"{size} ({kind}, {where})")
        if facts.optimizer:
            parts.append(facts.optimizer)
        if facts.own_level:
            parts.append(f"AMP {facts.own_level} {facts.own_dtype}")
        elif facts.amp_in_effect:
            parts.append("GradScaler or decorate without auto_cast")
        elif facts.uses_hapi:
            # Its auto_cast and GradScaler calls are paddle.Model's own.
            parts.append("no AMP in it: given to paddle.Model.prepare")
        elif facts.calls_auto_cast or facts.calls_scaler:
            parts.append("AMP calls, switched off")
        else:
            parts.append("no AMP in it: added from outside")
        self.say("          " + " · ".join(parts))
        reasons = [x.reason for x in facts.loaders if not x.tunable and x.reason]
        if not facts.loaders:
            reasons.append("no DataLoader feeds the training")
        for reason in dict.fromkeys(reasons):
            self.say(f"          batch size stays: {reason}")

    def trial_started(self, number: int, proposal: Proposal) -> None:
        """A trial begins."""

    def trial_finished(
        self, number: int, proposal: Proposal, measurement: Measurement, replayed: bool
    ) -> None:
        """One line a trial."""
        self._trials += 1
        if proposal.counted:
            self._counted += 1
        rate = measurement.throughput_samples_per_s
        if proposal.phase is Phase.baseline and proposal.numerics == NUMERICS_FULL:
            self._times_in_full = True
        timed = self._is_timed(proposal, measurement)
        if timed and rate is not None:
            fp32 = proposal.phase is Phase.baseline and proposal.setting.amp_level is Level.O0
            plain = measurement.facts is None or not measurement.facts.own_level
            if fp32 or (self._baseline is None and plain):
                self._baseline = rate
            if self._best is None or rate > self._best[0]:
                self._best = (rate, proposal.setting.describe())
        if self._compact:
            return
        if not self._head_shown:
            self._head_shown = True
            self.say("")
            self.say(HEAD)
        self.say(self._row(number, proposal, measurement, replayed))

    def _is_timed(self, proposal: Proposal, measurement: Measurement) -> bool:
        """A failed trial carries no value, and one that looks at numbers none to compare."""
        if not measurement.ok or measurement.throughput_samples_per_s is None:
            return False
        return proposal.numerics != NUMERICS_FULL or self._times_in_full

    def _row(
        self, number: int, proposal: Proposal, measurement: Measurement, replayed: bool
    ) -> str:
        setting = proposal.setting
        rate = measurement.throughput_samples_per_s
        timed = self._is_timed(proposal, measurement)
        modelled = measurement.time_label is Label.modelled
        ratio = (
            ratio_text(rate / self._baseline) + (" m" if modelled else "")
            if timed and rate is not None and self._baseline
            else "-"
        )
        memory = measurement.memory_reserved_peak_bytes or measurement.memory_allocated_peak_bytes
        outcome = f"{measurement.outcome}"
        if measurement.outcome is not Outcome.ok and measurement.reason:
            outcome += f": {measurement.reason}"
        if replayed:
            outcome += "  (from the history)"
        elif measurement.taken_from is not None:
            outcome += f"  (from {measurement.taken_from})"
        return _format(
            number,
            str(proposal.phase),
            *setting_cells(setting, measurement.batch_size),
            rate_text(rate) if timed and rate is not None else "-",
            ratio,
            bytes_text(memory) + estimated_text(measurement.memory_estimated_bytes),
            measurement.skipped_text,
            outcome,
        )

    def device_started(self, device: str, index: int, count: int) -> None:
        """A plan turns to its next GPU."""
        self._device = f"{device} ({index + 1} of {count})"
        self._forget()

    def device_finished(self, row: PlanRow) -> None:
        """One line a GPU, as soon as it is known."""
        self._forget()
        self.say(f"{self._device}: {plan_report.sentence(row)}")

    def stopping(self, *, now: bool) -> None:
        """Ctrl-C was seen."""
        try:
            self.say(
                "stopping now"
                if now
                else "stopping after this trial and recommending from what is there; "
                "Ctrl-C again stops at once"
            )
        except OSError:
            # The terminal has gone; that is why we stop.
            pass

    def footer(self, study: str, path: object, command: str) -> None:
        """Where the history and the result are, and how to use it."""
        self.say("")
        self.say(f"History: autoamp studies show {shlex.quote(study)}")
        self.say(f"Use it:  autoamp run --config {shlex.quote(str(path))} {command}")


class TerminalView(View):
    """Adds the line with phase, best so far, trials left and ETA."""

    def __init__(self, console: Console, *, compact: bool = False) -> None:
        super().__init__(console, compact=compact)
        self._live: Live | None = None
        self._current = ""
        self._durations: list[float] = []
        self._trial_started = time.monotonic()

    def __enter__(self) -> "TerminalView":
        self._live = Live(
            console=self.console,
            refresh_per_second=REFRESH_PER_S,
            transient=True,
            get_renderable=self._line,
        )
        self._live.start()
        return self

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def trial_started(self, number: int, proposal: Proposal) -> None:
        self._trial_started = time.monotonic()
        self._search_over = self._search_over or not proposal.counted
        self._current = f"trial {number} · {proposal.phase}: {proposal.setting.describe()}"
        if self._device:
            self._current = f"{self._device} · {self._current}"
        if proposal.why:
            self._current += f" ({proposal.why})"

    def trial_finished(
        self, number: int, proposal: Proposal, measurement: Measurement, replayed: bool
    ) -> None:
        if not replayed:
            self._durations.append(measurement.wall_s)
        self._current = ""
        super().trial_finished(number, proposal, measurement, replayed)

    def _line(self) -> Text:
        now = time.monotonic()
        parts = [self._current or self._between()]
        if self._current:
            parts.append(f"{now - self._trial_started:.0f} s")
        if self._best is not None:
            parts.append(f"best {rate_text(self._best[0])}/s {self._best[1]}")
        left = max(0, self._wanted - self._counted)
        # Between trials it is not known whether another one follows.
        if self._current and self._wanted and not self._search_over:
            parts.append(f"at most {left} trials left")
            if self._durations and left:
                mean = sum(self._durations) / len(self._durations)
                parts.append(f"ETA {seconds_text(mean * left)}")
        line = Text("  " + " · ".join(parts), style="dim", no_wrap=True, overflow="ellipsis")
        return line

    def _between(self) -> str:
        name = f"{self._device} · " if self._device else ""
        return name + ("deciding" if self._trials else "preparing")

    def _forget(self) -> None:
        super()._forget()
        self._durations = []


_WIDTHS = (3, 9, 5, 8, 6, 6, 16, 9, 9, 20, 7)


def _format(number: int, *cells: str) -> str:
    out = [str(number).rjust(_WIDTHS[0])]
    for index, (cell, width) in enumerate(zip(cells, _WIDTHS[1:], strict=False)):
        left = index in (0, 1, 2, 5)
        out.append(cell.ljust(width) if left else cell.rjust(width))
    return " ".join([*out, cells[-1]])


HEAD = " ".join(
    title.ljust(width) if left else title.rjust(width)
    for title, width, left in zip(
        (
            "#", "phase", "level", "dtype", "batch", "scale", "lists",
            "samples/s", "vs FP32", "memory", "skipped",
        ),
        _WIDTHS,
        (False, True, True, True, False, False, True, False, False, False, False),
        strict=True,
    )
) + " outcome"  # fmt: skip


def banner(machine: Machine, ratio_band: float | None) -> str:
    """What a virtual device's numbers are and are not."""
    band = "uncalibrated" if ratio_band is None else f"ratios ±{ratio_band:.0%}"
    if machine.device_reason == "asked for":
        start = f"Planning for a virtual {machine.device.name}"
    else:
        start = f"No accelerator found. Planning for a virtual {machine.device.name}"
    kinds = emulated(machine)
    what = f"{kinds} emulated op by op" if kinds else "FP32 computed"
    if not machine.device.numerics:
        what = "values not computed"
    return (
        f"{start}: {what}, memory counted as Paddle allocates it, times modelled ({band}); m: "
        "modelled, in memory the GPU's context and workspaces. "
        "Choose another with --device virtual:NAME (autoamp devices)."
    )


def machine_line(machine: Machine) -> str:
    """The device and the versions around it in one line."""
    device = machine.device
    parts = [device.name]
    if device.kind is DeviceKind.virtual:
        parts = [f"virtual {device.name}"]
    if device.memory_total_bytes:
        parts.append(bytes_text(device.memory_total_bytes))
    if device.compute_capability:
        parts.append("compute capability {}.{}".format(*device.compute_capability))
    if device.tensor_core_generation:
        parts.append(f"Tensor Cores gen {device.tensor_core_generation}")
    if machine.host.driver_version:
        parts.append(f"driver {machine.host.driver_version}")
    if machine.paddle.cuda_version:
        parts.append(f"CUDA {machine.paddle.cuda_version}")
    if machine.paddle.version:
        parts.append(f"paddle {machine.paddle.version}")
    return " · ".join(parts)


def verdict_line(machine: Machine) -> str:
    """FP16 yes · BF16 no (reason)."""
    parts: dict[str, str] = {}
    for verdict in machine.verdicts:
        name = {"float16": "FP16", "bfloat16": "BF16"}.get(str(verdict.dtype))
        if name is None:
            continue
        text = "yes" if verdict.allowed else f"no ({verdict.reason})"
        if name not in parts or (verdict.allowed and parts[name] != "yes"):
            parts[name] = text
    knob = machine.knob("tf32")
    if knob is not None:
        parts["TF32"] = "yes" if knob.available else f"no ({knob.reason})"
    return " · ".join(f"{name} {text}" for name, text in parts.items())


def make_view(stream: TextIO, *, compact: bool = False) -> View:
    """The view that fits where the output goes."""
    if stream.isatty():
        return TerminalView(Console(file=stream, highlight=False), compact=compact)
    return View(Console(file=stream, highlight=False, width=200, soft_wrap=True), compact=compact)
