"""Arms a process of the user's: everything that happens before and right after paddle's import."""

import os
import random
import sys
from types import ModuleType

from autoamp import wire
from autoamp.child.events import Events
from autoamp.child.import_hook import after_import


def arm(plan_path: str) -> None:
    """Read the plan and install what may be installed before paddle. Raises on a bad plan."""
    plan = wire.read_plan(plan_path)
    events = Events(plan.trial_dir)
    # An interpreter that never imports paddle (pip, a shell helper) leaves this one line.
    events.emit("armed", pid=os.getpid(), python=sys.version.split()[0])
    events.watch_exceptions()
    if plan.mode == "trial":
        if plan.divert_files:
            from autoamp.child import commands, files

            def refused(path: str) -> None:
                events.emit("refused", path=path)

            files.install(plan.scratch_dir, plan.trial_dir, refused)
            commands.install(plan.trial_dir, refused)
        if plan.seed is not None:
            random.seed(plan.seed)

    def paddle_imported(paddle: ModuleType) -> None:
        try:
            from autoamp.child.session import Session

            Session(plan, events, paddle).install()
        except Exception as error:
            events.fault("install", error)

    after_import("paddle", paddle_imported)
