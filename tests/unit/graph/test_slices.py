"""The pass that makes one concatenation of a sum of gradients of slices."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.grad import grad
from miniml.graph.passes import run_passes

X = np.random.default_rng(0).normal(size=(6, 4))
W = np.random.default_rng(1).normal(size=(6, 4))


def kinds(fn, *args):
    """The primitives that NumPy's kernels compute: loops in C read long parts where they lie."""
    with ml.context(providers=("miniml",), verify_passes=True):
        return [row.primitive.partition("(")[0] for row in ml.explain(ml.jit(fn), *args).rows]


def test_the_gradient_of_rows_is_their_concatenation():
    fn = grad(lambda x: ops.sum(ops.exp(x[4]) * x[1]) + ops.sum(ops.sin(x[0])) + ops.sum(x[5:]))
    expected = np.zeros((6, 4))
    expected[0], expected[5] = np.cos(X[0]), 1.0
    expected[1], expected[4] = np.exp(X[4]), np.exp(X[4]) * X[1]
    np.testing.assert_allclose(ml.jit(fn)(X).asnumpy(), expected, 1e-12)
    assert kinds(fn, X).count("Concat") == 1
    assert "SliceGrad" not in kinds(fn, X)


def test_zeros_fill_what_no_slice_takes_and_other_terms_are_added():
    fn = grad(lambda x: ops.sum(x[:, 1:2] * 2.0) + ops.sum(x[:, 3:] * 3.0) + ops.sum(x * W))
    np.testing.assert_allclose(ml.jit(fn)(X).asnumpy(), W + [0.0, 2.0, 0.0, 3.0], 1e-12)
    assert "SliceGrad" not in kinds(fn, X)


# A function of x, and the gradient of its sum by hand.
OTHERS = {
    "neighbours": (lambda x: (x[1:] - x[:-1]) ** 2, lambda x: np.concatenate(
        [2 * (x[:1] - x[1:2]), 4 * x[1:-1] - 2 * x[:-2] - 2 * x[2:], 2 * (x[-1:] - x[-2:-1])])),
    "both axes": (lambda x: ops.sum(x[0]) + ops.sum(x[:, 2]) + ops.sum(x[3]) + ops.sum(x[:, 0]),
                  lambda x: (np.arange(6) % 3 == 0)[:, None] * 1.0 + np.array([1.0, 0, 1, 0])),
    "every second": (lambda x: ops.sum(x[::2] * 2.0) + ops.sum(x[1::2] * 3.0),
                     lambda x: np.tile([[2.0], [3.0]], (3, 4))),
    "one twice": (lambda x: ops.sum(x[2] * x[2]) + ops.sum(x[2:4]),
                  lambda x: np.stack([*(x[:2] * 0), 2 * x[2] + 1, x[0] * 0 + 1, *(x[:2] * 0)])),
    "an empty one": (lambda x: ops.sum(x[3:3]) + ops.sum(x[1]) + ops.sum(x[4]),
                     lambda x: np.isin(np.arange(6), [1, 4])[:, None] * np.ones(4)),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_slices_that_overlap_or_have_steps_are_added_up(name):
    fn, by_hand = OTHERS[name]
    gradient = ml.jit(grad(lambda x: ops.sum(fn(x))))
    np.testing.assert_allclose(gradient(X).asnumpy(), by_hand(X), 1e-10, 1e-12)


def test_a_stencil_is_one_concatenation_of_sums():
    fn = grad(lambda x: ops.sum(OTHERS["neighbours"][0](x)))
    names = kinds(fn, X)
    assert names.count("Concat") == 1
    assert "SliceGrad" not in names


@pytest.mark.parametrize("first", [1, -1])
@pytest.mark.parametrize("second", [1, -1])
def test_what_is_subtracted_keeps_every_bit(first, second):
    numbers = np.array([0.0, -0.0, 1.0, -1.0, np.inf])
    v, w = (side.ravel() for side in np.meshgrid(numbers, numbers))

    def fn(x, v, w):
        parts = [x[:-1] if first > 0 else -x[:-1], x[1:] if second > 0 else -x[1:]]
        return ops.sum(parts[0] * v) + ops.sum(parts[1] * w)

    # The second part begins one element later: w stands one element to the right of v.
    fn, x, shifted = grad(fn), np.zeros(v.size + 1), np.append(w[1:], 0.0)
    got = ml.jit(fn)(x, v, shifted).asnumpy()
    with np.errstate(invalid="ignore"):
        middle = first * v[1:] + second * shifted[:-1]
    expected = np.hstack([first * v[0], middle, second * shifted[-1]])
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got)[got == 0], np.signbit(expected)[got == 0])
    names = kinds(fn, x, v, shifted)
    assert names.count("Sub") == (first + second == 0 or second < 0)


