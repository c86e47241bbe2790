"""The loop of ``autoamp tune``: asks the search, runs trials, stores, recommends.

The only module that knows both the search and the child. Resume is replay: the search is
deterministic, so what it asks for is answered from the history for as long as the history has
it, and run from there on.
"""

import hashlib
import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import msgspec

from autoamp import collect, launch, script_source, wire
from autoamp.errors import AutoampError, MismatchError, ScriptError, UsageError
from autoamp.launch import Target
from autoamp.measurement import Label, Loader, Measurement, Outcome, Phase, ScriptFacts
from autoamp.played import played
from autoamp.probes import identity as probes_identity
from autoamp.probes import machine as probes_machine
from autoamp.probes import visible
from autoamp.probes.facts import Conditions, DeviceKind, Machine
from autoamp.probes.sampler import Sampler
from autoamp.script_watch import ScriptWatch, digest
from autoamp.shared_runs import SharedRuns
from autoamp.studies import (
    history,
    lease,
    phases,
    recommend,
    recommendation,
    script_identity,
    storage_url,
)
from autoamp.studies import mirror as studies_mirror
from autoamp.studies.proposal import NUMERICS_FULL, NUMERICS_PLANNING, Options, Proposal, Result
from autoamp.studies.reading import open_reader
from autoamp.studies.records import NewStudy, Study, StudyState, TrialState
from autoamp.studies.script_identity import ScriptIdentity
from autoamp.studies.store import Store, open_store
from autoamp.virtual import build as virtual_build
from autoamp.virtual import calibration
from autoamp.virtual import device as virtual_device

FIRST_LIMIT_S = 600.0
"""Time limit of the baseline when none is asked for: a large data set may take minutes to open."""
LIMIT_FACTOR = 5.0
LIMIT_FLOOR_S = 120.0
"""Later trials: five times the baseline's wall time, never under two minutes."""
HOPELESS_SHARE = 0.5
"""A search trial whose first block runs below this share of the best so far ends there: no later
block makes up for half."""
EMULATED_SOFT_LIMIT_S = 40.0
"""Emulated steps of one stability run: enough to see a loss scale settle in small models, and a
bound for large ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the command line asks for."""

    target: Target
    device: str
    storage: str
    study: str | None
    options: Options
    steps: int | None
    trial_limit_s: float | None
    output: str | None
    allow_unsupported: bool


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


@dataclass
class Stops:
    """Ctrl-C once: after this trial. Twice: now."""

    after_trial: bool = False
    now: bool = False

    def press(self) -> None:
        self.now = self.after_trial
        self.after_trial = True


class Interrupted(Exception):
    """Stopped at once by the user; everything finished is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Everything known before the first trial."""

    machine: Machine
    script: ScriptIdentity
    ratio_band: float | None
    band_note: str


