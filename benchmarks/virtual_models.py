"""The models behind the published throughput rows, written out so that a step can be planned.

Each builder returns ``(layers, optimizer_of, loss_of)``: the network, a function from
``multi_precision`` to the optimizer, and a function from the network to the loss.
"""

from typing import Any

import paddle
from paddle import nn

F = nn.functional


class Bottleneck(nn.Layer):
    """ResNet v1.5 block: the stride sits in the 3x3 convolution."""

    def __init__(self, inside: int, width: int, stride: int, layout: str) -> None:
        super().__init__()
        out = width * 4
        self.conv1 = conv_bn(inside, width, 1, layout=layout)
        self.conv2 = conv_bn(width, width, 3, stride, layout=layout)
        self.conv3 = conv_bn(width, out, 1, layout=layout, act=False)
        self.short = (
            conv_bn(inside, out, 1, stride, layout=layout, act=False)
            if stride != 1 or inside != out
            else None
        )

    def forward(self, x: Any) -> Any:
        short = x if self.short is None else self.short(x)
        return F.relu(self.conv3(self.conv2(self.conv1(x))) + short)


def conv_bn(
    inside: int, out: int, kernel: int, stride: int = 1, layout: str = "NCHW", act: bool = True
) -> Any:
    layers = [
        nn.Conv2D(
            inside, out, kernel, stride, padding=kernel // 2, bias_attr=False, data_format=layout
        ),
        nn.BatchNorm2D(out, data_format=layout),
    ]
    return nn.Sequential(*layers, nn.ReLU()) if act else nn.Sequential(*layers)


def resnet50(batch: int, layout: str, channels: int, level: str) -> Any:
    """He et al. 2015, v1.5; ``channels`` is 4 where the run padded its input."""
    blocks: list[Any] = []
    inside = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            blocks.append(Bottleneck(inside, width, stride if i == 0 else 1, layout))
            inside = width * 4
    net = nn.Sequential(
        conv_bn(channels, 64, 7, 2, layout),
        nn.MaxPool2D(3, 2, 1, data_format=layout),
        *blocks,
        nn.AdaptiveAvgPool2D(1, data_format=layout),
        nn.Flatten(),
        nn.Linear(2048, 1000),
    )
    size = [batch, channels, 224, 224] if layout == "NCHW" else [batch, 224, 224, channels]
    x = paddle.zeros(size, "float16" if level in ("O2", "half") else "float32")
    y = paddle.zeros([batch], "int64")

    def optimizer(multi_precision: bool) -> Any:
        return paddle.optimizer.Momentum(
            0.1,
            0.9,
            parameters=net.parameters(),
            weight_decay=1e-4,
            multi_precision=multi_precision,
        )

    return net, optimizer, lambda net: F.cross_entropy(net(x), y)


class Bert(nn.Layer):
    """BERT for pretraining (Devlin et al. 2018)."""

    def __init__(self, layers: int, width: int, heads: int, length: int) -> None:
        super().__init__()
        vocabulary = 30522
        self.length, self.width = length, width
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(512, width)
        self.kinds = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(0.1)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.1, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.transform = nn.Linear(width, width)
        self.transform_norm = nn.LayerNorm(width)
        self.bias = self.create_parameter([vocabulary], is_bias=True)
        self.pooler = nn.Linear(width, width)
        self.next = nn.Linear(width, 2)

    def forward(self, ids: Any, masked: Any) -> Any:
        place = paddle.arange(self.length)
        h = self.words(ids) + self.positions(place) + self.kinds(paddle.zeros_like(ids))
        h = self.encoder(self.drop(self.norm(h)))
        picked = paddle.gather(h.reshape([-1, self.width]), masked)
        picked = self.transform_norm(F.gelu(self.transform(picked)))
        words = paddle.matmul(picked, self.words.weight, transpose_y=True) + self.bias
        return words, self.next(F.tanh(self.pooler(h[:, 0])))


def bert(batch: int, layers: int, width: int, heads: int, length: int, picked: int = 20) -> Any:
    """``picked`` masked positions a sequence."""
    net = Bert(layers, width, heads, length)
    ids = paddle.zeros([batch, length], "int64")
    masked = paddle.arange(batch * picked) % (batch * length)
    labels = paddle.zeros([batch * picked], "int64")
    follows = paddle.zeros([batch], "int64")

    def optimizer(multi_precision: bool) -> Any:
        return paddle.optimizer.AdamW(
            1e-4,
            parameters=net.parameters(),
            multi_precision=multi_precision,
            grad_clip=nn.ClipGradByGlobalNorm(1.0),
        )

    def loss_of(net: Any) -> Any:
        words, following = net(ids, masked)
        return F.cross_entropy(words, labels) + F.cross_entropy(following, follows)

    return net, optimizer, loss_of


