"""No DataLoader: a list of ready tensors, so the batch size cannot be changed."""

import numpy as np
import paddle
import paddle.nn as nn
import paddle.nn.functional as F

rng = np.random.RandomState(0)
batches = []
for _ in range(80):
    x = rng.randn(16, 16).astype("float32")
    batches.append((paddle.to_tensor(x), paddle.to_tensor(x[:, :4].argmax(axis=1))))
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters())
scaler = paddle.amp.GradScaler(init_loss_scaling=1024)
for epoch in range(1):
    for step, (x, y) in enumerate(batches):
        with paddle.amp.auto_cast():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
        if step % 20 == 0:
            print(f"epoch {epoch} step {step} loss {float(loss):.4f}")
