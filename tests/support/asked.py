"""A Request as the command line makes it when nothing but script and device are given."""

from autoamp.launch import Target
from autoamp.request import Request
from autoamp.studies.proposal import Options


def request(target: Target, *, device: str = "auto", storage: str = "") -> Request:
    return Request(
        target=target,
        device=device,
        storage=storage,
        study=None,
        options=Options(),
        steps=None,
        trial_limit_s=None,
        output=None,
        allow_unsupported=False,
    )
