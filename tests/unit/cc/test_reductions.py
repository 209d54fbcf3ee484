"""Reductions over axes that are apart, over few elements, and with NaN, against NumPy."""

import re
from functools import partial

import numpy as np
import optree
import pytest

import miniml as ml
from miniml import ops
from miniml.grad import grad
from miniml.runtime.jit import Jit
from tests.frame.native import needs_compiler

pytestmark = needs_compiler
RNG = np.random.default_rng(3)


def in_one_program(fn, *arrays):
    """The outputs in C. Kernels of arrays of different shapes are those of programs of their own;
    the compiler is called once for all."""
    with ml.context(providers=("cc",)):
        return optree.tree_map(ml.Tensor.asnumpy, ml.jit(fn)(*arrays))


def pooled(x):
    n, c, h, w = x.shape
    return ops.reshape(x, (n, c, h // 2, 2, w // 2, 2))


# The shape of x, the axes, and what lies between x and the reduction.
CASES = {
    "pooling": ((3, 4, 12, 20), (3, 5), pooled),
    "pooling, few columns": ((2, 3, 4, 6), (3, 5), pooled),
    "few long rows": ((5, 3001), 0, lambda x: x),
    "short rows": ((24, 20, 40, 10), (0, 2), lambda x: x),
    "ends of short rows": ((6, 40, 8, 7), (1, 3), lambda x: x),
    "one number": ((3, 5, 70), None, lambda x: x),
}


@pytest.mark.parametrize("name", CASES)
def test_reductions_are_numpys(name):
    shape, axis, view = CASES[name]
    x = RNG.standard_normal(shape).astype(np.float32)
    x.reshape(-1)[[1, -3]] = np.nan, np.inf
    given = ops.exp(ml.Tensor(np.zeros((), np.float32)))  # 1: something to compute with

    def fn(x, one):
        y = view(x) * one
        return ops.max(y, axis), ops.min(y, axis), ops.sum(y, axis), ops.any(y > 1, axis), y

    with ml.context(providers=("cc",)):
        found = [out.asnumpy() for out in ml.jit(fn)(x, given)]
    y = view(ml.Tensor(x)).asnumpy()
    np.testing.assert_array_equal(found[0], y.max(axis))
    np.testing.assert_array_equal(found[1], y.min(axis))
    np.testing.assert_allclose(found[2], y.astype(np.float64).sum(axis), rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(found[3], (y > 1).any(axis))
    np.testing.assert_array_equal(found[4], y)


WINDOWS = [
    ((3, 50), 5, 1, 1),
    ((3, 50), 5, 1, 2),
    ((40, 7), 3, 0, 1),
    ((2, 9, 70), (3, 20), (1, 2), (1, 3)),
]


@pytest.mark.parametrize(("shape", "size", "axis", "step"), WINDOWS)
def test_windows_are_reduced_where_they_overlap(shape, size, axis, step):
    """In one loop, which copies none of them; of what a loop has made, too."""
    x = RNG.standard_normal(shape)

    def fn(x):
        windows = ops.sliding_window(x, size, axis, step)
        made = ops.sliding_window(ops.exp(x), size, axis, step)
        gone = tuple(range(x.ndim, windows.ndim))
        return ops.sum(windows, gone), ops.max(windows, gone), ops.mean(made, gone), made * 2

    with ml.context(providers=("cc",), verify_passes=True):
        run = Jit(fn)
        found = [out.asnumpy() for out in run(ml.Tensor(x))]
        names = [n.primitive.name for n in run.compiled(ml.Tensor(x)).program.graph.nodes]
    assert "SlidingWindow" not in names
    windows = np.lib.stride_tricks.sliding_window_view(x, size, axis)
    steps = dict(zip(np.atleast_1d(axis), np.atleast_1d(step), strict=True))
    windows = windows[tuple(slice(None, None, steps.get(a, 1)) for a in range(x.ndim))]
    gone = tuple(range(x.ndim, windows.ndim))
    np.testing.assert_allclose(found[0], windows.sum(gone), 1e-12, 1e-12)
    np.testing.assert_array_equal(found[1], windows.max(gone))
    np.testing.assert_allclose(found[2], np.exp(windows).mean(gone), 1e-12)
    np.testing.assert_allclose(found[3], np.exp(windows) * 2, 1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_])
def test_products_are_numpys(dtype):
    kind = np.dtype(dtype).kind
    cases = [CASES[name] for name in ("pooling", "few long rows", "short rows", "one number")]
    draw = partial(RNG.uniform, 0.9, 1.1) if kind == "f" else partial(RNG.integers, 1, 4)
    xs = [draw(shape).astype(dtype) for shape, _, _ in cases]

    def fn(*xs):
        return [ops.prod(view(x), axis) for x, (_, axis, view) in zip(xs, cases, strict=True)]

    for out, x, (_, axis, view) in zip(in_one_program(fn, *xs), xs, cases, strict=True):
        expected = np.prod(view(ml.Tensor(x)).asnumpy(), axis)
        assert out.dtype == expected.dtype or kind in "ub"
        if kind == "f":
            np.testing.assert_allclose(out, expected, rtol=1e-3 if dtype == np.float32 else 1e-11)
        else:
            np.testing.assert_array_equal(out.astype(expected.dtype), expected)


def test_reductions_of_reductions_are_numpys():
    x = RNG.standard_normal((300, 2, 2, 3)).astype(np.float32)

    def fn(x):
        return ops.sum(x, -1), ops.sum(ops.sum(x, -1), -1), ops.max(ops.prod(x, -1), 1)

    with ml.context(providers=("cc",)):
        found = [out.asnumpy() for out in ml.jit(fn)(x)]
    expected = x.sum(-1), x.sum(-1).sum(-1), x.prod(-1).max(1)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_a_nan_at_any_index_is_found():
    xs = []
    for n in (1, 15, 16, 63, 64, 65, 129, 512, 515, 1030):
        xs.append(RNG.standard_normal((n + 3, n)).astype(np.float32))
        xs[-1][np.arange(n), np.arange(n)] = np.nan
    found = in_one_program(lambda *xs: [(ops.max(x, -1), ops.min(x, -1)) for x in xs], *xs)
    for x, (top, low) in zip(xs, found, strict=True):
        np.testing.assert_array_equal(top, x.max(-1))
        np.testing.assert_array_equal(low, x.min(-1))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: ops.max(pooled(x), (3, 5)),
        lambda x: ops.sum(x, (0, 1)),
        ml.grad.grad(lambda x: ops.sum(ops.sin(ops.repeat(ops.repeat(x, 2, 2), 2, 3)))),
    ],
)
def test_partial_results_are_not_more_than_what_is_reduced(fn):
    x = RNG.standard_normal((8, 16, 56, 56)).astype(np.float32)
    with ml.context(providers=("cc",)):
        program = Jit(fn).compiled(x).program
    made = [prepared.instance for prepared in program.prepared.values() if prepared.instance]
    scratch = [spec for instance in made for spec in instance.workspace()]
    bodies = [getattr(n.primitive, "body", None) for n in program.graph.nodes]
    every = [n for body in bodies if body for n in body.nodes]
    elements = max(np.prod(v.abstract.shape) for n in every for v in (*n.inputs, *n.outputs))
    assert sum(np.prod(s.shape) for s in scratch) <= elements


