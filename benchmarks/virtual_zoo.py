"""Models of the validation rows, written out (or taken from ``paddle.vision``) to be planned.

Builders return what those of ``virtual_models`` return: the network, a function from
``multi_precision`` to the optimizer, and a function from the network to the loss.
"""

import math
from typing import Any

import paddle
import virtual_models
from paddle import nn, vision

F = nn.functional


def momentum(net: Any) -> Any:
    """The optimizer of nearly every vision row."""
    return lambda multi_precision: paddle.optimizer.Momentum(
        0.1, 0.9, parameters=net.parameters(), weight_decay=1e-4, multi_precision=multi_precision
    )


def adamw(net: Any, clip: bool = False) -> Any:
    return lambda multi_precision: paddle.optimizer.AdamW(
        1e-4,
        parameters=net.parameters(),
        multi_precision=multi_precision,
        grad_clip=nn.ClipGradByGlobalNorm(1.0) if clip else None,
    )


def classify(net: Any, batch: int, size: int, layout: str, half: bool, channels: int = 3) -> Any:
    shape = [batch, size, size, channels] if layout == "NHWC" else [batch, channels, size, size]
    x = paddle.zeros(shape, "float16" if half else "float32")
    y = paddle.zeros([batch], "int64")
    return lambda net: F.cross_entropy(net(x), y)


def zoo(name: str, batch: int, level: str) -> Any:
    """A model of ``paddle.vision.models``, NCHW."""
    net = getattr(vision.models, name)(num_classes=1000)
    return net, momentum(net), classify(net, batch, 224, "NCHW", level in ("O2", "half"))


class GroupedBlock(nn.Layer):
    """ResNeXt's bottleneck, in either layout."""

    def __init__(self, inside: int, width: int, out: int, groups: int, stride: int, layout: str):
        super().__init__()
        cb = virtual_models.conv_bn
        self.conv1 = cb(inside, width, 1, layout=layout)
        self.conv2 = conv_bn(width, width, 3, stride, groups, layout, nn.ReLU)
        self.conv3 = cb(width, out, 1, layout=layout, act=False)
        self.short = (
            cb(inside, out, 1, stride, layout=layout, act=False)
            if stride != 1 or inside != out
            else None
        )

    def forward(self, x: Any) -> Any:
        short = x if self.short is None else self.short(x)
        return F.relu(self.conv3(self.conv2(self.conv1(x))) + short)


def resnext(batch: int, counts: list[int], layout: str, level: str) -> Any:
    """ResNeXt 32x4d (Xie et al. 2017)."""
    blocks: list[Any] = []
    inside, width = 64, 128
    for i, count in enumerate(counts):
        for j in range(count):
            stride = 2 if i and j == 0 else 1
            blocks.append(GroupedBlock(inside, width, width * 2, 32, stride, layout))
            inside = width * 2
        width *= 2
    net = nn.Sequential(
        virtual_models.conv_bn(3, 64, 7, 2, layout),
        nn.MaxPool2D(3, 2, 1, data_format=layout),
        *blocks,
        nn.AdaptiveAvgPool2D(1, data_format=layout),
        nn.Flatten(),
        nn.Linear(2048, 1000),
    )
    return net, momentum(net), classify(net, batch, 224, layout, False)


def conv_bn(
    inside: int, out: int, kernel: int, stride: int, groups: int, layout: str, act: Any
) -> Any:
    conv = nn.Conv2D(
        inside,
        out,
        kernel,
        stride,
        kernel // 2,
        groups=groups,
        bias_attr=False,
        data_format=layout,
    )
    layers = [conv, nn.BatchNorm2D(out, data_format=layout)]
    return nn.Sequential(*layers, act()) if act else nn.Sequential(*layers)


