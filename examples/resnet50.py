"""ResNet-50 on 224x224 images: large enough that mixed precision pays.

The images are random numbers: this example is about speed and memory, not about accuracy.
"""

import argparse
import os

import numpy as np
import paddle
import paddle.nn.functional as F


class RandomImages(paddle.io.Dataset):
    """A few random images, repeated: no disk, no decoding."""

    def __init__(self, count: int) -> None:
        rng = np.random.RandomState(0)
        self.images = rng.rand(8, 3, 224, 224).astype("float32")
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int):
        return self.images[index % 8], np.int64(index % 1000)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--images", type=int, default=4096)
    parser.add_argument("--steps", type=int, help="stop after so many steps")
    parser.add_argument("--output", default="output")
    args = parser.parse_args()

    paddle.seed(0)
    loader = paddle.io.DataLoader(
        RandomImages(args.images), batch_size=args.batch_size, shuffle=True, drop_last=True
    )
    model = paddle.vision.models.resnet50(num_classes=1000)
    optimizer = paddle.optimizer.Momentum(0.1, parameters=model.parameters(), weight_decay=1e-4)
    done = 0
    for epoch in range(args.epochs):
        for step, (images, labels) in enumerate(loader):
            if done == args.steps:
                break
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
            done += 1
    os.makedirs(args.output, exist_ok=True)
    paddle.save(model.state_dict(), os.path.join(args.output, "resnet50.pdparams"))


if __name__ == "__main__":
    main()
