"""A small GAN: two models, two optimizers, one scaler."""

import numpy as np
import paddle
import paddle.nn as nn
import paddle.nn.functional as F


class Rings(paddle.io.Dataset):
    def __len__(self):
        return 1280

    def __getitem__(self, index):
        angle = index * 0.1
        return np.array([np.cos(angle), np.sin(angle)], "float32")


maker = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
judge = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
maker_adam = paddle.optimizer.Adam(1e-3, parameters=maker.parameters())
judge_adam = paddle.optimizer.Adam(1e-3, parameters=judge.parameters())
scaler = paddle.amp.GradScaler(init_loss_scaling=1024)
loader = paddle.io.DataLoader(Rings(), batch_size=16, shuffle=True)


def step_with(loss, optimizer):
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    maker_adam.clear_grad()
    judge_adam.clear_grad()


for epoch in range(1):
    for step, real in enumerate(loader):
        one, zero = paddle.ones([len(real), 1]), paddle.zeros([len(real), 1])
        with paddle.amp.auto_cast():
            made = maker(paddle.randn([len(real), 8]))
            judged = F.binary_cross_entropy_with_logits(judge(real), one)
            judged += F.binary_cross_entropy_with_logits(judge(made.detach()), zero)
        step_with(judged, judge_adam)
        with paddle.amp.auto_cast():
            loss = F.binary_cross_entropy_with_logits(judge(made), one)
        step_with(loss, maker_adam)
        if step % 20 == 0:
            print(f"epoch {epoch} step {step} loss {float(loss):.4f}")
