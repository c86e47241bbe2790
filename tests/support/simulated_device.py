"""A simulated device: Setting -> Measurement by a few laws with knobs, for the whole search."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autoamp.measurement import (
    Effect,
    Label,
    Loader,
    LossScale,
    Measurement,
    Outcome,
    Phase,
    Scan,
    ScriptFacts,
    Utilisation,
)
from autoamp.probes.facts import (
    Device,
    DeviceKind,
    Host,
    Identity,
    KnobVerdict,
    Machine,
    PaddleInstall,
    Verdict,
)
from autoamp.settings import Dtype, Level, Setting
from autoamp.studies.confirm import HostBound
from autoamp.studies.phases import Options, Proposal, Result, search

GIB = 2**30

PLAIN_SCAN = Scan(
    grad_exponent_min=-20,
    grad_exponent_max=-3,
    grad_exponents=((-20, 10), (-10, 80), (-3, 10)),
)


@dataclass
class Simulated:
    """Laws of a made-up script on a made-up device. Memory in bytes, time in seconds."""

    own_batch: int | None = 32
    dataset_length: int | None = 100_000
    tunable: bool = True
    has_loader: bool = True
    script_amp: Setting | None = None
    """The AMP that the script's author wrote, as a setting; None: FP32."""
    scheduled_by: str | None = "epochs"
    fixed_bytes: float = 1.0 * GIB
    bytes_per_sample: dict[str, float] = field(
        default_factory=lambda: {"O0": 0.10 * GIB, "O1": 0.07 * GIB, "O2": 0.05 * GIB}
    )
    capacity: float = 16 * GIB
    estimated_bytes: tuple[int, int] = (0, 0)
    """Context and workspaces of a virtual device, on top of the counted peak."""
    loader_samples_per_s: float | None = None
    """What a virtual device's loader gives on this machine."""
    overhead_s: float = 0.010
    """Per step, whatever the batch."""
    per_sample_s: dict[str, float] = field(
        default_factory=lambda: {"O0": 0.0020, "O1": 0.0010, "O2": 0.0008}
    )
    amp_overhead_s: float = 0.001
    tf32: tuple[bool | None, bool | None] = (False, True)
    """Paddle's switches as the script finds them (products, convolutions)."""
    tf32_per_sample_s: float = 0.0016
    """With both switches on; ``per_sample_s`` is what the script finds."""
    noise: float = 0.0
    unstable: Callable[[Setting], str | None] = lambda setting: None
    """A reason if the setting's float16/bfloat16 overflows."""
    drifts: Callable[[Setting], float] = lambda setting: 0.0
    """What the precision adds to the loss."""
    fails: Callable[[Proposal], tuple[Outcome, str] | None] = lambda proposal: None
    scan: Scan = PLAIN_SCAN
    data_wait: float = 0.05
    virtual: bool = False
    step_flops: float | None = None
    """Operations of a step at the script's own batch, as a virtual device counts them."""
    full_step_s: float = 0.1
    """Seconds that the host takes for a step with full numerics."""
    gpu_percent: float | None = 80.0
    seed: int = 1
    calls: list[Proposal] = field(default_factory=list)

    def facts(self) -> ScriptFacts:
        loaders = ()
        if self.has_loader:
            loaders = (
                Loader(
                    ordinal=0,
                    kind="DataLoader",
                    site="train.py:41",
                    batch_size=self.own_batch,
                    dataset_length=self.dataset_length,
                    tunable=self.tunable,
                    reason=None if self.tunable else "the batch is baked into the dataset",
                ),
            )
        amp = self.script_amp is not None
        return ScriptFacts(
            calls_auto_cast=amp,
            calls_scaler=amp,
            own_level=str(self.script_amp.amp_level) if self.script_amp else None,
            optimizer="Momentum",
            optimizer_has_master_weights=True,
            scheduled_by=self.scheduled_by,
            loaders=loaders,
        )

    def effective(self, setting: Setting) -> Setting:
        """The setting with the script's own values where it leaves them alone."""
        own = self.script_amp or Setting(amp_level=Level.O0, dtype=Dtype.float32)
        if setting.amp_level is None:
            setting = replace(own, batch_size=setting.batch_size)
        if setting.batch_size is None:
            setting = replace(setting, batch_size=self.own_batch or 16)
        return setting

    def memory(self, setting: Setting) -> float:
        eff = self.effective(setting)
        assert eff.batch_size is not None
        return self.fixed_bytes + self.bytes_per_sample[str(eff.amp_level)] * eff.batch_size

    def throughput(self, setting: Setting) -> float:
        eff = self.effective(setting)
        assert eff.batch_size is not None
        per_sample = self.per_sample_s[str(eff.amp_level)]
        if eff.amp_level is Level.O0 and eff.tf32:
            per_sample = self.tf32_per_sample_s
        step = self.overhead_s + per_sample * eff.batch_size
        if eff.amp_level is not Level.O0:
            step += self.amp_overhead_s
        return eff.batch_size / step

    def __call__(self, proposal: Proposal) -> Measurement:
        self.calls.append(proposal)
        setting = self.effective(proposal.setting)
        planning = proposal.numerics == "planning"
        labels = {}
        if self.virtual:
            labels = {
                "time_label": Label.modelled,
                "memory_label": Label.counted,
                "numerics_label": Label.not_computed if planning else Label.emulated,
            }
        base = Measurement(
            outcome=Outcome.ok,
            batch_size=setting.batch_size,
            facts=self.facts(),
            wall_s=10.0,
            startup_s=2.0,
            step_flops=self.step_flops,
            tf32_matmul=setting.tf32 if setting.tf32 is not None else self.tf32[0],
            tf32_conv=setting.tf32 if setting.tf32 is not None else self.tf32[1],
            **labels,
        )
        failed = self.fails(proposal)
        if failed is not None:
            return replace(base, outcome=failed[0], reason=failed[1], log_tail="Traceback: boom")
        memory = self.memory(proposal.setting)
        if memory + sum(self.estimated_bytes) > self.capacity:
            return replace(
                base,
                outcome=Outcome.out_of_memory,
                reason="out of memory at step 1",
                memory_reserved_peak_bytes=int(self.capacity),
            )
        unstable = None if planning else self.unstable(setting)
        if setting.is_mixed and unstable is not None:
            return replace(base, outcome=Outcome.not_finite, reason=unstable)
        rng = random.Random(f"{self.seed}|{proposal.key}")
        wobble = math.exp(rng.gauss(0, self.noise)) if not self.virtual else 1.0
        throughput = self.throughput(proposal.setting) * wobble
        steps = proposal.steps or 20
        if proposal.numerics == "full":
            base = replace(base, wall_s=2.0 + self.full_step_s * steps)
        return replace(
            base,
            steps_done=steps,
            steps_timed=steps,
            throughput_samples_per_s=throughput,
            throughput_spread=self.noise,
            **self.loading(throughput, setting.batch_size or 1, steps),
            utilisation=Utilisation(reason="modelled device time alone")
            if self.virtual
            else Utilisation(gpu_percent=self.gpu_percent),
            memory_allocated_peak_bytes=int(memory * 0.95),
            memory_reserved_peak_bytes=int(memory),
            losses=() if planning else self.losses(setting, proposal.seed, steps),
            loss_steps=() if planning else tuple(range(1, steps + 1)),
            loss_scales=(LossScale(step=0, value=setting.init_loss_scaling or 32768.0),)
            if setting.dtype is Dtype.float16
            else (),
            zero_gradient_share=0.01,
            scan=self.scan if proposal.scan else None,
            effects=(Effect(knob="batch_size", wanted="x", seen="x", effective=True),),
        )

    def loading(self, throughput: float, batch: int, steps: int) -> dict[str, Any]:
        if not self.virtual:
            return {"data_wait_share": self.data_wait}
        extra = {
            "memory_overhead_bytes": self.estimated_bytes[0],
            "memory_workspace_bytes": self.estimated_bytes[1],
        }
        if self.loader_samples_per_s is None:
            return extra | {"data_wait_reason": "only device time is modelled"}
        step_s, loader_s = batch / throughput, batch / self.loader_samples_per_s
        return extra | {
            "samples_timed": batch * steps,
            "timed_s": step_s * steps,
            "loader_s_per_step": loader_s,
            "loader_workers": 2,
            "data_wait_share": 1 - step_s / max(step_s, loader_s),
            "modelled_busy_share": 0.9 * step_s / max(step_s, loader_s),
        }

    def losses(self, setting: Setting, seed: int, steps: int) -> tuple[float, ...]:
        shift = {0: 0.0, 1: 0.02, 2: -0.015}.get(seed % 3, 0.0)
        drift = self.drifts(setting) if setting.is_reduced else 0.0
        tiny = 0.002 if setting.is_reduced else 0.0
        return tuple(
            0.5 + 2.0 * math.exp(-i / 20) + shift + tiny + drift * i / steps
            for i in range(1, steps + 1)
        )


