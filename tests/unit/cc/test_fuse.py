"""What the passes `decompose` and `fuse` make of graphs."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, elementwise_kernel, kernel, nn, ops, optim
from miniml.backends.cc.units import run
from miniml.backends.expressions import inplace
from miniml.backends.selection import Target, get_device
from miniml.core.abstract import Abstract
from miniml.errors import GraphError, OutOfRangeError
from miniml.graph.ir import Node, Var, verify
from miniml.graph.passes import run_passes
from miniml.runtime.codegen import row_program
from miniml.runtime.fuse import fuse, sorted_topologically
from miniml.runtime.jit import Jit
from miniml.runtime.lowering import decompose, lower
from tests.frame.native import NatTwice, needs_compiler
from tests.unit.cc.fences import FENCES, first_to_fail, ignores_forks, needs_fences

pytestmark = needs_compiler

CC = Target(get_device("cpu"), ("cc",))
X, Y, B = np.ones((3, 4), np.float32), np.ones((3, 4), np.float32), np.ones(4, np.float32)


def fused(fn, *args):
    """The graph of a function after the passes."""
    graph = run_passes(ml.trace(fn, *args))
    return verify(fuse(decompose(graph, CC), CC))


def names(graph):
    """Each node, and the members of those that are fused."""
    return [
        [m.primitive.name for m in n.primitive.body.nodes]
        if isinstance(n.primitive, ops.Fused)
        else n.primitive.name
        for n in graph.nodes
    ]


def test_a_chain_is_one_node():
    assert (
        str(fused(lambda x, b: ops.exp(x * 2.0 + b), X, B))
        == """\
