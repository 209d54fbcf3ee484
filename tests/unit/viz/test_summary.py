"""Cell.summary: layers, what they give, parameters and FLOPs, from shapes alone."""

import re
import time
import tracemalloc
from html.parser import HTMLParser

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops
from miniml.errors import DTypeError, ShapeError
from miniml.graph.ir import flops
from miniml.viz.summary import _short


class Net(nn.Cell):
    """A layer under two names, one that is not called, and operations of its own."""

    def __init__(self):
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.first = nn.Dense(8, 8)
        self.again = self.first
        self.tied = nn.Dense(8, 8)
        self.tied.weight = self.first.weight
        self.idle = nn.Dense(2, 2)

    def construct(self, x):
        y = ops.mean(self.norm(self.conv(x)), axis=(2, 3))
        return self.tied(self.again(self.first(y)) + 1.0), y


def rows(net, *examples):
    return {row.path: row for row in net.summary(*examples).rows}


def total(fn, *args):
    return sum(count for _, count in flops(ml.trace(fn, *args)))


def zeros(*shape):
    return np.zeros(shape, np.float32)


def test_each_layer_once_with_what_it_gives_and_its_own_numbers():
    found = rows(Net(), (4, 3, 16, 16))
    assert list(found) == ["", "conv", "norm", "first", "tied", "idle"]
    assert found["conv"].output == "float32[4, 8, 16, 16]"
    assert found["conv"].output_bytes == 4 * 8 * 16 * 16 * 4
    assert found["conv"].parameters == 8 * 3 * 3 * 3 + 8
    assert found["conv"].nbytes == 4 * found["conv"].parameters
    assert found["conv"].flops == (2 * 27 + 1) * 4 * 8 * 16 * 16
    assert found["first"].calls == 2
    assert found["first"].flops == 2 * (2 * 4 * 8 * 8 + 4 * 8)
    assert found[""].output == "float32[4, 8], float32[4, 8]"
    assert found[""].flops == 4 * 8 * 16 * 16 + 4 * 8  # the mean, and the 1 that is added
    assert (found["idle"].calls, found["idle"].output, found["idle"].flops) == (0, "", 0)
    assert (found["norm"].parameters, found["norm"].trainable) == (32, 16)


def test_shared_parameters_count_once_and_frozen_ones_apart():
    net = Net()
    for p in net.conv.get_parameters():
        p.requires_grad = False
    found = net.summary((4, 3, 16, 16))
    assert rows(net)["tied"].shared == 64
    assert rows(net)["tied"].parameters == 8
    assert found.parameters == sum(p.size for p in net.get_parameters())
    assert found.trainable == sum(p.size for p in net.trainable_params())
    assert found.frozen == found.parameters - found.trainable
    assert found.nbytes == 4 * found.parameters
    assert found.flops == sum(row.flops for row in found.rows)


def test_a_parameter_under_two_names_of_one_layer_counts_once():
    class Tied(nn.Cell):
        def __init__(self, weight):
            self.weight = self.again = weight

    weight = ml.Parameter(zeros(3))
    found = nn.Sequential(Tied(weight), Tied(weight)).summary()
    assert [(r.parameters, r.shared) for r in found.rows] == [(0, 0), (3, 0), (0, 3)]
    assert "3 + 3 shared" not in str(found)


@pytest.mark.parametrize("count", [0, 7, 999, 1000, 1004, 1005, 123_456, 34_500_000])
@pytest.mark.parametrize("off", [*range(-6, 7), -500, -501, -499])
def test_numbers_have_three_digits_and_a_unit(count, off):
    for exact in (
        max(count + off, 0),
        10**6 + off,
        10**9 + 10**3 * off,
        10**15 + 10**9 * off,
        10**18 + 10**12 * off,
    ):
        text, _, unit = _short(exact).partition(" ")
        assert re.fullmatch(r"\d{1,3}|\d\.\d{1,2}|\d\d\.\d", text), (exact, text)
        found = float(text) * 1000 ** "kMGTPE".find(unit) * 1000 if unit else float(text)
        assert abs(found - exact) <= 0.005 * exact
    assert _short(10**21) == "1.00e+21"


