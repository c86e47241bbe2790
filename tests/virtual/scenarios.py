"""Uses of Paddle that could end a process, each to be run in a process of its own.

Not a test module: ``hazards.py`` runs it on the virtual device. A scenario works, or raises what
``REFUSED`` says; in planning mode it may be refused for want of values, never end by a signal.
"""

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import paddle.nn as nn
import paddle.nn.functional as F

SCENARIOS: dict[str, Callable[[], Any]] = {}
# Scenario: what its error says.
REFUSED: dict[str, str] = {}
FLOATS = ("float32", "float16", "bfloat16")


def scenario(name: str, refused: str | None = None) -> Callable[[Callable[[], Any]], Any]:
    def add(function: Callable[[], Any]) -> Callable[[], Any]:
        assert name not in SCENARIOS
        SCENARIOS[name] = function
        if refused is not None:
            REFUSED[name] = refused
        return function

    return add


def tensor(*shape: int, dtype: str = "float32", grad: bool = True) -> Any:
    values = np.random.RandomState(0).rand(*shape).astype("float32")
    made = paddle.to_tensor(values).astype(dtype)
    made.stop_gradient = not grad
    return made


def close(a: Any, b: Any) -> None:
    a, b = (np.asarray(x.astype("float32").numpy() if hasattr(x, "numpy") else x) for x in (a, b))
    assert a.shape == b.shape and np.allclose(a, b, rtol=2e-2, atol=2e-2), (a, b)


# Shapes and views ---------------------------------------------------------------------------


@scenario("sizes of zero")
def _() -> None:
    for dtype in (*FLOATS, "int64", "bool"):
        empty = paddle.zeros([0, 4], dtype)
        assert paddle.concat([empty, empty]).shape == [0, 4]
        assert (empty == empty).shape == [0, 4]
        assert empty.reshape([4, 0]).transpose([1, 0]).shape == [0, 4]
        if dtype in FLOATS:
            empty.stop_gradient = False
            assert float((empty * 2).sum().astype("float32")) == 0.0
            out = paddle.matmul(empty, paddle.ones([4, 3], dtype))
            assert out.shape == [0, 3]
            out.sum().backward()
            F.softmax(empty), F.layer_norm(empty, 4), F.relu(empty), empty.astype("float32")


@scenario("no dimensions")
def _() -> None:
    for dtype in FLOATS:
        x = paddle.to_tensor(2.0).astype(dtype)
        x.stop_gradient = False
        y = (x * x + 1).exp().log().reshape([1]).squeeze()
        y.backward()
        assert x.grad.shape == [] and float(x.grad.astype("float32")) == 4.0
        x.detach().add_(paddle.to_tensor(1.0).astype(dtype))


@scenario("nine dimensions")
def _() -> None:
    for dtype in FLOATS:
        x = tensor(1, 2, 1, 2, 1, 2, 1, 2, 1, dtype=dtype)
        (x + x).transpose(list(range(8, -1, -1))).sum().backward()
        assert x.grad.shape == x.shape


@scenario("ten dimensions", refused="dimension")
def _() -> None:
    tensor(*[1] * 10) + 1


@scenario("writing in place to views")
def _() -> None:
    for dtype in FLOATS:
        x = tensor(6, 8, dtype=dtype, grad=False)
        y = x.numpy().copy() if dtype != "bfloat16" else x.astype("float32").numpy().copy()
        part = x[1:5:2, ::3]
        part.add_(paddle.ones_like(part))
        x.T[2].scale_(2.0)
        x[0] = 3.0
        x[:, 1] = x[:, 2]
        y[1:5:2, ::3] += 1
        y[:, 2] *= 2
        y[0] = 3
        y[:, 1] = y[:, 2]
        close(x, y)
        x.reshape_([8, 6]).unsqueeze_(0).squeeze_(0)
        paddle.as_strided(x, [3, 3], [7, 2]).fill_(1.0)