graph(%0: float32[3, 4], %1: float32[4]):
  %2: float32[3, 4] = Fused(body=<Graph mul_add_exp: 3 nodes>) %0, %1
    body: mul_add_exp(%0: float32[3, 4], %1: float32[4]):
      %2: float32[3, 4] = Mul() %0, 2.0
      %3: float32[3, 4] = Add() %2, %1
      %4: float32[3, 4] = Exp() %3
      return %4
  return %2"""
    )


def test_a_value_that_is_used_outside_is_an_output_too():
    graph = fused(lambda x, w: (ops.exp(x), ops.matmul(ops.exp(x) + 1.0, w)), X, X.T)
    assert names(graph) == [["Exp", "Add"], "MatMul"]
    assert len(graph.nodes[0].outputs) == 2


def test_what_another_node_needs_in_between_is_not_fused():
    """exp -> matmul -> add, which also reads exp: a group of both would run in a circle."""
    square = np.ones((3, 3), np.float32)
    graph = fused(lambda x: ops.matmul(ops.exp(x), x) + ops.exp(x), square)
    assert names(graph) == [["Exp"], ["MatMul", "Add"]]


@pytest.mark.parametrize(
    ("fn", "count"),
    [
        (ops.softmax, 1),
        (lambda x: ops.log_softmax(x, 0), 1),
        (lambda x: ops.logsumexp(x, 1), 1),
        (lambda x: ops.layer_norm(x, B, B), 1),
        (lambda x: ops.var(x, 0), 1),
        (lambda x: ops.softmax(ops.softmax(x, 0), 1), 2),  # rows one way, then the other
        (lambda x: (ops.sum(x, 1), ops.sum(x, 0), ops.mean(x)), 1),
        (lambda x: x + ops.reshape(ops.transpose(x), (3, 4)), 1),  # of a view that stays outside
    ],
)
def test_how_many_loops_there_are(fn, count):
    graph = fused(fn, X)
    assert len([n for n in graph.nodes if isinstance(n.primitive, ops.Fused)]) == count


def test_a_view_is_read_in_place_and_stays_where_others_need_it():
    graph = fused(lambda x: (ops.transpose(x) + 1.0, ops.sort(ops.transpose(x))), X)
    assert sorted(map(str, names(graph))) == ["Sort", "Transpose", "['Transpose', 'Add']"]


def test_slices_are_read_in_place():
    """As the gates of an LSTM; a slice of what the same loops would compute is not."""
    x = np.arange(24.0).reshape(2, 12)

    def gates(x):
        return ops.sigmoid(x[:, :4]) * ops.tanh(x[:, 4:8]) + x[:, 8:] * x[0, ::3]

    assert names(fused(gates, x))[0].count("Slice") == 4
    assert len(fused(lambda x: gates(x + 1.0), x).nodes) == 2
    with ml.context(providers=("cc",)):
        got = ml.jit(gates)(x).asnumpy()
    expected = np.tanh(x[:, 4:8]) / (1 + np.exp(-x[:, :4])) + x[:, 8:] * x[0, ::3]
    np.testing.assert_allclose(got, expected, rtol=1e-13)


def halves(x):
    return ops.concat([ops.abs(x[:, :2]) * x[:, 2:], x[:, 2:] - 1.0], 1)


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (halves, [["Abs", "Concat", "Mul", "Sub"]]),
        (lambda x: ops.stack([ops.tanh(x), x * 2.0], -1), [["Concat", "Mul", "Tanh"]]),
        (lambda x: ops.concat([ops.tanh(x), x * 2.0]), [["Mul", "Tanh"], "Concat"]),  # blocks
        (lambda x: ops.concat([x, x[::-1]], 1), ["Concat"]),  # of what is in memory
        (lambda x: ops.concat([ops.exp(x), x[:, :1]], 1), [["Exp"], "Concat"]),
        (lambda x: ops.concat([ops.exp(x), x], 1), [["Exp"], "Concat"]),  # short rows
        (lambda x: ops.exp(halves(x)), [["Abs", "Concat", "Mul", "Sub"], ["Exp"]]),
        (lambda x: ops.sum(halves(x), 1), [["Abs", "Concat", "Mul", "Sub"], ["Sum"]]),
        (
            lambda x: ops.square(ops.transpose(halves(x))),
            [["Abs", "Concat", "Mul", "Sub"], ["Square"]],
        ),
    ],
)
def test_equal_parts_are_computed_where_they_are_joined(fn, expected):
    """But for blocks of the output, which are computed there by any kernel."""
    views = {"Slice", "ExpandDims", "Flip", "Transpose"}
    found = [n if isinstance(n, str) else sorted({*n} - views) for n in names(fused(fn, X))]
    assert [n for n in found if str(n) not in views] == expected


PARTS = {  # of a number of one axis, and what is joined
    "twice": lambda m, x, y, row: [x * y, x * y],
    "read and made": lambda m, x, y, row: [x, x + row, y],
    "half": lambda m, x, y, row: [x[..., ::2] * y[..., 1::2], y[..., ::2]],
    "number": lambda m, x, y, row: [m.full_like(x, 1), m.maximum(x, y), x - x],
    "means": lambda m, x, y, row: [x - m.max(x, -1, keepdims=True), y],
    "rows": lambda m, x, y, row: [m.max(x, -1, keepdims=True), m.min(x, -1, keepdims=True)],
    "many": lambda m, x, y, row: [x + y, x - y, x * y, y, y + y, x + row, y - x, x * row],
}
ORDERED = {"number", "means", "rows"}  # complex numbers have no maximum


@pytest.mark.parametrize(
    ("code", "device"),
    [
        *product(["f4", "f8", "f2", "i4", "u1", "c8"], ["cpu"]),
        ("f4", "cuda-sim"),
        ("f2", "cuda-sim"),
    ],
)
def test_what_is_joined_has_the_bits_of_the_parts(code, device):
    """Each joined along an axis, and stacked; the extents tell the groups apart."""
    rng = np.random.default_rng(1)
    shapes = [(2, 6), (5, 34), (3, 16), (2, 3, 20), (3, 1, 18), (1, 4, 70), (2, 2, 2, 8)]
    if device == "cpu":
        shapes += [(40, 6), (3, 130), (17, 2), (1, 300, 22)]
    given, kinds = [], []
    for i, shape in enumerate(shapes):
        known = [p for name, p in PARTS.items() if code != "c8" or name not in ORDERED]
        parts = known[i % len(known)]
        axis, stacked = int(rng.integers(1 - len(shape), len(shape))), int(rng.integers(2))
        kinds.append((parts, axis, stacked))
        given += [rng.integers(0, 9, s).astype(code) for s in (shape, shape, shape[-1:])]

    def joined(m, *arrays):
        found = []
        for i, (parts, axis, stacked) in enumerate(kinds):
            join = m.stack if stacked else m.concat
            found.append(join(parts(m, *arrays[3 * i : 3 * i + 3]), axis))
        return found

    expected = joined(np, *given)
    with ml.context(providers=("cc",), device_target=device):
        compiled = ml.jit(partial(joined, ops))
        got = compiled(*[ml.Tensor(a) for a in given])
        assert "Concat;" in str(ml.explain(compiled, *[ml.Tensor(a) for a in given]))
    for out, right in zip(got, expected, strict=True):
        np.testing.assert_array_equal(out.asnumpy(), right, strict=True)


def test_what_is_joined_is_not_overwritten_by_what_passes_keep():
    """Of rows that are too long for the stack, the exponentials lie in an output meanwhile."""
    x = np.linspace(-3, 3, 18_000, dtype=np.float32).reshape(2, 9000)
    with ml.context(providers=("cc",)):
        got = ml.jit(lambda x: ops.concat([x * 2.0, ops.softmax(x)], 1))(x).asnumpy()
    e = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(got, np.concatenate([x * 2, e / e.sum(1, keepdims=True)], 1), 1e-5)


def test_what_is_joined_overwrites_no_input():
    """Not even one whose elements are as far apart, as the left half of a matrix."""
    (node,) = fused(lambda x: ops.concat([ops.abs(x), x * 2.0], 1), X).nodes
    body = node.primitive.body
    assert inplace(row_program(body, {body.inputs[0]: (8, 1)})) == ()


def last(fn):
    """A function of what is along axis 1, which is moved to the end for it and back."""
    return lambda x: [ops.moveaxis(fn(ops.moveaxis(x, 1, -1)), -1, 1)]


def and_what_it_reads(x):
    y = ops.transpose(ops.exp(x), (0, 2, 1))
    return [y, ops.square(y)]


def and_its_sum(x):
    y = ops.exp(x)
    return [ops.transpose(y, (0, 2, 1)), ops.sum(y, 1)]


@pytest.mark.parametrize(
    ("fn", "kept"),
    [
        (last(ops.softmax), 0),
        (last(lambda x: ops.reshape(ops.tanh(ops.reshape(x, (-1, x.shape[-1]))), x.shape)), 0),
        (last(lambda x: ops.exp(x) + ops.arange(x.shape[-1])), 0),
        (lambda x: and_its_sum(ops.transpose(x, (0, 2, 1))), 0),
        (lambda x: and_what_it_reads(ops.transpose(x, (0, 2, 1))), 0),
        (lambda x: [ops.transpose(ops.exp(x))], 1),  # loops that read and write in two orders
        (lambda x: [ops.transpose(ops.sum(ops.transpose(x, (0, 2, 1)), 0))], 0),
        (lambda x: [f(ops.exp(ops.transpose(x))) for f in (ops.transpose, ops.sort)], 1),
        (lambda x: [ops.transpose(ops.sort(ops.transpose(x)))], 2),
    ],
)
def test_what_loops_in_that_order_compute_is_stored_transposed(fn, kept):
    x = np.linspace(-1, 1, 60, dtype=np.float32).reshape(3, 4, 5)
    assert sum(n == "Transpose" for n in names(fused(fn, x))) == kept
    with ml.context(providers=("cc",)):
        got = ml.jit(fn)(x)
    for out, expected in zip(got, fn(ml.Tensor(x.astype(np.float64))), strict=True):
        np.testing.assert_allclose(out.asnumpy(), expected.asnumpy(), rtol=1e-6)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (3, 21, 40), (1, 7, 1, 2, 2)])
def test_classes_on_axis_1_need_no_copy(shape):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    labels = np.arange(x[:, 0].size).reshape(x[:, 0].shape) * 5 % shape[1]
    fn = ml.grad.grad(lambda x: ops.cross_entropy(x, ml.Tensor(labels)))
    assert "Transpose" not in names(fused(fn, x))
    e = np.exp(x.astype(np.float64))
    hits = np.arange(shape[1]).reshape(-1, *(1,) * len(shape[2:])) == labels[:, None]
    with ml.context(providers=("cc",)):
        got = ml.jit(fn)(x).asnumpy()
    np.testing.assert_allclose(got, (e / e.sum(1, keepdims=True) - hits) / labels.size, atol=3e-8)


def test_a_gradient_reads_what_the_function_has_computed():
    """Of log(sum(exp(x))) the greatest element and the exponentials, where both are asked for."""
    x = np.array([[1.0, -2.0, 3.0], [-np.inf, 0.5, -1.0], [-np.inf] * 3, [np.inf, 0.0, 1.0]])
    both = ml.grad.value_and_grad(lambda x: ops.sum(ops.sin(ops.logsumexp(x, 1))))
    members = [m.primitive.name for n in fused(both, x).nodes for m in n.primitive.body.nodes]
    assert members.count("Exp") == members.count("Max") == 1
    with ml.context(providers=("cc",)):
        _, slope = ml.jit(ml.grad.value_and_grad(lambda x: ops.sum(ops.logsumexp(x, 1))))(x)
    e = np.exp(x[:2])
    np.testing.assert_allclose(slope.asnumpy()[:2], e / e.sum(1, keepdims=True), 1e-14)
    np.testing.assert_array_equal(slope.asnumpy()[2:], [[0, 0, 0], [np.nan, 0, 0]])


def overlap(p, hits):
    """Of each class, as of the loss of Dice, where the classes are the last axis."""
    axes = tuple(range(p.ndim - 1))
    return 1.0 - ops.mean(2.0 * ops.sum(p * hits, axes) / (ops.sum(p + hits, axes) + 1.0))


@pytest.mark.parametrize("flat", [True, False])
def test_what_other_loops_read_lies_in_their_order(flat):
    """Classes on axis 1: loops wait for the sums of others, and read what these have computed."""
    shape = 2, 5, 3, 4
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    labels = np.arange(24).reshape(2, 3, 4) * 7 % 5

    def loss(x, labels):
        hits = ops.moveaxis(ops.one_hot(labels, 5, x.dtype), -1, 1)
        rows = (ops.moveaxis(z, 1, -1) for z in (ops.softmax(x, 1), hits))
        return overlap(*(ops.reshape(z, (-1, 5)) if flat else z for z in rows))

    graph = fused(ml.grad.grad(loss), x, labels)
    large = [v for n in graph.nodes for v in n.outputs if v.abstract.size == x.size]
    assert {v.abstract.shape for v in large} <= {shape, (2, 5, 12)}, str(graph)
    assert "Transpose" not in names(graph)
    with ml.context(providers=("cc",)):
        got = ml.jit(ml.grad.grad(loss))(x, labels).asnumpy()
    z = x.astype(np.float64)
    step = 1e-6

    def by_hand(z):
        e = np.exp(z)
        p, hits = e / e.sum(1, keepdims=True), np.arange(5).reshape(5, 1, 1) == labels[:, None]
        return 1 - np.mean(2 * (p * hits).sum((0, 2, 3)) / ((p + hits).sum((0, 2, 3)) + 1))

    for at in ((0, 0, 0, 0), (1, 4, 2, 3), (0, 2, 1, 3), (1, 1, 0, 2)):
        up, down = z.copy(), z.copy()
        up[at] += step
        down[at] -= step
        np.testing.assert_allclose(got[at], (by_hand(up) - by_hand(down)) / step / 2, rtol=1e-4)


RNG = np.random.default_rng(0)
ANCHORS = {
    "bias": (lambda x, w, b: ops.relu(ops.matmul(x, w) + b), (5, 7), (7, 33), (33,)),
    "rows": (lambda x, w, b: ops.matmul(x, w) * b, (5, 7), (7, 33), (5, 1)),
    "batch": (lambda x, w, b: ops.gelu(ops.matmul(x, w) + b), (3, 5, 7), (7, 33), (33,)),
    "heads": (lambda x, w, b: ops.matmul(x, w) * 0.5 + b, (2, 3, 5, 7), (2, 3, 7, 9), (3, 1, 1)),
    "residual": (lambda x, w, b: x + ops.tanh(ops.matmul(x, w)), (70, 70), (70, 70), (1,)),
    "sgd": (lambda x, d, w: w - ops.matmul(ops.transpose(x), d) * 0.1, (5, 7), (5, 9), (7, 9)),
    "one row": (lambda x, w, b: ops.exp(ops.matmul(x, w) + b), (1, 70), (70, 5), (5,)),
}


@pytest.mark.parametrize("name", ANCHORS)
def test_what_follows_a_product_is_its_epilogue(name):
    fn, *shapes = ANCHORS[name]
    xs = [RNG.normal(size=s) for s in shapes]
    assert sum("MatMul" in n for n in names(fused(fn, *xs))) == 1
    assert not any(n == "MatMul" for n in names(fused(fn, *xs)))
    with ml.context(providers=("miniml",)):
        expected = ml.jit(fn)(*xs)
    with ml.context(providers=("cc",), verify_passes=True):
        np.testing.assert_allclose(ml.jit(fn)(*xs).asnumpy(), expected.asnumpy(), rtol=1e-12)


IMAGES, FILTERS = (4, 3, 6, 5), (5, 3, 3, 3)
CONVOLUTIONS = {
    "bias": (lambda x, w, b: ops.relu(ops.conv2d(x, w, b)), IMAGES, FILTERS, (5,)),
    "batch innermost": (
        lambda x, w, b: ops.relu(ops.conv2d(x, w, b, padding=1)), (16, *IMAGES[1:]), FILTERS, (5,)
    ),
    "a batch of two vectors": (
        lambda x, w, b: ops.gelu(ops.conv2d(x, w, stride=2) * b), (32, *IMAGES[1:]), FILTERS,
        (5, 1, 1),
    ),
    "groups": (
        lambda x, w, b: ops.tanh(ops.conv2d(x, w, b, groups=3)), (16, *IMAGES[1:]), (6, 1, 2, 2),
        (6,),
    ),
    "norm": (
        lambda x, w, b: ops.batch_norm(
            ops.conv2d(x, w), b, b, b, ops.square(b)
        )[0],
        (16, *IMAGES[1:]), FILTERS, (5,),
    ),
    "residual": (
        lambda x, w, b: ops.relu(x + ops.conv2d(x, w, padding=1) * b), IMAGES, (3, 3, 3, 3), ()
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_what_follows_a_convolution_is_its_epilogue(name):
    fn, *shapes = CONVOLUTIONS[name]
    xs = [RNG.normal(size=s) for s in shapes]
    graph = lower(run_passes(ml.trace(fn, *xs)), CC)
    assert not any(is_convolution(n) for n in graph.nodes)
    fused_ones = [n.primitive.body for n in graph.nodes if isinstance(n.primitive, ops.Fused)]
    assert sum(is_convolution(n) for body in fused_ones for n in body.nodes) == 1
    with ml.context(providers=("miniml",)):
        expected = ml.jit(fn)(*xs)
    with ml.context(providers=("cc",), verify_passes=True):
        np.testing.assert_allclose(
            ml.jit(fn)(*xs).asnumpy(), expected.asnumpy(), rtol=1e-11, atol=1e-12
        )


def is_convolution(node):
    return "Conv2D" in (node.primitive.name, getattr(node.primitive, "operation", ""))


def test_what_differs_between_images_or_pixels_follows_in_a_kernel_of_its_own():
    x, w = RNG.normal(size=(16, 2, 4, 4)), RNG.normal(size=(3, 2, 1, 1))
    scale = RNG.normal(size=(4, 4))
    for fn in (lambda x, w: ops.conv2d(x, w) * scale, lambda x, w: ops.sum(ops.conv2d(x, w), 1)):
        graph = lower(run_passes(ml.trace(fn, x, w)), CC)
        assert any(is_convolution(n) for n in graph.nodes)


def test_a_product_that_others_read_too_is_an_output_of_its_kernel():
    graph = fused(lambda x, w: (ops.matmul(x, w), ops.relu(ops.matmul(x, w))), X, X.T)
    (node,) = graph.nodes
    assert [v.abstract.shape for v in node.outputs] == [(3, 3), (3, 3)]


def test_an_operand_of_a_product_is_not_overwritten_by_its_kernel():
    """x is read until the last row is done, so a residual does not go into its memory."""
    x = RNG.normal(size=(70, 70))

    def fn(x):
        y = x * 2.0
        return y + ops.matmul(y, y)

    with ml.context(providers=("cc",)):
        program = Jit(fn).compiled(x).program
        np.testing.assert_allclose(ml.jit(fn)(x).asnumpy(), 2 * x + 4 * x @ x, rtol=1e-11)
    kernels = [program.prepared[n].instance for n in program.graph.nodes]
    assert [k.inplace for k in kernels] == [(0,), ()]


def test_an_operand_may_be_a_constant_of_one_element():
    """It has no place among the arrays of a fused kernel, so nothing follows it there."""
    fns = (
        (lambda x: ops.matmul([[2.0]], x) + 1.0, np.array([[1.0, 3.0]])),
        (lambda x: ops.relu(ops.conv2d(x, np.full((1, 1, 1, 1), 2.0))), -X.reshape(1, 1, 3, 4)),
        (lambda w: ops.relu(ops.conv2d([[[[2.0]]]], w, padding=1)), X[None, None, :2, :2]),
    )
    for fn, x in fns:
        with ml.context(providers=("cc",)):
            got = ml.jit(fn)(x).asnumpy()
        np.testing.assert_array_equal(got, fn(x).asnumpy())


def test_an_operand_in_another_order_is_not_overwritten():
    x = RNG.integers(-8, 8, (60, 60)).astype(np.float32)
    with ml.context(providers=("cc",)):
        got = ml.jit(lambda x: ops.transpose(NatTwice()(x)) + 1.0)(x)
    np.testing.assert_array_equal(got.asnumpy(), 2 * x.T + 1)


def summed(x, _):
    """The second pass reads again what the first one could have overwritten."""
    return x * 2.0, x - ops.sum(x * 2.0, 1, True)


def scaled(b, x):
    """Each part of the loop reads the number, and writes the next one."""
    return b * 3.0, x + b * 3.0


@pytest.mark.parametrize(("fn", "shape"), [(summed, (4, 600)), (scaled, ())])
def test_a_parameter_that_is_read_again_is_not_overwritten(fn, shape):
    given = [RNG.integers(-8, 8, s).astype(np.float32) for s in (shape, shape or (600, 600))]
    first, second = map(ml.Parameter, given)

    def update():
        new = fn(first, second)
        ops.assign(first, new[0])
        ops.assign(second, new[1])

    expected = fn(*map(ml.Tensor, given))
    with ml.context(providers=("cc",)):
        ml.jit(update)()
    for out, right in zip((first, second), expected, strict=True):
        np.testing.assert_array_equal(out.asnumpy(), right.asnumpy())


def test_numpy_alone_fuses_nothing():
    graph = run_passes(ml.trace(lambda x: ops.exp(x) + 1.0, X))
    assert fuse(graph, Target(get_device("cpu"))) is graph
    assert fuse(graph, Target(get_device("cpu"), ("miniml", "cc"))) is graph


def test_the_passes_can_be_switched_off():
    graph = run_passes(ml.trace(ops.softmax, X))
    assert [n.primitive.name for n in lower(graph, CC, ("decompose", "fuse")).nodes] == ["Softmax"]


def test_updates_of_parameters_stay_apart_from_what_runs_first():
    """They come last, with the products and sums that make them, and what they give is right."""
    ml.manual_seed(0)
    net = nn.Sequential(nn.Dense(4, 3), nn.ReLU(), nn.Dense(3, 2))
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), lr=0.1))
    x, y = np.ones((5, 4), np.float32), np.zeros(5, np.int64)
    with ml.context(providers=("cc",), verify_passes=True):
        got = [float(step(x, y)) for _ in range(3)]
        program = step._program.compiled(x, y).program
    late = names(replace(program.graph, nodes=program.schedule.updates))
    assert late.count(["MatMul", "Mul", "Sub"]) == 2
    assert ["ReLUGrad", "SumTo", "Mul", "Sub"] in late
    first = names(replace(program.graph, nodes=program.schedule.main))
    assert ["MatMul", "Add", "ReLU"] in first
    assert not any("Sub" in n and "MatMul" in n for n in first)
    ml.manual_seed(0)
    net = nn.Sequential(nn.Dense(4, 3), nn.ReLU(), nn.Dense(3, 2))
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), lr=0.1))
    with ml.context(providers=("miniml",)):
        np.testing.assert_allclose(got, [float(step(x, y)) for _ in range(3)], rtol=1e-6)


@pytest.mark.parametrize("value", [lambda p, x: p * x, lambda p, x: ops.matmul(x, x.T) @ p])
def test_an_update_does_not_join_what_runs_first(value):
    parameter = ml.Parameter(np.ones((3, 4), np.float32))

    def update(x):
        y = value(parameter, x)
        ops.assign(parameter, y - 1.0)
        return ops.sum(y)

    with ml.context(providers=("cc",)):
        program = Jit(update).compiled(X).program
    assert names(replace(program.graph, nodes=program.schedule.updates)) == [["Sub"], "Assign"]


def test_labels_are_still_refused():
    x, y = np.zeros((2, 3), np.float32), np.array([0, 3])
    with ml.context(providers=("cc",)), pytest.raises(OutOfRangeError, match="label 3 for 3"):
        ml.jit(ops.cross_entropy)(x, y)


def test_explain_shows_groups_their_text_and_neighbours():
    def fn(x, w):
        return ops.softmax(ops.softmax(ops.relu(ops.matmul(x, w)), 0), 1)

    with ml.context(providers=("cc",)):
        shown = str(ml.explain(fn, X, X.T, text=True))
    assert "ReLU Max Sub Exp Sum Div Max; 3 passes over 3 rows of 3" in shown
    assert "relu_max_sub_exp_sum_div | sub_exp_sum_div: Max reduces a part of the row" in shown
    assert "MatMul(transpose_x=False, transpose_y=False) | relu_max_sub_exp_sum_div: what " in shown
    assert "static void KERNEL_part" in shown


def test_a_users_primitive_joins():
    class Wave(Primitive):
        """x + sin(alpha x)^2 / alpha."""

        alpha: float = 1.0

        def infer_shape(self, x):
            return x

        def infer_dtype(self, x):
            return x

    @kernel("Wave", "cpu", "f->f")
    def wave(x, *, alpha, out):
        np.add(x, np.sin(alpha * x) ** 2 / alpha, out=out)

    elementwise_kernel("Wave", "x + sin(alpha * x) * sin(alpha * x) / alpha", "f->f")
    x = np.linspace(-3, 3, 77, dtype=np.float32)

    def fn(x):
        return Wave(0.5)(x * 2.0) + 1.0

    assert names(fused(fn, x)) == [["Mul", "Wave", "Add"]]
    with ml.context(providers=("cc",)):
        got = ml.jit(fn)(x).asnumpy()
    np.testing.assert_allclose(got, 2 * x + np.sin(x) ** 2 / 0.5 + 1, rtol=1e-6)


def test_a_kernel_of_a_provider_that_ranks_higher_is_not_fused():
    @kernel("Exp", "cpu", "f->f", provider="mine")
    def mine(x, *, out):
        np.exp(x, out=out)

    graph = run_passes(ml.trace(lambda x: ops.exp(x) + 1.0, X))
    both = Target(get_device("cpu"), ("mine", "cc"))
    assert names(fuse(graph, both)) == ["Exp", ["Add"]]


def test_the_body_is_what_a_fused_node_means():
    """The kernel that runs it node by node gives what the C gives."""
    x = np.random.default_rng(0).normal(size=(6, 50))
    body = ml.trace(lambda x: (ops.exp(x) / ops.sum(x, 1, True), ops.sum(x, 0)), x)
    outs = {}
    for provider in ("cc", "miniml"):
        with ml.context(providers=(provider,)):
            outs[provider] = ml.jit(ops.Fused(body))(x)
    for one, two in zip(*outs.values(), strict=True):
        np.testing.assert_allclose(one.asnumpy(), two.asnumpy(), rtol=1e-13)


def test_a_sum_of_many_float32_is_as_exact_as_by_pairs():
    x = np.random.default_rng(0).random(1_000_001, np.float32) + np.float32(0.5)
    exact = x.astype(np.float64).sum()
    with ml.context(providers=("cc",)):
        whole, rows = ml.jit(
            lambda x: (ops.sum(x * 1.0), ops.sum(ops.reshape(x[:-1] * 1.0, (-1, 10)), 0))
        )(x)
    assert abs(float(whole) - exact) <= 2 * np.spacing(np.float32(exact))
    expected = x[:-1].astype(np.float64).reshape(-1, 10).sum(0)
    np.testing.assert_allclose(rows.asnumpy(), expected, rtol=3e-6)


def test_each_element_of_a_smaller_input_is_summed_once():
    """The loops of the others run over more axes than the input's."""
    rng = np.random.default_rng(5)
    x, b = rng.normal(size=(4, 6, 8)), rng.normal(size=(4, 6))

    def fn(x, b):
        y = (x - ops.max(x, (1, 2), True)) * ops.reshape(b, (4, 6, 1))
        return y, ops.sum(b, 0), ops.sum(b, 1)

    with ml.context(providers=("cc",)):
        _, columns, rows = ml.jit(fn)(x, b)
    np.testing.assert_allclose(columns.asnumpy(), b.sum(0), rtol=1e-12)
    np.testing.assert_allclose(rows.asnumpy(), b.sum(1), rtol=1e-12)


