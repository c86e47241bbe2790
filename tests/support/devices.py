"""Devices and Paddles of the tests' own making: plain facts, and strategies for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from autoamp.probes import catalogue
from autoamp.probes.choice import virtual
from autoamp.probes.device_spec import DeviceSpec
from autoamp.probes.facts import Device, DeviceKind, PaddleInstall

PADDLE = PaddleInstall(
    python="py", version="3.1.0", gpu_build=True, build="cuda", cuda_version="12.6"
)


def played(alias: str) -> Device:
    return virtual(DeviceSpec(kind=DeviceKind.virtual, model=alias))


def gpu(name: str, capability: tuple[int, int] | None) -> Device:
    return Device(
        kind=DeviceKind.gpu, paddle_name="gpu:0", name=name, compute_capability=capability
    )


def custom(kind: str, allowed: tuple[str, ...] | None = None) -> Device:
    return Device(
        kind=DeviceKind.custom,
        paddle_name=f"{kind}:0",
        name=kind,
        allowed_dtypes=allowed,
    )


VERSIONS = st.none() | st.sampled_from(["2.4.2", "2.6.2", "3.3.1", "0.0.0", "develop", ""])
CAPABILITIES = st.none() | st.tuples(
    st.integers(min_value=0, max_value=20), st.integers(min_value=0, max_value=9)
)
DEVICES = st.builds(
    Device,
    kind=st.sampled_from(list(DeviceKind)),
    paddle_name=st.sampled_from(["gpu:0", "cpu", "xpu:0", "npu:1", "virtual"]),
    name=st.text(max_size=12) | st.sampled_from(["GeForce GTX 1660", "Tesla T4"]),
    architecture=st.none() | st.just("Pascal"),
    compute_capability=CAPABILITIES,
    model=st.none() | st.sampled_from(catalogue.models()),
    allowed_dtypes=st.none() | st.just(("float16",)),
)
PADDLES = st.builds(PaddleInstall, python=st.just("py"), version=VERSIONS, cuda_version=VERSIONS)
