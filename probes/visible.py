"""Which GPUs CUDA shows a program, and in which order, under ``CUDA_VISIBLE_DEVICES``."""

import re
from collections.abc import Mapping, Sequence

from autoamp.probes.facts import Device, DeviceKind, NvmlGpu

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
PCI_ORDER = "PCI_BUS_ID"

# The name an instance had before driver 470: MIG-GPU-<uuid>/<gpu instance>/<compute instance>.
_OLD_MIG = re.compile(r"MIG-GPU-")


def visible(gpus: Sequence[NvmlGpu], setting: str | None) -> tuple[NvmlGpu, ...]:
    """The GPUs that CUDA shows, in CUDA's order, if ``CUDA_VISIBLE_DEVICES`` is ``setting``.

    Indices are read in PCI order, which autoamp sets for its children. CUDA stops at the first
    entry it does not know, and takes a UUID by any beginning of it that fits one GPU only (CUDA
    C++ Programming Guide, CUDA environment variables).
    """
    if setting is None:
        return tuple(gpus)
    chosen: list[NvmlGpu] = []
    for entry in (e.strip() for e in setting.split(",")):
        match = [g for g in gpus if _fits(entry, g)]
        if re.fullmatch(r"\d+", entry):
            # An index names the GPU; of a GPU split by MIG, CUDA takes the first instance.
            match = match[:1]
        if len(match) != 1:
            break
        if match[0] in chosen:
            # The driver takes a repeated GPU for a mistake, and shows none at all.
            return ()
        chosen.append(match[0])
    return tuple(chosen)


def _fits(entry: str, gpu: NvmlGpu) -> bool:
    if re.fullmatch(r"\d+", entry):
        return gpu.index == int(entry)
    if not entry or gpu.uuid is None:
        return False
    if _OLD_MIG.match(entry) and not gpu.uuid.startswith("MIG-GPU-"):
        return False
    return gpu.uuid.startswith(entry)


def order_is_doubtful(gpus: Sequence[NvmlGpu], environment: Mapping[str, str]) -> bool:
    """True if an index means one GPU to NVML and may mean another to the user's own programs.

    CUDA numbers the fastest GPU 0 unless ``CUDA_DEVICE_ORDER`` says otherwise; among equal GPUs
    both orders agree.
    """
    mixed = len({g.name for g in gpus}) > 1
    return mixed and environment.get(ORDER) != PCI_ORDER


def child_environment(device: Device) -> dict[str, str]:
    """Variables that show a child process ``device`` alone, as its ``gpu:0``.

    By UUID: it means the same whatever the order, and is the only name of a MIG instance. An
    integrated GPU, which is on no PCI bus, goes by index: whether CUDA takes its UUID was never
    seen. Empty for what is no NVIDIA GPU.
    """
    if device.kind is not DeviceKind.gpu:
        return {}
    values = {ORDER: PCI_ORDER}
    integrated = device.nvml is not None and device.nvml.pci_bus_id is None
    if device.uuid and device.uuid.startswith(("GPU-", "MIG-")) and not integrated:
        values[VISIBLE] = device.uuid
    elif device.nvml is not None:
        values[VISIBLE] = str(device.nvml.index)
    return values
