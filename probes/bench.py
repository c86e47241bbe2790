"""``autoamp probe --bench``: a roofline through Paddle, in a child process."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from autoamp import wire
from autoamp.measurement import Label, Utilisation
from autoamp.probes.facts import Device, DeviceKind, Machine, MatmulRate, Roofline
from autoamp.probes.paddle_child import ask
from autoamp.probes.peaks import Peak, peaks
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
    return roofline(machine, answer, seen, datetime.now(timezone.utc))


def left_out(machine: Machine) -> dict[str, str]:
    """Dtypes that are not measured, with the reason: what the device does not have would be
    measured as something else under its name."""
    out = {}
    knob = machine.knob("tf32")
    if knob is not None and not knob.available:
        out["tf32"] = knob.reason
    verdict = machine.verdict(Level.O1, Dtype.bfloat16)
    if is_nvidia(machine.device) and verdict is not None and not verdict.allowed:
        out["bfloat16"] = verdict.reason
    return out


def roofline(
    machine: Machine, answer: Mapping[str, Any], seen: Utilisation, moment: datetime
) -> Roofline:
    """The child's numbers beside the catalogue's peaks; pure."""
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
        device=machine.identity.device,
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
        absent=absent,
    )


def ceilings(device: Device) -> tuple[dict[str, Peak], float | None, str | None]:
    """The catalogue's peaks and bytes per second, or why there are none to compare with."""
    if device.model is None:
        return {}, None, device.absent.get("model", "it is not in the catalogue")
    if device.mig is not None:
        return {}, None, "an instance has a share of its GPU, and the catalogue is of the whole"
    return peaks(device.model), device.model.bandwidth_gb_per_s * 1e9, None
