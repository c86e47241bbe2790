"""The model protects a part of its arithmetic by auto_cast(enable=False)."""

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


class Guarded(nn.Layer):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 64)
        self.outer = nn.Linear(64, 4)

    def forward(self, x):
        hidden = F.relu(self.inner(x))
        with paddle.amp.auto_cast(enable=False):
            hidden = hidden.astype("float32")
            # 300 * 300 is beyond what FP16 holds.
            gram = paddle.matmul(hidden * 300.0, hidden * 300.0, transpose_y=True)
            assert gram.dtype == paddle.float32, "the guarded part was cast"
            hidden = hidden / (1.0 + gram.max() / 1e9)
        return self.outer(hidden)


model = Guarded()
optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters())
loader = paddle.io.DataLoader(Points(), batch_size=16, shuffle=True)
scaler = paddle.amp.GradScaler(init_loss_scaling=1024)
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