def test_examples_may_be_shapes_specs_arrays_and_trees_of_these():
    class Adds(nn.Cell):
        def construct(self, pair, scale, *, shift):
            return pair[0] * scale + pair[1]["x"] + shift

    class Wraps(nn.Cell):
        def __init__(self):
            self.adds = Adds()

        def construct(self, pair, scale, words):
            return self.adds(pair, scale, shift=3.0), ops.one_hot(words, 4)

    words = ml.ArraySpec((2,), ml.int64)
    found = rows(Wraps(), ((2, 3), {"x": zeros(3)}), 2.0, words)
    assert found["adds"].output == "float32[2, 3]"
    assert found[""].output == "float32[2, 3], float32[2, 4]"
    assert rows(nn.ReLU(), ml.ArraySpec((5, 3), ml.float64))[""].output == "float64[5, 3]"
    assert rows(nn.ReLU(), ())[""].output == "float32[]"
    assert rows(nn.ReLU(), ml.Tensor(zeros(2, 2)))[""].output == "float32[2, 2]"


def test_loops_count_each_step_and_their_layers_are_found():
    class Steps(nn.Cell):
        def __init__(self):
            self.dense = nn.Dense(3, 3)

        def construct(self, xs):
            return ops.scan(lambda c, x: (self.dense(c) + x, None), zeros(2, 3), xs)[1]

    found = rows(Steps(), (10, 2, 3))
    assert found["dense"].flops == 10 * (2 * 2 * 3 * 3 + 2 * 3)
    assert found["dense"].output == "float32[2, 3]"
    assert found[""].flops == 10 * 2 * 3


def test_the_formulas():
    x, w = zeros(2, 4, 5), zeros(2, 5, 6)
    assert total(ops.matmul, x, w) == 2 * 2 * 4 * 5 * 6
    assert total(lambda a, b: ops.matmul(a, b, transpose_x=True), zeros(5, 4), zeros(5, 6)) == 240
    assert total(ops.matmul, zeros(5), zeros(5)) == 10
    assert total(lambda a, b: ops.einsum("bij,bjk->bik", a, b), x, w) == 2 * 2 * 4 * 5 * 6
    assert total(lambda a: ops.einsum("bij->b", a), x) == 40
    assert total(lambda a: ops.reshape(ops.transpose(a), (-1,)), x) == 0
    assert total(ops.exp, x) == total(ops.sum, x) == 40
    assert total(ops.softmax, x) == 5 * 40
    images, filters = zeros(2, 4, 8, 8), zeros(6, 2, 3, 3)
    convolved = 2 * (2 * 6 * 6 * 6) * (2 * 3 * 3)
    assert total(lambda a, b: ops.conv2d(a, b, groups=2), images, filters) == convolved
    assert total(lambda a: ops.max_pool2d(a, 2), images) == 2 * 4 * 4 * 4 * 4
    branch = lambda a: ops.cond(ops.sum(a) > 0, ops.exp, lambda b: ops.exp(b) + b, a)  # noqa: E731
    assert total(branch, zeros(7)) == 7 + 1 + 14