@scenario("sums of many small steps in a view")
def _() -> None:
    x = tensor(4, 4, dtype="float16")
    y = x * 1
    y.stop_gradient = False
    z = y * 1
    z[0:2] = z[2:4] * 2
    z.sum().backward()
    assert x.grad.shape == [4, 4]


# Gradients ----------------------------------------------------------------------------------


@scenario("double backward")
def _() -> None:
    for dtype in FLOATS:
        x = tensor(3, 3, dtype=dtype)
        (first,) = paddle.grad((x * x * x).sum(), x, create_graph=True)
        first.sum().backward()
        close(x.grad, 6 * x.detach().astype("float32"))
        w = tensor(4, 3, dtype=dtype)
        (gw,) = paddle.grad(paddle.tanh(x @ w.T).sum(), w, create_graph=True)
        (gw * gw).sum().backward()
        assert w.grad.shape == w.shape


@scenario("a layer in Python")
def _() -> None:
    class Twice(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensor()
            return grad * 2 + x * 0

    for dtype in FLOATS:
        x = tensor(3, 3, dtype=dtype)
        with paddle.amp.auto_cast():
            Twice.apply(x).sum().backward()
        close(x.grad, np.full([3, 3], 2.0))


@scenario("an error in a hook", refused="from the hook")
def _() -> None:
    def hook(grad: Any) -> Any:
        raise ValueError("from the hook")

    x = tensor(3, dtype="float16")
    x.register_hook(hook)
    (x * 2).sum().backward()


@scenario("an error in a layer in Python", refused="from backward")
def _() -> None:
    class Broken(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            raise ValueError("from backward")

    Broken.apply(tensor(3)).sum().backward()


@scenario("one of several results", refused="qr_grad")
def _() -> None:
    paddle.linalg.qr(tensor(4, 4))[0].sum().backward()


@scenario("recomputing")
def _() -> None:
    from paddle.distributed.fleet.utils import recompute

    net = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Dropout(0.5))
    x = tensor(2, 4)
    with paddle.amp.auto_cast():
        out = recompute(net, x)
        out.sum().backward()
    # The second time dropout drops what it dropped the first.
    assert ((net[0].bias.grad.numpy() == 0) == (out.numpy() == 0).all(axis=0)).all()


@scenario("gradients by reference and accumulated")
def _() -> None:
    w = paddle.create_parameter([4, 4], "float32")
    for _ in range(3):
        with paddle.amp.auto_cast(level="O1"):
            (tensor(2, 4) @ w).sum().backward()
    close(w.grad, 3 * tensor(2, 4).sum(0).unsqueeze(1).expand([4, 4]).detach())
    w.clear_gradient()
    paddle.autograd.backward([(w * 2).sum(), (w * 3).sum()])


# Kinds of tensors -----------------------------------------------------------------------------


@scenario("sparse tensors by coordinates")
def _() -> None:
    dense = paddle.to_tensor([[0.0, 2.0], [3.0, 0.0]])
    sparse = dense.to_sparse_coo(2)
    close(sparse.to_dense(), dense)
    close(paddle.sparse.nn.functional.relu(sparse).to_dense(), dense)
    close(paddle.sparse.add(sparse, sparse).to_dense(), dense * 2)
    made = paddle.sparse.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], [2, 2])
    close(made.to_dense(), np.array([[0.0, 1.0], [2.0, 0.0]]))
    dense.stop_gradient = False
    paddle.sparse.sin(dense.to_sparse_coo(2)).to_dense().sum().backward()


@scenario("sparse tensors by rows")
def _() -> None:
    dense = paddle.to_tensor([[0.0, 2.0], [3.0, 0.0]])
    rows = dense.to_sparse_csr()
    close(rows.to_dense(), dense)
    close(paddle.sparse.tanh(rows).to_dense(), paddle.tanh(dense))


@scenario("a sparse tensor times a dense one", refused="matmul_coo_dense")
def _() -> None:
    # Paddle has no kernel for it on a CPU.
    paddle.sparse.matmul(paddle.eye(2).to_sparse_coo(2), paddle.ones([2, 2])).numpy()


