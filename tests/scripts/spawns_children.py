"""Loader workers, and a child that would outlive the script by ten minutes."""

import atexit
import subprocess
import sys

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


if __name__ == "__main__":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(f"child {child.pid}", flush=True)
    atexit.register(child.kill)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters())
    loader = paddle.io.DataLoader(Points(), batch_size=16, num_workers=2)
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
    print(f"loss {float(loss):.4f}")
