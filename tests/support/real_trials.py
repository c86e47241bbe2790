"""Runs one real trial of a script, as the tune loop does, on a virtual device or the CPU."""

import sys
from pathlib import Path

from autoamp import collect, launch, wire
from autoamp.measurement import Measurement, ScriptFacts
from autoamp.probes import catalogue
from autoamp.probes.virtual import virtual_device
from autoamp.settings import AS_WRITTEN, Setting
from autoamp.virtual.build import ensure_built
from autoamp.virtual.device import child_environment
from autoamp.virtual.overhead import with_overhead

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


def trial(
    folder: Path,
    script: str | Path,
    setting: Setting = AS_WRITTEN,
    *,
    arguments: tuple[str, ...] = (),
    facts: ScriptFacts | None = None,
    device: str = "a100-40gb",
    memory_bytes: int | None = None,
    numerics: bool = True,
    limit_s: float = 120.0,
    steps: int = 8,
    python: str = sys.executable,
    scan: bool = False,
    name: str = "trial",
    module: bool = False,
) -> Measurement:
    """Measure ``setting`` on ``device`` (a catalogue alias, or ``cpu``) in ``folder``."""
    trial_dir = folder / ".autoamp" / name
    trial_dir.mkdir(parents=True)
    virtual = None
    extra: dict[str, str] = {}
    if device != "cpu":
        model = catalogue.find(device)
        virtual = with_overhead(
            virtual_device(model, memory_bytes or model.memory_bytes, numerics),
            own_size=memory_bytes is not None,
        )
        extra = child_environment(virtual, ensure_built(python, lambda text: None))
    templated = launch.templated_knobs(arguments)
    mixed = setting.is_mixed and facts is not None and "amp_level" not in templated
    target = launch.Target(
        entry=str(script), is_module=module, arguments=arguments, python=python, cwd=str(folder)
    )
    plan = wire.Plan(
        trial_dir=str(trial_dir),
        device="virtual" if virtual else "cpu",
        virtual=virtual,
        setting=setting.to_json(),
        templated=templated,
        keep_disabled=facts is not None and facts.own_level is not None,
        outside_auto_cast=mixed and facts is not None and not facts.calls_auto_cast,
        outside_scaler=mixed and facts is not None and not (facts.calls_scaler or facts.uses_hapi),
        outside_decorate=mixed
        and facts is not None
        and not (facts.calls_decorate or facts.uses_hapi),
        loaders=tuple(
            wire.LoaderPlan(ordinal=x.ordinal, kind=x.kind, site=x.site)
            for x in (facts.loaders if facts else ())
            if x.tunable
        ),
        seed=0,
        warmup_steps=4,
        min_steps=steps,
        max_steps=steps,
        blocks=2,
        scan=scan,
    )
    ended = launch.run(
        target, plan, device="virtual" if virtual else "cpu", extra_env=extra, limit_s=limit_s
    )
    return collect.collect(plan, ended)
