"""paddle.Model with no AMP: prepare, then fit and its checkpoints."""

import numpy as np
import paddle
import paddle.nn as nn


class Points(paddle.io.Dataset):
    def __init__(self, count=2048):
        rng = np.random.RandomState(0)
        self.x = rng.randn(count, 16).astype("float32")
        self.y = self.x[:, :4].argmax(axis=1).astype("int64")

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


model = paddle.Model(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)))
model.prepare(paddle.optimizer.AdamW(1e-3, parameters=model.parameters()), nn.CrossEntropyLoss())
model.fit(Points(), batch_size=16, epochs=2, verbose=2, log_freq=20, save_dir="hapi_output")
