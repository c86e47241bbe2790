"""Programs that a training script starts in a trial: contained, or refused if they would write.

Python children carry our hooks themselves. Everything else (a shell, ``cp``, ``rm``) runs by
``contain.py`` where the system allows mount namespaces; where it does not, a command line with a
word that changes files is refused, and any other runs as it is.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autoamp import wire

CONTAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "contain.py")
MARK = "contained.txt"
"""In the trial's folder: whether this system contains, asked once for all processes."""
CHANGING = re.compile(
    r">|\b(rm|rmdir|mv|cp|mkdir|touch|tee|ln|dd|tar|unzip|zip|gzip|gunzip|rsync|install|truncate|"
    r"shred|unlink|chmod|chown|sed\s+-\S*i|git\s+(?!rev-parse|log|status|diff|describe|show)|wget|"
    r"curl)\b"
)
ASKING = frozenset(
    ("which", "uname", "nvidia-smi", "lscpu", "hostname", "nproc", "lspci", "id", "getconf")
)
"""Programs that only answer; paddle's own import asks ``which``. Run as they are: containing one
costs some 50 ms."""
POSITIONAL = (
    "bufsize",
    "executable",
    "stdin",
    "stdout",
    "stderr",
    "preexec_fn",
    "close_fds",
    "shell",
    "cwd",
    "env",
)
"""What Popen takes by position after its arguments."""
_PYTHON = re.compile(r"python[\d.]*$")


class Commands:
    """Wraps ``subprocess.Popen`` (and by it run, call, os.popen) and ``os.system``."""

    def __init__(self, trial_dir: str, on_refusal: Callable[[str], None]) -> None:
        self._trial_dir = trial_dir
        self._project = os.getcwd()
        self._on_refusal = on_refusal
        self._contains: bool | None = None

    def install(self) -> None:
        popen: Any = subprocess.Popen
        original = popen.__init__

        def __init__(process: Any, args: Any, *rest: Any, **options: Any) -> None:
            if rest:
                # bufsize, executable, stdin, ... by position: rare, and named here to be changed.
                options.update(zip(POSITIONAL, rest[: len(POSITIONAL)], strict=False))
                rest = rest[len(POSITIONAL) :]
            args, options = self._changed(args, options)
            original(process, args, *rest, **options)

        popen.__init__ = __init__

        def system(command: Any) -> int:
            try:
                code = subprocess.call(command, shell=True)
            except PermissionError:
                code = 126
            # As waitstatus: a signal in the low byte, a code in the high one.
            return -code if code < 0 else code << 8

        os.system = system

    def _changed(self, args: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        words = command_words(args, bool(options.get("shell")))
        if words is None or self._is_ours(words, options.get("env")):
            return args, options
        if os.path.basename(words[0]) in ASKING and not options.get("executable"):
            return args, options
        if options.get("executable") and not options.get("shell"):
            words = [os.fsdecode(options["executable"]), *words[1:]]
        if not found(words[0], options.get("cwd"), options.get("env")):
            # Popen's own FileNotFoundError is what the script expects.
            return args, options
        if self.contains():
            head = [sys.executable, "-I", "-S", CONTAIN, self._trial_dir, self._project, "--"]
            return [*head, *words], {**options, "shell": False, "executable": None}
        if CHANGING.search(shlex.join(words)):
            self._on_refusal(shlex.join(words))
            raise PermissionError(
                "autoamp does not run a command that changes files in a trial: "
                + shlex.join(words)
            )
        return args, options

    def _is_ours(self, words: Sequence[str], env: Mapping[Any, Any] | None) -> bool:
        """True for a Python that loads our hooks: they divert what it writes."""
        name = os.path.basename(words[0])
        if words[0] == sys.executable and CONTAIN in words:
            return True
        if not _PYTHON.match(name) or (env is not None and wire.ENV_PLAN not in map(str, env)):
            return False
        options = [w for w in words[1:] if w.startswith("-") and not w.startswith("--")]
        return not any(set("IES") & set(w[1:]) for w in options[:4] if w[1:2] not in "cmXW")

    def contains(self) -> bool:
        """Whether this system lets us contain a command; asked once a trial."""
        if self._contains is None:
            mark = os.path.join(self._trial_dir, MARK)
            try:
                with open(mark, encoding="ascii") as f:
                    self._contains = f.read() == "yes"
            except OSError:
                self._contains = self._ask()
                with open(mark, "w", encoding="ascii") as f:
                    f.write("yes" if self._contains else "no")
        return self._contains

    def _ask(self) -> bool:
        self._contains = False
        command = [sys.executable, "-I", "-S", CONTAIN, self._trial_dir, self._project]
        try:
            done = subprocess.run(
                [*command, "--", "true"], stdin=subprocess.DEVNULL, capture_output=True
            )
        except OSError:
            return False
        return done.returncode == 0


def command_words(args: Any, shell: bool) -> list[str] | None:
    """The command as a list; None if it is nothing that Popen would start."""
    try:
        if isinstance(args, (str, bytes, os.PathLike)):
            text = os.fsdecode(args)
            return ["/bin/sh", "-c", text] if shell else [text]
        words = [os.fsdecode(a) for a in args]
    except TypeError:
        return None
    if not words:
        return None
    return ["/bin/sh", "-c", *words] if shell else words


def found(program: str, cwd: Any, env: Mapping[Any, Any] | None) -> bool:
    """Whether exec would find the program."""
    if os.sep in program:
        return os.path.exists(os.path.join(os.fsdecode(cwd or "."), program))
    path = str((env or os.environ).get("PATH", os.defpath))
    return any(os.access(os.path.join(d, program), os.X_OK) for d in path.split(os.pathsep) if d)


def install(trial_dir: str, on_refusal: Callable[[str], None]) -> None:
    """Contain or refuse what this process starts from now on."""
    Commands(trial_dir, on_refusal).install()
