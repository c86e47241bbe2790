"""The script stays the one that was identified, from the first trial to the last.

Results of two versions must not stand beside each other. Files are hashed again after every
trial and before every GPU of a plan; that takes milliseconds, a trial takes seconds.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from autoamp.errors import MismatchError
from autoamp.studies import script_identity
from autoamp.studies.script_identity import ScriptIdentity


@dataclass
class ScriptWatch:
    """The script's files by content, as first seen; grows by the modules that trials load."""

    script: ScriptIdentity

    def cover(self, other: ScriptIdentity) -> None:
        """Watch the files of a stored identity of the same script too, by their stored hashes."""
        known = {f.path for f in self.script.files}
        more = tuple(f for f in other.files if f.path not in known)
        self.script = replace(self.script, files=(*self.script.files, *more))

    def learn(self, modules: Iterable[str]) -> None:
        """Watch the modules that a trial was seen to load, as they are now."""
        self.script = script_identity.with_files(self.script, modules)

    def changes(self) -> tuple[str, ...]:
        """What is not as it was first seen, one sentence a file."""
        return script_identity.differences(self.script, script_identity.refresh(self.script))

    def check(self) -> None:
        """Raises MismatchError ``script-changed`` if anything is."""
        changed = self.changes()
        if changed:
            raise MismatchError(
                "the script was changed while it was tuned: " + "; ".join(changed),
                slug="script-changed",
                remedy="what ran before the change is stored; the same command starts a new "
                "study of the script as it is now",
            )


def digest(script: ScriptIdentity) -> str:
    """One word for the script's files and arguments."""
    text = repr((script.entry, script.is_module, script.arguments, script.files))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
