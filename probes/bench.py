"""``autoamp probe --bench``: a roofline through Paddle, in a child process."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from autoamp import wire
from autoamp.measurement import Label, Utilisation
from autoamp.probes import nvml
from autoamp.probes.facts import Device, DeviceKind, Machine, MatmulRate, NvmlGpu, Roofline
from autoamp.probes.gpu_checks import process_text
from autoamp.probes.paddle_child import ask
from autoamp.probes.peaks import Peak, products
from autoamp.probes.roofline_store import subject
from autoamp.probes.rules import is_nvidia
from autoamp.probes.sampler import Sampler
from autoamp.settings import Dtype, Level

TIMEOUT_S = 300.0


def bench(
    machine: Machine,
    environment: Mapping[str, str],
    played: wire.VirtualDevice | None = None,
) -> Roofline:
    """Measure ``machine.device``; on a virtual device, ``played``, the times are modelled.

    ``environment`` makes the child see that device: ``visible.child_environment``, or the
    virtual device's. Raises MachineError ``paddle-child-failed``.
    """
    device = machine.device
    question: dict[str, Any] = {"device": device.paddle_name, "skip": left_out(machine)}
    if device.kind is DeviceKind.gpu:
        # The environment shows the child this GPU alone.
        question["device"] = "gpu:0"
    elif device.kind is DeviceKind.virtual:
        assert played is not None, "a virtual device is asked as it is played"
        question["virtual"] = asdict(played)
    sampler = Sampler(device)
    sampler.start()
    try:
        answer = ask(
            machine.paddle.python,
            "autoamp.child.bench",
            question,
            environment=environment,
            timeout_s=TIMEOUT_S,
        )
        start, end = answer["window_s"]
        seen = sampler.window(start, end)
    finally:
        sampler.stop()
    others = dict.fromkeys((*company(device.nvml), *company(again(device))))
    return roofline(machine, answer, seen, datetime.now(timezone.utc), tuple(others))


def again(device: Device) -> NvmlGpu | None:
    """The GPU's state now; None for what NVML does not see."""
    if device.nvml is None or device.uuid is None:
        return None
    return next((gpu for gpu in nvml.read().gpus if gpu.uuid == device.uuid), None)


def company(gpu: NvmlGpu | None) -> tuple[str, ...]:
    """``python (pid 12)`` for every process on the GPU, which the child no longer is."""
    processes = () if gpu is None else gpu.processes or ()
    return tuple(process_text(process) for process in processes)


def left_out(machine: Machine) -> dict[str, str]:
    """Dtypes that are not measured, with the reason: what AMP cannot use is no limit of it, and
    what the device does not have would be measured as something else under its name."""
    out = {}
    knob = machine.knob("tf32")
    if knob is not None and not knob.available:
        out["tf32"] = knob.reason
    for dtype in (Dtype.float16, Dtype.bfloat16):
        verdict = machine.verdict(Level.O1, dtype)
        if is_nvidia(machine.device) and verdict is not None and not verdict.allowed:
            out[str(dtype)] = verdict.reason
    return out


def roofline(
    machine: Machine,
    answer: Mapping[str, Any],
    seen: Utilisation,
    moment: datetime,
    others: Sequence[str] = (),
) -> Roofline:
    """The child's numbers beside the catalogue's peaks; pure. ``others``: who used the GPU too."""
    device = machine.device
    known, bandwidth, without_peak = ceilings(device)
    copy = answer.get("copy_bytes_per_s")
    absent = {str(k): str(v) for k, v in answer.get("absent", {}).items()}
    for name, value in (("sm_clock_mhz", seen.sm_clock_mean_mhz), ("power_w", seen.power_mean_w)):
        if value is None:
            absent[name] = seen.reason or "not sampled"
    if any(found["dtype"] not in known for found in answer["matmuls"]):
        absent["share_of_peak"] = without_peak or "no source gives this dtype's peak"
    if not copy or not bandwidth:
        absent["copy_share_of_peak"] = without_peak or "no copy was measured"
    return Roofline(
        device=subject(machine.identity).device,
        label=Label.modelled if device.kind is DeviceKind.virtual else Label.measured,
        taken_at=moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
        paddle=machine.paddle.version,
        matmuls=tuple(
            MatmulRate(
                dtype=found["dtype"],
                m=found["m"],
                n=found["n"],
                k=found["k"],
                flops_per_s=found["flops_per_s"],
                share_of_peak=(
                    found["flops_per_s"] / (known[found["dtype"]].tflops * 1e12)
                    if found["dtype"] in known
                    else None
                ),
            )
            for found in answer["matmuls"]
        ),
        copy_bytes_per_s=copy,
        copy_share_of_peak=copy / bandwidth if copy and bandwidth else None,
        launch_s=answer.get("launch_s"),
        host_to_device_bytes_per_s=answer.get("host_to_device_bytes_per_s"),
        sm_clock_mhz=seen.sm_clock_mean_mhz,
        power_w=seen.power_mean_w,
        throttle_reasons=seen.throttle_reasons,
        other_processes=tuple(others),
        absent=absent,
    )


def ceilings(device: Device) -> tuple[dict[str, Peak], float | None, str | None]:
    """The catalogue's peaks and bytes per second, or why there are none to compare with."""
    if device.model is None:
        return {}, None, device.absent.get("model", "it is not in the catalogue")
    if device.mig is not None:
        return {}, None, "an instance has a share of its GPU, and the catalogue is of the whole"
    return products(device.model), device.model.bandwidth_gb_per_s * 1e9, None
