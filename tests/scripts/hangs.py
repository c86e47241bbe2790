"""Waits for ever before its first step."""

import time

import paddle

model = paddle.nn.Linear(16, 4)
print("waiting for data", flush=True)
while True:
    time.sleep(60)