def test_a_part_is_reduced_where_it_lies():
    x = RNG.normal(size=(8, 400))

    def fn(x):
        return ops.sum(x[2:, 3:300], 1), ops.max(x[:, 390:], 1), ops.sum(x[:5, ::2], 0)

    with ml.context(providers=("cc",)):
        found = [out.asnumpy() for out in ml.jit(fn)(x)]
    expected = x[2:, 3:300].sum(1), x[:, 390:].max(1), x[:5, ::2].sum(0)
    for out, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(out, right, rtol=1e-12, atol=1e-12)


def weights(x, axis=1):
    terms = ops.exp(x)
    return terms / ops.sum(terms, axis, True)


def among(x, shape, *begin):
    """x among zeros of that shape, from there on."""
    end = tuple(b + n for b, n in zip(begin, x.shape, strict=True))
    return ops.SliceGrad(shape, begin, end, (1,) * x.ndim)(x)


# Rows side by side or one after another, of which the last strip, block or part is shorter; sums of
# columns beside what is done by rows.
RAGGED = {
    "short rows": ((100, 5), weights),
    "columns": ((700, 100), lambda x: weights(x, 0)),
    "rows": ((7, 1030), weights),
    "joined": ((30, 70), lambda x: ops.concat([ops.tanh(x), x * 2.0, x], 1)),
    "stacked halves": ((33, 50), lambda x: ops.stack([x[:, ::2], ops.exp(x[:, 1::2])], -1)),
    "elements": ((3, 33_335), lambda x: ops.tanh(x) * 2.0 + ops.exp(x) - x),
    "columns and short rows": ((100, 8), lambda x: (weights(x), ops.sum(x * weights(x), 0))),
    "few rows of two axes": ((6, 7, 7), lambda x: weights(x, 1)),
    "rows that share a sum": ((70, 10), lambda x: ops.sum(weights(x), 0)),
    "columns and sums": ((9, 50, 37), lambda x: (weights(x), ops.sum(x * weights(x), (0, 2)))),
    "sums of columns": ((3000, 70), lambda x: ops.sum(ops.exp(x), 0)),
    "parts": ((5, 700), lambda x: among(x, (9, 800), 4, 0) - among(x, (9, 800), 1, 100)),
    "sums of parts": ((50, 40), lambda x: ops.sum(ops.exp(among(x, (60, 45), 9, 5)), 1)),
    "columns of parts": ((6, 40, 70), lambda x: ops.max(among(x, (7, 45, 70), 1, 3, 0), 1)),
}