@dataclass
class Runner:
    """Runs proposals of one study, one after the other."""

    request: Request
    machine: Machine
    folder: Path
    plugin_dir: Path | None
    """Where the virtual accelerator was built; None on a real device."""
    stops: Stops
    watch: ScriptWatch
    shared: SharedRuns = field(default_factory=SharedRuns)
    times_in_full: bool = False
    """The script does not run in planning mode: full runs carry this GPU's times, and are not
    shared with another's study."""
    facts: ScriptFacts | None = None
    limit_s: float | None = None
    best_samples_per_s: float = 0.0
    modules: tuple[str, ...] = ()
    script_digest: str = ""
    _sampler: Sampler | None = field(default=None)

    def plan(self, number: int, proposal: Proposal) -> wire.Plan:
        """The child's plan for a proposal."""
        device = self.machine.device
        setting = proposal.setting
        virtual = None
        if device.kind is DeviceKind.virtual:
            virtual = played(self.machine.device, numerics=proposal.numerics != NUMERICS_PLANNING)
        facts = self.facts
        templated = launch.templated_knobs(self.request.target.arguments)
        # A suite that gets its AMP level as an argument calls AMP itself when asked to; what it
        # did at the FP32 baseline says nothing.
        mixed = setting.is_mixed and facts is not None and "amp_level" not in templated
        hapi = facts is not None and facts.uses_hapi
        planning = proposal.numerics == NUMERICS_PLANNING
        emulated = proposal.numerics == NUMERICS_FULL
        warmup, least, most, blocks = (3, 4, 4, 1) if planning else (5, 20, 200, 4)
        wanted = proposal.steps or self.request.steps
        if wanted is not None and not planning:
            least = most = wanted
        return wire.Plan(
            trial_dir=str(self.folder / f"{number:04d}"),
            device="virtual" if virtual else launch.child_device(device.paddle_name),
            virtual=virtual,
            setting=setting.to_json(),
            templated=templated,
            keep_disabled=facts is not None and facts.own_level is not None,
            outside_auto_cast=mixed and facts is not None and not facts.calls_auto_cast,
            outside_scaler=mixed and facts is not None and not facts.calls_scaler and not hapi,
            outside_decorate=mixed and facts is not None and not facts.calls_decorate and not hapi,
            loaders=loader_plans(facts),
            seed=proposal.seed,
            warmup_steps=warmup,
            min_steps=least,
            max_steps=most,
            blocks=min(blocks, least),
            give_up_samples_per_s=(
                HOPELESS_SHARE * self.best_samples_per_s
                if proposal.phase is Phase.search and virtual is None
                else None
            ),
            # A comparison of losses needs its steps; a look at stability may be cut short.
            soft_limit_s=EMULATED_SOFT_LIMIT_S if emulated and proposal.steps is None else None,
            scan=proposal.scan,
        )

    def environment(self, plan: wire.Plan) -> Mapping[str, str]:
        """What the plan's device needs in the child's environment."""
        if plan.virtual is None or self.plugin_dir is None:
            return visible.child_environment(self.machine.device)
        return virtual_device.child_environment(plan.virtual, self.plugin_dir)

    def answer(self, number: int, proposal: Proposal) -> Measurement:
        """The proposal's Measurement: by a run, or by the same emulated run of another GPU.

        Raises Interrupted if the user stops it.
        """
        self.note(proposal)
        if proposal.numerics == NUMERICS_FULL and not self.times_in_full:
            here = played(self.machine.device, numerics=True)
            taken = self.shared.take(
                self.shared_key(proposal), here.memory_bytes, here.overhead_bytes
            )
            if taken is not None:
                return taken
        return self.run(number, proposal)

    def note(self, proposal: Proposal) -> None:
        """Remember how this script is timed on a virtual device."""
        if proposal.phase is Phase.baseline and proposal.numerics == NUMERICS_FULL:
            self.times_in_full = True

    def run(self, number: int, proposal: Proposal) -> Measurement:
        """Run one trial to its Measurement. Raises Interrupted if the user stops it."""
        plan = self.plan(number, proposal)
        if os.path.exists(os.path.join(plan.trial_dir, wire.PLAN_FILE)):
            # A trial that was lost: its number is used again by no other study of this database.
            shutil.rmtree(plan.trial_dir, ignore_errors=True)
        sampler = Sampler(self.machine.device)
        sampler.start()
        try:
            ended = launch.run(
                self.request.target,
                plan,
                device=self.machine.device.paddle_name,
                extra_env=self.environment(plan),
                limit_s=self.limit(proposal),
                stop=lambda: self.stops.now,
            )
            window = collect.timed_window(plan.trial_dir)
            utilisation = sampler.window(*window) if window else None
        finally:
            sampler.stop()
        measurement = collect.collect(plan, ended, utilisation)
        if self.needs_facts and measurement.facts is not None:
            by = script_source.scheduled_by(self.request.target)
            facts = replace(measurement.facts, scheduled_by=by)
            if "batch_size" in plan.templated:
                facts = replace(facts, loaders=(argument_loader(facts, measurement),))
            measurement = replace(measurement, facts=facts)
        measurement = replace(measurement, proposal_key=self.key(proposal))
        self.modules = self.modules or collect.user_modules(plan.trial_dir)
        # What the script wrote is of no use any more and may be large; log and events stay.
        shutil.rmtree(plan.scratch_dir, ignore_errors=True)
        if measurement.outcome is Outcome.interrupted:
            raise Interrupted
        return measurement

    def key(self, proposal: Proposal) -> str:
        """What a stored run must have been asked for to answer this proposal."""
        return f"{proposal.key}|--steps {self.request.steps or 'default'}"

    def shared_key(self, proposal: Proposal) -> str:
        """The same, for a run that another study of a plan made of the very same script."""
        return f"{self.key(proposal)}|script {self.script_digest}"

    def limit(self, proposal: Proposal) -> float:
        """Seconds after which a trial is killed; what the user asked for holds everywhere."""
        if self.request.trial_limit_s is not None:
            return self.request.trial_limit_s
        if self.limit_s is None:
            return FIRST_LIMIT_S
        if proposal.numerics == NUMERICS_FULL:
            # The pace of planning runs says nothing about emulated ones.
            return max(self.limit_s, FIRST_LIMIT_S)
        return self.limit_s

    @property
    def needs_facts(self) -> bool:
        """True until a run has shown a whole step of the script."""
        return self.facts is None or self.facts.partial

    def learn(self, measurement: Measurement) -> None:
        """Take the script's facts and pace from the first good run."""
        if self.needs_facts and measurement.facts is not None:
            self.facts = measurement.facts
        if measurement.ok and measurement.numerics_label is Label.measured:
            rate = measurement.throughput_samples_per_s or 0.0
            self.best_samples_per_s = max(self.best_samples_per_s, rate)
        if self.limit_s is None and measurement.ok:
            self.limit_s = max(LIMIT_FLOOR_S, LIMIT_FACTOR * measurement.wall_s)