def linears(batch: int) -> Any:
    """Nine Linear(8192, 8192), the example of Paddle's AMP guide."""
    net = nn.Sequential(*[nn.Linear(8192, 8192) for _ in range(9)])
    x = paddle.zeros([batch, 8192])

    def optimizer(multi_precision: bool) -> Any:
        return paddle.optimizer.SGD(
            1e-4, parameters=net.parameters(), multi_precision=multi_precision
        )

    return net, optimizer, lambda net: F.mse_loss(net(x), x)


class BasicBlock(nn.Layer):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = conv_bn(width, width, 3)
        self.conv2 = conv_bn(width, width, 3, act=False)

    def forward(self, x: Any) -> Any:
        return F.relu(self.conv2(self.conv1(x)) + x)


class Exchange(nn.Layer):
    """HRNet module: four blocks a branch, then every branch receives from every other."""

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        self.branches = nn.LayerList(
            [nn.Sequential(*[BasicBlock(w) for _ in range(4)]) for w in widths]
        )
        self.paths = nn.LayerList()
        for i, to in enumerate(widths):
            row = nn.LayerList()
            for j, source in enumerate(widths):
                if j > i:
                    row.append(conv_bn(source, to, 1, act=False))
                elif j < i:
                    steps = [conv_bn(source, source, 3, 2) for _ in range(i - j - 1)]
                    row.append(nn.Sequential(*steps, conv_bn(source, to, 3, 2, act=False)))
                else:
                    row.append(nn.Identity())
            self.paths.append(row)

    def forward(self, xs: Any) -> Any:
        xs = [branch(x) for branch, x in zip(self.branches, xs, strict=True)]
        out = []
        for i, row in enumerate(self.paths):
            total = None
            for j, path in enumerate(row):
                y = path(xs[j])
                if j > i:
                    y = F.interpolate(y, size=xs[i].shape[2:], mode="bilinear")
                total = y if total is None else total + y
            out.append(F.relu(total))
        return out


class HrNet(nn.Layer):
    """HRNet-W18 with the FCN head (Wang et al. 2019)."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, 64, 3, 2), conv_bn(64, 64, 3, 2))
        self.layer1 = nn.Sequential(
            Bottleneck(64, 64, 1, "NCHW"), *[Bottleneck(256, 64, 1, "NCHW") for _ in range(3)]
        )
        self.down2 = nn.LayerList([conv_bn(256, 18, 3), conv_bn(256, 36, 3, 2)])
        self.stage2 = Exchange([18, 36])
        self.down3 = conv_bn(36, 72, 3, 2)
        self.stage3 = nn.LayerList([Exchange([18, 36, 72]) for _ in range(4)])
        self.down4 = conv_bn(72, 144, 3, 2)
        self.stage4 = nn.LayerList([Exchange([18, 36, 72, 144]) for _ in range(3)])
        self.head = nn.Sequential(conv_bn(270, 270, 1), nn.Conv2D(270, classes, 1))

    def forward(self, x: Any) -> Any:
        size = x.shape[2:]
        x = self.layer1(self.stem(x))
        xs = self.stage2([down(x) for down in self.down2])
        xs = [*xs, self.down3(xs[-1])]
        for stage in self.stage3:
            xs = stage(xs)
        xs = [*xs, self.down4(xs[-1])]
        for stage in self.stage4:
            xs = stage(xs)
        fine = xs[0].shape[2:]
        xs = [xs[0], *[F.interpolate(y, size=fine, mode="bilinear") for y in xs[1:]]]
        return F.interpolate(self.head(paddle.concat(xs, axis=1)), size=size, mode="bilinear")


def hrnet(batch: int) -> Any:
    net = HrNet(19)
    x = paddle.zeros([batch, 3, 512, 1024])
    y = paddle.zeros([batch, 512, 1024], "int64")

    def optimizer(multi_precision: bool) -> Any:
        return paddle.optimizer.Momentum(
            0.01,
            0.9,
            parameters=net.parameters(),
            weight_decay=4e-5,
            multi_precision=multi_precision,
        )

    def loss_of(net: Any) -> Any:
        logits = net(x).transpose([0, 2, 3, 1])
        mask = (y != 255).astype("float32")
        loss = F.cross_entropy(logits, y, ignore_index=255, reduction="none").squeeze(-1)
        return (loss * mask).mean() / (mask.mean() + 1e-5)

    return net, optimizer, loss_of
