"""A subclass of GradScaler with positional arguments and an update of its own."""

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


class CappedScaler(paddle.amp.GradScaler):
    def __init__(self, enable=True, init_loss_scaling=1024.0, cap=32768.0):
        super().__init__(enable, init_loss_scaling, 2.0, 0.5, 1000, 2, True)
        self.cap = cap

    def update(self):
        super().update()
        if self._enable and float(self._scale) > self.cap:
            self.set_init_loss_scaling(self.cap)


model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters())
loader = paddle.io.DataLoader(Points(), batch_size=16, shuffle=True)
scaler = CappedScaler()
assert isinstance(scaler, paddle.amp.GradScaler)
for epoch in range(2):
    for step, (x, y) in enumerate(loader):
        with paddle.amp.auto_cast():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
        if step % 20 == 0:
            print(f"epoch {epoch} step {step} loss {float(loss):.4f}")
