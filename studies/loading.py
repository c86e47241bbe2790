"""What this machine's data loader does to the numbers of a virtual device.

The modelled throughput is the device's alone: another host may load faster. Where the loader of
the machine at hand would be the slower part, that is said apart.
"""

from autoamp.measurement import Measurement
from autoamp.rates import rate_text


def loader_caveat(
    best: Measurement, fp32: Measurement | None, *, keeps_fp32: bool = False
) -> str | None:
    """A sentence if the loader is slower than the device with the best setting; else None.

    ``keeps_fp32``: the best setting is FP32, so there is no AMP whose gain could be hidden.
    """
    loader, device = best.loader_samples_per_s, best.throughput_samples_per_s
    if loader is None or device is None or loader >= device:
        return None
    workers = best.loader_workers or 0
    pace, could = rate_text(loader), rate_text(device)
    made = f"the loader of this machine (num_workers={workers}) makes {pace} samples/s"
    if keeps_fp32:
        return (
            f"{made}: below the {could} that the device could take in FP32 (modelled); "
            "it sets the pace until it is faster"
        )
    plain = None if fp32 is None else fp32.throughput_samples_per_s
    if plain is not None and plain < loader:
        return (
            f"{made}: enough for FP32 ({rate_text(plain)} modelled), below the {could} that "
            f"the device could take with the best setting; only {loader / plain:.2f}x will show "
            "until it is faster"
        )
    return (
        f"{made}: below the {could} that the device could take (modelled); AMP will not "
        "show until it is faster"
    )
