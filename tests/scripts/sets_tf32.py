"""Sets Paddle's TF32 switches itself, both ways of naming them, before and while it trains."""

import numpy as np
import paddle
from paddle.base.core import set_cudnn_switch

paddle.base.core.set_cublas_switch(False)
set_cudnn_switch(False)
paddle.seed(7)


class Data(paddle.io.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        rng = np.random.RandomState(index)
        return rng.rand(32).astype("float32"), np.int64(index % 4)


model = paddle.nn.Sequential(paddle.nn.Linear(32, 64), paddle.nn.ReLU(), paddle.nn.Linear(64, 4))
optimizer = paddle.optimizer.SGD(parameters=model.parameters())
for x, y in paddle.io.DataLoader(Data(), batch_size=16):
    paddle.base.core.set_cublas_switch(False)
    loss = paddle.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
