"""The paddle that an interpreter would import: found without importing it."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from autoamp.errors import MachineError
from autoamp.process import run_quick

_FIND_PADDLE = """
import importlib.metadata, importlib.util, json, os
spec = importlib.util.find_spec("paddle")
out = {"folder": None, "version": None}
if spec is not None and spec.origin:
    out["folder"] = os.path.dirname(os.path.abspath(spec.origin))
    for name in ("paddlepaddle", "paddlepaddle-gpu"):
        try:
            out["version"] = importlib.metadata.version(name)
            break
        except importlib.metadata.PackageNotFoundError:
            pass
print(json.dumps(out))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddleBuild:
    """Where an interpreter's paddle lies, and which version it is."""

    folder: Path
    version: str

    @property
    def major(self) -> int:
        head = self.version.split(".")[0]
        return int(head) if head.isdigit() else 3

    def link_options(self) -> list[str]:
        """Libraries to link; 2.x keeps everything in the Python extension itself."""
        names = (
            ["libpaddle.so", "libcommon.so"]
            if self.major == 2
            else ["libphi.so", "libphi_core.so", "libcommon.so"]
        )
        folders = [self.folder / "libs", self.folder / "base"]
        return [
            *[f"-L{folder}" for folder in folders],
            *[f"-l:{name}" for name in names],
            *[f"-Wl,-rpath,{folder}" for folder in folders],
        ]


def find_paddle(python: str) -> PaddleBuild:
    """The paddle of ``python``. Raises MachineError ``virtual-no-paddle``."""
    remedy = f"Install it for that interpreter: {python} -m pip install paddlepaddle"
    try:
        # An empty folder: a script's own paddle.py must not be taken for the package.
        with tempfile.TemporaryDirectory() as empty:
            done = run_quick([python, "-c", _FIND_PADDLE], cwd=empty)
        found = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, ValueError, IndexError) as error:
        raise MachineError(
            f"The virtual device needs PaddlePaddle, and {python} could not be asked for it: "
            f"{error}",
            slug="virtual-no-paddle",
            remedy=remedy,
        ) from error
    if not found["folder"] or not (Path(found["folder"]) / "include" / "paddle").is_dir():
        raise MachineError(
            f"The virtual device needs PaddlePaddle with its C++ headers; {python} has "
            + ("no paddle." if not found["folder"] else f"none below {found['folder']}."),
            slug="virtual-no-paddle",
            remedy=remedy,
        )
    return PaddleBuild(folder=Path(found["folder"]), version=found["version"] or "unknown")