ALL = tuple((level, dtype) for level in (Level.O1, Level.O2, Level.OD)
            for dtype in (Dtype.float16, Dtype.bfloat16))  # fmt: skip


def machine(
    *,
    kind: DeviceKind = DeviceKind.gpu,
    name: str = "Tesla T4",
    memory_bytes: int | None = 16 * GIB,
    refused: dict[Dtype, str] | None = None,
    forcible: bool = False,
    tensor_cores: int | None = 2,
    numerics: bool = True,
    knobs: tuple[KnobVerdict, ...] = (),
) -> Machine:
    """A machine that takes float16 and bfloat16, less what is refused with its reason."""
    refused = refused or {}
    verdicts = tuple(
        Verdict(
            level=level,
            dtype=dtype,
            allowed=dtype not in refused,
            forcible=forcible,
            reason=refused.get(dtype, "supported"),
            source="test",
            instead="use --levels O0",
        )
        for level, dtype in ALL
    )
    device = Device(
        kind=kind,
        paddle_name={"gpu": "gpu:0", "virtual": "virtual"}.get(kind.value, "cpu"),
        name=name,
        compute_capability=(7, 5),
        tensor_core_generation=tensor_cores,
        memory_total_bytes=memory_bytes,
        numerics=numerics,
    )
    return Machine(
        device=device,
        devices=(device,),
        host=Host(
            hostname="box",
            os="Linux",
            cpu_model=None,
            cpu_count=8,
            memory_total_bytes=64 * GIB,
            memory_available_bytes=32 * GIB,
            shm_free_bytes=None,
            driver_version="550.54",
            driver_cuda_version="12.4",
        ),
        paddle=PaddleInstall(python="/usr/bin/python3", version="3.3.1"),
        verdicts=() if kind is DeviceKind.cpu else verdicts,
        problems=(),
        knobs=knobs,
        identity=Identity(device=name, memory_gib=16, mig=None, paddle="3.3", cuda="12.4"),
    )


