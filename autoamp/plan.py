"""``autoamp plan``: the search of ``autoamp tune`` for several virtual GPUs, into one table."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Protocol

from autoamp import __version__
from autoamp.errors import AutoampError, MachineError, UsageError
from autoamp.probes import choice
from autoamp.probes.device_spec import parse_device
from autoamp.probes.facts import DeviceKind
from autoamp.shared_runs import SharedRuns
from autoamp.studies import plan_table
from autoamp.studies.recommend import LABELS
from autoamp.tune import Interrupted, PartOfPlan, Prepared, Request, Stops, View, prepare, tune
from autoamp.virtual import calibration

OF_ONE_GPU = ("refused-precision", "baseline-out-of-memory")
"""Errors that say something about one GPU; others would come back on each."""


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


def plan(
    request: Request, devices: Sequence[str], view: PlanView, stops: Stops
) -> plan_table.PlanTable:
    """Search for each device in turn; ``request.device`` is not looked at.

    A GPU that cannot do it gets a row with the reason. Raises the first error if no GPU has a
    recommendation, UsageError for a device that is not virtual, and Interrupted as ``tune`` does
    if nothing was finished.
    """
    played = look(request, devices)
    shared = SharedRuns()
    rows: list[plan_table.PlanRow] = []
    first: AutoampError | None = None
    stopped: str | None = None
    for index, gpu in enumerate(played):
        view.device_started(gpu.device, index, len(played))
        error = gpu.refused
        if gpu.prepared is not None:
            asked = replace(request, device=gpu.device)
            part = PartOfPlan(prepared=gpu.prepared, shared=shared)
            try:
                tuned = tune(asked, view, stops, part)
            except Interrupted:
                if not rows:
                    raise
                stopped = "stopped by the user"
                break
            except AutoampError as found:
                if found.slug not in OF_ONE_GPU:
                    raise
                error = found
            else:
                row = plan_table.finished_row(
                    gpu.device, gpu.band, tuned.result, tuned.recommendation
                )
        if error is not None:
            first = first or error
            row = failed_row(gpu, error)
        rows.append(row)
        view.device_finished(row)
        if stops.after_trial and index + 1 < len(played):
            stopped = "stopped by the user"
            break
    if first is not None and all(row.problem is not None for row in rows):
        raise first
    return plan_table.PlanTable(
        schema_version=plan_table.SCHEMA_VERSION,
        autoamp_version=__version__,
        created_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=request.target.shown,
        labels={name: LABELS[name] for name in ("counted", "emulated", "modelled")},
        rows=tuple(rows),
        stopped=stopped,
    )


def look(request: Request, devices: Sequence[str]) -> tuple[Played, ...]:
    """Every device checked before the first trial of any. Raises as ``plan`` does."""
    names = tuple(dict.fromkeys(device.strip() for device in devices))
    for name in names:
        if parse_device(name).kind is not DeviceKind.virtual:
            raise UsageError(
                f"--device {name!r}: expected a virtual GPU (virtual:NAME)",
                slug="plan-not-virtual",
                remedy="autoamp devices lists the names; a real device is tuned by autoamp tune",
            )
    return tuple(_look_at(request, name) for name in names)


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
    except MachineError as error:
        if error.slug not in OF_ONE_GPU:
            raise
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