@needs_fences
@ignores_forks
def test_loops_compute_their_elements_and_touch_no_others():
    steps = []
    for name, (shape, fn) in RAGGED.items():
        x = RNG.normal(size=shape).astype(np.float32)
        with ml.context(providers=("cc",)):
            program = Jit(fn).compiled(x).program
        with ml.context(providers=("miniml",)):
            found = ml.jit(fn)(x.astype(np.float64))
        expected = [out.asnumpy() for out in (found if isinstance(found, tuple) else [found])]
        (node,) = program.graph.nodes
        made = program.prepared[node].instance
        specs = [v.abstract for v in node.outputs] + [*made.workspace()]

        def computed(placed, x=x, made=made, specs=specs, expected=expected):
            arrays = [placed(np.full(s.shape, np.nan, s.dtype)) for s in specs]
            run(made.source, (placed(x), *arrays))
            pairs = zip(arrays, expected, strict=False)
            return all(np.allclose(out, right, 1e-5, 1e-5) for out, right in pairs)

        steps += [(f"{name} {p.__name__}", partial(computed, p)) for p in FENCES]
    assert not first_to_fail(steps)


@pytest.mark.parametrize(
    ("shape", "fn", "side_by_side"),
    [
        ((6, 7, 7), lambda x: ops.logsumexp(x, 1), True),
        ((2, 3, 7), lambda x: ops.logsumexp(x, 2), False),  # six rows
        ((64, 10), lambda x: ops.sum(weights(x), 0), True),
        ((64, 16), lambda x: ops.sum(ops.exp(x), 0), False),  # whole vectors
        ((700, 30, 9), lambda x: ops.sum(weights(x), 0), True),
        ((64, 40), lambda x: ops.sum(weights(x), 0), False),
    ],
)
def test_short_rows_of_elementary_functions_lie_side_by_side(shape, fn, side_by_side):
    with ml.context(providers=("cc",)):
        program = Jit(fn).compiled(np.ones(shape, np.float32)).program
    texts = [
        s.instance.source.text for s in program.prepared.values() if "exp" in str(s.instance.source)
    ]
    assert ["strip" in text for text in texts] == [side_by_side]