@scenario("complex numbers")
def _() -> None:
    x = tensor(4, 8)
    spectrum = paddle.fft.fft2(x)
    paddle.fft.ifft2(spectrum).real().sum().backward()
    assert paddle.as_real(spectrum).shape == [4, 8, 2]
    close((spectrum * spectrum.conj()).abs().sqrt(), spectrum.abs())
    paddle.angle(spectrum), spectrum.T.imag(), paddle.complex(x, x) + 1j


@scenario("complex numbers under AMP")
def _() -> None:
    with paddle.amp.auto_cast(level="O1"):
        half = paddle.matmul(tensor(8, 8), tensor(8, 8))
        assert half.dtype == paddle.float16
        paddle.fft.rfft(half.astype("float32")).abs().sum().backward()


@scenario("the spectrum of 16-bit values", refused="float16")
def _() -> None:
    paddle.fft.rfft(tensor(8, dtype="float16"))


@scenario("short-time spectra")
def _() -> None:
    x = tensor(2, 256)
    frames = paddle.signal.stft(x, n_fft=32, hop_length=8)
    back = paddle.signal.istft(frames, n_fft=32, hop_length=8)
    close(back[:, 16:128], x[:, 16:128])


@scenario("integers and truth values")
def _() -> None:
    for dtype in ("uint8", "int8", "int16", "int32", "int64"):
        x = paddle.to_tensor([[3, 1, 2], [6, 5, 4]]).astype(dtype)
        assert int((x + x).astype("int64").max()) == 12
        paddle.argsort(x.astype("int64")), x.astype("float16").astype(dtype)
        x[0] = 1
    mask = paddle.to_tensor([True, False])
    assert bool(paddle.any(mask)) and int(mask.astype("int64").sum()) == 1


@scenario("8-bit weights")
def _() -> None:
    weight = tensor(64, 64, grad=False).astype("float16")
    try:
        packed, scale = paddle.nn.quant.weight_quantize(weight, algo="weight_only_int8")
        paddle.nn.quant.weight_dequantize(packed, scale, algo="weight_only_int8")
    except (RuntimeError, NotImplementedError, ValueError, OSError, AttributeError) as error:
        assert str(error)
    from paddle.quantization.quanters import FakeQuanterWithAbsMaxObserver

    quanter = FakeQuanterWithAbsMaxObserver(moving_rate=0.9)
    config = paddle.quantization.QuantConfig(activation=quanter, weight=quanter)
    net = paddle.quantization.QAT(config).quantize(nn.Sequential(nn.Linear(4, 4)))
    net(tensor(2, 4)).sum().backward()


@scenario("float8", refused="float8")
def _() -> None:
    x = tensor(4, 4, grad=False).astype("float8_e4m3fn")
    paddle.matmul(x, x)


@scenario("texts")
def _() -> None:
    potentials, lengths = tensor(2, 4, 3, grad=False), paddle.to_tensor([4, 2])
    paddle.text.viterbi_decode(potentials, tensor(3, 3, grad=False), lengths, False)
    decoder = paddle.text.ViterbiDecoder(tensor(5, 5, grad=False))
    decoder(tensor(2, 4, 5, grad=False), paddle.to_tensor([4, 2]))


# Operators that are easily forgotten --------------------------------------------------------


@scenario("boxes and regions")
def _() -> None:
    ops = paddle.vision.ops
    boxes = paddle.to_tensor([[0.0, 0, 4, 4], [0, 0, 4, 5], [4, 4, 8, 8]])
    counts = paddle.to_tensor([3], dtype="int32")
    for dtype in FLOATS:
        x = tensor(1, 4, 8, 8, dtype=dtype)
        for pool in (ops.roi_align, ops.roi_pool):
            x.clear_gradient()
            pool(x, boxes.astype(dtype), counts, 2).astype("float32").sum().backward()
        ops.psroi_pool(tensor(1, 8, 8, 8, dtype=dtype), boxes.astype(dtype), counts, 2)
        offset, weight = tensor(1, 18, 6, 6, dtype=dtype), tensor(2, 4, 3, 3, dtype=dtype)
        ops.deform_conv2d(x, offset, weight).astype("float32").sum().backward()
    kept = ops.nms(boxes, 0.5, paddle.to_tensor([0.9, 0.8, 0.7]))
    assert sorted(kept.tolist()) == [0, 2]
    ops.box_coder(boxes, [0.1, 0.1, 0.2, 0.2], boxes)
    ops.yolo_box(
        tensor(1, 7, 4, 4), paddle.to_tensor([[64, 64]], dtype="int32"), [10, 13], 2, 0.1, 8
    )
    ops.prior_box(tensor(1, 3, 4, 4), tensor(1, 3, 16, 16), [2.0])


