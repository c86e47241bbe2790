"""The loop of ``autoamp tune``: asks the search, runs trials, stores, recommends.

The only module that knows both the search and the child. Resume is replay: the search is
deterministic, so what it asks for is answered from the history for as long as the history has
it, and run from there on.
"""

import time
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from autoamp.errors import AutoampError, MismatchError, ScriptError
from autoamp.measurement import Measurement, Outcome, Phase, ScriptFacts
from autoamp.opening import Prepared, continued_options, open_study, prepare
from autoamp.outputs import output_path, save, storage_file, trials_folder
from autoamp.probes.facts import DeviceKind, Machine
from autoamp.request import Interrupted, Request, Stops
from autoamp.runner import Runner
from autoamp.script_watch import ScriptWatch, digest
from autoamp.settings import Level
from autoamp.shared_runs import SharedRuns
from autoamp.studies import (
    lease,
    phases,
    recommend,
    recommendation,
    script_identity,
    storage_url,
)
from autoamp.studies import mirror as studies_mirror
from autoamp.studies.proposal import COUNTED_PHASES, NUMERICS_FULL, Proposal, Result
from autoamp.studies.reading import open_reader
from autoamp.studies.records import Study, StudyState, Trial, TrialState
from autoamp.studies.store import Store, open_store
from autoamp.virtual import build as virtual_build


