"""A small Transformer that tells which of two words comes first in a sentence; no AMP code.

The sentences are made here: random words, one of them ``ask`` and one of them ``answer``.
"""

import argparse
import os

import numpy as np
import paddle
import paddle.nn as nn

WORDS, LENGTH, ASK, ANSWER = 200, 32, 1, 2


class Sentences(paddle.io.Dataset):
    def __init__(self, count: int, seed: int) -> None:
        rng = np.random.RandomState(seed)
        self.words = rng.randint(3, WORDS, (count, LENGTH)).astype("int64")
        places = np.stack([rng.permutation(LENGTH)[:2] for _ in range(count)])
        self.words[np.arange(count), places[:, 0]] = ASK
        self.words[np.arange(count), places[:, 1]] = ANSWER
        self.labels = (places[:, 0] < places[:, 1]).astype("int64")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int):
        return self.words[index], self.labels[index]


class Classifier(nn.Layer):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.word = nn.Embedding(WORDS, width)
        self.place = self.create_parameter([LENGTH, width])
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, 2)

    def forward(self, words):
        hidden = self.encoder(self.word(words) + self.place)
        return self.head(hidden.mean(axis=1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--output", default="output")
    args = parser.parse_args()

    paddle.seed(0)
    data = Sentences(args.sentences, seed=0)
    sampler = paddle.io.BatchSampler(data, shuffle=True, batch_size=32, drop_last=True)
    loader = paddle.io.DataLoader(data, batch_sampler=sampler)
    model = Classifier(args.width, args.layers)
    criterion = nn.CrossEntropyLoss()
    optimizer = paddle.optimizer.AdamW(
        1e-3, parameters=model.parameters(), grad_clip=nn.ClipGradByGlobalNorm(1.0)
    )
    for epoch in range(args.epochs):
        for words, labels in loader:
            loss = criterion(model(words), labels)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
        print(f"epoch {epoch} loss {loss.item():.4f}")
    os.makedirs(args.output, exist_ok=True)
    paddle.save(model.state_dict(), os.path.join(args.output, "text.pdparams"))


if __name__ == "__main__":
    main()