def test_the_formulas_of_attention_and_of_factors_of_matrices():
    q, v = zeros(3, 2048, 16), zeros(3, 2048, 5)
    scores = 3 * 2048 * 2048
    assert total(ops.scaled_dot_product_attention, q, q, v) == scores * (2 * (16 + 5) + 5)
    a, b = zeros(5, 6, 6), zeros(5, 6, 2)
    assert total(ops.cholesky, a) == 5 * 6**3 // 3
    assert total(ops.det, a) == 5 * 2 * 6**3 // 3
    assert total(ops.solve, a, b) == 5 * (2 * 6**3 // 3 + 2 * 6 * 6 * 2)


def test_the_gradients_of_a_convolution_count_like_it():
    images, filters = zeros(2, 4, 8, 8), zeros(6, 4, 3, 3)
    slope = ml.grad.grad(lambda a, b: ops.sum(ops.conv2d(a, b)), (0, 1))
    graph = ml.trace(slope, images, filters)
    counts = [n for node, n in flops(graph) if node.primitive.name.startswith("Conv2D")]
    assert counts == [2 * (2 * 6 * 6 * 6) * (4 * 3 * 3)] * len(counts)
    assert len(counts) >= 2


def test_nothing_is_computed_or_allocated_and_no_state_changes():
    net = Net()
    before = {name: p.asnumpy() for name, p in net.parameters_dict().items()}
    tracemalloc.start()
    try:
        found = net.summary((10**6, 3, 224, 224))
        assert tracemalloc.get_traced_memory()[1] < 4e6
    finally:
        tracemalloc.stop()
    assert found.flops > 10**13
    for name, p in net.parameters_dict().items():
        np.testing.assert_array_equal(p.asnumpy(), before[name])


def test_text_and_html():
    net = nn.Sequential(nn.Dense(784, 10), nn.ReLU())
    text = str(net.summary((32, 784)))
    assert re.search(r"\n0 +Dense +float32\[32, 10\] +1.28 kB +7,850 +31.4 kB +502 k\n", text)
    assert text.endswith("trainable 7,850, others 0")
    assert str(net.summary()).splitlines()[0] == "layer     class       parameters  their bytes"

    for shown in (net.summary((32, 784)), net):
        found, parser = [], HTMLParser()
        parser.handle_data = found.append
        parser.feed(shown._repr_html_())
        assert {"Dense", "7,850", "31.4 kB", "trainable 7,850, others 0"} <= set(found)


def test_what_does_not_fit_is_refused_at_its_layer():
    with pytest.raises(ShapeError) as caught:
        nn.Sequential(nn.Dense(4, 3), nn.Dense(4, 3)).summary((2, 4))
    assert "in layer 1 (Dense)" in caught.value.__notes__
    with pytest.raises(ShapeError, match=r"got 2, 4; give a shape as one tuple, \(2, 4\)"):
        nn.Dense(4, 3).summary(2, 4)
    with pytest.raises(ShapeError, match=r"got shape \(-1, 4\); extents are 0 or more"):
        nn.Dense(4, 3).summary((-1, 4))


def test_a_hundred_layers_take_no_time():
    layers = [nn.Sequential(nn.Dense(8, 8), nn.ReLU()) for _ in range(50)]
    net, times = nn.Sequential(*layers), []
    for _ in range(3):
        begin = time.perf_counter()
        net.summary((4, 8))
        times.append(time.perf_counter() - begin)
    assert min(times) < 0.3  # 0.01 s on an idle machine, where the aim is 0.1


def test_a_shape_that_stands_for_indices_says_what_to_give():
    with pytest.raises(DTypeError, match="integer indices") as caught:
        nn.Embedding(10, 4).summary((2, 3))
    hints = [note for note in caught.value.__notes__ if "float32" in note]
    assert len(hints) == 1
    assert "ml.ArraySpec(shape, ml.int64)" in hints[0]


class Dearer(ml.Primitive):
    """Twice x, said to cost seven operations a number."""

    def infer_shape(self, x):
        return x

    def flops(self, inputs, outputs):
        return 7 * inputs[0].size


class TwiceDearer(Dearer):
    """As its base, but for what it is said to cost."""

    def flops(self, inputs, outputs):
        return 2 * super().flops(inputs, outputs)


@pytest.mark.parametrize(("primitive", "each"), [(Dearer(), 7), (TwiceDearer(), 14)])
def test_a_primitive_of_ones_own_says_its_operations(primitive, each):
    assert total(lambda x: primitive(x) + 1.0, np.ones((3, 4), np.float32)) == 12 * each + 12
