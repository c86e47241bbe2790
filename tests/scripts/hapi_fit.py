"""paddle.Model: prepare with amp_configs, then fit."""

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
model.prepare(
    paddle.optimizer.AdamW(1e-3, parameters=model.parameters()),
    nn.CrossEntropyLoss(),
    paddle.metric.Accuracy(),
    amp_configs={"level": "O1", "init_loss_scaling": 1024},
)
model.fit(Points(), Points(64), batch_size=16, epochs=2, verbose=2, log_freq=20)
