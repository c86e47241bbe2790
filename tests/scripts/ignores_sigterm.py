"""Makes a few steps, then waits for ever and ignores SIGTERM and SIGINT."""

import signal
import time

import paddle

signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
model = paddle.nn.Linear(16, 4)
optimizer = paddle.optimizer.SGD(parameters=model.parameters())
for _ in range(3):
    model(paddle.randn([16, 16])).mean().backward()
    optimizer.step()
    optimizer.clear_grad()
print("waiting", flush=True)
while True:
    time.sleep(60)