@scenario("graphs")
def _() -> None:
    source, target = paddle.to_tensor([0, 1, 2, 0]), paddle.to_tensor([1, 2, 1, 0])
    for dtype in FLOATS:
        x = tensor(3, 4, dtype=dtype)
        for how in ("sum", "mean", "max", "min"):
            paddle.geometric.send_u_recv(x, source, target, how).astype("float32").sum().backward()
        paddle.geometric.send_uv(x, x, source, target).astype("float32").sum().backward()
        paddle.geometric.segment_sum(x, paddle.to_tensor([0, 0, 1]))
        paddle.geometric.segment_max(x, paddle.to_tensor([0, 0, 1]))
    paddle.geometric.reindex_graph(
        paddle.to_tensor([0, 1]), paddle.to_tensor([1, 2]), paddle.to_tensor([1, 1], dtype="int32")
    )


@scenario("linear algebra")
def _() -> None:
    a = tensor(4, 4) + 4 * paddle.eye(4)
    a.stop_gradient = False
    linalg = paddle.linalg
    for value in (
        linalg.inv(a),
        linalg.det(a),
        linalg.slogdet(a)[1],
        linalg.cholesky(a @ a.T),
        linalg.eigh(a + a.T)[0],
        linalg.svd(a)[1],
        linalg.solve(a, a),
        linalg.triangular_solve(a, a),
        linalg.pinv(a),
        linalg.matrix_power(a, 3),
        linalg.norm(a),
        linalg.cond(a),
        linalg.multi_dot([a, a, a]),
    ):
        value.astype("float32").sum().backward(retain_graph=True)
    linalg.eig(a.detach()), linalg.matrix_rank(a.detach())
    linalg.lu(a.detach()), paddle.cross(a[:3, :3], a[:3, :3]), paddle.cdist(a, a)


@scenario("least squares", refused="lstsq")
def _() -> None:
    # Paddle's Python code asks for the name of the device.
    paddle.linalg.lstsq(tensor(4, 4), tensor(4, 4))


@scenario("fused operators")
def _() -> None:
    fused = paddle.incubate.nn.functional
    calls = [
        lambda x: fused.swiglu(x),
        lambda x: fused.fused_linear(x, x),
        lambda x: fused.fused_dropout_add(x, x, 0.5),
        lambda x: fused.fused_rms_norm(x, paddle.ones([8], x.dtype), None, 1e-6, 1),
        lambda x: fused.fused_layer_norm(x, None, None, 1e-5, begin_norm_axis=1),
        lambda x: fused.fused_rotary_position_embedding(x.reshape([1, 8, 1, 8]))[0],
        lambda x: fused.fused_bias_act(x),
        lambda x: fused.fused_matmul_bias(x, x),
        lambda x: paddle.incubate.softmax_mask_fuse_upper_triangle(x.reshape([1, 1, 8, 8])),
        lambda x: F.flash_attention.flash_attention(*[x.reshape([1, 8, 1, 8])] * 3)[0],
        lambda x: F.rms_norm(x, [8]),
    ]
    for dtype in FLOATS:
        for call in calls:
            try:
                call(tensor(8, 8, dtype=dtype)).astype("float32").sum().backward()
            except Exception as error:
                # Several have no CPU kernel: said by Paddle, by name.
                assert str(error), call


