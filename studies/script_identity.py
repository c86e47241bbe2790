"""What makes a script the same script: its files by content, and its arguments.

Paths are kept relative to the script's folder, so that a project that was moved or mounted
elsewhere is still the same script; only files given by an absolute path outside stay absolute.
"""

import hashlib
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from autoamp.errors import ScriptError, UsageError

WHOLE_FILE_BYTES = 32 * 2**20
"""Larger files (data sets, checkpoints) are known by their size and both ends: hashing many
gigabytes before each start would cost more than it tells."""

END_BYTES = 2**20
GONE = "gone"
MAX_FILES = 2000

_ASSIGNMENT = re.compile(r"^-{0,2}[\w.-]+=(?P<value>.+)$", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHash:
    """A file by content: ``sha256`` is hex, ``ends-SIZE-hex`` for large files, or ``gone``."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptIdentity:
    """``entry`` is the script's file name, or the module's dotted name if ``is_module``.

    ``folder`` is where it lay (absolute); it is no part of the identity.
    """

    entry: str
    is_module: bool
    arguments: tuple[str, ...]
    files: tuple[FileHash, ...]
    folder: str = ""


def identify(
    entry: str,
    *,
    is_module: bool,
    arguments: Sequence[str],
    cwd: str,
    extra_files: Iterable[str] = (),
) -> ScriptIdentity:
    """Hash the entry file, the files its arguments name, and ``extra_files``.

    ``extra_files`` are modules the script loaded; those outside the script's own folder are
    left out (installed packages belong to the machine). Raises ScriptError
    ``script-missing`` or ``script-unreadable``, UsageError ``module-missing``.
    """
    path = module_file(entry, cwd) if is_module else os.path.join(cwd, entry)
    path = os.path.abspath(path)
    folder = project_folder(entry, path) if is_module else os.path.dirname(path)
    if not os.path.isfile(path):
        raise ScriptError(
            f"no script at {path}" + (" (it is a folder)" if os.path.isdir(path) else ""),
            slug="script-missing",
            remedy="give the path of the training script, relative to the current folder",
        )
    wanted = [path, *_argument_files(arguments, cwd), *_own_modules(extra_files, folder, cwd)]
    try:
        files = {name: _hash(p) for p in wanted for name in (_relative(p, folder),)}
    except OSError as e:
        raise ScriptError(
            f"cannot read {e.filename}: {e.strerror}",
            slug="script-unreadable",
            remedy="check its permissions",
        ) from e
    return ScriptIdentity(
        entry=entry if is_module else os.path.basename(path),
        is_module=is_module,
        arguments=tuple(arguments),
        files=_ordered(files),
        folder=folder,
    )


def refresh(old: ScriptIdentity, *, folder: str | None = None) -> ScriptIdentity:
    """``old`` with every file hashed again, in ``folder`` (default: where it lay)."""
    base = folder or old.folder
    files = {}
    for f in old.files:
        path = os.path.normpath(os.path.join(base, f.path))
        try:
            files[f.path] = _hash(path)
        except OSError:
            files[f.path] = GONE
    return replace(old, files=_ordered(files), folder=base)


def with_files(identity: ScriptIdentity, extra_files: Iterable[str]) -> ScriptIdentity:
    """``identity`` with modules added that were seen loaded from the script's own project."""
    files = {f.path: f.sha256 for f in identity.files}
    for path in _own_modules(extra_files, identity.folder, identity.folder):
        name = _relative(path, identity.folder)
        if name not in files:
            try:
                files[name] = _hash(path)
            except OSError:
                continue
    return replace(identity, files=_ordered(files))


def differences(old: ScriptIdentity, now: ScriptIdentity) -> tuple[str, ...]:
    """What changed from ``old`` to ``now``, one plain sentence each; empty if the same."""
    out = []
    if (old.entry, old.is_module) != (now.entry, now.is_module):
        out.append(f"the script was {_entry(old)}, now it is {_entry(now)}")
    if old.arguments != now.arguments:
        out.extend(_argument_differences(old.arguments, now.arguments))
    before = {f.path: f.sha256 for f in old.files}
    after = {f.path: f.sha256 for f in now.files}
    if out and before.keys().isdisjoint(after):
        return tuple(out)
    for path in sorted(before.keys() | after.keys()):
        was, is_ = before.get(path), after.get(path)
        if was == is_:
            continue
        if is_ in (None, GONE):
            out.append(f"{path} is gone")
        elif was in (None, GONE):
            out.append(f"{path} is new")
        else:
            out.append(f"{path} has changed")
    return tuple(out)


def changes_since(old: ScriptIdentity, now: ScriptIdentity) -> tuple[str, ...]:
    """``differences``, where ``now`` was identified before its modules were loaded.

    Files that only ``old`` lists (modules seen in its baseline) are hashed again in ``now``'s
    folder instead of being called gone.
    """
    known = {f.path for f in now.files}
    unseen = tuple(f for f in old.files if f.path not in known)
    again = refresh(replace(old, files=unseen), folder=now.folder).files
    full = {f.path: f.sha256 for f in (*now.files, *again)}
    return differences(old, replace(now, files=_ordered(full)))


def default_name(
    entry: str, arguments: Sequence[str], *parts: str, is_module: bool = False
) -> str:
    """A study's name: the script's stem and four hex digits of everything given.

    ``parts`` are other strings the study depends on, such as the machine and file hashes.
    """
    stem = entry.rpartition(".")[2] if is_module else os.path.splitext(os.path.basename(entry))[0]
    stem = re.sub(r"[^\w.-]+", "-", stem).strip("-.") or "script"
    digest = hashlib.sha256("\0".join([entry, *arguments, "", *parts]).encode(*_BYTES))
    return f"{stem}-{digest.hexdigest()[:4]}"


_BYTES = ("utf-8", "surrogateescape")


def module_file(module: str, cwd: str, search_path: Sequence[str] = ()) -> str:
    """The file ``python -m module`` would run, found without importing anything.

    Searched are ``cwd``, ``search_path``, ``$PYTHONPATH`` and this interpreter's path.
    Raises UsageError ``module-missing``.
    """
    parts = module.split(".")
    if all(part.isidentifier() for part in parts):
        env = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        for base in (cwd, *search_path, *(p for p in env if p), *sys.path):
            stem = os.path.join(base or cwd, *parts)
            main = os.path.join(stem, "__main__.py")
            if os.path.isfile(main):
                return main
            if os.path.isfile(stem + ".py"):
                return stem + ".py"
    raise UsageError(
        f"no module {module!r} in {cwd} or on the module path",
        slug="module-missing",
        remedy="run autoamp in the folder where `python -m` finds it, or give the script's path",
    )


def project_folder(module: str, path: str) -> str:
    """The folder that holds the top package of ``module``, whose file is ``path``."""
    depth = len(module.split("."))
    if os.path.basename(path) == "__main__.py" and module.rpartition(".")[2] != "__main__":
        depth += 1
    for _ in range(depth):
        path = os.path.dirname(path)
    return path


def _argument_files(arguments: Sequence[str], cwd: str) -> list[str]:
    found = []
    for argument in arguments:
        match = _ASSIGNMENT.match(argument)
        for text in (argument, match["value"] if match else None):
            # A template such as {batch_size} is filled in anew for every trial.
            if not text or len(text) > 4096 or "\0" in text:
                continue
            path = os.path.join(cwd, os.path.expanduser(text))
            if os.path.isfile(path) and not path.endswith(".log"):
                found.append(os.path.abspath(path))
    return found


def _own_modules(files: Iterable[str], folder: str, cwd: str) -> list[str]:
    own = []
    root = os.path.realpath(folder)
    for name in files:
        path = os.path.abspath(os.path.join(cwd, name))
        real = os.path.realpath(path)
        # tools/train.py of a suite imports ppocr/ or ppdet/ beside tools/.
        inside = not os.path.isabs(_relative(real, root))
        if inside and "site-packages" not in real and os.path.isfile(path):
            own.append(path)
    return sorted(set(own))[:MAX_FILES]


def _relative(path: str, folder: str) -> str:
    """Relative to ``folder`` within the same project: at most three folders up."""
    relative = os.path.relpath(path, folder)
    climbs = relative.split(os.sep).count(os.pardir)
    # configs/x.yml beside tools/train.py belongs to the project; /data/list.txt does not.
    return path if climbs > 2 or _common_is_root(path, folder) else relative


def _common_is_root(path: str, folder: str) -> bool:
    return os.path.commonpath([path, folder]) == os.path.abspath(os.sep)


def _hash(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        size = os.fstat(f.fileno()).st_size
        if size > WHOLE_FILE_BYTES:
            digest.update(f.read(END_BYTES))
            f.seek(-END_BYTES, os.SEEK_END)
            digest.update(f.read(END_BYTES))
            return f"ends-{size}-{digest.hexdigest()}"
        while block := f.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _ordered(files: dict[str, str]) -> tuple[FileHash, ...]:
    return tuple(FileHash(path=p, sha256=h) for p, h in sorted(files.items()))


def _entry(identity: ScriptIdentity) -> str:
    return f"-m {identity.entry}" if identity.is_module else identity.entry


def _argument_differences(old: tuple[str, ...], now: tuple[str, ...]) -> list[str]:
    gone = [a for a in old if old.count(a) > now.count(a)]
    new = [a for a in now if now.count(a) > old.count(a)]
    if not gone and not new:
        return ["the arguments stand in another order"]
    out = []
    if gone:
        out.append("argument no longer given: " + " ".join(dict.fromkeys(gone)))
    if new:
        out.append("argument new: " + " ".join(dict.fromkeys(new)))
    return out