NO_BF16 = {Dtype.bfloat16: "needs compute capability 8.0"}
PASCAL = {
    Dtype.float16: "Pascal (compute capability 6.1) has no Tensor Cores",
    Dtype.bfloat16: "needs compute capability 8.0",
}


def tf32_knob(*, available: bool = True, reason: str = "Tensor Cores can") -> KnobVerdict:
    return KnobVerdict(knob="tf32", available=available, reason=reason, source="test")


def ampere(**kwargs: object) -> Machine:
    """Everything, TF32 included."""
    return machine(name="A100", tensor_cores=3, knobs=(tf32_knob(),), **kwargs)  # type: ignore[arg-type]  # passed through


def t4(**kwargs: object) -> Machine:
    return machine(refused=NO_BF16, **kwargs)  # type: ignore[arg-type]  # passed through


def virtual(**kwargs: object) -> Machine:
    return machine(kind=DeviceKind.virtual, name="Tesla V100", refused=NO_BF16, **kwargs)  # type: ignore[arg-type]  # passed through


@dataclass
class Finished:
    """A whole search: what it asked for, and what it ended with."""

    result: Result
    proposals: list[Proposal]

    def phase(self, phase: Phase) -> list[Proposal]:
        return [p for p in self.proposals if p.phase is phase]

    @property
    def virtual(self) -> bool:
        return self.result.machine.device.kind is DeviceKind.virtual

    @property
    def counted(self) -> list[Proposal]:
        return [p for p in self.proposals if p.counted]


def drive(
    simulated: Callable[[Proposal], Measurement],
    on: Machine | None = None,
    options: Options | None = None,
    *,
    ratio_band: float | None = 0.2,
    host_bound: HostBound | None = None,
    stop_after: int | None = None,
    seconds_per_trial: float = 10.0,
    stored: Sequence[Proposal] = (),
) -> Finished:
    """Run a whole search against a simulated device."""
    proposals: list[Proposal] = []
    steps = search(
        on or t4(),
        options or Options(),
        clock=lambda: len(proposals) * seconds_per_trial,
        ratio_band=ratio_band,
        host_bound=host_bound,
        stop=lambda: stop_after is not None and len(proposals) >= stop_after,
        stored=stored,
    )
    try:
        proposal = next(steps)
        while True:
            assert proposal.key not in {p.key for p in proposals}, f"asked twice: {proposal.key}"
            proposals.append(proposal)
            proposal = steps.send(simulated(proposal))
    except StopIteration as end:
        return Finished(result=end.value, proposals=proposals)
