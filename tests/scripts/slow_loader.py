"""A data set that takes its time: SECONDS a sample, WORKERS processes."""

import sys
import time

import numpy as np
import paddle
from paddle import nn

SECONDS, WORKERS = float(sys.argv[1]), int(sys.argv[2])
paddle.set_device("gpu")


class Slow(paddle.io.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        time.sleep(SECONDS)
        return np.full([32], index % 7, "float32"), np.array(index % 4)


net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
opt = paddle.optimizer.SGD(1e-3, parameters=net.parameters())
loader = paddle.io.DataLoader(Slow(), batch_size=16, num_workers=WORKERS)
for x, y in loader:
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    opt.clear_grad()