@scenario("random numbers")
def _() -> None:
    for dtype in FLOATS:
        paddle.normal(shape=[4]).astype(dtype), paddle.rand([4]).astype(dtype)
        x = tensor(4, 4, dtype=dtype, grad=False)
        x.uniform_(), x.normal_(), x.exponential_()
        F.dropout(x), paddle.bernoulli(x.abs().clip(0, 1))
    paddle.multinomial(paddle.ones([4]), 2), paddle.randperm(9), paddle.poisson(paddle.ones([3]))
    state = paddle.get_rng_state()
    first = paddle.rand([4]).numpy()
    paddle.set_rng_state(state)
    assert (paddle.rand([4]).numpy() == first).all()
    state = paddle.get_cuda_rng_state()
    first = F.dropout(paddle.ones([64])).numpy()
    paddle.set_cuda_rng_state(state)
    assert (F.dropout(paddle.ones([64])).numpy() == first).all()


# Programs -------------------------------------------------------------------------------------


class Branches(nn.Layer):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        y = self.inner(x)
        if y.sum() > 0:  # noqa: SIM108 - a statement is what is tried
            y = y * 2
        else:
            y = y - 1
        i = paddle.zeros([], "int32")
        while i < 3:
            y = y + x
            i += 1
        return y


@scenario("branches and loops in a program")
def _() -> None:
    for level in ("O0", "O1"):
        net = Branches()
        static = paddle.jit.to_static(Branches(), full_graph=True)
        static.set_state_dict(net.state_dict())
        x = tensor(2, 4)
        with paddle.amp.auto_cast(enable=level != "O0", level="O1"):
            a, b = net(x), static(x)
        # Its gradient fails on Paddle's CPU, too: a variable that "should exist".
        close(a, b)


@scenario("conditions by function")
def _() -> None:
    x = tensor(2, 2)
    out = paddle.static.nn.cond(x.sum() > 0, lambda: x * 2, lambda: x - 1)
    paddle.static.nn.while_loop(lambda i: i < 3, lambda i: [i + 1], [paddle.zeros([], "int64")])
    out.sum().backward()


@scenario("saved programs")
def _() -> None:
    for level in ("O0", "O2"):
        net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        if level == "O2":
            net = paddle.amp.decorate(net, level="O2")
        net.eval()
        dtype = "float32" if level == "O0" else "float16"
        spec = [paddle.static.InputSpec([None, 4], dtype)]
        paddle.jit.save(paddle.jit.to_static(net, full_graph=True), f"net{level}", spec)
        loaded = paddle.jit.load(f"net{level}")
        x = tensor(2, 4, dtype=dtype, grad=False)
        close(loaded(x), net(x))


@scenario("a static program")
def _() -> None:
    paddle.enable_static()
    main, start = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, start):
        x = paddle.static.data("x", [None, 4])
        loss = nn.Linear(4, 1)(x).mean()
        paddle.optimizer.SGD(0.1).minimize(loss)
    executor = paddle.static.Executor(paddle.CUDAPlace(0))
    executor.run(start)
    (first,) = executor.run(main, feed={"x": np.ones([2, 4], "float32")}, fetch_list=[loss])
    (last,) = executor.run(main, feed={"x": np.ones([2, 4], "float32")}, fetch_list=[loss])
    assert last < first