class MobileBlock(nn.Layer):
    """EfficientNet's inverted bottleneck with squeeze and excitation."""

    def __init__(
        self, inside: int, out: int, kernel: int, stride: int, expand: int, layout: str
    ) -> None:
        super().__init__()
        width, act = inside * expand, nn.Swish
        self.keeps = stride == 1 and inside == out
        self.grow = conv_bn(inside, width, 1, 1, 1, layout, act) if expand > 1 else None
        self.depth = conv_bn(width, width, kernel, stride, width, layout, act)
        self.pool = nn.AdaptiveAvgPool2D(1, data_format=layout)
        few = max(1, inside // 4)
        self.squeeze = nn.Conv2D(width, few, 1, data_format=layout)
        self.excite = nn.Conv2D(few, width, 1, data_format=layout)
        self.shrink = conv_bn(width, out, 1, 1, 1, layout, None)

    def forward(self, x: Any) -> Any:
        y = x if self.grow is None else self.grow(x)
        y = self.depth(y)
        y = y * F.sigmoid(self.excite(F.swish(self.squeeze(self.pool(y)))))
        y = self.shrink(y)
        return x + y if self.keeps else y


def efficientnet(batch: int, width: float, depth: float, size: int, layout: str) -> Any:
    """EfficientNet (Tan and Le 2019); B0 is width 1, depth 1, B4 1.4 and 1.8."""

    def channels(count: int) -> int:
        rounded = max(8, int(count * width + 4) // 8 * 8)
        return rounded + 8 if rounded < 0.9 * count * width else rounded

    plan = (
        (1, 3, 1, 16, 1),
        (6, 3, 2, 24, 2),
        (6, 5, 2, 40, 2),
        (6, 3, 2, 80, 3),
        (6, 5, 1, 112, 3),
        (6, 5, 2, 192, 4),
        (6, 3, 1, 320, 1),
    )
    inside = channels(32)
    blocks: list[Any] = [conv_bn(3, inside, 3, 2, 1, layout, nn.Swish)]
    for expand, kernel, stride, out, count in plan:
        for i in range(math.ceil(count * depth)):
            blocks.append(
                MobileBlock(inside, channels(out), kernel, stride if i == 0 else 1, expand, layout)
            )
            inside = channels(out)
    net = nn.Sequential(
        *blocks,
        conv_bn(inside, channels(1280), 1, 1, 1, layout, nn.Swish),
        nn.AdaptiveAvgPool2D(1, data_format=layout),
        nn.Flatten(),
        nn.Linear(channels(1280), 1000),
    )

    def optimizer(multi_precision: bool) -> Any:
        # RMSProp knows no multi_precision in every version; O1 rows only.
        return paddle.optimizer.RMSProp(0.1, 0.9, momentum=0.9, parameters=net.parameters())

    return net, optimizer, classify(net, batch, size, layout, False)


class VitBlock(nn.Layer):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x: Any, bias: Any = None) -> Any:
        b, n, _ = x.shape
        qkv = self.qkv(x).reshape([b, n, 3, self.heads, self.width // self.heads])
        q, k, v = qkv.transpose([2, 0, 3, 1, 4]).unbind(0)
        scores = paddle.matmul(q, k, transpose_y=True) * (self.width // self.heads) ** -0.5
        if bias is not None:
            scores = scores + bias
        y = paddle.matmul(F.softmax(scores), v).transpose([0, 2, 1, 3])
        return self.out(y.reshape([b, n, self.width]))

    def forward(self, x: Any) -> Any:
        x = x + self.attend(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Vit(nn.Layer):
    """Dosovitskiy et al. 2020, patches of 16."""

    def __init__(self, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.patch = nn.Conv2D(3, width, 16, 16)
        self.token = self.create_parameter([1, 1, width])
        self.place = self.create_parameter([1, 197, width])
        self.blocks = nn.Sequential(*[VitBlock(width, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Any) -> Any:
        x = self.patch(x).flatten(2).transpose([0, 2, 1])
        x = paddle.concat([self.token.expand([x.shape[0], -1, -1]).astype(x.dtype), x], 1)
        return self.head(self.norm(self.blocks(x + self.place))[:, 0])


def vit(batch: int, width: int, depth: int, heads: int) -> Any:
    net = Vit(width, depth, heads)
    return net, momentum(net), classify(net, batch, 224, "NCHW", False)


class SwinBlock(VitBlock):
    """Windows of 7x7, every second block shifted, with a relative position bias."""

    def __init__(self, width: int, heads: int, size: int, shift: bool) -> None:
        super().__init__(width, heads)
        self.size, self.shift = size, 3 if shift and size > 7 else 0
        self.table = self.create_parameter([169, heads])
        self.index = paddle.zeros([49 * 49], "int64")
        windows = (size // 7) ** 2
        self.mask = paddle.zeros([1, windows, 1, 49, 49]) if self.shift else None

    def forward(self, x: Any) -> Any:
        b, n, c = x.shape
        s, w = self.size, self.size // 7
        y = self.norm1(x).reshape([b, s, s, c])
        if self.shift:
            y = paddle.roll(y, [-self.shift, -self.shift], [1, 2])
        y = y.reshape([b, w, 7, w, 7, c]).transpose([0, 1, 3, 2, 4, 5]).reshape([-1, 49, c])
        bias = paddle.gather(self.table, self.index).reshape([49, 49, self.heads])
        bias = bias.transpose([2, 0, 1]).unsqueeze(0)
        if self.mask is not None:
            bias = (bias.unsqueeze(1) + self.mask).expand([b, w * w, self.heads, 49, 49])
            bias = bias.reshape([b * w * w, self.heads, 49, 49])
        y = self.attend(y, bias).reshape([b, w, w, 7, 7, c]).transpose([0, 1, 3, 2, 4, 5])
        y = y.reshape([b, s, s, c])
        if self.shift:
            y = paddle.roll(y, [self.shift, self.shift], [1, 2])
        x = x + y.reshape([b, n, c])
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Merge(nn.Layer):
    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.size, self.norm = size, nn.LayerNorm(4 * width)
        self.down = nn.Linear(4 * width, 2 * width, bias_attr=False)

    def forward(self, x: Any) -> Any:
        b, n, c = x.shape
        x = x.reshape([b, self.size, self.size, c])
        x = paddle.concat([x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], -1).reshape(
            [b, n // 4, 4 * c]
        )
        return self.down(self.norm(x))


class Swin(nn.Layer):
    """Liu et al. 2021, 224x224, windows of 7."""

    def __init__(self, width: int, depths: list[int], heads: int) -> None:
        super().__init__()
        self.patch, self.norm0 = nn.Conv2D(3, width, 4, 4), nn.LayerNorm(width)
        layers: list[Any] = []
        size = 56
        for i, depth in enumerate(depths):
            layers += [SwinBlock(width, heads, size, j % 2 == 1) for j in range(depth)]
            if i + 1 < len(depths):
                layers.append(Merge(width, size))
                size, width, heads = size // 2, 2 * width, 2 * heads
        self.layers = nn.Sequential(*layers)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Any) -> Any:
        x = self.norm0(self.patch(x).flatten(2).transpose([0, 2, 1]))
        return self.head(self.norm(self.layers(x)).mean(1))


def swin(batch: int, width: int, depths: list[int], heads: int, level: str) -> Any:
    net = Swin(width, depths, heads)
    return net, adamw(net), classify(net, batch, 224, "NCHW", level == "O2")


class ConvNextBlock(nn.Layer):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depth = nn.Conv2D(width, width, 7, 1, 3, groups=width)
        self.norm = nn.LayerNorm(width, epsilon=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = self.create_parameter([width])

    def forward(self, x: Any) -> Any:
        y = self.norm(self.depth(x).transpose([0, 2, 3, 1]))
        y = self.down(F.gelu(self.up(y))) * self.scale
        return x + y.transpose([0, 3, 1, 2])


class LayerNorm2D(nn.Layer):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        return self.norm(x.transpose([0, 2, 3, 1])).transpose([0, 3, 1, 2])


def convnext(batch: int) -> Any:
    """ConvNeXt-T (Liu et al. 2022)."""
    layers: list[Any] = [nn.Conv2D(3, 96, 4, 4), LayerNorm2D(96)]
    width = 96
    for i, depth in enumerate((3, 3, 9, 3)):
        if i:
            layers += [LayerNorm2D(width), nn.Conv2D(width, 2 * width, 2, 2)]
            width *= 2
        layers += [ConvNextBlock(width) for _ in range(depth)]
    net = nn.Sequential(
        *layers, nn.AdaptiveAvgPool2D(1), nn.Flatten(), nn.LayerNorm(width), nn.Linear(width, 1000)
    )
    return net, momentum(net), classify(net, batch, 224, "NCHW", False)


class Squad(nn.Layer):
    """BERT with a span head."""

    def __init__(self, layers: int, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.bert = virtual_models.Bert(layers, width, heads, length)
        self.spans = nn.Linear(width, 2)

    def forward(self, ids: Any) -> Any:
        bert = self.bert
        place = paddle.arange(bert.length)
        h = bert.words(ids) + bert.positions(place) + bert.kinds(paddle.zeros_like(ids))
        return self.spans(bert.encoder(bert.drop(bert.norm(h)))).unbind(-1)


def squad(batch: int, layers: int, width: int, heads: int, length: int) -> Any:
    net = Squad(layers, width, heads, length)
    # The pretraining head has no part in fine-tuning.
    unused = {
        id(p)
        for name in ("transform", "transform_norm", "next", "pooler")
        for p in getattr(net.bert, name).parameters()
    } | {id(net.bert.bias)}
    ids = paddle.zeros([batch, length], "int64")
    at = paddle.zeros([batch], "int64")

    def optimizer(multi_precision: bool) -> Any:
        return paddle.optimizer.AdamW(
            3e-5,
            parameters=[p for p in net.parameters() if id(p) not in unused],
            multi_precision=multi_precision,
            grad_clip=nn.ClipGradByGlobalNorm(1.0),
        )

    def loss_of(net: Any) -> Any:
        start, end = net(ids)
        return (F.cross_entropy(start, at) + F.cross_entropy(end, at)) / 2

    return net, optimizer, loss_of


class Translator(nn.Layer):
    """Transformer-big, pre-norm, shared embeddings of 33,712 words (Vaswani et al. 2017)."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, 1024)
        self.place = nn.Embedding(1024, 1024)
        self.net = nn.Transformer(
            1024, 16, 6, 6, 4096, 0.1, attn_dropout=0.1, act_dropout=0.1, normalize_before=True
        )

    def embed(self, ids: Any) -> Any:
        h = self.words(ids) * 32.0 + self.place(paddle.arange(ids.shape[1]))
        return F.dropout(h, 0.1)

    def forward(self, source: Any, target: Any, mask: Any, causal: Any) -> Any:
        y = self.net(self.embed(source), self.embed(target), mask, causal, mask)
        return paddle.matmul(y, self.words.weight, transpose_y=True)


def transformer_big(tokens: int, length: int) -> Any:
    """``tokens`` padded positions a side, in sentences of ``length``."""
    words, batch = 33712, tokens // length
    net = Translator(words)
    ids = paddle.zeros([batch, length], "int64")
    mask = paddle.zeros([batch, 1, 1, length])
    causal = paddle.zeros([1, 1, length, length])
    labels = paddle.zeros([batch, length], "int64")

    def loss_of(net: Any) -> Any:
        logits = net(ids, ids, mask, causal)
        smooth = F.label_smooth(F.one_hot(labels, words), epsilon=0.1)
        cost = F.cross_entropy(logits, smooth, soft_label=True, reduction="none")
        weights = (labels != 1).astype(cost.dtype).unsqueeze(-1)
        return (cost * weights).sum() / (weights.sum() + 1.0)

    def optimizer(multi_precision: bool) -> Any:
        return paddle.optimizer.Adam(
            1e-4, 0.9, 0.997, parameters=net.parameters(), multi_precision=multi_precision
        )

    return net, optimizer, loss_of


class VdBlock(nn.Layer):
    """ResNet-vd bottleneck with dilation: average pooling before a strided shortcut."""

    def __init__(self, inside: int, width: int, stride: int, dilation: int, short: bool) -> None:
        super().__init__()
        self.conv1 = virtual_models.conv_bn(inside, width, 1)
        self.conv2 = dilated(width, width, dilation, stride)
        self.conv3 = virtual_models.conv_bn(width, 4 * width, 1, act=False)
        self.pool = nn.AvgPool2D(2, 2, ceil_mode=True) if stride == 2 else None
        self.short = virtual_models.conv_bn(inside, 4 * width, 1, act=False) if short else None

    def forward(self, x: Any) -> Any:
        y = self.conv3(self.conv2(self.conv1(x)))
        if self.pool is not None:
            x = self.pool(x)
        return F.relu(y + (x if self.short is None else self.short(x)))


def dilated(inside: int, out: int, dilation: int, stride: int = 1) -> Any:
    return nn.Sequential(
        nn.Conv2D(inside, out, 3, stride, dilation, dilation, bias_attr=False),
        nn.BatchNorm2D(out),
        nn.ReLU(),
    )


def separable(inside: int, out: int, dilation: int = 1) -> Any:
    return nn.Sequential(
        nn.Conv2D(inside, inside, 3, 1, dilation, dilation, inside, bias_attr=False),
        nn.BatchNorm2D(inside),
        virtual_models.conv_bn(inside, out, 1),
    )


class DeepLab(nn.Layer):
    """DeepLabV3+ as in PaddleSeg: ResNet50-vd, output stride 8, separable ASPP."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        cb = virtual_models.conv_bn
        self.stem = nn.Sequential(
            cb(3, 32, 3, 2), cb(32, 32, 3), cb(32, 64, 3), nn.MaxPool2D(3, 2, 1)
        )
        stages, inside = [], 64
        grid = (1, 2, 4)
        for i, (width, count, stride, dilation) in enumerate(
            ((64, 3, 1, 1), (128, 4, 2, 1), (256, 6, 1, 2), (512, 3, 1, 4))
        ):
            blocks = []
            for j in range(count):
                d = dilation * (grid[j] if i == 3 else 1)
                blocks.append(VdBlock(inside, width, stride if j == 0 else 1, d, j == 0))
                inside = 4 * width
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.LayerList(stages)
        self.one = cb(2048, 256, 1)
        self.rates = nn.LayerList([separable(2048, 256, rate) for rate in (12, 24, 36)])
        self.whole = nn.Sequential(nn.AdaptiveAvgPool2D(1), cb(2048, 256, 1))
        self.join = nn.Sequential(cb(1280, 256, 1), nn.Dropout(0.1))
        self.low = cb(256, 48, 1)
        self.head = nn.Sequential(
            separable(304, 256), separable(256, 256), nn.Conv2D(256, classes, 1)
        )

    def forward(self, x: Any) -> Any:
        size = x.shape[2:]
        h = low = self.stages[0](self.stem(x))
        for stage in self.stages[1:]:
            h = stage(h)
        at = h.shape[2:]
        parts = [self.one(h), *[rate(h) for rate in self.rates]]
        parts.append(F.interpolate(self.whole(h), at, mode="bilinear"))
        h = self.join(paddle.concat(parts, 1))
        h = F.interpolate(h, low.shape[2:], mode="bilinear")
        h = self.head(paddle.concat([h, self.low(low)], 1))
        return F.interpolate(h, size, mode="bilinear")


def deeplab(batch: int) -> Any:
    net = DeepLab(19)
    x = paddle.zeros([batch, 3, 512, 1024])
    y = paddle.zeros([batch, 512, 1024], "int64")

    def loss_of(net: Any) -> Any:
        logits = net(x).transpose([0, 2, 3, 1])
        mask = (y != 255).astype("float32")
        loss = F.cross_entropy(logits, y, ignore_index=255, reduction="none").squeeze(-1)
        return (loss * mask).mean() / (mask.mean() + 1e-5)

    return net, momentum(net), loss_of
