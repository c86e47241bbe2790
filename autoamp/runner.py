"""Runs the proposals of one study in child processes, one after the other."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from autoamp import collect, launch, script_source, wire
from autoamp.measurement import Label, Loader, Measurement, Outcome, Phase, ScriptFacts
from autoamp.played import played
from autoamp.probes import visible
from autoamp.probes.facts import DeviceKind, Machine
from autoamp.probes.sampler import Sampler
from autoamp.request import Interrupted, Request, Stops
from autoamp.script_watch import ScriptWatch
from autoamp.shared_runs import SharedRuns
from autoamp.studies.proposal import NUMERICS_FULL, NUMERICS_PLANNING, Proposal
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
        planning = proposal.numerics == NUMERICS_PLANNING
        virtual = None
        if device.kind is DeviceKind.virtual:
            virtual = played(device, numerics=not planning)
        facts = self.facts
        templated = launch.templated_knobs(self.request.target.arguments)
        # A suite that gets its AMP level as an argument calls AMP itself when asked to; what it
        # did at the FP32 baseline says nothing.
        mixed = setting.is_mixed and facts is not None and "amp_level" not in templated
        hapi = facts is not None and facts.uses_hapi
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
