"""Kernels in C whose numbers are arguments: bit for bit those with constants, shared by sizes."""

import numpy as np
import optree
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.backends.cc import native, units
from miniml.backends.cc.units import NUMBERED, Source
from miniml.runtime import jit, program
from miniml.testing import opcheck
from tests.frame.native import needs_compiler
from tests.opinfo import ROWS
from tests.unit.cc.programs import exact, exact_inputs, function, inputs_for, with_gradient

pytestmark = needs_compiler


@pytest.fixture(autouse=True)
def in_c(monkeypatch):
    monkeypatch.setattr(jit, "_MANY", 99)  # compilations after which a warning is given
    with ml.context(providers=("cc",)):
        yield


def arrays(tree):
    return [t.asnumpy() for t in optree.tree_leaves(tree)]


def all_vary(kernels):
    """Make arguments of all numbers that may be, but for the few that are widths of vectors."""
    for kernel in kernels:
        if kernel.source is not None and NUMBERED.search(kernel.source.text):
            numbers = [n.rstrip("L") for n in native.form(kernel.source).numbers]
            keys = [(n,) if not n.isdigit() or int(n) > 8 else () for n in numbers]
            if any(keys):
                kernel.take_numbers(*native.general(kernel.source, keys, kernel.slots))


@pytest.fixture
def numbers_vary(monkeypatch):
    """A function whose programs have arguments for all numbers, with its results."""

    def results(fn, given):
        with monkeypatch.context() as patch:
            patch.setattr(program, "share_texts", all_vary)
            compiled = ml.jit(fn)
            return arrays(compiled(*given))

    return results


def same(fn, given, numbers_vary, ulps=0):
    """ulps: of the largest result, by which others may differ."""
    constant = arrays(ml.jit(fn)(*given))
    for one, two in zip(numbers_vary(fn, given), constant, strict=True):
        scale = np.abs(two).max(initial=0) if ulps else 0
        np.testing.assert_allclose(one, two, 0, ulps * np.spacing(scale) if ulps else 0)