class Rows(paddle.io.Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 16

    def __getitem__(self, i: int) -> Any:
        return np.full([4], i / 16, "float32"), np.int64(i % 2)


@scenario("a model with callbacks")
def _() -> None:
    for level in ("O0", "O1", "O2"):
        net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
        model = paddle.Model(net)
        optimizer = paddle.optimizer.AdamW(
            1e-2, parameters=net.parameters(), multi_precision=level == "O2"
        )
        model.prepare(
            optimizer,
            nn.CrossEntropyLoss(),
            paddle.metric.Accuracy(),
            amp_configs=None if level == "O0" else level,
        )
        callbacks = [
            paddle.callbacks.EarlyStopping("loss"),
            paddle.callbacks.LRScheduler(),
            paddle.callbacks.ReduceLROnPlateau("loss"),
        ]
        data = Rows()
        model.fit(
            data, data, batch_size=4, epochs=2, verbose=0, save_dir="kept", callbacks=callbacks
        )
        model.evaluate(data, batch_size=4, verbose=0)
        model.predict(data, batch_size=4, verbose=0)
        assert os.path.exists("kept/final.pdparams")


# Processes and threads ------------------------------------------------------------------------


@scenario("workers that use tensors")
def _() -> None:
    class Tensors(Rows):
        def __getitem__(self, i: int) -> Any:
            # On the device: what is made before the fork must not be in the way.
            return (paddle.to_tensor([float(i)]) * 2).numpy(), np.int64(i)

    before = tensor(64, 64) @ tensor(64, 64)
    for persistent in (False, True):
        loader = paddle.io.DataLoader(
            Tensors(), batch_size=4, num_workers=2, persistent_workers=persistent
        )
        for _ in range(2):
            for x, i in loader:
                close(x[:, 0], 2 * i.astype("float32"))
    assert before.sum() > 0


@scenario("a worker that fails", refused="the data reader raises an exception")
def _() -> None:
    class Broken(Rows):
        def __getitem__(self, i: int) -> Any:
            raise ValueError("from the worker")

    list(paddle.io.DataLoader(Broken(), batch_size=4, num_workers=2))


@scenario("a forked child")
def _() -> None:
    x = tensor(32, 32)
    (x @ x).sum().backward()
    child = os.fork()
    if child == 0:
        (paddle.ones([4]) * 2).numpy()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    (x @ x).sum().backward()


@scenario("threads")
def _() -> None:
    done: list[float] = []

    def work(number: int) -> None:
        net = nn.Linear(16, 16)
        optimizer = paddle.optimizer.SGD(0.1, parameters=net.parameters())
        for _ in range(10):
            with paddle.amp.auto_cast(level="O1"):
                loss = net(tensor(8, 16)).astype("float32").mean()
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
        done.append(float(loss))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 4


KEPT: list[Any] = []


@scenario("an end with everything alive")
def _() -> None:
    net = nn.Linear(64, 64)
    optimizer = paddle.optimizer.Adam(parameters=net.parameters())
    loss = net(tensor(4, 64)).sum()
    loss.backward()
    optimizer.step()
    thread = threading.Thread(target=lambda: threading.Event().wait(), daemon=True)
    thread.start()
    loader = iter(
        paddle.io.DataLoader(Rows(), batch_size=4, num_workers=2, persistent_workers=True)
    )
    KEPT.extend([net, optimizer, loss, thread, loader, next(loader), tensor(8, dtype="float16")])
    sys.modules["kept_by_a_test"] = KEPT  # type: ignore[assignment]


@scenario("out of memory, and on")
def _() -> None:
    for _ in range(3):
        try:
            paddle.ones([1 << 40])
            raise AssertionError("a terabyte was there")
        except MemoryError as error:
            assert "Out of memory error on vgpu" in str(error)
        close(paddle.ones([4]) + 1, np.full([4], 2.0))


@scenario("saved and loaded")
def _() -> None:
    for dtype in (*FLOATS, "int64"):
        x = paddle.ones([4]).astype(dtype)
        paddle.save({"x": x, "deep": [x, {"y": x}]}, "kept.pdparams")
        close(paddle.load("kept.pdparams")["deep"][1]["y"], x)
    import copy
    import pickle

    close(copy.deepcopy(x), x)
    net = nn.Linear(2, 2)
    close(copy.deepcopy(net).weight, net.weight)
    pickle.loads(pickle.dumps(net.weight.numpy()))


@scenario("numpy and other libraries' tensors")
def _() -> None:
    x = tensor(4, 4, grad=False)
    assert np.asarray(x).shape == (4, 4) and x.tolist() and float(x[0, 0].item()) >= 0
    shared = paddle.to_tensor(np.asarray(x)[::2, 1:])
    assert shared.shape == [2, 3]
    try:
        paddle.utils.dlpack.from_dlpack(paddle.utils.dlpack.to_dlpack(x))
    except Exception as error:
        assert str(error)