def test_threads_do_not_change_a_sum():
    """Parts are cut by the shapes alone."""
    with ml.context(providers=("cc",)):
        fn, x = Jit(lambda x: ops.sum(ops.exp(x), 0)), np.ones((4000, 64), np.float32)
        program = fn.compiled(x).program
        assert ml.explain(fn, x).groups
    (node,) = program.graph.nodes
    text = program.prepared[node].instance.source.text
    assert "miniml.parallel(KERNEL_part" in text


def test_few_elements_along_the_last_axis_are_a_row_with_those_before():
    """Else each two would take the divisions that find their row; rows for threads are left."""

    def up(x):
        return -ops.repeat(ops.repeat(x, 2, -2), 2, -1)

    for shape, row in (((20, 5, 9), [9, 2]), ((300, 2), [2, 2, 2]), ((3, 4, 2), [2])):
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        with ml.context(providers=("cc",)):
            jit = Jit(up)
            np.testing.assert_array_equal(jit(x), -x.repeat(2, -2).repeat(2, -1))
            (node,) = jit.compiled(x).program.graph.nodes
        program = row_program(node.primitive.body)
        assert list(program.extents[program.outer :]) == row, shape


def test_nodes_that_need_each_other_are_refused():
    x = Var(Abstract((2,), ml.float32))
    a, b = Var(x.abstract), Var(x.abstract)
    ring = [Node(ops.Add(), (x, b), (a,)), Node(ops.Exp(), (a,), (b,))]
    with pytest.raises(GraphError, match="2 nodes need each other's results"):
        list(sorted_topologically([*enumerate(ring)]))