def rows(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


class TestOneText:
    """A text whose numbers are arguments computes what the one with constants does, bit for bit but
    for products, of whose sums compilers unroll ends of known lengths."""

    @pytest.mark.parametrize(
        ("m", "n", "k", "dtype"),
        [(1, 33, 40, "f"), (3, 70, 19, "d"), (70, 9, 130, "d"), (37, 200, 300, "f")],
    )
    def test_products(self, m, n, k, dtype, numbers_vary):
        x, y = rows(m, k, dtype=dtype), rows(k, n, dtype=dtype)

        def fn(x, y, turned_x, turned_y):
            return x @ y, ops.relu(turned_x.T @ y + y[0]), x @ turned_y.T

        same(fn, (x, y, x.T.copy(), y.T.copy()), numbers_vary, 1)

    def test_batches_of_products(self, numbers_vary):
        x, y = rows(3, 1, 20, 33), rows(5, 33, 11)
        fn = lambda x, y, z: (ops.tanh(x @ y), ops.transpose(x @ z, (0, 2, 1, 3)))  # noqa: E731
        same(fn, (x, y, y), numbers_vary, 1)

    def test_columns_far_apart_are_copied(self, numbers_vary):
        same(lambda x, y: x.T @ y, (rows(200, 600), rows(200, 300)), numbers_vary, 1)

    @pytest.mark.parametrize(
        ("t", "s", "causal"),
        [(9, 33, True), (200, 117, False), pytest.param(150, 150, True, marks=pytest.mark.deep)],
    )
    def test_attention(self, t, s, causal, numbers_vary):
        def fn(q, k, v):
            attend = lambda *xs: ops.scaled_dot_product_attention(*xs, is_causal=causal)  # noqa: E731
            loss = lambda *xs: ops.sum(ops.square(attend(*xs)))  # noqa: E731
            return attend(q, k, v), ml.grad.grad(loss, argnums=(0, 1, 2))(q, k, v)

        same(fn, (rows(2, 3, t, 24), rows(2, 3, s, 24), rows(2, 3, s, 24)), numbers_vary)

    @pytest.mark.parametrize(
        ("channels", "groups", "images"),  # side by side: pixels or channels; images
        [(3, 1, 11), (3, 1, 32), (16, 1, 11), (16, 16, 32)],
    )
    def test_convolutions_and_pooling(self, channels, groups, images, numbers_vary):
        x, w = rows(images, channels, 13, 12), rows(16, channels // groups, 3, 3)

        def fn(x, w):
            y = ops.conv2d(x, w, stride=(1, 2), padding=1, groups=groups)
            return ops.max_pool2d(ops.relu(y + 1), 2), ops.avg_pool2d(y, 3, 1)

        loss = lambda x, w: sum(ops.sum(ops.square(y)) for y in fn(x, w))  # noqa: E731
        gradients = ml.grad.grad(loss, argnums=(0, 1))
        same(lambda x, w: (fn(x, w), gradients(x, w)), (x, w), numbers_vary)

    def test_moves(self, numbers_vary):
        i = np.random.default_rng(0).integers(0, 40, (30,))

        def fn(x, i):
            joined = ops.concat([x, x[5:]], 0)
            return joined.T, ops.gather(x, i, 0), ops.pad(x, ((3, 9), (0, 1)))

        gradient = ml.grad.grad(lambda x, i: ops.sum(ops.square(ops.gather(x, i, 0))))
        same(lambda x, i: (fn(x, i), gradient(x, i)), (rows(40, 70), i), numbers_vary)

    @pytest.mark.parametrize("seed", range(4))
    def test_chains(self, seed, numbers_vary):
        same(exact(seed), larger(exact_inputs(seed)), numbers_vary)
        same(with_gradient(function(seed, 6)), inputs_for(seed, np.float32), numbers_vary)

    @pytest.mark.deep
    @pytest.mark.parametrize("seed", range(4, 24))
    def test_more_chains(self, seed, numbers_vary):
        self.test_chains(seed, numbers_vary)

    @pytest.mark.deep
    @pytest.mark.parametrize("part", range(8))
    def test_every_primitive(self, part, monkeypatch):
        """opcheck compares texts of which all numbers are arguments with NumPy's kernels."""
        monkeypatch.setattr(program, "share_texts", all_vary)
        for row in ROWS[part::8]:
            opcheck(row.primitive, row, checks=("in C",))


def larger(given):
    """The arrays repeated along their first axis, which all but the numbers have."""
    return [ops.concat([x] * 30, 0) if len(x.shape) > 1 and x.shape[0] > 1 else x for x in given]


@pytest.fixture
def texts(monkeypatch):
    """All kernels that programs load."""
    found, load = {}, units.load_with_services
    note = lambda sources: found.update(dict.fromkeys(sources)) or load(sources)  # noqa: E731
    monkeypatch.setattr(units, "load_with_services", note)
    return found


def network():
    """A small network of attention, its step, and a function that draws a batch of tokens."""
    ml.manual_seed(0)
    embed, layer = nn.Embedding(9, 24), nn.TransformerEncoderLayer(24, 2, 40, dropout=0.0)
    net = nn.Sequential(embed, layer, nn.Dense(24, 5))
    loss = lambda y, labels: nn.CrossEntropyLoss()(y.reshape(-1, 5), labels.reshape(-1))  # noqa: E731
    step = ml.train_step(net, loss, optim.SGD(net.trainable_params(), lr=0.1))
    rng = np.random.default_rng(1)
    batch = lambda t: (rng.integers(0, 9, (4, t)), rng.integers(0, 5, (4, t)))  # noqa: E731
    return net, step, batch


class TestSharing:
    def test_steps_of_an_unrolled_loop(self, texts):
        """Each reads another slice and has another constant: they are compiled once."""
        x, t = rows(4, 16, 5), rows(5, 5)
        counts = []

        def scores(m, x, t, steps):
            a = x[:, 0]
            for i in range(1, steps):
                grown = a[:, :, None] + t[None] * (1.5 / i)
                a = m.log(m.sum(m.exp(grown), 1)) + x[:, i]
            return a

        for steps in (6, 16):
            texts.clear()
            got = ml.jit(lambda x, t: scores(ops, x, t, steps))(x, t)  # noqa: B023
            counts.append(len(texts))
            expected = scores(np, x.astype("f8"), t.astype("f8"), steps)
            np.testing.assert_allclose(got.asnumpy(), expected, 1e-5)
        assert counts[0] == counts[1]

    def test_steps_of_many_lengths(self, texts):
        """They train as NumPy's kernels do, and from some length on compile nothing."""
        lengths = (33, 41, 37, 36, 35, 43, 39, 34, 38, 45, 40, 42)  # 36: rows of whole vectors
        trained, new = [], []
        for providers in (("cc",), ("miniml",)):
            net, step, batch = network()
            losses = []
            for t in lengths:
                before = len(texts)
                with ml.context(providers=providers):
                    losses.append(step(*batch(t)).asnumpy())
                new.append(len(texts) - before)
            trained.append([np.array(losses), *(p.asnumpy() for p in net.trainable_params())])
        for one, two in zip(*trained, strict=True):
            np.testing.assert_allclose(one, two, 2e-3, 1e-4)
        assert min(new[:3]) > 15
        assert new[8:12] == [0] * 4

    def test_convolutions_of_many_batches(self, texts):
        """They train as NumPy's kernels do, and compile nothing from some batch on."""

        def begun():
            ml.manual_seed(0)
            first, second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3)
            pools, last = (nn.MaxPool2d(2), nn.AvgPool2d(2)), nn.Dense(32 * 9, 5)
            layers = first, nn.ReLU(), pools[0], second, nn.ReLU(), pools[1], nn.Flatten(), last
            net = nn.Sequential(*layers)
            sgd = optim.SGD(net.trainable_params(), lr=0.1)
            return net, ml.train_step(net, nn.CrossEntropyLoss(), sgd)

        rng, trained, new = np.random.default_rng(2), {}, []
        batches = [
            (rows(n, 3, 16, 16, seed=n), rng.integers(0, 5, n)) for n in (33, 41, 37, 34, 45, 36)
        ]
        for providers in (("cc",), ("miniml",)):
            net, step = begun()
            for x, labels in batches:
                before = len(texts)
                with ml.context(providers=providers):
                    step(x, labels)
                new.append(len(texts) - before)
            trained[providers] = [p.asnumpy() for p in net.trainable_params()]
        for one, two in zip(*trained.values(), strict=True):
            np.testing.assert_allclose(one, two, 2e-3, 1e-4)
        assert min(new[:3]) > 12
        assert new[4:6] == [0] * 2

    def test_two_sizes_are_compiled_for_each_alone(self):
        run = ml.jit(lambda x, y: ops.tanh(x @ y))
        y = rows(30, 40)
        shown = [str(ml.explain(run, rows(n, 30), y)) for n in (50, 60, 70, 80)]
        assert ["serve other sizes" in text for text in shown] == [False, False, True, True]

    def test_further_sizes_compile_nothing(self, texts):
        run, y = ml.jit(lambda x, y: ops.tanh(x @ y + 1) / (9 + ops.sum(x))), rows(30, 40)
        for n in (51, 61, 71):
            run(rows(n, 30), y)
        before = {*texts}
        for n in (55, 67, 91, 49):
            x = rows(n, 30, seed=n)
            expected = np.tanh(x.astype(float) @ y + 1) / (9 + x.astype(float).sum())
            np.testing.assert_allclose(run(x, y).asnumpy(), expected, 1e-3, 1e-5)
        assert {*texts} == before

    @pytest.mark.parametrize(
        ("extents", "varies"),
        [
            *(((40, 64, 128), varies) for varies in ((0,), (1,), (0, 2))),
            *(((1, 70, 20), varies) for varies in ((2,), (0, 2))),
            *(((3, 200, 64), varies) for varies in ((1,), (2,))),
        ],
    )
    def test_products_of_which_some_extents_vary(self, extents, varies):
        run = ml.jit(lambda x, y: (x @ y, ops.tanh(x) @ y + 1))
        for more in (0, 9, 17, 33):
            m, k, n = (e + more * (i in varies) for i, e in enumerate(extents))
            x, y = rows(m, k, dtype=np.float64, seed=more), rows(k, n, dtype=np.float64)
            plain, shifted = arrays(run(x, y))
            assert ("serve other sizes" in str(ml.explain(run, x, y))) == (more > 9)
            np.testing.assert_allclose(plain, x @ y, 1e-12, 1e-12)
            np.testing.assert_allclose(shifted, np.tanh(x) @ y + 1, 1e-12, 1e-12)

    def test_sizes_run_side_by_side(self):
        """Programs of several sizes share code and no numbers."""
        run = ml.jit(lambda x: ops.softmax(x * 2, -1), dynamic={"x": (0, 1)})
        given = [rows(n, m, seed=n) for n, m in ((20, 50), (31, 40), (44, 33), (27, 61))]
        first = [run(x).asnumpy() for x in given]
        for x, before in zip(given, first, strict=True):
            np.testing.assert_array_equal(run(x).asnumpy(), before)
            wide = np.exp(2 * x.astype(float) - 2 * x.max(-1, keepdims=True))
            np.testing.assert_allclose(before, wide / wide.sum(-1, keepdims=True), 1e-5)

    def test_a_mean_divides_by_each_size(self):
        """A number that is no integer differs, too."""
        run = ml.jit(lambda x: ops.mean(ops.exp(x)) + ops.var(x, 0) * (0.123 * x.shape[0]))
        for n in (40, 50, 60, 70):
            x = rows(n, 33, seed=n).astype(np.float64)
            np.testing.assert_allclose(
                run(x).asnumpy(), np.exp(x).mean() + x.var(0) * (0.123 * n), 1e-12
            )

    def test_loops_in_c(self):
        """Bodies of loops share texts with those of the same loop for other sizes."""

        def fn(x):
            return ops.scan(lambda c, row: (ops.tanh(c + row), c), x[0] * 0, x)[1]

        run = ml.jit(fn)
        for n, m in ((20, 30), (21, 31), (22, 32), (23, 33)):
            x = rows(n, m, seed=n, dtype=np.float64)
            expected = np.zeros(m)
            for row in x:
                expected = np.tanh(expected + row)
            np.testing.assert_allclose(run(x).asnumpy(), expected, 1e-12)

    def test_a_new_mode_is_no_new_size(self):
        """Training and evaluation of one batch size are compiled for it alone."""
        net = nn.Sequential(nn.Dense(20, 30), nn.Dropout(0.5), nn.ReLU())
        run, x = ml.jit(net), rows(50, 20)
        for train in (True, False, True, False):
            net.set_train(train)
            assert "serve other sizes" not in str(ml.explain(run, x))


class TestForms:
    def test_a_form_has_all_numbers_that_can_be_variables(self):
        text = "static const long a[] = {3L};\nx = k3[40L] + 0x1.8p+3f * 2e-3 + v_7 - 6 * 1.5f;\n"
        found = native.form(Source(text))
        assert found.numbers == ("40L", "0x1.8p+3f", "1.5f")
        assert "".join(f"{a}{b}" for a, b in zip(found.between, (*found.numbers, ""))) == text

    def test_equal_forms_have_equal_keys(self):
        texts = ["f(x + 64L)", "f(x + 65L)", "f(x - 64L)"]
        keys = [native.form(Source(text)).key for text in texts]
        assert keys[0] == keys[1] != keys[2]
        assert native.form(Source(texts[0], ("other",))).key != keys[0]

    @pytest.mark.parametrize("number", ["0", "64", "9007199254740993", "0x1.5p-4f", "0x1.8p+900"])
    def test_numbers_arrive_whole(self, number):
        bits = np.array([native._bits(number)], np.int64)
        if number.isdigit():
            assert bits[0] == int(number)
        else:
            assert bits.view(np.float64)[0] == float.fromhex(number.removesuffix("f"))
