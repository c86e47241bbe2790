"""How ``--trials`` is spread over the phases, and the plan in words for ``--dry-run``."""

from __future__ import annotations

from dataclasses import dataclass

from autoamp.probes.facts import DeviceKind, Machine
from autoamp.studies.prior import notes, ordered, prior_of
from autoamp.studies.proposal import Options
from autoamp.studies.session import proof_runs
from autoamp.studies.space import FP32, TF32, allowed_precisions

TINY = 4
SMALL = 12
MEDIUM = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a number of trials buys."""

    trials: int

    @property
    def scan(self) -> bool:
        return self.trials > TINY

    @property
    def numerics(self) -> bool:
        """Separate numerics runs on virtual devices; below, the drift check alone guards."""
        return self.trials > 2 * TINY

    @property
    def all_ceilings(self) -> bool:
        """Climb every precision that is not ruled out, or only the most promising one."""
        return self.trials > SMALL

    @property
    def variants(self) -> bool:
        """Also search over knobs beyond precision and batch."""
        return self.trials > SMALL

    @property
    def list_refinement(self) -> bool:
        return self.trials > MEDIUM

    @property
    def ladder_ends(self) -> int:
        """How many batch sizes the search looks at around the fastest."""
        return 8 if self.trials > MEDIUM else 5

    def looks(self, left: int, *, climbs: bool) -> int:
        """Precisions beside FP32 to look at, at the script's batch; one trial is kept to climb,
        where the batch may change."""
        if not climbs:
            return max(1, left)
        few = max(1, min(2, left - 1))
        return few if self.trials <= TINY else max(few, left - 3)

    def climbing(self, left: int) -> int:
        """Trials for the ceilings, from those left after the looks."""
        if self.trials <= TINY:
            return min(1, left)
        if self.trials <= SMALL:
            return max(1, left - 2)
        return max(1, round(left * 0.65))


def plan_line(
    machine: Machine,
    options: Options,
    *,
    seconds_per_trial: float | None = None,
) -> str:
    """What would run, in a few lines, and about how long. Raises as ``allowed_precisions``."""
    precisions, excluded = allowed_precisions(machine, options)
    prior = prior_of(machine)
    precisions = ordered(prior, precisions, fp32_in_tf32=False)
    budget = Budget(trials=options.trials)
    virtual = machine.device.kind is DeviceKind.virtual
    names = [p.name for p in precisions]
    mixed = [p.name for p in precisions if p != FP32]
    if TF32 in precisions and options.trials <= TINY:
        # As the looks are spread: TF32 pushes out no 16-bit type, unless it was asked for.
        mixed.remove(TF32.name)
        mixed.insert(1 if options.tf32 else len(mixed), TF32.name)
    if TF32 in precisions:
        names[names.index(TF32.name)] += " (unless FP32 has it already: the baseline tells)"
    lines = [
        "precisions  " + ", ".join(names),
        *(f"left out    {x.what}: {x.reason}" for x in excluded),
    ]
    if prior is not None:
        lines.append(f"order       {prior.sentence()}")
        lines += [f"            {x}" for x in notes(prior, precisions, fp32_in_tf32=False)]
    steps = ["baseline (as written; FP32 as well if the script uses AMP)"]
    if budget.scan and any("float16" in name for name in mixed):
        steps.append("numerics scan (1)")
    if mixed:
        steps.append(
            f"{' and '.join(mixed[:2]) if options.trials <= TINY else 'each precision'} "
            "at the script's batch"
        )
    if not options.keep_batch:
        if options.trials <= TINY:
            steps.append("the better one at twice the batch")
        elif budget.all_ceilings:
            steps.append("the largest batch of every precision")
        else:
            steps.append("the largest batch of the most promising precision")
    if options.trials > TINY:
        steps.append("search below it")
    if budget.list_refinement:
        steps.append("op lists one operator at a time")
    proof = proof_runs(options, virtual=virtual)
    lines.append(f"trials      up to {options.trials}: " + ", ".join(steps))
    kind = "numerics and memory again" if virtual else f"{options.confirm_pairs} alternating pairs"
    lines.append(
        f"extra       about {proof} runs to prove the winner: drift against FP32, then {kind}"
    )
    if seconds_per_trial is None:
        lines.append("time        known after the first run")
    else:
        total = seconds_per_trial * (options.trials + proof)
        lines.append(
            f"time        about {_duration(total)} "
            f"({seconds_per_trial:.0f} s a run, {options.trials + proof} runs)"
        )
    if options.timeout_s is not None:
        lines.append(f"            at most {_duration(options.timeout_s)} (--timeout)")
    return "\n".join(lines)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
