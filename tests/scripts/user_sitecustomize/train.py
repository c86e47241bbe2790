"""Run with this folder on PYTHONPATH: needs what the sitecustomize.py beside it sets."""

import os

import numpy as np
import paddle
import paddle.nn as nn
import paddle.nn.functional as F

assert os.environ.get("USER_SITECUSTOMIZE") == "ran", "the user's sitecustomize did not run"


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
for epoch in range(2):
    for step, (x, y) in enumerate(loader):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        if step % 20 == 0:
            print(f"epoch {epoch} step {step} loss {float(loss):.4f}")