class View(Protocol):
    """What a person sees; ``autoamp.report.live`` has one for terminals and one for pipes."""

    def say(self, text: str) -> None: ...
    def header(
        self,
        study: Study,
        machine: Machine,
        request: Request,
        *,
        new: bool,
        ratio_band: float | None,
    ) -> None: ...
    def facts(self, facts: ScriptFacts, baseline: Measurement) -> None: ...
    def trial_started(self, number: int, proposal: Proposal) -> None: ...
    def trial_finished(
        self, number: int, proposal: Proposal, measurement: Measurement, replayed: bool
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What ``tune`` ends with."""

    study: Study
    result: Result
    recommendation: recommendation.Recommendation
    path: Path | None
    """None if no config file was wanted."""
    wall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PartOfPlan:
    """What a plan over several virtual GPUs gives each of its studies."""

    prepared: Prepared
    shared: SharedRuns
    watch: ScriptWatch
    """One for the whole plan: its GPUs must run the same script."""


def tune(
    request: Request,
    view: View,
    stops: Stops,
    part: PartOfPlan | None = None,
) -> Tuned:
    """The whole of ``autoamp tune``; as part of a plan it writes no config file.

    Raises AutoampError for what blocks it, Interrupted if stopped at once; all that was finished
    is stored either way.
    """
    started = time.monotonic()
    prepared = prepare(request) if part is None else part.prepared
    machine = prepared.machine
    plugin_dir = None
    if machine.device.kind is DeviceKind.virtual:
        plugin_dir = virtual_build.ensure_built(request.target.python, view.say)
    store = open_store(request.storage)
    try:
        opened = open_study(store, request, prepared)
        study = opened.study
        # Before the first trial: an hour's work must not end at a file that may not be written.
        path = output_path(request, study.name) if part is None else None
        with lease.acquire(store, study.id) as held:
            store.set_state(study.id, StudyState.running)
            if not opened.new:
                store.save_options(study.id, continued_options(study, request, machine))
            view.header(study, machine, request, new=opened.new, ratio_band=prepared.ratio_band)
            # Of a plan's studies each has another machine: that is what was asked for.
            for note in opened.notes if part is None or not opened.new else ():
                # Between the script's own lines, which are indented.
                view.say(f"          {note}" if part is None else note)
            runner = Runner(
                request=request,
                machine=machine,
                folder=trials_folder(request.storage, study.name),
                plugin_dir=plugin_dir,
                stops=stops,
                watch=ScriptWatch(prepared.script) if part is None else part.watch,
                shared=SharedRuns() if part is None else part.shared,
                script_digest=digest(prepared.script),
            )
            runner.watch.cover(study.script)
            try:
                result = drive(store, study, prepared, runner, view, held, started)
            except (Interrupted, KeyboardInterrupt):
                store.set_state(study.id, StudyState.stopped)
                raise Interrupted from None
            except AutoampError as error:
                early = error.slug == "stopped-too-early"
                store.set_state(study.id, StudyState.stopped if early else StudyState.failed)
                raise
            # A study that was continued took longer than this session.
            wall_s = max(
                time.monotonic() - started,
                sum(
                    t.measurement.wall_s for t in result.trials if t.measurement.taken_from is None
                ),
            )
            found = recommend.build(
                result,
                study=study.name,
                script=store.study(study.name).script,
                command=request.target.shown,
                wall_s=wall_s,
                error_band_note=prepared.band_note,
            )
            store.save_recommendation(study.id, recommendation.encode(found).decode())
            if path is not None:
                save(found, path)
            done = StudyState.stopped if result.stopped else StudyState.done
            store.set_state(study.id, done)
    finally:
        store.close()
    return Tuned(study=study, result=result, recommendation=found, path=path, wall_s=wall_s)


def drive(
    store: Store,
    study: Study,
    prepared: Prepared,
    runner: Runner,
    view: View,
    held: lease.Lease,
    started: float,
) -> Result:
    """Answer the search's proposals from the history or by trials, until it has a result."""
    history_of: dict[str, tuple[int, Measurement]] = {}
    stored = store.trials(study.id)
    for trial in stored:
        measurement = trial.measurement
        if trial.state is not TrialState.finished or measurement is None:
            continue
        if measurement.proposal_key and may_answer(trial.phase, measurement):
            history_of[measurement.proposal_key] = (trial.number, measurement)
    mirror = studies_mirror.Mirror(store.url, study.name)
    mirror.reconcile(stored)
    steps = phases.search(
        prepared.machine,
        runner.request.options,
        clock=lambda: time.monotonic() - begun,
        ratio_band=prepared.ratio_band,
        host_bound=prepared.host_bound,
        stop=lambda: runner.stops.after_trial,
        stored=plain_runs(stored, runner, history_of),
    )
    told_facts = False
    number = 0
    begun = time.monotonic()
    try:
        if runner.stops.after_trial:
            # Nothing was measured yet, so there is nothing to recommend from.
            raise Interrupted
        proposal = next(steps)
        while True:
            earlier = history_of.get(runner.key(proposal))
            replayed = earlier is not None
            if earlier is not None:
                number, measurement = earlier
                runner.note(proposal)
            else:
                held.check()
                trial = store.start_trial(
                    study.id, proposal.phase, proposal.setting, proposal.numerics
                )
                number = trial.number
                view.trial_started(number, proposal)
                measurement = runner.answer(number, proposal)
                same_script(store, study, runner)
                mirror.add(store.finish_trial(trial.id, measurement))
            runner.learn(measurement)
            if proposal.numerics == NUMERICS_FULL and not runner.times_in_full:
                runner.shared.offer(runner.shared_key(proposal), study.name, number, measurement)
            if not told_facts and not runner.needs_facts and runner.facts is not None:
                told_facts = True
                view.facts(runner.facts, measurement)
                if not replayed:
                    script = script_identity.with_files(prepared.script, runner.modules)
                    store.save_script(study.id, script)
            view.trial_finished(number, proposal, measurement, replayed)
            proposal = steps.send(measurement)
    except StopIteration as end:
        result: Result = end.value
        return result
    except ScriptError as error:
        if error.slug == "stopped-too-early" and runner.stops.after_trial:
            raise Interrupted from None
        raise
    finally:
        if mirror.problem:
            view.say(f"note: Optuna's copy of the history lags behind: {mirror.problem}")
        mirror.close()


def plain_runs(
    trials: Sequence[Trial], runner: Runner, answers: Container[str]
) -> tuple[Proposal, ...]:
    """What the history's counted trials were asked for, as far as they answer it again."""
    asked = (
        Proposal(
            phase=t.phase,
            setting=t.setting,
            numerics=t.numerics,
            seed=runner.request.options.seed,
        )
        for t in trials
        if t.phase in COUNTED_PHASES
    )
    return tuple(p for p in asked if runner.key(p) in answers)


def same_script(store: Store, study: Study, runner: Runner) -> None:
    """What was measured on a changed script is thrown away: nobody knows which of the two ran.

    Raises MismatchError ``script-changed``.
    """
    runner.watch.learn(runner.modules)
    try:
        runner.watch.check()
    except MismatchError:
        store.mark_lost(study.id, "the script was changed while the trial ran")
        raise


def may_answer(phase: Phase, measurement: Measurement) -> bool:
    """Whether a stored run answers the same question again.

    What the world around the trial may have ended is asked anew: the user has raised the limit,
    freed memory or mended the script's data since.
    """
    passing = (Outcome.interrupted, Outcome.timed_out, Outcome.host_memory, Outcome.crashed)
    if measurement.outcome in passing:
        return False
    return measurement.ok or phase is not Phase.baseline


def describe_plan(request: Request) -> tuple[str, ...]:
    """``--dry-run``: what would run and about how long, nothing started and nothing written."""
    prepared = prepare(request)
    machine = prepared.machine
    seconds_per_trial = None
    if Path(storage_file(request.storage) or "").is_file():
        with open_reader(request.storage) as reader:
            found = reader.find_matching(machine.identity, prepared.script)
            walls = (
                []
                if found is None
                else [
                    t.measurement.wall_s
                    for t in reader.trials(found.id)
                    if t.measurement is not None and t.measurement.ok
                ]
            )
        seconds_per_trial = sum(walls) / len(walls) if walls else None
    return (
        f"would tune {request.target.shown} on {machine.identity.device}, "
        f"history in {storage_url.address(request.storage)}",
        phases.plan_line(machine, request.options, seconds_per_trial=seconds_per_trial),
        *left_to_ask_for(machine, request),
    )


def left_to_ask_for(machine: Machine, request: Request) -> tuple[str, ...]:
    """The level that the probe lists and the search leaves out unless it is named."""
    verdicts = [v for v in machine.verdicts if v.level is Level.OD]
    if request.options.levels is not None or not any(v.allowed for v in verdicts):
        return ()
    return (
        "left out    level OD: it runs only AMP's white list in 16 bits, which O1 runs as well; "
        "--levels O1,O2,OD tries it",
    )
