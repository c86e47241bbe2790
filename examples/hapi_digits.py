"""The digits again, by Paddle's high-level API: Model.prepare and Model.fit."""

import argparse

import paddle
import paddle.nn as nn
from digits_cnn import Digits, build_model


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--output", default="output")
    args = parser.parse_args()

    paddle.seed(0)
    model = paddle.Model(build_model())
    model.prepare(
        paddle.optimizer.Momentum(0.01, parameters=model.parameters()),
        nn.CrossEntropyLoss(),
        paddle.metric.Accuracy(),
    )
    model.fit(
        Digits(True),
        Digits(False),
        batch_size=32,
        epochs=args.epochs,
        save_dir=args.output,
        verbose=2,
        log_freq=20,
    )


if __name__ == "__main__":
    main()
