"""Whether float32 products run in TF32: Paddle's two switches, set by the plan and read back."""

import os
from typing import TYPE_CHECKING, Any

from autoamp.child.paddle_base import base
from autoamp.child.patching import replace_function

if TYPE_CHECKING:
    from autoamp.child.session import Session

SWITCHES = {"tf32_matmul": "cublas", "tf32_conv": "cudnn"}
"""cuBLAS does the matrix products, cuDNN the convolutions; each has a switch of its own."""

OVERRIDE = "NVIDIA_TF32_OVERRIDE"
"""CUDA's own variable: 0 keeps its libraries from TF32, whatever a program asks for."""

FIRST_CAPABILITY = (8, 0)
"""Ampere (NVIDIA, A100 whitepaper)."""


class Tf32Hooks:
    """Sets the switches before the script trains and keeps them: the setting's word holds."""

    def __init__(self, session: "Session") -> None:
        self._session = session

    def install(self) -> None:
        session = self._session
        wanted = session.setting.tf32
        if wanted is None or not session.patches("tf32"):
            return
        core = base(session.paddle).core
        setters: list[Any] = [
            getattr(core, f"set_{name}_switch", None) for name in SWITCHES.values()
        ]
        if None in setters:
            # Read back at the end, that is "no effect" with its reason.
            return
        before = self.switches()
        for setter in setters:
            setter(wanted)
            replace_function(setter, self._kept)
        was = f"products {before['tf32_matmul']}, convolutions {before['tf32_conv']}"
        session.applied("tf32", wanted, was)

    def _kept(self, on: bool) -> None:
        """The script's own call: noted, and replaced by the setting."""
        self._session.applied("tf32", self._session.setting.tf32, bool(on))

    def switches(self) -> dict[str, bool | None]:
        """As Paddle has them; None where this build has none."""
        core = base(self._session.paddle).core
        state: dict[str, bool | None] = {}
        for key, name in SWITCHES.items():
            getter = getattr(core, f"get_{name}_switch", None)
            try:
                state[key] = None if getter is None else bool(getter())
            except Exception:
                state[key] = None
        return state

    def seen(self) -> dict[str, Any]:
        """What float32 work of this process runs with, and ``tf32_why`` where that is not what
        the switches say. Asks the device: only once it is in use."""
        state: dict[str, Any] = dict(self.switches())
        why = None
        if os.environ.get(OVERRIDE) == "0":
            why = f"{OVERRIDE}=0 in the environment"
        elif not self._device_has_it():
            why = f"{self._session.plan.device} has no TF32"
        elif None in state.values():
            why = "this Paddle has no switches for it"
        if why is not None:
            state = {key: None if on is None else False for key, on in state.items()}
            state["tf32_why"] = why
        return state

    def _device_has_it(self) -> bool:
        plan = self._session.plan
        if plan.virtual is not None:
            return "tf32" in plan.virtual.flops_per_s
        if not plan.device.startswith("gpu"):
            return False
        try:
            found = self._session.paddle.device.cuda.get_device_capability()
        except Exception:
            # Not told: the switches are all there is to go by.
            return True
        return tuple(found) >= FIRST_CAPABILITY
