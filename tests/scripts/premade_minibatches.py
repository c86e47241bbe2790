"""The dataset holds whole minibatches; the sampler's batch size is 1 and must stay so."""

import numpy as np
import paddle
import paddle.nn as nn
import paddle.nn.functional as F


class Minibatches(paddle.io.Dataset):
    def __init__(self):
        rng = np.random.RandomState(0)
        self.batches = []
        for index in range(80):
            # Utterances are sorted by length: each minibatch has a size of its own.
            x = rng.randn(8 + index % 8, 16).astype("float32")
            self.batches.append((x, x[:, :4].argmax(axis=1).astype("int64")))

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


def first(samples):
    assert len(samples) == 1, "ready minibatches were batched again"
    return samples[0]


data = Minibatches()
sampler = paddle.io.BatchSampler(data, batch_size=1, shuffle=True)
loader = paddle.io.DataLoader(data, batch_sampler=sampler, collate_fn=first)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters())
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
