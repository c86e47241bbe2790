"""Ends well before it has made one step."""

import sys

import paddle

model = paddle.nn.Linear(4, 4)
print("nothing to do")
sys.exit(0)
