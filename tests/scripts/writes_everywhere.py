"""Changes files in every way a script can, before and during training."""

import glob
import os
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import paddle
import paddle.nn as nn
import paddle.nn.functional as F


class Points(paddle.io.Dataset):
    def __init__(self, count=2048):
        rng = np.random.RandomState(0)
        self.x = rng.randn(count, 16).astype("float32")
        self.y = self.x[:, :4].argmax(axis=1).astype("int64")

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


def change_files(step):
    with open("log.txt", "a") as file:
        file.write(f"step {step}\n")
    Path("notes/deep").mkdir(parents=True, exist_ok=True)
    Path("notes/deep/note.txt").write_text(str(step))
    os.replace("notes/deep/note.txt", "notes/note.txt")
    assert Path("notes/note.txt").read_text() == str(step)
    np.save("array.npy", np.full(3, step))
    assert np.load("array.npy")[0] == step
    with open("binary.bin", "wb") as file:
        file.write(b"0123456789")
    with open("binary.bin", "r+b") as file:
        file.seek(2)
        file.write(b"XX")
    os.truncate("binary.bin", 5)
    assert Path("binary.bin").read_bytes() == b"01XX4"
    os.chmod("binary.bin", 0o600)
    if os.path.isdir("old_run"):
        shutil.rmtree("old_run")
    os.makedirs("old_run/part")
    shutil.copy2("log.txt", "old_run/part/log.txt")
    shutil.move("old_run/part", "old_run/moved")
    assert os.listdir("old_run") == ["moved"]
    if os.path.lexists("latest"):
        os.remove("latest")
    os.symlink("old_run", "latest")
    assert os.path.exists("latest/moved/log.txt")
    database = sqlite3.connect("history.db")
    with database:
        database.execute("create table if not exists steps (step integer)")
        database.execute("insert into steps values (?)", (step,))
    database.close()
    if os.path.exists("state.json"):
        os.rename("state.json", "state.json.bak")
    with open("state.json", "x") as file:
        file.write("{}")
    for name in glob.glob("*.tmp"):
        os.remove(name)


model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters())
loader = paddle.io.DataLoader(Points(), batch_size=16, shuffle=True)
scaler = paddle.amp.GradScaler(init_loss_scaling=1024)
change_files(0)
for epoch in range(2):
    for step, (x, y) in enumerate(loader):
        with paddle.amp.auto_cast():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
        if step % 25 == 24:
            change_files(step)
        if step % 20 == 0:
            print(f"epoch {epoch} step {step} loss {float(loss):.4f}")