def test_a_maximum_has_the_same_bits_on_two_threads():
    x = RNG.standard_normal((8, 40000)).astype(np.float32)
    found = []
    for threads in (1, 2):
        with ml.context(providers=("cc",), threads=threads):
            out = ml.jit(lambda x: (ops.sum(ops.exp(x), 0), ops.max(x, 0), ops.sum(x)))(x)
            found.append([o.asnumpy() for o in out])
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_extrema_of_rows_of_any_length_are_numpys(dtype):
    xs = []
    for n in (1, 7, 17, 31, 33, 48, 63, 97, 545):
        x = RNG.standard_normal((40, n)).astype(dtype)
        x[1, n // 2], x[2, -1], x[3, 0], x[4], x[5] = np.nan, np.nan, np.inf, -np.inf, -0.0
        xs.append(x)
    found = in_one_program(lambda *xs: [(ops.max(x, -1), ops.min(x, -1)) for x in xs], *xs)
    for x, (great, least) in zip(xs, found, strict=True):
        np.testing.assert_array_equal(great, x.max(-1))
        np.testing.assert_array_equal(least, x.min(-1))
        assert np.signbit([great[5], least[5]]).all(), x.shape


# Expensive values of rows beyond 32 KB, which outputs hold until they are written.


def two_sums(x):
    """Two values that later passes need, one after the other."""
    y = ops.exp(x - ops.max(x, -1, keepdims=True))
    z = ops.tanh(y / ops.mean(y, -1, keepdims=True))
    return z / ops.sum(z, -1, keepdims=True)


def early(x):
    """An output that is written while another one holds a value."""
    y = ops.exp(x)
    return y / ops.sum(y, -1, keepdims=True), x + ops.max(x, -1, keepdims=True), y


def both(x):
    """Two values that one pass needs, and one output."""
    y, z = ops.exp(x), ops.tanh(x)
    return y * z / (ops.sum(y, -1, keepdims=True) + ops.sum(z * z, -1, keepdims=True))


LONG = {
    "softmax": lambda x: ops.softmax(x, -1),
    "softmax of two axes": lambda x: ops.softmax(x.reshape(3, -1), -1),
    "softmax of columns": lambda x: ops.softmax(ops.transpose(x), 0),
    "gradient": ml.grad.grad(lambda x: ops.sum(ops.softmax(x, -1) * ops.sin(x))),
    "two sums": two_sums,
    "early": early,
    "both": both,
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", LONG)
def test_values_of_long_rows_that_passes_share_are_numpys(name, dtype):
    x = (RNG.standard_normal((3, 8731)) * 2).astype(dtype)
    found = {}
    for providers, of in ((("cc",), x), (("miniml",), x.astype(np.float64))):
        with ml.context(providers=providers):
            outs = ml.jit(LONG[name])(of)
        found[providers] = [outs] if isinstance(outs, ml.Tensor) else outs
    for one, two in zip(*found.values(), strict=True):
        assert one.dtype == ml.Tensor(x).dtype
        tolerance = {4: 3e-5, 8: 1e-12}[x.itemsize]
        scale = np.abs(two.asnumpy()).max()
        np.testing.assert_allclose(
            one.asnumpy(), two.asnumpy(), tolerance, tolerance * float(scale) * 1e-2
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_outputs_hold_of_rows_of_odd_lengths_is_divided_once(dtype):
    """Rows along two axes that are apart: the last vector of 103 elements begins among those that
    are written already."""
    x = RNG.standard_normal((85, 3, 103)).astype(dtype)

    def fn(x):
        y = ops.exp(x)
        return y / ops.sum(y, (0, 2), keepdims=True), ops.tanh(x) / ops.max(
            ops.tanh(x), (0, 2), True
        )

    with ml.context(providers=("cc",)):
        found = [out.asnumpy() for out in ml.jit(fn)(x)]
    x = x.astype(np.float64)
    powers, bent = np.exp(x), np.tanh(x)
    right = powers / powers.sum((0, 2), keepdims=True), bent / bent.max((0, 2), keepdims=True)
    for one, two in zip(found, right, strict=True):
        np.testing.assert_allclose(one, two, 3e-5 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("shape", [(85, 3, 103), (200, 31, 65)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_all_that_is_computed_of_what_an_output_holds_is_computed_once(dtype, shape):
    """Another result, and an extremum, of elements that are written when they are read again."""
    x = RNG.standard_normal(shape).astype(dtype)
    axes = (0, 2) if shape[-1] == 103 else (0, 1)

    def fn(x):
        y = ops.exp(x)
        total = ops.sum(y, axes, True)
        z = ops.tanh(y / total * 50.0)
        most = ops.max(z, axes, True)
        return z / most, z * total, y, ops.max(z / most - z, axes)

    with ml.context(providers=("cc",)):
        found = [out.asnumpy() for out in ml.jit(fn)(x)]
    y = np.exp(x.astype(np.float64))
    total = y.sum(axes, keepdims=True)
    z = np.tanh(y / total * 50.0)
    most = z.max(axes, keepdims=True)
    for one, two in zip(found, (z / most, z * total, y, (z / most - z).max(axes)), strict=True):
        np.testing.assert_allclose(one, two, 3e-5 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("columns", [70, 150, 1000, 1030])
def test_columns_that_two_strips_share_are_divided_by_one_thread(columns):
    """The output holds the exponentials, which one strip divides and the other would divide again:
    with two threads a call in thirty was wrong."""

    def fn(x):
        y = ops.exp(x)
        return y / ops.sum(y, 0, keepdims=True)

    x = RNG.standard_normal((8200, columns)).astype(np.float32)
    with ml.context(providers=("cc",), threads=2):
        compiled = ml.jit(fn)
        (kernel,) = [p.native for p in compiled.compiled(x).program.prepared.values()]
        found = compiled(x).asnumpy()
    powers = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(found, powers / powers.sum(0), 3e-5)
    text = kernel.source.text
    (lanes,) = map(int, re.findall(r"strip \* (\d+)L < \d+L", text))
    (chunk,) = map(int, re.findall(r"const long first = part \* (\d+)L", text))
    strips = -(-columns // lanes)
    assert "= a1[" in text
    assert columns % lanes
    assert strips - 1 not in range(chunk, strips, chunk)  # where another part begins


def test_rows_that_two_strips_share_are_computed_anew():
    """The output holds what the second strip reduces: it may not be what the first one stored."""
    w, y = RNG.standard_normal((40, 5, 65)), RNG.standard_normal(31)

    def fn(w, y):
        x = ops.tanh(ops.einsum("c,eda->edca", y, w) * 0.3)
        v = ops.var(x, (0, 1, 2))
        return v, ops.select(x > v, x, ops.sin(v))

    with ml.context(providers=("cc",)):
        found = [out.asnumpy() for out in ml.jit(fn)(w, y)]
    x = np.tanh(np.einsum("c,eda->edca", y, w) * 0.3)
    v = x.var((0, 1, 2))
    for one, two in zip(found, (v, np.where(x > v, x, np.sin(v))), strict=True):
        np.testing.assert_allclose(one, two, 1e-12)


def test_a_long_rows_exponential_is_taken_once():
    x, gradient = (
        np.zeros((2, 9000), np.float32),
        ml.grad.grad(lambda x, w: ops.sum(ops.softmax(x) * w)),
    )
    with ml.context(providers=("cc",)):
        compiled = ml.jit(gradient).compiled(x, np.zeros((2, 9000), np.float32))
    (kernel,) = [p.native for p in compiled.program.prepared.values()]
    assert len(re.findall(r"= miniml_Exp_", kernel.source.text)) == 1


@pytest.mark.parametrize("name", ["sum", "prod", "max"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.int32, np.uint16])
def test_long_rows_are_reduced_where_they_lie(name, dtype):
    """Without a copy in the type of the total."""
    x = RNG.uniform(0.5, 1.5, (3, 777)).astype(dtype)
    with ml.context(providers=("cc",)):
        compiled = ml.jit(lambda x: getattr(ops, name)(x, -1))
        (kernel,) = [p.native for p in compiled.compiled(x).program.prepared.values()]
        out = compiled(x).asnumpy()
    assert "t1[" not in kernel.source.text
    assert f"_{name}_" in kernel.source.text
    wanted = getattr(np, name)(x if dtype != np.float32 else x.astype(float), -1)
    np.testing.assert_allclose(out, wanted.astype(out.dtype), rtol=1e-5)


def of_columns(x):
    """Reductions along axis 1, of which later passes over the column read some."""
    centred = x - ops.mean(x, 1, keepdims=True)
    sums = ops.sum(x, 1), ops.sum(ops.square(centred), 1), ops.prod(ops.sign(x), 1)
    return *sums, ops.max(x, 1), ops.min(x, 1), ops.softmax(x[:, :50], 1), centred


@pytest.mark.parametrize("n", [3, 50, 1030])
def test_columns_of_several_elements_side_by_side_are_numpys(n):
    """Vectors hold elements of all columns, and of several lines where columns are few: of 64 lanes
    8 x 8, 5 x 11, 2 x 30 and 1 x 33. Each dtype is tried with every length and with every number of
    columns."""
    rng, xs = np.random.default_rng(n), []  # of its own: numbers that cancel may be off by more
    for turn, columns in enumerate((8, 11, 30, 33), (3, 50, 1030).index(n)):
        dtype = (np.float16, np.float32, np.float64)[turn % 3]
        xs.append(rng.standard_normal((5, n, columns)).astype(dtype))
    for x, found in zip(xs, in_one_program(lambda *xs: [*map(of_columns, xs)], *xs), strict=True):
        y = x.astype(np.float64)
        centred, powers = y - y.mean(1, keepdims=True), np.exp(y[:, :50])
        sums = y.sum(1), (centred**2).sum(1), np.sign(y).prod(1)
        right = *sums, y.max(1), y.min(1), powers / powers.sum(1, keepdims=True), centred
        eps = np.finfo(x.dtype).eps
        for one, two in zip(found, right, strict=True):
            np.testing.assert_allclose(one, two, 8 * eps, 8 * eps * np.abs(two).max())


@pytest.mark.parametrize("columns", [1, 3, 8, 16])
def test_columns_of_lines_that_are_joined_are_numpys(columns):
    """Of several elements side by side some lie before a joint, others behind it."""
    xs = [RNG.standard_normal((2, n, columns)).astype(np.float32) for n in (9, 33, 70)]

    def fn(x):
        rolled, padded = ops.roll(x, 2, 1), ops.pad(x, ((0, 0), (3, 2), (0, 0)))
        joined = ops.concat([x[:, 5:], ops.sin(x[:, :5])], 1)
        return [
            f(y, 1) for y in (rolled, padded, joined) for f in (ops.var, ops.max, ops.logsumexp)
        ]

    def right(x):
        rolled, padded = np.roll(x, 2, 1), np.pad(x, ((0, 0), (3, 2), (0, 0)))
        joined = np.concatenate([x[:, 5:], np.sin(x[:, :5])], 1)
        three = (np.var, np.max, lambda y, axis: np.log(np.exp(y).sum(axis)))
        return [f(y, 1) for y in (rolled, padded, joined) for f in three]

    for x, found in zip(xs, in_one_program(lambda *xs: [*map(fn, xs)], *xs), strict=True):
        for one, two in zip(found, right(x.astype(np.float64)), strict=True):
            np.testing.assert_allclose(one, two, 3e-6, 3e-6)


def test_columns_of_a_wider_array_and_of_lines_that_are_repeated_are_numpys():
    """Their elements do not lie side by side in memory."""
    x, y = (RNG.standard_normal(s).astype(np.float32) for s in ((5, 20, 6, 32), (5, 20, 1, 16)))

    def fn(x, y):
        part = x[..., :16]
        return ops.var(part, (1, 2)), ops.var(part * y, (1, 2))

    with ml.context(providers=("cc",)):
        found = [out.asnumpy() for out in ml.jit(fn)(x, y)]
    part = x[..., :16].astype(np.float64)
    for one, two in zip(found, (part.var((1, 2)), (part * y).var((1, 2))), strict=True):
        np.testing.assert_allclose(one, two, 1e-6)


def test_integers_of_few_columns_wrap_and_nan_is_found():
    x = RNG.integers(-(2**31), 2**31, (4, 77, 16), dtype=np.int64).astype(np.int32)
    y = RNG.standard_normal((4, 77, 16)).astype(np.float32)
    y[0, 76, 15] = y[2, 3, 0] = np.nan
    with ml.context(providers=("cc",)):
        sums, most = (ml.jit(lambda v, f=f: f(v, 1)) for f in (ops.sum, ops.max))
        np.testing.assert_array_equal(sums(x).asnumpy(), x.sum(1))
        np.testing.assert_array_equal(most(y).asnumpy(), y.max(1))


def test_sums_over_lines_of_blocks_of_channels_are_exact_to_an_ulp():
    """Batch normalization's: 36,000 elements a channel, of a mean that is large."""
    x = (RNG.standard_normal((40, 2, 30, 30, 16)) + 100).astype(np.float32)
    with ml.context(providers=("cc",)):
        mean, var = ml.jit(lambda x: (ops.mean(x, (0, 2, 3)), ops.var(x, (0, 2, 3))))(x)
    y = x.astype(np.float64)
    np.testing.assert_allclose(mean.asnumpy(), y.mean((0, 2, 3)), 2**-23)
    np.testing.assert_allclose(var.asnumpy(), y.var((0, 2, 3)), 2**-22)


LAST = [17, 63, 64, 65, 72, 100, 129, 191]


@pytest.mark.parametrize(
    ("lengths", "dtype"), [(LAST, np.float32), (LAST[::2], np.float16), (LAST[1::2], np.float64)]
)
def test_every_row_counts_once_where_the_last_strip_begins_earlier(lengths, dtype):
    xs = [RNG.standard_normal((6, 8, n)).astype(dtype) for n in lengths]
    for x in xs:
        x[1, 2, -1] = np.nan

    def fn(x):
        far, short = ops.exp(x), ops.exp(ops.transpose(x, (0, 2, 1)))
        sums = ops.sum(far, 1), ops.sum(short, (0, 2)), ops.sum(ops.max(far, 1), 0)
        return *sums, ops.min(x, 1), ops.softmax(x, 1)

    for x, found in zip(xs, in_one_program(lambda *xs: [*map(fn, xs)], *xs), strict=True):
        wide = np.exp(x.astype(np.float64))
        expected = [wide.sum(1), wide.sum((0, 1)), wide.max(1).sum(0), x.min(1)]
        for one, other in zip(found, [*expected, wide / wide.sum(1, keepdims=True)], strict=True):
            np.testing.assert_allclose(one, other, rtol=16 * float(np.finfo(dtype).eps))


def test_long_products_are_as_exact_as_their_roundings():
    x = RNG.uniform(0.99, 1.01, (3, 20001)).astype(np.float32)
    x[1] *= 0.5
    with ml.context(providers=("cc",)):
        out = ml.jit(lambda x: ops.prod(x, -1))(x).asnumpy()
    assert out[1] == 0
    np.testing.assert_allclose(out[::2], x.astype(np.float64).prod(-1)[::2], rtol=20001 * 2.0**-24)


# One element of each row stands out, each in another place: one that is left out, or taken twice,
# shows in its row.
OUTSTANDING = {
    "Sum": (lambda x: ops.sum(x, 1), 1, lambda n: n + 4.0),
    "Prod": (lambda x: ops.prod(x, 1), 1, lambda n: 5.0),
    "Max": (lambda x: ops.max(x, 1), 1, lambda n: 5.0),
    "Min": (lambda x: ops.min(x, 1), 9, lambda n: 5.0),
    "Any": (lambda x: ops.any(x - 1 > 3, 1), 1, lambda n: 1.0),
    "All": (lambda x: ops.all(x - 5 < 1, 1), 1, lambda n: 1.0),
    "sum of computed ones": (lambda x: ops.sum(x * x, 1), 1, lambda n: n + 24.0),
    "sum of kept ones": (lambda x: ops.sum(ops.softmax(x, 1), 1), 1, lambda n: 1.0),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", OUTSTANDING)
def test_each_element_of_a_row_counts_once(name, dtype):
    fn, rest, expected = OUTSTANDING[name]
    turn = [*OUTSTANDING].index(name) + (dtype == "float64")  # all lengths of each, by two dtypes
    lengths = (2, 7, 15, 17, 23, 31, 33, 100)[turn % 2 :: 2]
    rows = [np.where(np.eye(n), 5, rest).astype(dtype) for n in lengths]
    with ml.context(providers=("cc",)):
        found = ml.jit(lambda rows: [ops.cast(fn(x), "float64") for x in rows])(rows)
    for n, out in zip(lengths, found, strict=True):
        np.testing.assert_allclose(out.asnumpy(), expected(n), rtol=2e-3, err_msg=f"{n} elements")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_rows_of_all_lengths_are_those_of_float64(dtype):
    """Means, extrema, softmax and its gradient, which keep elements and write some for each, with
    NaN and inf among them; 5 rows are few, and those of 19 are also read with strides. Each length
    with either number of rows, by dtypes in turns."""
    turn = ("float32", "float16", "float64", "bfloat16").index(dtype)

    def fn(xs):
        def weighed(x):
            return ops.sum(ops.softmax(x, -1) * ops.cast(np.arange(x.shape[-1]) % 3, x.dtype))

        return [(ops.softmax(x, -1), ops.max(x, -1), ops.var(x, -1), grad(weighed)(x)) for x in xs]

    for i, count in enumerate((5, 19), turn):
        lengths = (1, 9, 16, 17, 30)[i % 2 :: 2]
        xs = [RNG.standard_normal((count, 2, n)).astype(np.float32) for n in lengths]
        for x in xs:
            if x.shape[-1] > 1:
                x[1, 1, -1], x[2, 0, 0] = np.nan, -np.inf
        xs = [ml.Tensor(x).astype(dtype) for x in xs]
        xs += [ops.transpose(x, (1, 0, 2)) for x in xs[1::2]]
        with ml.context(providers=("cc",)):
            found = ml.jit(fn)(xs)
        expected = fn([ml.Tensor(x.astype("float64").asnumpy()) for x in xs])
        digits = {"float64": 1e-12, "float32": 1e-5, "float16": 4e-3, "bfloat16": 4e-2}[dtype]
        for x, ours, theirs in zip(xs, found, expected, strict=True):
            for one, other in zip(ours, theirs, strict=True):
                one, other = one.astype("float64").asnumpy(), other.asnumpy()
                np.testing.assert_allclose(one, other, digits, digits, err_msg=str(x.shape))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_short_rows_share_gets_the_gradients_of_all(dtype):
    """Strips of lanes of which the last begins before the first row that remains; 7 rows are few,
    and lie behind the others; where all axes have few, the rows of all lie side by side. What all
    of these share has a sum for each lane first."""

    def fn(xs, shared):
        def loss(x, y):
            return ops.sum(ops.square(ops.logsumexp(y - x, -1)))

        return [grad(loss, (0, 1))(x, y) for x, y in zip(xs, shared, strict=True)]

    shapes = [(3, 100, 5), (3, 40, 10), (2, 2, 130, 3), (40, 7, 5), (100, 5), (70, 10), (1300, 3)]
    shapes += [(6, 7, 7), (3, 3, 3), (2, 5, 4, 5), (5, 2, 16)]
    xs = [RNG.standard_normal(shape).astype(dtype) for shape in shapes]
    shared = [RNG.standard_normal(shape[1:]).astype(dtype) for shape in shapes]
    with ml.context(providers=("cc",)):
        found = ml.jit(fn)(xs, shared)
    wide = [[ml.Tensor(x.astype(np.float64)) for x in arrays] for arrays in (xs, shared)]
    for shape, ours, theirs in zip(shapes, found, fn(*wide), strict=True):
        for one, other in zip(ours, theirs, strict=True):
            one, digits = one.asnumpy(), 1e-5 if dtype == "float32" else 1e-13
            np.testing.assert_allclose(one, other.asnumpy(), digits, digits, err_msg=str(shape))


ROWS = [(9, 17), (9, 30), (9, 47), (9, 100), (9, 8), (70, 5), (1000, 15), (37, 2), (100, 16)]


@pytest.mark.parametrize(("rows", "n"), ROWS)
def test_elements_that_are_overwritten_are_read_once(rows, n):
    """The loop between two sorts writes where it reads: its last vector begins among what it has
    written already."""
    x, bias = (
        RNG.standard_normal((rows, n)).astype(np.float32),
        np.linspace(-1, 1, n, dtype=np.float32),
    )

    def fn(x, bias):
        return ops.sort(ops.exp(ops.sort(x, 1) + bias), 1)

    with ml.context(providers=("cc",)):
        found = ml.jit(fn)(x, bias).asnumpy()
    expected = np.sort(np.exp(np.sort(x.astype(np.float64), 1) + bias), 1)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
