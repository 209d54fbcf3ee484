"""Loops and branches made of others: values, gradients of both modes, batches, and refusals."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import AttributeRefusedError, DTypeError, OutOfRangeError, ShapeError
from miniml.grad import grad, jvp
from miniml.testing import gradcheck

X = np.array([0.3, -0.2, 0.5])
MODES = pytest.mark.parametrize("run", [lambda f: f, ml.jit], ids=["eager", "jit"])


def close(got, expected):
    np.testing.assert_allclose(np.asarray(got), expected, 1e-12, 1e-12)


# --- fori_loop ------------------------------------------------------------------------------------


def polynomial(x, lower=1, upper=5):
    """x + sum of i sin(x) over lower <= i < upper, step by step."""
    return ops.fori_loop(lower, upper, lambda i, v: v + ops.cast(i, "float64") * ops.sin(x), x)


@MODES
@pytest.mark.parametrize("bounds", [(1, 5), (-2, 3), (4, 4), (5, 1), (2, 3)])
def test_a_counted_loop(run, bounds):
    total = sum(range(*bounds))
    close(run(lambda x: polynomial(x, *bounds))(X), X + total * np.sin(X))
    slope = run(grad(lambda x: ops.sum(polynomial(x, *bounds))))(X)
    close(slope, 1 + total * np.cos(X))


@MODES
def test_bounds_that_are_tensors(run):
    """In a graph it is a while loop, whose tangents pass forward."""
    ends = ml.Tensor(1), ml.Tensor(5)
    close(run(polynomial)(X, *ends), X + 10 * np.sin(X))
    moved = run(lambda x, *ends: jvp(lambda x: polynomial(x, *ends), (x,), (np.ones(3),)))
    close(moved(X, *ends)[1], 1 + 10 * np.cos(X))


def test_a_bound_for_each_example():
    found = ml.vmap(lambda x, n: polynomial(x, 0, n), (None, 0))(X, np.array([0, 3, 1]))
    close(found, X + np.array([[0], [3], [0]]) * np.sin(X))


def test_a_counted_loop_nests_and_batches():
    def table(x):
        inner = lambda i, v: ops.fori_loop(0, 2, lambda j, u: u * x + ops.cast(i + j, u.dtype), v)  # noqa: E731
        return ops.fori_loop(0, 3, inner, ops.zeros_like(x))

    def plainly(x):
        v = 0 * x
        for i in range(3):
            for j in range(2):
                v = v * x + (i + j)
        return v

    for f in (table, ml.jit(table), ml.vmap(table), ml.jit(ml.vmap(table))):
        close(f(X), plainly(X))
    gradcheck(table, X, order=2)


def test_trees_and_draws_in_a_counted_loop():
    def noisy(x):
        body = lambda i, v: {"a": v["a"] + ops.uniform((3,)), "n": v["n"] + i}  # noqa: E731
        return ops.fori_loop(0, 4, body, {"a": x, "n": 0})

    found = []
    for f in (noisy, ml.jit(noisy)):
        ml.manual_seed(3)
        result = f(ml.Tensor(X.astype(np.float32)))
        assert result["n"].item() == 6
        found.append(result["a"].tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("args", "error", "says"),
    [
        ((0.0, 2, ops.add, 1.0), DTypeError, r"ForiLoop got lower=0.0; a bound is an int"),
        ((0, True, ops.add, 1.0), DTypeError, r"ForiLoop got upper=True; a bound is an int"),
        ((0, X, ops.add, 1.0), DTypeError, r"ForiLoop got upper=.*; a bound is an int"),
        ((0, np.arange(2), ops.add, 1.0), ShapeError, r"upper of shape \(2,\); a bound has shape"),
        ((0, 2, 3, 1.0), AttributeRefusedError, r"ForiLoop got body=3"),
        ((0, 2, lambda i, v: (v, v), 1.0), ShapeError, r"ForiLoop body returns .* structure of"),
        ((0, 2, lambda i, v: i, 1.0), DTypeError, r"ForiLoop value is float32\[\] in the loop and"),
        ((0, 2, lambda i, v: v, "x"), DTypeError, r"ForiLoop got 'x' of type str"),
    ],
)
@MODES
def test_what_a_counted_loop_refuses(run, args, error, says):
    with pytest.raises(error, match=says):
        run(lambda: ops.fori_loop(*args))()


# --- map ------------------------------------------------------------------------------------------


@MODES
def test_a_function_of_each_row(run):
    xs = {"a": np.arange(6.0).reshape(3, 2), "b": X}

    def rows(xs):
        return ops.map(lambda x: (ops.sum(x["a"]) * x["b"], x["a"][0]), xs)

    first, second = run(rows)(xs)
    close(first, xs["a"].sum(1) * X)
    close(second, xs["a"][:, 0])
    both = ml.vmap(rows, ({"a": None, "b": 0},))({**xs, "b": np.stack([X, 2 * X])})
    close(both[0], np.stack([first, 2 * np.asarray(first)]))
    gradcheck(lambda b: ops.map(lambda x: ops.sin(x) * x, b), X, order=2)
    close(jvp(lambda x: ops.map(ops.square, x), (X,), (np.ones(3),))[1], 2 * X)


@MODES
@pytest.mark.parametrize("count", [0, 1])
def test_maps_over_few_rows(run, count):
    found = run(lambda xs: ops.map(lambda x: ops.stack([x, x * 2.0]), xs))(X[:count])
    close(found, np.stack([X[:count], 2 * X[:count]], 1))


@MODES
@pytest.mark.parametrize(
    ("xs", "error", "says"),
    [
        (None, ShapeError, "Map got xs without an array"),
        (ml.Tensor(2.0), ShapeError, "which has no axis to scan over"),
        ((X, X[:2]), ShapeError, r"different lengths: xs\[0\] of 3, xs\[1\] of 2"),
    ],
)
def test_what_map_refuses(run, xs, error, says):
    with pytest.raises(error, match=says):
        run(lambda xs: ops.map(lambda x: x, xs))(xs)


# --- switch ---------------------------------------------------------------------------------------


BRANCHES = (ops.sin, lambda x: x * x, lambda x: -x, ops.cos, lambda x: x + 1.0)
VALUES = (np.sin, np.square, np.negative, np.cos, lambda x: x + 1)
SLOPES = (np.cos, lambda x: 2 * x, lambda x: 0 * x - 1, lambda x: -np.sin(x), lambda x: 0 * x + 1)


@MODES
@pytest.mark.parametrize("count", [1, 2, 5])
def test_one_of_several_branches(run, count):
    def chosen(i, x):
        return ops.switch(i, BRANCHES[:count], x)

    value, slope = run(chosen), run(grad(lambda i, x: ops.sum(chosen(i, x)), 1))
    tangent = run(lambda i, x: jvp(lambda x: chosen(i, x), (x,), (np.full(3, 2.0),))[1])
    for i in range(count):
        at = ml.Tensor(i)
        close(value(at, X), VALUES[i](X))
        close(slope(at, X), SLOPES[i](X))
        close(tangent(at, X), 2 * SLOPES[i](X))


def test_one_program_serves_all_branches():
    compiled = ml.jit(lambda i, x: ops.switch(i, BRANCHES, x))
    for i, expected in enumerate(VALUES):
        close(compiled(ml.Tensor(i), X), expected(X))
    assert len(compiled.recompilations) == 1


@MODES
def test_a_branch_for_each_example(run):
    indices = np.array([4, 0, 2, 2])

    def chosen(i, x):
        return ops.switch(i, BRANCHES, x)

    expected = np.stack([VALUES[i](X) for i in indices])
    close(run(ml.vmap(chosen, (0, None)))(indices, X), expected)
    slopes = run(ml.vmap(grad(lambda i, x: ops.sum(chosen(i, x)), 1), (0, None)))(indices, X)
    close(slopes, np.stack([SLOPES[i](X) for i in indices]))
    close(run(ml.vmap(lambda x: chosen(ml.Tensor(1), x)))(X), X * X)


def test_branches_of_trees_nest():
    def nested(i, j, x):
        inner = lambda x: ops.switch(j, [lambda x: (x, 1.0), lambda x: (x * 2.0, 2.0)], x)  # noqa: E731
        return ops.switch(i, [inner, lambda x: (x * 3.0, 3.0)], x)

    for run in (lambda f: f, ml.jit):
        for i, j, factor in ((0, 0, 1.0), (0, 1, 2.0), (1, 0, 3.0)):
            value, number = run(nested)(ml.Tensor(i), ml.Tensor(j), X)
            close(value, factor * X)
            assert number.item() == factor


def test_an_index_outside():
    for i in (-1, 5, ml.Tensor(5), np.int8(-3)):
        with pytest.raises(OutOfRangeError, match=r"Switch got index -?\d for 5 branches; it is f"):
            ops.switch(i, BRANCHES, X)
    compiled = ml.jit(lambda i, x: ops.switch(i, BRANCHES, x))
    for wrong in (5, -1):
        with pytest.raises(OutOfRangeError, match=f"Switch got branch number {wrong}"):
            compiled(ml.Tensor(wrong), X)
    with pytest.raises(OutOfRangeError, match="Switch got branch number 9"):
        ml.vmap(lambda i: ops.switch(i, BRANCHES, X))(np.array([1, 9]))


TWO = [lambda x: x, lambda x: -x]


@pytest.mark.parametrize(
    ("index", "branches", "error", "says"),
    [
        (True, TWO, DTypeError, "index=True; .* for a bool use ops.cond"),
        (1.0, TWO, DTypeError, "index=1.0; it is an int"),
        (np.arange(2), TWO, ShapeError, r"index of shape \(2,\); it has shape \(\)"),
        (0, [], AttributeRefusedError, r"branches=\[\]; give a list of one function or more"),
        (0, ops.sin, AttributeRefusedError, "give a list of one function or more"),
        (0, [ops.sin, 3], AttributeRefusedError, r"Switch got branches\[1\]=3"),
    ],
)
@MODES
def test_what_switch_refuses(run, index, branches, error, says):
    with pytest.raises(error, match=says):
        run(lambda x: ops.switch(index, branches, x))(X)


@pytest.mark.parametrize(
    ("third", "error", "says"),
    [
        (lambda x: (x, x), ShapeError, r"branch 0, which returns .*, and branch 2, which returns"),
        (ops.sum, ShapeError, r"Switch value 0 is float64\[3\] in branch 0 and float64\[\] in br"),
        (lambda x: ops.cast(x, "float32"), DTypeError, r"float32\[3\] in branch 2"),
        (lambda x: "x", DTypeError, "Switch got 'x' of type str"),
    ],
)
def test_branches_that_do_not_agree(third, error, says):
    with pytest.raises(error, match=says):
        ml.jit(lambda i, x: ops.switch(i, [*TWO, third], x))(ml.Tensor(0), X)


@MODES
def test_an_error_in_a_branch_points_at_the_users_line(run):
    with pytest.raises(ShapeError) as caught:
        run(lambda i, x: ops.switch(i, [lambda x: x + np.ones(4), ops.sin], x))(
            ml.Tensor(0), ml.Tensor(X)
        )
    assert "x + np.ones(4)" in "\n".join(caught.value.__notes__)


# --- associative_scan -----------------------------------------------------------------------------


def affine(a, b):
    """The composition of x -> p x + q of a, then of b."""
    return a[0] * b[0], b[0] * a[1] + b[1]


def recurrence(p, q):
    totals = [(p[0], q[0])]
    for i in range(1, len(p)):
        totals.append((totals[-1][0] * p[i], p[i] * totals[-1][1] + q[i]))
    return [np.stack(part) for part in zip(*totals)]


@MODES
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 13, 16, 33])
def test_running_totals_of_trees(run, n):
    p, q = np.random.default_rng(n).uniform(0.5, 1.5, (2, n, 2))
    scanned = run(lambda p, q: ops.associative_scan(affine, (p, q)))(p, q)
    for got, expected in zip(scanned, recurrence(p, q)):
        close(got, expected)
    backwards = run(lambda p, q: ops.associative_scan(affine, (p, q), reverse=True))(p, q)
    for got, expected in zip(backwards, recurrence(p[::-1], q[::-1])):
        close(got, expected[::-1])


@MODES
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "float16", "bfloat16"])
def test_running_totals_along_an_axis(run, axis, dtype):
    x = np.random.default_rng(0).integers(-2, 3, (3, 4, 5)).astype(ml.Tensor(0, dtype=dtype).dtype)
    got = run(lambda x: ops.associative_scan(ops.add, x, axis=axis))(x)
    assert got.dtype == x.dtype
    close(got.asnumpy().astype(float), np.cumsum(x.astype(float), axis))


@MODES
def test_running_totals_of_nothing(run):
    assert run(lambda x: ops.associative_scan(ops.add, x))(np.ones((0, 3))).shape == (0, 3)
    assert run(lambda x: ops.associative_scan(ops.add, x, axis=1))(np.ones((2, 0))).shape == (2, 0)


def test_derivatives_of_running_totals():
    p = np.random.default_rng(1).uniform(0.5, 1.5, (6, 2))

    def totals(p):
        return ops.associative_scan(ops.mul, p, reverse=True)

    gradcheck(totals, p, order=2)
    _, tangent = jvp(totals, (p,), (np.ones_like(p),))
    numeric = [np.cumprod((p + h)[::-1], 0)[::-1] for h in (1e-6, -1e-6)]
    np.testing.assert_allclose(tangent.asnumpy(), (numeric[0] - numeric[1]) / 2e-6, 1e-7)
    both = np.stack([p, p + 1])
    for run in (lambda f: f, ml.jit):
        close(run(ml.vmap(totals))(both), np.cumprod(both[:, ::-1], 1)[:, ::-1])
        close(run(ml.vmap(grad(lambda p: ops.sum(totals(p)))))(both)[0],
              grad(lambda p: ops.sum(totals(p)))(p).asnumpy())  # fmt: skip


def test_the_number_of_calls_is_logarithmic():
    calls = []

    def counted(a, b):
        calls.append(a.shape[0])
        return a + b

    close(ops.associative_scan(counted, np.ones(1000)), np.arange(1, 1001))
    assert len(calls) <= 2 * 10
    assert sum(calls) < 2 * 1000


@pytest.mark.parametrize(
    ("f", "xs", "error", "says"),
    [
        (3, X, AttributeRefusedError, "AssociativeScan got f=3"),
        (ops.add, (), ShapeError, "AssociativeScan got xs without an array"),
        (ops.add, 2.0, ShapeError, r"AssociativeScan got axis 0 of a tensor of rank 0"),
        (ops.add, (X, X[:2]), ShapeError, r"extents along axis 0: xs\[0\] has 3, xs\[1\] has 2"),
        (lambda a, b: (a, b), X, ShapeError, "keeps the structure of its value"),
        (lambda a, b: ops.sum(a), X, ShapeError, r"value is float64\[1\] in the loop and float64"),
        (lambda a, b: a > b, X, DTypeError, r"float64\[1\] in the loop and bool\[1\] in body"),
    ],
)
@MODES
def test_what_running_totals_refuse(run, f, xs, error, says):
    with pytest.raises(error, match=says):
        run(lambda: ops.associative_scan(f, xs))()
