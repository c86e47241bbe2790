"""Before the first trial: probe the machine, identify the script, open the study."""

import re
from dataclasses import dataclass

import msgspec

from autoamp.errors import MismatchError, UsageError
from autoamp.played import played
from autoamp.probes import identity as probes_identity
from autoamp.probes import machine as probes_machine
from autoamp.probes.facts import Conditions, DeviceKind, Machine
from autoamp.request import Request
from autoamp.studies import history, phases, script_identity
from autoamp.studies.confirm import HostBound
from autoamp.studies.records import NewStudy, Study
from autoamp.studies.script_identity import ScriptIdentity
from autoamp.studies.store import Store
from autoamp.virtual import calibration


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Everything known before the first trial."""

    machine: Machine
    script: ScriptIdentity
    ratio_band: float | None
    host_bound: HostBound | None = None
    band_note: str


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
    ratio = host_bound = None
    note = ""
    if machine.device.kind is DeviceKind.virtual and machine.device.model is not None:
        band = calibration.error_band(machine.device.model.alias)
        ratio, note = band.ratio, band.note
        host_bound = HostBound(throughput=band.host_bound_throughput, ratio=band.host_bound_ratio)
    return Prepared(
        machine=machine,
        script=script,
        ratio_band=ratio,
        host_bound=host_bound,
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


def check_study_name(name: str) -> None:
    """A study's name is also a folder's. Raises UsageError ``bad-study-name``."""
    if not re.fullmatch(r"[\w.-]{1,100}", name) or name.strip(".") == "":
        raise UsageError(
            f"--study {name!r}: expected letters, digits, '.', '_' and '-'",
            slug="bad-study-name",
            remedy="give a plain name such as my-study",
        )


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
