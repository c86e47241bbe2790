"""An IterableDataset behind a DataLoader: a stream with no length."""

import numpy as np
import paddle
import paddle.nn as nn
import paddle.nn.functional as F


class Stream(paddle.io.IterableDataset):
    def __iter__(self):
        rng = np.random.RandomState(0)
        for _ in range(2048):
            x = rng.randn(16).astype("float32")
            yield x, x[:4].argmax()


model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters())
loader = paddle.io.DataLoader(Stream(), batch_size=16)
scaler = paddle.amp.GradScaler(init_loss_scaling=1024)
for epoch in range(1):
    for step, (x, y) in enumerate(loader):
        with paddle.amp.auto_cast():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
        if step % 20 == 0:
            print(f"epoch {epoch} step {step} loss {float(loss):.4f}")