@pytest.mark.parametrize("seed", range(8))
def test_sums_of_any_slices_of_one_axis(seed):
    draw = np.random.default_rng(seed)
    axis, count = int(draw.integers(2)), int(draw.integers(2, 7))
    x, expected, cuts = draw.normal(size=(7, 7)), np.zeros((7, 7)), []
    for weight in range(1, count + 1):
        begin, end = sorted(int(n) for n in draw.integers(0, 8, 2))
        cuts.append(((slice(None),) * axis + (slice(begin, end),), float(weight)))
        expected[cuts[-1][0]] += weight
    fn = grad(lambda x: sum(ops.sum(x[cut] * weight) for cut, weight in cuts))
    np.testing.assert_array_equal(ml.jit(fn)(x).asnumpy(), expected)
    assert len([n for n in kinds(fn, x) if n == "SliceGrad"]) < 2


def test_the_nodes_of_an_unrolled_loop_grow_with_its_steps_and_so_does_its_memory():
    def loss(x):
        h = x[0]
        for t in range(1, len(x)):
            h = ops.tanh(h + x[t])
        return ops.sum(h)

    sizes = [ml.trace(grad(loss), np.zeros((steps, 3))) for steps in (8, 16)]
    few, many = (len(run_passes(graph).nodes) for graph in sizes)
    assert many - few <= 2 * few
    names = [n.primitive.name for n in run_passes(sizes[1]).nodes]
    assert names.count("Concat") == 1
    assert "SliceGrad" not in names


STEPS = [(2, (0, 1)), (3, (2, 0)), (4, (1, 1, 2)), (12, (3, 7))]  # and the first of each part


@pytest.mark.parametrize("shape", [(6, 12), (2, 12, 3), (5, 1, 12), (1, 12)])
@pytest.mark.parametrize(("step", "firsts"), STEPS)
def test_parts_of_each_nth_element_are_one_concatenation(shape, step, firsts):
    rng, axis = np.random.default_rng(2), shape.index(12)
    x, *weights = (rng.normal(size=shape) for _ in range(1 + len(firsts)))
    index = [(*[slice(None)] * axis, slice(first, None, step)) for first in firsts]

    def fn(x):
        return sum(ops.sum(ops.exp(x[at]) * w[at]) for at, w in zip(index, weights, strict=True))

    expected = np.zeros(shape)
    for at, w in zip(index, weights, strict=True):
        expected[at] += np.exp(x[at]) * w[at]
    np.testing.assert_allclose(ml.jit(grad(fn))(x).asnumpy(), expected, 1e-12)
    names = kinds(grad(fn), x)
    assert names.count("Concat") == 1
    assert "SliceGrad" not in names


@pytest.mark.parametrize("shape", [(3, 4), (1, 5), (2, 3, 4), (0, 3), ()])
def test_a_flip_and_what_runs_backwards_are_read_where_they_lie(shape):
    x = np.random.default_rng(3).normal(size=shape)
    for axis in (None, (), *[(a,) for a in range(x.ndim)]):
        index = tuple([slice(None, None, -1 if axis is None or a in axis else 1)
                       for a in range(x.ndim)])  # fmt: skip
        fn = ml.jit(grad(lambda x: ops.sum(ops.exp(ops.flip(x, axis)) * x)))  # noqa: B023
        sliced = ml.jit(grad(lambda x: ops.sum(ops.exp(x[index]) * x)))  # noqa: B023
        expected = np.exp(x[index]) + np.exp(x) * x[index]
        for run in (fn, sliced):
            np.testing.assert_allclose(run(x).asnumpy(), expected, 1e-12)
    names = kinds(grad(lambda x: ops.sum(ops.exp(ops.flip(x)) * x[..., ::-1])), x) if x.ndim else []
    assert x.size == 0 or not {"Flip", "SliceGrad"} & {*names}
