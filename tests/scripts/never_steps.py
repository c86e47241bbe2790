"""Evaluates only: forward passes and no optimizer step."""

import paddle

model = paddle.nn.Linear(16, 4)
with paddle.no_grad():
    for _ in range(60):
        out = model(paddle.randn([16, 16]))
print(f"mean {float(out.mean()):.4f}")
