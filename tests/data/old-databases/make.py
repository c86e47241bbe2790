"""Make the database of the present schema: run once, when a revision is new, and keep the file."""

import os
from pathlib import Path

from autoamp.measurement import (
    Label,
    LossScale,
    Measurement,
    OpCalls,
    Outcome,
    Phase,
    Utilisation,
)
from autoamp.probes.facts import Identity
from autoamp.settings import AS_WRITTEN, Dtype, Level, Setting
from autoamp.studies import migrations
from autoamp.studies.lease import acquire
from autoamp.studies.records import NewStudy
from autoamp.studies.script_identity import FileHash, ScriptIdentity
from autoamp.studies.store import open_store

MACHINE = Identity(device="Tesla T4", memory_gib=16, mig=None, paddle="3.3", cuda="12.6")
SCRIPT = ScriptIdentity(
    entry="train.py",
    is_module=False,
    arguments=("-c", "c.yml", "--名", "a b"),
    files=(FileHash(path="c.yml", sha256="0" * 64), FileHash(path="train.py", sha256="1" * 64)),
    folder="/home/user/project",
)
O2 = Setting(
    batch_size=192,
    amp_level=Level.O2,
    dtype=Dtype.float16,
    init_loss_scaling=32768.0,
    custom_black_list=("softmax",),
    master_grad=True,
)
OK = Measurement(
    outcome=Outcome.ok,
    time_label=Label.modelled,
    memory_label=Label.counted,
    numerics_label=Label.emulated,
    batch_size=192,
    steps_done=40,
    throughput_samples_per_s=1250.5,
    memory_allocated_peak_bytes=11 * 2**30,
    memory_reserved_peak_bytes=12 * 2**30,
    losses=(2.3, 1.9, float("nan")),
    loss_steps=(0, 1, 2),
    skipped_steps=1,
    loss_scales=(LossScale(step=0, value=32768.0), LossScale(step=7, value=16384.0)),
    op_calls=(OpCalls(op="matmul", float16=12, float32=1),),
    utilisation=Utilisation(reason="a virtual device has no utilisation"),
    wall_s=9.5,
)
OOM = Measurement(outcome=Outcome.out_of_memory, reason="needs 17.2 GiB of 16 GiB at step 1")


def main() -> None:
    path = Path(__file__).with_name(f"{migrations.HEAD}.db")
    if path.exists():
        raise SystemExit(f"{path} is there: a kept database is never made again")
    with open_store(f"sqlite:///{path}") as store:
        study = store.create_study(
            NewStudy(
                name="train-3f2a",
                script_path="train.py",
                arguments=SCRIPT.arguments,
                device="Tesla T4",
                machine=MACHINE,
                script=SCRIPT,
                options_json='{"trials": 24}',
            )
        )
        with acquire(store, study.id):
            for phase, setting, measurement in (
                (Phase.baseline, AS_WRITTEN, OK),
                (Phase.ceiling, O2, OOM),
                (Phase.search, O2, OK),
            ):
                trial = store.start_trial(study.id, phase, setting, "planning")
                store.finish_trial(trial.id, measurement)
            store.start_trial(study.id, Phase.search, O2, "full")
            store.mark_lost(study.id)
        store.save_space(study.id, '{"levels": ["O1", "O2"]}')
        store.save_recommendation(study.id, '{"schema": 1}')
        store.set_state(study.id, "done")
    os.chmod(path, 0o644)


if __name__ == "__main__":
    main()
