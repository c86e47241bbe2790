"""Run by each Python there is: the standard library's file functions under the view."""

# ruff: noqa: E402 - the standard library is imported after the install, as by a user's script

import sys

from autoamp.child import files

files.install(sys.argv[1] + "/scratch", sys.argv[1], print)
# tour
import glob
import logging.handlers
import os
import pathlib
import pickle
import shutil
import tempfile
import zipfile

Path = pathlib.Path
Path("config.json").write_text("changed")
assert Path("config.json").read_text() == "changed" and Path("config.json").stat().st_size == 7
(Path("fresh") / "a" / "b").mkdir(parents=True)
(Path("fresh") / "a" / "b" / "c.txt").write_text("c")
assert [p.name for p in Path("fresh").rglob("*.txt")] == ["c.txt"]
assert glob.glob("fresh/**/*.txt", recursive=True) == ["fresh/a/b/c.txt"]
assert Path("fresh/a").is_dir() and Path("fresh/a/b/c.txt").is_file()
Path("fresh/a/b/c.txt").rename("fresh/d.txt")
Path("fresh/link").symlink_to("d.txt")
assert Path("fresh/link").read_text() == "c" and Path("fresh/link").is_symlink()
assert Path("fresh/link").resolve() == Path.cwd() / "fresh" / "d.txt"
Path("fresh/d.txt").chmod(0o600)
Path("fresh/touched").touch()
with open("fresh/p", "wb") as f:
    pickle.dump({1: 2}, f)
with open("fresh/p", "rb") as f:
    assert pickle.load(f) == {1: 2}
shutil.copytree("output", "fresh/copy")
shutil.rmtree("output")
assert not Path("output").exists() and len(list(Path("fresh/copy").iterdir())) == 2
shutil.move("fresh/copy", "output")
assert sorted(os.listdir("output")) == ["epoch_1", "epoch_2"]
handler = logging.handlers.RotatingFileHandler("train.log", maxBytes=20, backupCount=2)
for _ in range(4):
    handler.emit(logging.makeLogRecord({"msg": "a line of the log"}))
handler.close()
assert Path("train.log.1").exists()
with tempfile.TemporaryDirectory() as folder:
    Path(folder, "x").write_text("x")
    shutil.copy(Path(folder, "x"), "fresh/x")
assert not Path(folder).exists() and Path("fresh/x").read_text() == "x"
with zipfile.ZipFile("fresh/z.zip", "w") as archive:
    archive.write("fresh/x")
shutil.unpack_archive("fresh/z.zip", "fresh/out")
assert Path("fresh/out/fresh/x").read_text() == "x"
shutil.make_archive("fresh/tar", "gztar", "fresh/out")
assert (
    pickle.loads(pickle.dumps(os.remove)) is os.remove and pickle.loads(pickle.dumps(open)) is open
)
shutil.rmtree("fresh")
assert not os.path.exists("fresh") and list(Path(".").glob("fres*")) == []
print("done")