def argument_loader(facts: ScriptFacts, measurement: Measurement) -> Loader:
    """A batch size that stands in the script's arguments can be changed, whatever delivers it."""
    lengths = [x.dataset_length for x in facts.loaders if x.dataset_length]
    return Loader(
        ordinal=0,
        kind="argument",
        site="arguments",
        batch_size=measurement.batch_size,
        dataset_length=lengths[0] if lengths else None,
        tunable=True,
    )


def loader_plans(facts: ScriptFacts | None) -> tuple[wire.LoaderPlan, ...]:
    """The training loaders whose batch size may be replaced."""
    if facts is None:
        return ()
    return tuple(
        wire.LoaderPlan(ordinal=x.ordinal, kind=x.kind, site=x.site)
        for x in facts.loaders
        if x.tunable
    )


def trials_folder(storage: str, study: str) -> Path:
    """Logs and plans of a study's trials: ``.autoamp/DATABASE/STUDY`` beside the database file."""
    file = storage_file(storage)
    if file is None:
        digest = hashlib.sha256(storage.encode()).hexdigest()[:8]
        return Path.cwd() / ".autoamp" / f"server-{digest}" / study
    path = Path(file).absolute()
    return path.parent / ".autoamp" / path.stem / study


def check_study_name(name: str) -> None:
    """A study's name is also a folder's. Raises UsageError ``bad-study-name``."""
    if not re.fullmatch(r"[\w.-]{1,100}", name) or name.strip(".") == "":
        raise UsageError(
            f"--study {name!r}: expected letters, digits, '.', '_' and '-'",
            slug="bad-study-name",
            remedy="give a plain name such as my-study",
        )


