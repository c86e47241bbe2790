"""What the command line asks of ``tune`` and ``plan``, and how a person stops them."""

from dataclasses import dataclass

from autoamp.launch import Target
from autoamp.studies.proposal import Options


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the command line asks for."""

    target: Target
    device: str
    storage: str
    study: str | None
    options: Options
    steps: int | None
    trial_limit_s: float | None
    output: str | None
    allow_unsupported: bool


@dataclass
class Stops:
    """Ctrl-C once: after this trial. Twice: now."""

    after_trial: bool = False
    now: bool = False

    def press(self) -> None:
        self.now = self.after_trial
        self.after_trial = True


class Interrupted(Exception):
    """Stopped at once by the user; everything finished is stored."""
