"""``autoamp plan``: the search of ``autoamp tune`` for several virtual GPUs, into one table."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Protocol

from autoamp import __version__
from autoamp.errors import AutoampError, MismatchError, StorageError, UsageError
from autoamp.opening import Prepared, prepare
from autoamp.probes import choice
from autoamp.probes.device_spec import parse_device
from autoamp.probes.facts import DeviceKind
from autoamp.request import Interrupted, Request, Stops
from autoamp.script_watch import ScriptWatch
from autoamp.shared_runs import SharedRuns
from autoamp.studies import plan_table
from autoamp.tune import PartOfPlan, Tuned, View, tune
from autoamp.virtual import calibration

OF_THE_PLAN = (UsageError, StorageError, MismatchError)
"""Errors that end a plan: the command, the database or a changed script. Any other is the row of
one GPU, for the next one may do better."""

STOPPED = "stopped by the user"


class PlanView(View, Protocol):
    """What a person sees of a plan."""

    def device_started(self, device: str, index: int, count: int) -> None: ...
    def device_finished(self, row: plan_table.PlanRow) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A virtual GPU of the plan, looked at before anything is run."""

    device: str
    prepared: Prepared | None
    gpu: str
    memory_bytes: int | None
    band: plan_table.Band
    refused: AutoampError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """How a plan ended: what was found is in the table, whatever came then."""

    table: plan_table.PlanTable
    error: AutoampError | None = None
    """What ended it early, to be reported after the table."""
    interrupted: bool = False
    """The user stopped it at once."""


@dataclass
class _Rows:
    """What is known so far."""

    command: str
    rows: list[plan_table.PlanRow] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    first: AutoampError | None = None
    """The first GPU's error."""

    def fail(self, gpu: Played, error: AutoampError) -> None:
        self.first = self.first or error
        self.rows.append(failed_row(gpu, error))

    def finish(self, gpu: Played, tuned: Tuned) -> None:
        self.labels |= tuned.recommendation.labels
        self.rows.append(
            plan_table.finished_row(gpu.device, gpu.band, tuned.result, tuned.recommendation)
        )

    def table(self, stopped: str | None) -> plan_table.PlanTable:
        return plan_table.PlanTable(
            schema_version=plan_table.SCHEMA_VERSION,
            autoamp_version=__version__,
            created_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            command=self.command,
            labels=dict(sorted(self.labels.items())),
            rows=tuple(self.rows),
            stopped=stopped,
        )

    @property
    def all_failed(self) -> bool:
        return all(row.problem is not None for row in self.rows)


def plan(request: Request, devices: Sequence[str], view: PlanView, stops: Stops) -> Planned:
    """Search for each device in turn; ``request.device`` is not looked at.

    A GPU that cannot do it gets a row with the reason. Raises the first error if no GPU has a
    recommendation, UsageError for a device that is not virtual, and Interrupted as ``tune`` does
    if nothing was finished.
    """
    played = look(request, devices)
    shared = SharedRuns()
    watch = next((ScriptWatch(p.prepared.script) for p in played if p.prepared), None)
    found = _Rows(command=request.target.shown)
    for index, gpu in enumerate(played):
        view.device_started(gpu.device, index, len(played))
        try:
            if gpu.refused is not None:
                raise gpu.refused
            assert gpu.prepared is not None and watch is not None
            watch.check()
            part = PartOfPlan(prepared=gpu.prepared, shared=shared, watch=watch)
            found.finish(gpu, tune(replace(request, device=gpu.device), view, stops, part))
        except Interrupted:
            if not found.rows:
                raise
            return Planned(table=found.table(STOPPED), interrupted=True)
        except OF_THE_PLAN as error:
            if not found.rows:
                raise
            return Planned(table=found.table(error.message), error=error)
        except AutoampError as error:
            found.fail(gpu, error)
        view.device_finished(found.rows[-1])
        if stops.after_trial and index + 1 < len(played):
            return Planned(
                table=found.table(STOPPED), error=found.first if found.all_failed else None
            )
    if found.first is not None and found.all_failed:
        raise found.first
    return Planned(table=found.table(None))


def look(request: Request, devices: Sequence[str]) -> tuple[Played, ...]:
    """Every device checked before the first trial of any, each once however it is spelt.

    Raises as ``plan`` does.
    """
    out: dict[object, Played] = {}
    names = [device.strip() for device in devices]
    for name in names:
        if parse_device(name).kind is not DeviceKind.virtual:
            raise UsageError(
                f"--device {name!r}: expected a virtual GPU (virtual:NAME)",
                slug="plan-not-virtual",
                remedy="autoamp devices lists the names; a real device is tuned by autoamp tune",
            )
    for name in names:
        device = choice.virtual(parse_device(name))
        assert device.model is not None
        same = (device.model.alias, device.memory_total_bytes, device.numerics)
        if same not in out:
            out[same] = _look_at(request, name)
    return tuple(out.values())


def _look_at(request: Request, name: str) -> Played:
    device = choice.virtual(parse_device(name))
    assert device.model is not None
    found = calibration.error_band(device.model.alias)
    band = plan_table.Band(
        calibrated=found.calibrated,
        throughput=found.throughput,
        ratio=found.ratio,
        note=found.note,
    )
    prepared: Prepared | None = None
    refused: AutoampError | None = None
    try:
        prepared = prepare(replace(request, device=name))
    except OF_THE_PLAN:
        raise
    except AutoampError as error:
        refused = error
    return Played(
        device=name,
        prepared=prepared,
        gpu=device.name,
        memory_bytes=device.memory_total_bytes,
        band=band,
        refused=refused,
    )


def failed_row(gpu: Played, error: AutoampError) -> plan_table.PlanRow:
    """The row of a GPU without a recommendation."""
    return plan_table.PlanRow(
        device=gpu.device,
        gpu=gpu.gpu,
        memory_bytes=gpu.memory_bytes,
        band=gpu.band,
        problem=plan_table.Problem(
            slug=error.slug, message=error.message.split("\n")[0], remedy=error.remedy
        ),
    )
