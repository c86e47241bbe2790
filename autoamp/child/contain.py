"""Runs one command where it can harm nothing; a script of its own, standard library only.

    contain.py TRIAL_DIR PROJECT -- COMMAND...

A shell or another program that a training script starts knows nothing of our hooks. It gets a
mount namespace of its own (Linux; with a user namespace unless we are root): the whole file
system read-only, the project folder under a copy-on-write overlay whose changes vanish with the
command, and the places that are nobody's work (temporary files, caches, the trial's folder)
writable as ever. Exits with the command's own code, or with NOT_CONTAINED before it was started.
"""

import ctypes
import os
import stat
import sys
import tempfile

NOT_CONTAINED = 113
CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
AT_FDCWD = -100
AT_RECURSIVE = 0x8000
MOUNT_ATTR_RDONLY = 1
SYS_MOUNT_SETATTR = 442
"""The same number on every architecture (Linux 5.12)."""


class MountAttr(ctypes.Structure):
    _fields_ = [
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    ]


LIBC = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def mount(source: str, target: str, kind: str, flags: int, data: str) -> None:
    check(
        LIBC.mount(
            os.fsencode(source),
            os.fsencode(target),
            os.fsencode(kind),
            ctypes.c_ulong(flags),
            os.fsencode(data),
        ),
        f"mount {target}",
    )


def set_read_only(path: str, on: bool) -> None:
    bits = MOUNT_ATTR_RDONLY
    attr = MountAttr(bits, 0, 0, 0) if on else MountAttr(0, bits, 0, 0)
    check(
        LIBC.syscall(
            ctypes.c_long(SYS_MOUNT_SETATTR),
            ctypes.c_int(AT_FDCWD),
            os.fsencode(path),
            ctypes.c_uint(AT_RECURSIVE),
            ctypes.byref(attr),
            ctypes.c_size_t(ctypes.sizeof(attr)),
        ),
        f"mount_setattr {path}",
    )


def writable_places() -> list[str]:
    """Where programs put what is nobody's work."""
    home = os.path.expanduser("~")
    places = [tempfile.gettempdir(), "/dev", "/dev/shm", "/proc", "/run"]
    places += [os.path.join(home, ".cache"), os.environ.get("XDG_CACHE_HOME") or "/tmp"]
    return [p for p in dict.fromkeys(places) if os.path.isdir(p)]


def contain(trial_dir: str, project: str) -> None:
    """Enter the namespace. Raises OSError where the system does not allow it."""
    uid, gid = os.getuid(), os.getgid()
    flags = CLONE_NEWNS if uid == 0 else CLONE_NEWNS | CLONE_NEWUSER
    check(LIBC.unshare(ctypes.c_int(flags)), "unshare")
    if uid != 0:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as f:
                f.write(text)
    mount("none", "/", "", MS_REC | MS_PRIVATE, "")
    here = os.getcwd()
    places = writable_places()
    for place in places:
        mount(place, place, "", MS_BIND | MS_REC, "")
    own = os.open(trial_dir, os.O_PATH | os.O_DIRECTORY)
    layer = os.path.join(trial_dir, "scratch", ".autoamp", "contained")
    os.makedirs(layer, exist_ok=True)
    set_read_only("/", True)
    for place in places:
        try:
            set_read_only(place, False)
        except OSError:
            # A mount of the system's that was read-only before stays so.
            continue
    mount("tmpfs", layer, "tmpfs", 0, "mode=700")
    for name in ("upper", "work"):
        os.mkdir(os.path.join(layer, name))
    options = f"lowerdir={project},upperdir={layer}/upper,workdir={layer}/work"
    mount("overlay", project, "overlay", 0, options)
    if inside(trial_dir, project):
        mount(f"/proc/self/fd/{own}", trial_dir, "", MS_BIND, "")
        set_read_only(trial_dir, False)
    os.close(own)
    # The working directory still names the folder below the overlay.
    os.chdir(here)


def inside(path: str, folder: str) -> bool:
    return os.path.commonpath([os.path.realpath(path), os.path.realpath(folder)]) == (
        os.path.realpath(folder)
    )


def main() -> None:
    trial_dir, project = sys.argv[1:3]
    command = sys.argv[4:]
    try:
        if not stat.S_ISDIR(os.stat(project).st_mode) or ":" in project or "," in project:
            raise OSError(0, f"{project} cannot be overlaid")
        contain(trial_dir, project)
    except OSError as error:
        print(f"autoamp: not contained: {error}", file=sys.stderr)
        os._exit(NOT_CONTAINED)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


if __name__ == "__main__":
    main()
