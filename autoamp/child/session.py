"""One process under a plan: installs every hook once paddle has been imported."""

import os
import sys
from types import ModuleType
from typing import Any

from autoamp import wire
from autoamp.child import amp, device, faults, loaders, meter, numerics, outside, tf32
from autoamp.child.call_site import call_site
from autoamp.child.events import Events
from autoamp.settings import Setting


class Session:
    """What the hooks share: the plan, the setting, the event log and paddle itself."""

    def __init__(self, plan: wire.Plan, events: Events, paddle: ModuleType) -> None:
        self.plan = plan
        self.events = events
        self.paddle: Any = paddle
        self.setting = Setting.from_json(plan.setting)
        self.paddle_dir = os.path.dirname(os.path.abspath(paddle.__file__ or ""))
        self.device = device.DeviceHooks(self)
        self.tf32 = tf32.Tf32Hooks(self)
        self.numerics = numerics.Numerics(self)
        self.meter = meter.Meter(self)
        self.loaders = loaders.LoaderHooks(self)
        self.amp = amp.AmpHooks(self)
        self.outside = outside.OutsideAmp(self)
        self._said: set[tuple[str, str]] = set()

    @property
    def is_trial(self) -> bool:
        return self.plan.mode == "trial"

    def patches(self, knob: str) -> bool:
        """True if the setting has this knob and no argument of the script carries it already."""
        value = getattr(self.setting, knob)
        return value is not None and value != () and knob not in self.plan.templated

    def applied(self, knob: str, value: Any, previous: Any) -> None:
        """Record a knob put in place; once for each place, not each call."""
        where = call_site(self.paddle_dir)
        if (knob, where) not in self._said:
            self._said.add((knob, where))
            self.events.emit(
                "applied", knob=knob, value=str(value), where=where, previous=str(previous)
            )

    def install(self) -> None:
        """Every hook, in the order in which they depend on one another."""
        paddle = self.paddle
        caveats = faults.work_around(paddle)
        self.device.install()
        if self.is_trial:
            self.device.seed()
            if self.plan.divert_files:
                from autoamp.child import files

                files.paddle_savers(paddle)
        self.tf32.install()
        self.amp.install()
        self.loaders.install()
        self.outside.install()
        self.meter.install()
        numpy = sys.modules.get("numpy")
        self.events.emit(
            "paddle",
            version=paddle.__version__,
            numpy=getattr(numpy, "__version__", None),
            gpu_build=bool(getattr(paddle.version, "cuda_version", "False") not in ("False", "")),
            device=self.device.current(),
            caveats=caveats,
            **self.tf32.switches(),
        )
