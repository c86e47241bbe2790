"""AMP names bound by from-imports, one of them as a default argument."""

import numpy as np
import paddle
import paddle.nn as nn
import paddle.nn.functional as F
from paddle.amp import GradScaler, auto_cast, decorate


class Points(paddle.io.Dataset):
    def __init__(self, count=2048):
        rng = np.random.RandomState(0)
        self.x = rng.randn(count, 16).astype("float32")
        self.y = self.x[:, :4].argmax(axis=1).astype("int64")

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


def train(model, optimizer, loader, cast=auto_cast):
    scaler = GradScaler(init_loss_scaling=1024)
    for epoch in range(2):
        for step, (x, y) in enumerate(loader):
            with cast(level="O1"):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.clear_grad()
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {float(loss):.4f}")


if __name__ == "__main__":
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters())
    model, optimizer = decorate(model, optimizer, level="O1")
    train(model, optimizer, paddle.io.DataLoader(Points(), batch_size=16, shuffle=True))
