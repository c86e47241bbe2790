"""A whole Machine from a file of tests/machines, by the same way the probe goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fake_nvml
import pytest

from autoamp.probes import nvml
from autoamp.probes.accelerators import device_of
from autoamp.probes.device_spec import parse_device
from autoamp.probes.facts import Device, DeviceKind, Host, Machine, PaddleInstall
from autoamp.probes.machine import assemble
from autoamp.probes.paddle_install import read_answer

MIB = 2**20


def host_of(machine: Mapping[str, Any], reading: nvml.NvmlReading) -> Host:
    """The file's host; what it leaves out is that of an ordinary server."""
    given = dict(machine.get("host", {}))
    total = given.pop("memory_total_mib", 131072) * MIB
    shm = given.pop("shm_free_mib", 65536)
    values: dict[str, Any] = {
        "hostname": "testhost",
        "os": "Linux 6.1.0",
        "cpu_model": "Test CPU",
        "cpu_count": 16,
        "memory_total_bytes": total,
        "memory_available_bytes": total * 9 // 10,
        "shm_free_bytes": shm * MIB,
        "driver_version": reading.driver_version,
        "driver_cuda_version": reading.driver_cuda_version,
        "nvidia_on_pci": len(reading.gpus),
    }
    return Host(**{**values, **given})


def paddle_of(machine: Mapping[str, Any]) -> PaddleInstall:
    """The file's Paddle."""
    return read_answer("/usr/bin/python3", machine["paddle"])


def assembled(
    monkeypatch: pytest.MonkeyPatch,
    machine: Mapping[str, Any],
    device: str | None = None,
    environment: Mapping[str, str] | None = None,
    allow_unsupported: bool = False,
) -> Machine:
    """The probe's answer for this machine; raises what the probe raises."""
    fake_nvml.install(monkeypatch, dict(machine))
    reading = nvml.read()
    spec = parse_device(device or machine.get("device", "auto"))
    others: tuple[Device, ...] = ()
    if spec.kind is DeviceKind.custom:
        name = f"{spec.paddle_type}:{spec.index}"
        others = (device_of({"type": spec.paddle_type, "index": spec.index, "name": name}),)
    return assemble(
        spec,
        reading,
        paddle_of(machine),
        host_of(machine, reading),
        environment=environment or {},
        others=others,
        allow_unsupported=allow_unsupported,
    )
