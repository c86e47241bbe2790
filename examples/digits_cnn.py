"""Classify scikit-learn's handwritten digits with a small CNN: a raw loop with AMP O1.

A typical Paddle training script of its author's own making; it knows nothing of autoamp.
"""

import argparse
import os

import numpy as np
import paddle
import paddle.nn as nn
import paddle.nn.functional as F
from paddle.amp import GradScaler, auto_cast
from sklearn.datasets import load_digits


class Digits(paddle.io.Dataset):
    """1,797 images of 8x8 pixels, in a training and a test part."""

    def __init__(self, train: bool) -> None:
        data = load_digits()
        chosen = np.arange(len(data.target)) % 5 != 0
        chosen = chosen if train else ~chosen
        self.images = (data.images[chosen, None] / 16.0).astype("float32")
        self.labels = data.target[chosen].astype("int64")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int):
        return self.images[index], self.labels[index]


def build_model() -> nn.Layer:
    return nn.Sequential(
        nn.Conv2D(1, 32, 3, padding=1),
        nn.BatchNorm2D(32),
        nn.ReLU(),
        nn.Conv2D(32, 64, 3, padding=1),
        nn.BatchNorm2D(64),
        nn.ReLU(),
        nn.MaxPool2D(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def accuracy(model: nn.Layer, loader: paddle.io.DataLoader) -> float:
    model.eval()
    right = total = 0
    with paddle.no_grad():
        for images, labels in loader:
            right += int((model(images).argmax(axis=1) == labels).sum())
            total += len(labels)
    model.train()
    return right / total


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--output", default="output")
    args = parser.parse_args()

    paddle.seed(0)
    train = paddle.io.DataLoader(Digits(True), batch_size=args.batch_size, shuffle=True)
    test = paddle.io.DataLoader(Digits(False), batch_size=256)
    model = build_model()
    optimizer = paddle.optimizer.AdamW(args.lr, parameters=model.parameters())
    scaler = GradScaler(init_loss_scaling=32768.0)
    for epoch in range(args.epochs):
        for images, labels in train:
            with auto_cast(level="O1"):
                loss = F.cross_entropy(model(images), labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.clear_grad()
        print(f"epoch {epoch} loss {loss.item():.4f} accuracy {accuracy(model, test):.3f}")
    os.makedirs(args.output, exist_ok=True)
    paddle.save(model.state_dict(), os.path.join(args.output, "digits.pdparams"))


if __name__ == "__main__":
    main()