OUTER = {  # turned, and the shapes
    "plain": ((False, False), (5, 1), (1, 40)),
    "turned": ((True, True), (1, 5), (40, 1)),
    "batches": ((False, True), (2, 1, 3, 1), (4, 7, 1)),
    "one number": ((True, False), (1, 1), (1, 1)),
}


@pytest.mark.parametrize("code", ["f4", "f8", "f2", "i4"])
@pytest.mark.parametrize("name", OUTER)
def test_a_column_times_a_row_is_one_loop_with_what_follows(name, code):
    turned, *shapes = OUTER[name]
    x, y = ((RNG.normal(size=s) * 5).astype(code) for s in shapes)

    def fn(x, y):
        return ops.relu(ops.matmul(x, y, *turned))

    assert [["Mul" in n, "MatMul" in n] for n in names(fused(fn, x, y)) if "Mul" in str(n)] == [
        [True, False]
    ]
    with ml.context(providers=("cc",)):
        got = ml.jit(fn)(x, y).asnumpy()
    columns, rows = (
        np.swapaxes(a, -1, -2) if t else a for a, t in zip((x, y), turned, strict=True)
    )
    np.testing.assert_array_equal(got, np.maximum(columns * rows, 0), strict=True)


def test_the_gradient_of_a_product_by_a_vector_is_by_hand():
    x, y, w = (RNG.normal(size=s) for s in ((30, 20), (20,), (30,)))
    with ml.context(providers=("cc",)):
        dx, dy = ml.jit(ml.grad.grad(lambda x, y: ops.sum(ops.matmul(x, y) * w), (0, 1)))(x, y)
    np.testing.assert_allclose(dx.asnumpy(), np.outer(w, y), rtol=1e-15)
    np.testing.assert_allclose(dy.asnumpy(), x.T @ w, rtol=1e-12, atol=1e-13)
