"""Saves every ten steps and goes on from what it has just loaded."""

import os

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


model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters())
loader = paddle.io.DataLoader(Points(), batch_size=16, shuffle=True)
scaler = paddle.amp.GradScaler(init_loss_scaling=1024)
os.makedirs("checkpoints", exist_ok=True)
if os.path.exists("checkpoints/last.pdparams"):
    print("goes on from an older checkpoint")
    model.set_state_dict(paddle.load("checkpoints/last.pdparams"))
for epoch in range(2):
    for step, (x, y) in enumerate(loader):
        with paddle.amp.auto_cast():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
        if step % 10 == 9:
            paddle.save(model.state_dict(), "checkpoints/last.pdparams.tmp")
            os.replace("checkpoints/last.pdparams.tmp", "checkpoints/last.pdparams")
            paddle.save(optimizer.state_dict(), "checkpoints/last.pdopt")
            loaded = paddle.load("checkpoints/last.pdparams")
            want = model.state_dict()
            assert all(np.array_equal(loaded[k].numpy(), want[k].numpy()) for k in want)
            model.set_state_dict(loaded)
            optimizer.set_state_dict(paddle.load("checkpoints/last.pdopt"))
        if step % 20 == 0:
            print(f"epoch {epoch} step {step} loss {float(loss):.4f}")
