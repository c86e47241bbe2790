"""A script under the merged view behaves as on the plain disk
the plain disk stays as it was."""

import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., str]


def plain(project: Path, tmp_path: Path, body: str) -> str:
    """What the body prints on a disk of its own, with no view."""
    copy = tmp_path / "plain" / "project"
    shutil.copytree(project, copy, symlinks=True)
    big = tmp_path / "plain" / "big disk"
    shutil.copytree(tmp_path / "big disk", big)
    (copy / "linked").unlink()
    (copy / "linked").symlink_to(big)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(body)],
        cwd=copy,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


TREE = """
def tree(top="."):
    import os
    for folder, folders, names in sorted(os.walk(top)):
        folders.sort()
        print(folder, sorted(folders))
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.islink(path) and not os.path.exists(path):
                print("  ", name, "->", os.readlink(path))
            else:
                print("  ", name, open(path, "rb").read())
"""

SCRIPTS = {
    "saves_and_loads": """
        import pickle
        os.makedirs("output/epoch_3", exist_ok=True)
        pickle.dump([1, 2], open("output/epoch_3/model.pdparams", "wb"))
        print(pickle.load(open("output/epoch_3/model.pdparams", "rb")))
        print(os.path.getsize("output/epoch_3/model.pdparams"), os.path.isdir("output/epoch_3"))
    """,
    "rewrites_in_place": """
        with open("config.json", "w") as f: f.write("{}")
        with open("train.log", "a") as f: print(f.tell(), f.name); f.write("new line\\n")
        with open("output/epoch_1/model.pdparams", "r+b") as f: f.seek(1); f.write(b"N")
        with open("config.json", "w+") as f: f.write("w+"); f.seek(0); print(f.read())
    """,
    "rotates": """
        import shutil
        shutil.rmtree("output/epoch_1")
        print(os.path.exists("output/epoch_1"), os.listdir("output"))
        os.makedirs("output/epoch_1"); print(os.listdir("output/epoch_1"))
        shutil.copytree("output/epoch_2", "output/best")
        shutil.move("output/epoch_2", "output/old")
        shutil.copy2("config.json", "output/old/config.json")
    """,
    "renames_over": """
        open("config.json.tmp", "w").write("fresh")
        os.replace("config.json.tmp", "config.json")
        os.rename("train.log", "train.log.1"); open("train.log", "w").write("again")
        os.rename("output/epoch_1", "output/epoch_9")
        os.rename("output/epoch_9/model.pdparams", "m"); os.rename("m", "output/n")
        os.rename("empty", "output/moved_empty")
        os.mkdir("empty2"); os.rename("empty2", "output/moved_empty")
    """,
    "removes": """
        os.remove("config.json"); os.unlink("train.log"); os.rmdir("empty")
        print([os.path.exists(p) for p in ("config.json", "train.log", "empty")])
        open("config.json", "x").write("reborn")
        os.remove("config.json"); print(os.path.lexists("config.json"))
        os.removedirs("output/none") if os.path.isdir("output/none") else None
    """,
    "links": """
        print(open("latest/model.pdparams").read(), os.readlink("latest"))
        os.remove("latest"); os.symlink("output/epoch_1", "latest")
        print(open("latest/model.pdparams").read(), os.path.islink("latest"))
        open("linked/new.bin", "w").write("n"); print(sorted(os.listdir("linked")))
        os.remove("linked/kept.bin"); print(os.listdir("linked"))
        os.symlink(os.path.abspath("linked"), "chain"); print(open("chain/new.bin").read())
        os.symlink("loop", "loop")
        try: open("loop")
        except OSError as e: print(e.errno)
        os.link("config.json", "hard"); open("hard", "w").write("h"); os.remove("hard")
    """,
    "errors": """
        def attempt(f, *a, **k):
            try: print(f(*a, **k))
            except OSError as e: print(type(e).__name__, e.errno, e.filename, e.filename2)
        open("made", "w").close()
        attempt(open, "missing"); attempt(open, "no/such", "w"); attempt(open, "made", "x")
        attempt(open, "config.json", "x")
        attempt(os.mkdir, "output")
        attempt(os.rmdir, "output")
        attempt(os.rmdir, "made")
        attempt(os.remove, "nothing")
        attempt(os.rename, "none", "m")
        attempt(os.rename, "made", "output"); attempt(os.rename, "output", "made")
        attempt(os.rename, "output", "output/epoch_1/x"); attempt(os.listdir, "made")
        attempt(os.stat, "gone"); attempt(os.scandir, "gone"); attempt(open, "output", "w")
        attempt(open, "output")
        attempt(os.chdir, "gone")
        attempt(os.open, "gone", os.O_WRONLY)
        attempt(os.chmod, "gone", 0); attempt(os.readlink, "made"); attempt(os.mkdir, "a/b")
        attempt(os.symlink, "x", "made"); attempt(os.truncate, "gone", 0); attempt(open, "")
    """,
    "names": """
        import pathlib
        p = pathlib.Path("训练 数据")
        (p / "标签 1.txt").write_text("狗", encoding="utf-8")
        print((p / "标签 1.txt").read_text())
        print(sorted(x.name for x in p.iterdir()), os.listdir("训练 数据".encode()))
        open("with space".encode(), "wb").write(b"b"); print(os.path.exists(b"with space"))
        (p / "深" / "层").mkdir(parents=True); print(sorted(str(x) for x in p.rglob("*")))
        print(os.readlink(b"latest"), p.stat().st_mode, (p / "深").is_dir(), p.exists())
        (p / "标签 1.txt").unlink()
        (p / "a").touch()
        (p / "a").rename(p / "b")
        print(list(p.glob("b")))
    """,
    "folders": """
        os.makedirs("runs/one"); os.chdir("runs/one")
        open("here", "w").write("h")
        print(os.path.relpath(os.getcwd(), "../.."), os.listdir())
        os.chdir("../.."); os.chdir("output"); open("there", "w").write("t")
        open("../up", "w").write("u")
        print(sorted(os.listdir(".")), sorted(os.listdir("..")))
        os.chdir("..")
    """,
    "folder_descriptors": """
        fd = os.open("output", os.O_RDONLY | os.O_DIRECTORY)
        h = os.open("by_fd", os.O_WRONLY | os.O_CREAT, 0o640, dir_fd=fd)
        os.write(h, b"w")
        os.close(h)
        os.mkdir("sub", dir_fd=fd)
        os.rename("by_fd", "sub/x", src_dir_fd=fd, dst_dir_fd=fd)
        print(os.stat("sub/x", dir_fd=fd).st_size, oct(os.stat("sub/x", dir_fd=fd).st_mode))
        print(sorted(os.listdir(fd)), sorted(e.name for e in os.scandir(fd)))
        os.unlink("sub/x", dir_fd=fd); os.rmdir("sub", dir_fd=fd); os.close(fd)
        print([len(x[1]) for x in os.fwalk("output")])
    """,
    "metadata": """
        os.chmod("config.json", 0o600)
        os.truncate("train.log", 3)
        os.utime("train.log", (1, 2))
        print(oct(os.stat("config.json").st_mode), os.stat("train.log").st_mtime)
        print(open("train.log").read())
        print(os.stat("output").st_mtime, os.path.getmtime("output/epoch_1"))
        open("output/epoch_1/x", "w").close(); print(os.stat("output").st_mtime)
        os.chmod("empty", 0o750); print(oct(os.stat("empty").st_mode))
        print(os.access("config.json", os.R_OK), os.access("gone", os.F_OK))
        os.mkfifo("pipe"); os.remove("pipe")
    """,
    "scandir": """
        import glob, fnmatch
        open("output/fresh", "w").write("f"); os.remove("output/epoch_1/model.pdparams")
        for e in sorted(os.scandir("output"), key=lambda e: e.name):
            print(e.name, e.path, e.is_dir(), e.is_file(), e.is_symlink())
            print(os.fspath(e), e.stat().st_size > 0)
        with os.scandir() as entries: print(sorted(e.path for e in entries))
        print(sorted(glob.glob("**/*", recursive=True)), glob.glob("output/*/*.pdparams"))
        print(sorted(e.name for e in os.scandir("latest")))
    """,
    "libraries": """
        import logging, zipfile, tarfile, sqlite3, shelve, gzip, json, tempfile, csv, bz2
        logging.basicConfig(filename="train.log"); logging.error("seen"); logging.shutdown()
        with zipfile.ZipFile("a.zip", "w") as z: z.write("config.json")
        print(zipfile.ZipFile("a.zip").namelist())
        with tarfile.open("a.tar", "w") as t: t.add("output")
        os.remove("config.json")
        zipfile.ZipFile("a.zip").extractall("."); os.remove("a.zip"); os.remove("a.tar")
        db = sqlite3.connect("history.db")
        db.execute("create table t(x)")
        db.commit()
        db.close()
        print(os.path.exists("history.db")); os.remove("history.db")
        gzip.open("g", "wt").write("z"); os.remove("g"); bz2.open("b", "wb").close()
        with tempfile.NamedTemporaryFile("w", dir="output", delete=False) as f: f.write("t")
        os.replace(f.name, "output/final")
        with tempfile.TemporaryDirectory(dir="output") as d: open(d + "/x", "w").close()
        print(os.path.exists(d))
    """,
    "numpy": """
        import numpy as np
        np.save("a.npy", np.arange(3))
        np.savez("b.npz", x=np.arange(2))
        np.arange(4).tofile("c.bin")
        np.savetxt("d.txt", np.arange(2))
        print(np.load("a.npy"), np.load("b.npz")["x"], np.fromfile("c.bin", int))
        m = np.memmap("output/epoch_1/model.pdparams", dtype="u1", mode="r+")
        m[0] = 65
        m.flush()
        print(open("output/epoch_1/model.pdparams").read(), np.loadtxt("d.txt"))
        os.remove("b.npz")
    """,
    "children": """
        import multiprocessing, subprocess, sys
        def work(n):
            open(f"w{n}", "w").write(str(n))
            os.remove(f"output/epoch_{n}/model.pdparams")
        with multiprocessing.get_context("fork").Pool(2) as pool: pool.map(work, [1, 2])
        print(os.path.exists("w1"), os.listdir("output/epoch_1"))
        pid = os.fork()
        if not pid: os.rename("w1", "w3"); os._exit(0)
        os.waitpid(pid, 0); print(sorted(n for n in os.listdir() if n[0] == "w"))
        os.mkdir("in")
        print(subprocess.run(["echo", "x"], cwd="in", capture_output=True).stdout)
    """,
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_prints_and_sees_what_it_would_on_a_plain_disk(
    name: str, run: Run, project: Path, tmp_path: Path
) -> None:
    body = f"import os\n{TREE}\n{textwrap.dedent(SCRIPTS[name])}\ntree()\ntree('linked/')\n"
    assert run(body).splitlines() == plain(project, tmp_path, body).splitlines()


RANDOM = """
import os, random, shutil, sys
rng = random.Random(int(SEED))
NAMES = ["output", "empty", "config.json", "a", "b", "linked", "latest"]
def path():
    return os.path.join(*(rng.choice(NAMES) for _ in range(rng.choice((1, 1, 2, 2, 3)))))
def write(p, mode):
    with open(p, mode) as f: f.write(str(rng.random()))
def read(p):
    with open(p) as f: return f.read()
CALLS = [
    (lambda: (write, path(), rng.choice(["w", "a", "r+", "x"]))),
    (lambda: (write, path(), "w")),
    (lambda: (read, path())),
    (lambda: (os.mkdir, path())),
    (lambda: (os.makedirs, path())),
    (lambda: (os.remove, path())),
    (lambda: (os.rmdir, path())),
    (lambda: (shutil.rmtree, path())),
    (lambda: (os.rename, path(), path())),
    (lambda: (os.replace, path(), path())),
    (lambda: (shutil.move, path(), path())),
    (lambda: (os.symlink, rng.choice(NAMES), path())),
    (lambda: (os.link, path(), path())),
    (lambda: (sorted, [os.path.lexists(path()), os.path.isdir(path())])),
    (lambda: (lambda p: sorted(os.listdir(p)), path())),
]
for step in range(150):
    call, *args = rng.choice(CALLS)()
    try:
        print(step, getattr(call, "__name__", ""), args, call(*args))
    except (OSError, shutil.Error) as error:
        print(step, getattr(call, "__name__", ""), args, type(error).__name__)
    if step % 25 == 0:
        tree()
"""


@pytest.mark.parametrize("seed", range(12))
def test_random_operations_give_the_same_results_as_on_a_plain_disk(
    seed: int, run: Run, project: Path, tmp_path: Path
) -> None:
    body = f"SEED = {seed}\n{TREE}\n{RANDOM}\ntree()\n"
    assert run(body).splitlines() == plain(project, tmp_path, body).splitlines()