def prepare(request: Request) -> Prepared:
    """Probe the machine and identify the script.

    Raises MachineError for a machine that blocks tuning, ScriptError for a missing module.
    """
    machine = probes_machine.probe(
        request.device, request.target.python, request.allow_unsupported
    )
    probes_machine.require(machine)
    if machine.device.kind is DeviceKind.virtual:
        played(machine.device, numerics=False)
    # A refused precision is an answer before anything is built or started.
    phases.plan_line(machine, request.options)
    script = script_identity.identify(
        request.target.entry,
        is_module=request.target.is_module,
        arguments=request.target.arguments,
        cwd=request.target.cwd,
    )
    ratio = None
    note = ""
    if machine.device.kind is DeviceKind.virtual and machine.device.model is not None:
        band = calibration.error_band(machine.device.model.alias)
        ratio, note = band.ratio, band.note
    return Prepared(
        machine=machine,
        script=script,
        ratio_band=ratio,
        band_note=note,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A study ready to run under our lease."""

    study: Study
    new: bool
    notes: tuple[str, ...]


def open_study(store: Store, request: Request, prepared: Prepared) -> Opened:
    """The study to continue, or a new one.

    Without ``--study`` another machine or a changed script starts a new study and the notes say
    what changed; with it, raises MismatchError.
    """
    identity = prepared.machine.identity
    if request.study is not None:
        check_study_name(request.study)
    if request.study is not None and request.study in {s.name for s in store.studies()}:
        study = store.study(request.study)
        different = history.study_differences(study, identity, prepared.script)
        if different:
            raise MismatchError(
                f"study {study.name} belongs to another machine or script: "
                + "; ".join(different),
                slug="study-mismatch",
                remedy="leave --study out (a new study is started), or give a new name",
            )
        return Opened(study=study, new=False, notes=drifted(study, prepared.machine))
    notes: tuple[str, ...] = ()
    if request.study is None:
        found = store.find_matching(identity, prepared.script)
        if found is not None:
            return Opened(study=found, new=False, notes=drifted(found, prepared.machine))
        changed = history.what_changed(store.all_studies(), identity, prepared.script)
        if changed is not None:
            notes = (f"not continuing {changed[0]}: " + "; ".join(changed[1]),)
    name = request.study or script_identity.default_name(
        request.target.entry,
        request.target.arguments,
        repr(identity),
        *(f.sha256 for f in prepared.script.files),
        is_module=request.target.is_module,
    )
    study = store.create_study(
        NewStudy(
            name=store.free_name(name),
            script_path=request.target.entry,
            arguments=request.target.arguments,
            device=identity.device,
            machine=identity,
            script=prepared.script,
            options_json=msgspec.json.encode(options_record(request, prepared.machine)).decode(),
        )
    )
    return Opened(study=study, new=True, notes=notes)


def options_record(request: Request, machine: Machine) -> dict[str, object]:
    """What the user asked for, and the conditions at the start, as stored with the study."""
    record: dict[str, object] = msgspec.to_builtins(request.options)
    record.update(device=request.device, steps=request.steps, python=request.target.python)
    record["conditions"] = msgspec.to_builtins(probes_identity.conditions(machine))
    return record


def continued_options(study: Study, request: Request, machine: Machine) -> str:
    """What is asked for now, with the conditions at the study's own start."""
    record = options_record(request, machine)
    before = msgspec.json.decode(study.options_json)
    if isinstance(before, dict) and "conditions" in before:
        record["conditions"] = before["conditions"]
    return msgspec.json.encode(record).decode()


def drifted(study: Study, machine: Machine) -> tuple[str, ...]:
    """What has changed on the same machine since the study was begun: said, never refused."""
    try:
        stored = msgspec.json.decode(study.options_json).get("conditions")
        before = msgspec.convert(stored, Conditions)
    except (msgspec.MsgspecError, AttributeError):
        # Studies of an older autoamp have none.
        return ()
    changed = probes_identity.drift(before, probes_identity.conditions(machine))
    return tuple(f"since this study began: {change}" for change in changed)


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
                view.say(note)
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
        stop=lambda: runner.stops.after_trial,
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


def save(found: recommendation.Recommendation, path: Path) -> None:
    """Write the JSON; the database has it already. Raises UsageError ``output-unwritable``."""
    try:
        recommendation.save(found, path)
    except OSError as error:
        raise output_unwritable(path, error.strerror or str(error)) from None


def output_unwritable(path: Path, why: str) -> UsageError:
    return UsageError(
        f"{path} cannot be written: {why}",
        slug="output-unwritable",
        remedy="give --output a path in a folder that exists and may be written; the history "
        "keeps the recommendation (autoamp studies show)",
    )


def output_path(request: Request, study: str) -> Path:
    """Where the JSON goes; raises UsageError rather than overwrite another study's file."""
    path = Path(request.output or f"autoamp-{study}.json")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise output_unwritable(path, f"there is no folder {folder}")
    if not os.access(folder, os.W_OK):
        raise output_unwritable(path, f"no permission to write in {folder}")
    if path.exists():
        owner = recommendation.study_of(path)
        if owner != study:
            raise UsageError(
                f"{path} exists and belongs to "
                + (f"study {owner}" if owner else "something else than autoamp"),
                slug="output-exists",
                remedy="give --output another path, or move the file",
            )
    return path


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
    )


def storage_file(url: str) -> str | None:
    """The path of an SQLite URL, None for a server."""
    return url[len("sqlite:///") :] if url.startswith("sqlite:///") else None
