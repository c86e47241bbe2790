"""import paddle.amp.auto_cast as autocast: the name is the function."""

import numpy as np
import paddle
import paddle.amp.auto_cast as autocast
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
for epoch in range(2):
    for step, (x, y) in enumerate(loader):
        with autocast():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
        if step % 20 == 0:
            print(f"epoch {epoch} step {step} loss {float(loss):.4f}")
