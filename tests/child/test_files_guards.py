"""Bypasses are refused, harmless places stay real, and the patches cost little where unused."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., str]

BYPASSES = {
    "open": "import _io; _io.open('config.json', 'w')",
    "append": "import _io; _io.FileIO('config.json', 'a')",
    "os_open": "posix.open('config.json', os.O_WRONLY | os.O_TRUNC)",
    "remove": "posix.unlink('config.json')",
    "rename_away": "posix.rename('config.json', 'elsewhere')",
    "rename_over": "open_new(); posix.replace('fresh', 'config.json')",
    "rmdir": "posix.rmdir('empty')",
    "folder_away": "posix.rename('output', 'elsewhere')",
    "truncate": "posix.truncate('config.json', 0)",
    "chmod": "posix.chmod('config.json', 0)",
    "utime": "posix.utime('config.json', (1, 1))",
    "link": "posix.link('config.json', 'alias')",
    "bytes": "posix.unlink(b'config.json')",
    "by_link": "import _io; _io.open('latest/model.pdparams', 'wb')",
}


@pytest.mark.parametrize("name", BYPASSES)
def test_a_change_that_goes_round_the_patches_is_refused_and_reported(
    name: str, run: Run, project: Path
) -> None:
    out = run(f"""
        import os, posix
        def open_new(): os.close(posix.open("fresh", os.O_CREAT | os.O_WRONLY))
        try: {BYPASSES[name]}
        except PermissionError as error: print(error.errno, "trial" in str(error))
        if posix.access("fresh", 0): posix.unlink("fresh")
    """)
    refused = "model.pdparams" if name == "by_link" else BYPASSES[name].split("'")[1]
    if name == "rename_over":
        refused = "config.json"
    assert out.splitlines() == [f"REFUSED {refused}", "13 True"]


def test_what_a_bypass_makes_itself_it_may_change(run: Run) -> None:
    assert (
        run("""
        import os, posix
        os.close(posix.open("fresh", os.O_CREAT | os.O_WRONLY))
        posix.truncate("fresh", 3); posix.rename("fresh", "fresh2"); posix.unlink("fresh2")
        print("done")
    """)
        == "done\n"
    )


def test_temporary_files_are_real_for_other_programs_and_old_ones_are_kept(
    run: Run, tmp_path: Path
) -> None:
    old = tmp_path / "tmp" / "old.txt"
    old.parent.mkdir()
    old.write_text("old")
    out = run(f"""
        import os, tempfile, subprocess
        tempfile.tempdir = {str(old.parent)!r}
        with tempfile.TemporaryDirectory() as folder:
            with open(folder + "/in", "w") as f: f.write("seen by cat")
            os.makedirs(folder + "/a/b"); os.rename(folder + "/in", folder + "/a/b/in")
            print(subprocess.check_output(["cat", folder + "/a/b/in"], text=True))
        print(os.path.exists(folder))
        with tempfile.NamedTemporaryFile("w") as f:
            f.write("x"); f.flush()
            print(subprocess.check_output(["cat", f.name], text=True))
        fd, name = tempfile.mkstemp(); os.close(fd); os.remove(name)
        tempfile.TemporaryFile().write(b"t")
        with open(tempfile.tempdir + "/old.txt", "w") as f: f.write("new")
        os.remove(tempfile.tempdir + "/old.txt")
    """, env={"TMPDIR": str(old.parent)})  # fmt: skip
    assert out.splitlines() == ["seen by cat", "False", "x"]
    assert old.read_text() == "old"
    assert os.listdir(old.parent) == ["old.txt"]


def test_a_new_cache_file_is_kept_and_an_old_one_is_not_replaced(run: Run, tmp_path: Path) -> None:
    cache = tmp_path / "home" / ".cache"
    (cache / "paddle").mkdir(parents=True)
    (cache / "paddle" / "old.pdparams").write_text("old")
    out = run("""
        import os
        home = os.path.expanduser("~/.cache/paddle")
        with open(home + "/new.tmp", "w") as f: f.write("weights")
        os.replace(home + "/new.tmp", home + "/new.pdparams")
        os.makedirs(os.path.expanduser("~/.paddleocr/det"))
        with open(home + "/old.pdparams", "w") as f: f.write("changed")
        print(open(home + "/old.pdparams").read(), sorted(os.listdir(home)))
    """, env={"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": ""})  # fmt: skip
    assert out == "changed ['new.pdparams', 'old.pdparams']\n"
    assert (cache / "paddle" / "new.pdparams").read_text() == "weights"
    assert (cache / "paddle" / "old.pdparams").read_text() == "old"
    assert (tmp_path / "home" / ".paddleocr" / "det").is_dir()


def test_devices_pipes_and_descriptors_are_left_alone(run: Run) -> None:
    assert run("""
        import os, sys, multiprocessing, socket
        print("to stdout", file=open("/dev/stdout", "w"))
        open("/dev/null", "w").write("x"); print(open("/proc/self/comm").read() != "")
        r, w = os.pipe(); open(w, "w").write("piped"); print(open(r).read())
        open("made", "w").close()  # from here on the view is in use
        print("again", file=open("/dev/stdout", "w")); print(os.path.exists("/dev/null"))
        r, w = os.pipe(); open(f"/proc/self/fd/{w}", "w").write("by name"); os.close(w)
        print(open(r).read(), os.stat(sys.stdout.fileno()).st_size >= 0)
        lock = multiprocessing.Lock(); queue = multiprocessing.Queue(); queue.put(1)
        print(queue.get()); lock.acquire()
        print(sys.stdin.read() == "", os.isatty(1))
    """).splitlines() == [
        "to stdout", "True", "piped", "again", "True", "by name True", "1", "True False",
    ]  # fmt: skip


def test_a_second_process_sees_what_the_first_one_changed(run: Run) -> None:
    run("""
        import os, shutil
        shutil.rmtree("output"); open("config.json", "w").write("changed")
        os.makedirs("deep/er"); open("deep/er/f", "w").write("f")
    """)
    assert (
        run("""
        import os
        print(os.path.exists("output"), open("config.json").read(), open("deep/er/f").read())
        os.remove("deep/er/f"); os.removedirs("deep/er"); print(os.path.exists("deep"))
    """)
        == "False changed f\nFalse\n"
    )


def test_a_spawned_python_sees_the_changes(run: Run, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import os\nfrom autoamp.child import files\n"
        "files.install(os.environ['SCRATCH'], os.environ['TRIAL'], print)\n"
    )
    assert run("""
        import subprocess, sys
        open("note", "w").write("from parent")
        child = "import os; print(open('note').read()); os.remove('note'); open('reply','w')"
        print(subprocess.check_output([sys.executable, "-c", child], text=True).strip())
        print(os.path.exists("note"), os.path.exists("reply"))
    """, env={"PYTHONPATH": str(site)}) == "from parent\nFalse True\n"  # fmt: skip


def test_a_folder_that_may_not_be_written_stays_so(run: Run, project: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (project / "output").chmod(0o500)
    try:
        out = run("""
            import os
            for attempt in (lambda: open("output/new", "w"), lambda: os.mkdir("output/d"),
                            lambda: os.rename("output/epoch_1", "x")):
                try: attempt()
                except PermissionError as error: print(error.errno)
        """)
    finally:
        (project / "output").chmod(0o755)
    assert out == "13\n13\n13\n"


def test_names_copied_before_the_install_are_replaced(run: Run) -> None:
    early = "import shutil, pathlib, glob, tempfile, zipfile, bz2, tarfile, tokenize\n"
    assert (
        run(
            """
        pathlib.Path("config.json").write_text("p"); shutil.rmtree("output")
        pathlib.Path("d").mkdir()
        pathlib.Path("d/e").touch()
        pathlib.Path("train.log").unlink()
        print(pathlib.Path("config.json").read_text(), glob.glob("o*"), glob.glob("d/*"))
        bz2.open("b", "w").close()
        pathlib.Path("b").rename("c")
        print(pathlib.Path("c").exists())
        with tempfile.NamedTemporaryFile(dir="d") as f: pass
        print(sorted(x.name for x in pathlib.Path(".").iterdir() if len(x.name) == 1))
        """,
            early=early,
        )
        == "p [] ['d/e']\nTrue\n['c', 'd']\n"
    )


def test_a_large_map_that_is_opened_for_update_is_not_copied(run: Run, project: Path) -> None:
    big = project / "big.dat"
    with big.open("wb") as file:
        file.truncate(65 << 20)
    os.utime(big, (1, 1))
    assert (
        run("""
        import os, numpy as np
        m = np.memmap("big.dat", dtype="u1"); m[0] = 7; m.flush(); print(m[0], len(m))
        print(os.path.exists(os.environ["SCRATCH"] + os.path.abspath("big.dat")))
    """)
        == f"7 {65 << 20}\nFalse\n"
    )
    assert big.read_bytes()[:1] == b"\0"
    big.unlink()


def test_an_existing_database_is_copied_not_changed(run: Run, project: Path) -> None:
    import sqlite3

    with sqlite3.connect(project / "history.db") as db:
        db.execute("create table t(x)")
    db.close()
    before = (project / "history.db").read_bytes()
    assert (
        run("""
        import sqlite3, pathlib
        for name in ("history.db", pathlib.Path("history.db"), b"history.db"):
            with sqlite3.connect(name) as db: db.execute("insert into t values (1)")
        db = sqlite3.connect("file:history.db?mode=ro", uri=True)
        print(db.execute("select count(*) from t").fetchone(), sqlite3.connect(":memory:") is None)
    """)
        == "(3,) False\n"
    )
    assert (project / "history.db").read_bytes() == before
    (project / "history.db").unlink()


@pytest.mark.parametrize("version", ["3.10.13", "3.12.1", "3.13.0"])
def test_other_pythons(version: str, project: Path, tmp_path: Path) -> None:
    python = Path.home() / f".pyenv/versions/{version}/bin/python"
    if not python.exists():
        pytest.skip(f"no Python {version} here")
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [python, Path(__file__).with_name("files_tour.py"), tmp_path / "trial"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
    assert (project / "config.json").read_text() == '{"lr": 0.1}'
    assert not (project / "fresh").exists()


def test_this_python_passes_the_tour(run: Run) -> None:
    tour = Path(__file__).with_name("files_tour.py").read_text().split("# tour\n")[1]
    assert run(tour) == "done\n"


def test_an_interpreter_imports_nothing_more_than_it_would(project: Path, tmp_path: Path) -> None:
    """The install itself needs no heavy module: shutil, tempfile, pathlib, threading."""
    code = (
        "import sys, autoamp.child.import_hook; before = set(sys.modules); "
        "from autoamp.child import files; "
        f"files.install({str(tmp_path / 't/s')!r}, {str(tmp_path / 't')!r}, print); "
        "print([m for m in ('shutil', 'tempfile', 'pathlib', 'threading', 'subprocess', 'numpy')"
        " if m in set(sys.modules) - before])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"
