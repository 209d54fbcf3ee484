"""vmap: every operation and transform computes for all examples what a loop computes for each."""

import re

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, kernel, nn, ops
from miniml.core.abstract import from_type_code
from miniml.errors import (
    BatchError,
    DeclarationError,
    DuplicateError,
    GraphError,
    MinimlError,
    OutOfRangeError,
    ShapeError,
    TracedValueError,
)
from miniml.grad import batch_rules, custom_bprop, grad, hessian, jvp, value_and_grad, vjp
from miniml.ops.random import Draw
from tests.opinfo import ROWS

EXAMPLES = 3
DYNAMIC = {"Unique", "NonZero"}
# Draws differ between examples by design, and an assignment has one parameter for all of them.
NOT_LOOPED = {"Assign"}
MAPPED = [r for r in ROWS if r.primitive.name not in DYNAMIC | NOT_LOOPED]


def looped(fn, in_axes, *args):
    """fn called for one example after another, and the results stacked."""
    return for_each(
        fn,
        [
            [np.take(a, i, axis) if axis is not None else a for a, axis in zip(args, in_axes)]
            for i in range(EXAMPLES)
        ],
    )


def for_each(fn, rows):
    """fn called for each row of arguments, and the results stacked."""
    outs = [fn(*map(ml.Tensor, row)) for row in rows]
    if isinstance(outs[0], tuple):
        return tuple(np.stack([o.asnumpy() for o in parts]) for parts in zip(*outs))
    return np.stack([o.asnumpy() for o in outs])


def same(got, expected):
    if isinstance(expected, tuple):
        assert len(got) == len(expected)
        for g, e in zip(got, expected):
            same(g, e)
        return
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    low = expected.dtype == np.float32
    np.testing.assert_allclose(got.asnumpy(), expected, rtol=2e-5 if low else 1e-9, atol=1e-6)


def trios(row, dtype):
    """Calls of a row, three of each, which differ in nothing but the numbers."""
    for calls in zip(*(row.samples(np.random.default_rng(s), dtype) for s in range(EXAMPLES))):
        if all(c.attrs == calls[0].attrs for c in calls):
            yield calls


@pytest.mark.parametrize("row", MAPPED, ids=lambda row: row.primitive.name)
def test_a_primitive_for_all_examples_is_that_of_each(row):
    """All inputs mapped, and each alone; the axis first, and last."""
    tried = 0
    for code in "dfqi?":
        try:
            calls = list(trios(row, from_type_code(code)))
        except (MinimlError, TypeError):  # numbers that the row does not make in this dtype
            continue
        tried += sum(compared(row.primitive, trio) for trio in calls)
    assert tried or row.primitive._inputs == ()


def compared(primitive, trio):
    """How many choices of mapped inputs were compared for three calls."""
    first, tried = trio[0].inputs, 0
    arrays = [i for i, x in enumerate(first) if isinstance(x, np.ndarray)]
    try:
        op = primitive(**trio[0].attrs)
        op(*first)
    except MinimlError:
        return 0
    if getattr(op, "dropout", 0.0):
        arrays = []
    for mapped in [arrays, *([i] for i in arrays if len(arrays) > 1)]:
        if not mapped or any(c.inputs[i].shape != first[i].shape for c in trio for i in mapped):
            continue
        each = [
            [(c if i in mapped else trio[0]).inputs[i] for i in range(len(first))] for c in trio
        ]
        try:
            expected = for_each(op, each)
        except (MinimlError, TypeError):  # labels of one call beside numbers of another
            continue
        for axis in (0, -1):
            stacked = [
                np.stack([c.inputs[i] for c in trio], axis) if i in mapped else x
                for i, x in enumerate(first)
            ]
            axes = tuple(axis if i in mapped else None for i in range(len(first)))
            # Draws differ between examples, unless they share their blocks as those alone do.
            mode = "same" if isinstance(op, Draw) else "different"
            same(ml.vmap(op, axes, randomness=mode)(*stacked), expected)
            tried += 1
    return tried


# --- With the other transforms --------------------------------------------------------------------

X = np.random.default_rng(0).normal(size=(EXAMPLES, 4))
W = np.random.default_rng(1).normal(size=(4, 2))


def affine(x, w):
    return ops.sum(ops.tanh(x @ w) ** 2)


def newton(x):
    return ops.while_loop(lambda r: ops.abs(r * r - x) > 1e-9, lambda r: (r + x / r) / 2, x)


@custom_bprop(lambda x, w, out, dout: (3.0 * dout * w, ops.sum(dout * x)))
def scaled(x, w):
    return x * w


def running(x):
    return ops.scan(lambda c, v: (c * 0.5 + v * v, c), x[0], x)[1]


def drawing_none(x):
    picked = ops.cond(ops.sum(x) > 0, ops.sin, lambda v: v * v, x)
    return ops.sum(picked)


FUNCTIONS = {
    "grad": (grad(affine, (0, 1)), (0, None)),
    "value_and_grad of weights": (lambda x: grad(lambda w: affine(x, w))(ml.Tensor(W)), (0,)),
    "vjp": (lambda x: vjp(ops.tanh, x)[1](ops.cos(x))[0], (0,)),
    "jvp": (lambda x: jvp(lambda v: ops.sin(v) * v, (x,), (ops.cos(x),))[1], (0,)),
    "hessian": (hessian(lambda v: ops.sum(ops.exp(v) * v[::-1])), (0,)),
    "vmap": (ml.vmap(lambda a, b: a * ops.sin(b), (0, None)), (0, 0)),
    "jit": (ml.jit(lambda x: ops.softmax(x) * 2.0), (0,)),
    "scan": (running, (0,)),
    "grad of scan": (grad(lambda x: ops.sum(running(x))), (0,)),
    "cond": (drawing_none, (0,)),
    "grad of cond": (grad(drawing_none), (0,)),
    "while": (lambda x: newton(ops.abs(x[0]) + 1.0), (0,)),
    "custom gradient": (grad(lambda x, w: ops.sum(scaled(x, w)), (0, 1)), (0, None)),
    "recompute": (grad(lambda x: ops.sum(ml.recompute(ops.tanh)(x) ** 2)), (0,)),
    "indexing": (lambda x: x[1:, None] * x[ops.argmax(x)] + x[[0, 2, 2]], (0,)),
    "numbers": (lambda x: x * 2 + 1 - x // 1, (0,)),
    "shapes": (lambda x: ops.reshape(x, (2, -1)).T + float(x.shape[0] + x.ndim + len(x)), (0,)),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_composes(name, compiled):
    fn, axes = FUNCTIONS[name]
    args = [X if axis is not None else W for axis in axes]
    if name in ("vmap", "custom gradient"):
        args = [X, np.float64(2.0)] if name == "custom gradient" else [X, X[:, :3]]
    mapped = ml.vmap(fn, axes)
    got = (ml.jit(mapped) if compiled else mapped)(*args)
    same(got, looped(fn, axes, *args))


def test_a_gradient_passes_through_it():
    def total(w):
        return ops.sum(ml.vmap(affine, (0, None))(X, w))

    expected = sum(grad(affine, 1)(x, W).asnumpy() for x in X)
    for fn in (grad(total), ml.jit(grad(total))):
        np.testing.assert_allclose(fn(W).asnumpy(), expected, rtol=1e-12)
    second = grad(lambda w: ops.sum(grad(total)(w) ** 2))
    by_hand = grad(
        lambda w: ops.sum(
            sum((grad(affine, 1)(ml.Tensor(x), w) for x in X), ops.zeros_like(w)) ** 2
        )
    )
    np.testing.assert_allclose(second(W).asnumpy(), by_hand(W).asnumpy(), rtol=1e-9)


def test_a_custom_gradient_of_what_all_share_is_summed():
    def total(w):
        return ops.sum(ml.vmap(scaled, (0, None))(X, w))

    np.testing.assert_allclose(grad(total)(np.float64(2.0)).asnumpy(), X.sum(), rtol=1e-6)
    np.testing.assert_allclose(
        grad(lambda x: ops.sum(ml.vmap(scaled, (0, None))(x, np.float64(2.0))))(X).asnumpy(),
        6.0 + 0 * X,
    )


def test_axes_are_trees_and_stand_where_they_are_asked_for():
    tree = {"a": X, "b": (X.T, 5.0)}
    axes = ({"a": 0, "b": (1, None)},)
    got = ml.vmap(lambda t: {"s": t["a"] * t["b"][1], "u": t["b"][0]}, axes, {"s": 1, "u": -1})(
        tree
    )
    np.testing.assert_array_equal(got["s"].asnumpy(), (X * 5.0).T)
    np.testing.assert_array_equal(got["u"].asnumpy(), X.T)
    shared = ml.vmap(lambda x: (x, 3.0, None), out_axes=(0, None, 0))(X)
    assert shared[1:] == (3.0, None)
    repeated = ml.vmap(lambda x: ops.ones((2,)))(X)
    assert repeated.shape == (EXAMPLES, 2)
    assert ml.vmap(lambda: ops.arange(2), axis_size=5)().shape == (5, 2)
    assert ml.vmap(lambda x: x * 2)(np.zeros((0, 4))).shape == (0, 4)


def test_an_ensemble_of_networks_and_gradients_of_each_example():
    ml.manual_seed(0)
    net = nn.Sequential(nn.Dense(4, 3), nn.Tanh(), nn.Dense(3, 1))
    one = ml.vmap(lambda x: value_and_grad(lambda: ops.sum(net(x[None])), None, weights=net)()[1])
    found = one(X.astype(np.float32))
    for i, gradient in enumerate(found):
        each = [
            value_and_grad(lambda x=x: ops.sum(net(x[None])), None, weights=net)()[1][i].asnumpy()
            for x in X.astype(np.float32)
        ]
        np.testing.assert_allclose(gradient.asnumpy(), np.stack(each), rtol=1e-5, atol=1e-6)


# --- Random numbers -------------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x + ops.normal((4,), dtype="float64"),
        lambda x: ops.dropout(ops.ones_like(x), 0.5),
        lambda x: ops.scan(lambda c, v: (c, v + ops.uniform((), dtype="float64")), 0.0, x)[0],
        lambda x: ops.cond(x[0] < 0, ops.exp, lambda v: v, x) + ops.uniform((4,), dtype="float64"),
        lambda x: ops.cond(
            x[0] < 0,
            lambda: ops.normal((4,), dtype="float64"),
            lambda: ops.normal((4,), dtype="float64") + ops.gather(x, ops.argmax(x), 0),
        ),
    ],
    ids=["normal", "dropout", "scan", "beside a cond", "in a branch"],
)
def test_examples_draw_for_themselves_or_share_or_refuse(fn, compiled):
    x = np.zeros((64, 4)) + (1.0 if "dropout" in str(fn) else 0.0)
    results = {}
    for mode in ("different", "same"):
        ml.manual_seed(7)
        mapped = ml.vmap(fn, randomness=mode)
        results[mode] = (ml.jit(mapped) if compiled else mapped)(x).asnumpy()
    assert len(np.unique(results["different"], axis=0)) > 10
    assert len(np.unique(results["same"], axis=0)) == 1
    flat = results["different"].ravel()
    assert len(np.unique(flat)) in (2, 256)  # of a dropout, and of draws that never repeat
    with pytest.raises(GraphError, match='randomness="error" and its function draws'):
        ml.vmap(fn, randomness="error")(x)


@pytest.mark.parametrize(
    ("draw", "instead"),
    [
        (lambda x: ops.normal((2,), x), r"mean \+ std \* ops.normal\(shape\)"),
        (lambda x: ops.uniform((2,), 0.0, x), r"low \+ \(high - low\) \* ops.uniform\(shape\)"),
        (lambda x: ops.bernoulli((2,), x), r"ops.uniform\(shape\) < p"),
        (lambda x: ops.gumbel((2,), x), r"loc \+ scale \* ops.gumbel\(shape\)"),
        (lambda x: ops.truncated_normal((2,), x), r"ops.truncated_normal\(shape, 0.0, 1.0"),
    ],
)
def test_a_tensor_as_a_parameter_of_a_draw_is_refused_with_what_does_it(draw, instead):
    for call in (ml.vmap(draw), lambda x: draw(ml.Tensor(x[0]))):
        with pytest.raises(MinimlError, match=instead):
            call(np.array([0.2, 0.7]))


def test_draws_go_on_after_it_where_it_ended():
    def run(mapped):
        ml.manual_seed(3)
        first = mapped(np.zeros((8, 4))).asnumpy()
        return first, ops.uniform((4,)).asnumpy()

    fn = ml.vmap(lambda x: x + ops.uniform((4,), dtype="float64"))
    (a, after_a), (b, after_b) = run(fn), run(ml.jit(fn))
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(after_a, after_b)
    assert not np.isin(after_a, a.astype(np.float32)).any()


# --- Primitives of one's own ----------------------------------------------------------------------


class VmapTwice(Primitive):
    """x + x."""

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x


class VmapRows(VmapTwice):
    """x - x[..., :1]."""

    batch = "leading"


class VmapLast(VmapTwice):
    """x[..., ::-1], with a rule."""


class VmapPairs(VmapTwice):
    """sum(x * y) of two vectors of one shape."""

    batch = "leading"

    def infer_shape(self, x, y):
        if x != y:
            raise ShapeError(f"VmapPairs got {x} and {y}")
        return x[:-1]

    def infer_dtype(self, x, y):
        return x


class VmapWrong(VmapTwice):
    """A claim that is not true; without the attribute it is refused where it is defined."""

    count: int
    batch = "leading"

    def infer_shape(self, x):
        return x[: self.count]


calls = []


@kernel("VmapTwice", "cpu", "d->d")
def twice_cpu(x, *, out):
    calls.append(x.shape)
    np.add(x, x, out=out)


@kernel("VmapRows", "cpu", "d->d")
def rows_cpu(x, *, out):
    calls.append(x.shape)
    np.subtract(x, x[..., :1], out=out)


@kernel("VmapLast", "cpu", "d->d")
def last_cpu(x, *, out):
    calls.append(x.shape)
    np.copyto(out, x[..., ::-1])


@kernel("VmapPairs", "cpu", "dd->d")
def pairs_cpu(x, y, *, out):
    calls.append(x.shape)
    np.sum(x * y, -1, out=out)


@kernel("VmapWrong", "cpu", "d->d")
def wrong_cpu(x, *, count, out):
    np.copyto(out, x.ravel()[: out.size])


@batch_rules.register(VmapLast)
def get_batch_last(self):
    return lambda batched, x: self(x)


def test_facts_and_rules_decide_how_often_a_kernel_runs():
    for op, shapes in (
        (VmapTwice(), [(4,)] * EXAMPLES),
        (VmapRows(), [(EXAMPLES, 4)]),
        (VmapLast(), [(EXAMPLES, 4)]),
    ):
        calls.clear()
        got = ml.vmap(op)(X)
        assert calls == shapes
        same(got, looped(op, (0,), X))


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)], ids=str)
def test_leading_axes_stand_in_front_of_all_inputs(axes):
    args = [X if axis == 0 else X[0] for axis in axes]
    calls.clear()
    got = ml.vmap(VmapPairs(), axes)(*args)
    assert calls == [(EXAMPLES, 4)]
    same(got, looped(VmapPairs(), axes, *args))


def test_explain_names_what_runs_one_example_at_a_time():
    told = str(ml.explain(ml.vmap(VmapTwice()), X))
    assert "one example at a time:\n  VmapTwice says nothing of batches: where further axes" in told
    assert f"@batch_rules.register(VmapTwice) (at {__file__}:" in told
    assert "one example at a time" not in str(ml.explain(ml.vmap(VmapRows()), X))
    inside = ml.vmap(lambda x: ops.scan(lambda c, r: (c + VmapTwice()(r), c), x[0], x)[1])
    assert "VmapTwice says nothing" in str(ml.explain(inside, X[:, None]))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_a_branch_that_refuses_values_is_computed_for_those_that_take_it(compiled):
    row = np.array([3.0, 5.0, 7.0])

    def picked(row, i):
        found = lambda: ops.gather(row, i, 0) ** 2  # noqa: E731
        return ops.cond(i < 3, found, lambda: ops.zeros((), "float64"))

    made = ml.jit if compiled else lambda fn: fn
    mapped = made(ml.vmap(picked, (None, 0)))
    np.testing.assert_array_equal(mapped(row, np.arange(5)).asnumpy(), [9, 25, 49, 0, 0])
    np.testing.assert_array_equal(mapped(row, np.arange(5) + 3).asnumpy(), np.zeros(5))
    slopes = made(ml.vmap(grad(picked), (None, 0)))(row, np.arange(5))
    np.testing.assert_array_equal(slopes.asnumpy(), np.vstack([np.diag(2 * row), np.zeros((2, 3))]))
    twice = made(ml.vmap(ml.vmap(picked, (None, 0))))(np.stack([row, -row]), np.array([[4, 1]] * 2))
    np.testing.assert_array_equal(twice.asnumpy(), [[0, 25]] * 2)
    assert mapped(row, np.zeros(0, np.int64)).shape == (0,)
    assert "one example at a time" not in str(ml.explain(mapped, row, np.arange(5)))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_a_loop_that_is_over_for_an_example_computes_no_step_of_it(compiled):
    """Its step could raise: the first example would read behind the end of its row."""

    def walk(row, start, count):
        step = lambda s: (s[0] + 1, s[1] + ops.gather(row, s[0], 0))  # noqa: E731
        return ops.while_loop(lambda s: s[0] < start + count, step, (start, ops.sum(row) * 0))[1]

    mapped = ml.vmap(walk)
    if compiled:
        mapped = ml.jit(mapped)
    starts, counts = np.array([3, 2, 0]), np.array([1, 2, 4])
    expected = [X[i, s : s + n].sum() for i, (s, n) in enumerate(zip(starts, counts))]
    np.testing.assert_allclose(mapped(X, starts, counts).asnumpy(), expected, rtol=1e-12)


def test_a_switch_refuses_the_index_of_an_example():
    def fn(i, x):
        return ops.switch(i, [ops.sin, ops.cos], x)

    same(ml.vmap(fn)(np.array([0, 1, 1]), X), looped(fn, (0, 0), np.array([0, 1, 1]), X))
    for wrong in (-1, 2):
        with pytest.raises(OutOfRangeError, match=f"Switch got branch number {wrong}"):
            ml.vmap(fn)(np.array([0, wrong, 1]), X)


def test_an_array_that_all_share_takes_indices_of_each():
    index = np.array([2, 0, 1])
    same(ml.vmap(lambda x, i: x[i], (None, 0))(X[0], index), X[0][index])


def test_a_fact_or_a_rule_that_does_not_hold_is_named():
    with pytest.raises(BatchError, match=r'VmapWrong, which says batch = "leading", gave float64'):
        ml.vmap(VmapWrong(1))(X)
    with pytest.raises(DuplicateError, match="has a batch rule already"):
        batch_rules.register(VmapLast)(lambda self: None)
    with pytest.raises(DeclarationError, match="no getter of a batch rule"):
        batch_rules.register(VmapTwice)(lambda batched, x: x)


# --- Refusals -------------------------------------------------------------------------------------

REFUSED = {
    "no axis": (lambda: ml.vmap(ops.sin)(3.0), ShapeError, r"axis 0 of args\[0\], which is 3.0"),
    "too few axes": (lambda: ml.vmap(ops.sin, 2)(X), ShapeError, r"axis 2 .* shape \(3, 4\)"),
    "sizes": (
        lambda: ml.vmap(ops.add)(X, W),
        ShapeError,
        r"numbers of examples: args\[0\] has 3, args\[1\] has 4",
    ),
    "nothing": (lambda: ml.vmap(ops.sin, None)(X), ShapeError, "maps no argument"),
    "entries": (lambda: ml.vmap(ops.sin, (0, 0))(X), ShapeError, "for 1 arguments"),
    "structure": (lambda: ml.vmap(lambda t: t, ({"a": 0},))((X,)), ShapeError, "structure"),
    "out_axes": (lambda: ml.vmap(ops.sin, out_axes=None)(X), ShapeError, "differs between"),
    "out axis": (lambda: ml.vmap(ops.sum, out_axes=1)(X), ShapeError, "axes -1 to 0"),
    "branch": (
        lambda: ml.vmap(lambda x: x if x[0] > 0 else -x)(X),
        TracedValueError,
        r"bool on a tensor under vmap\(<lambda>\), bool\[\] for each of 3 examples.*ops.where",
    ),
    "item": (lambda: ml.vmap(lambda x: x[0].item())(X), TracedValueError, "for each of 3"),
    "numpy": (lambda: ml.vmap(np.asarray)(X), TracedValueError, "for each of 3"),
    "dynamic": (lambda: ml.vmap(ops.nonzero)(X), GraphError, "NonZero gives shapes"),
    "mask": (lambda: ml.vmap(lambda x: x[x > 0])(X), MinimlError, "mask"),
    "function": (lambda: ml.vmap(3), MinimlError, "vmap got 3"),
    "axis_size": (lambda: ml.vmap(ops.sin, axis_size=3.0)(X), MinimlError, "axis_size=3.0"),
    "no size": (ml.vmap(lambda: 1, axis_size=-1), MinimlError, "axis_size=-1"),
    "randomness": (lambda: ml.vmap(ops.sin, randomness="all"), MinimlError, "randomness"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    call, error, match = REFUSED[name]
    with pytest.raises(error, match=re.compile(match, re.DOTALL)):
        call()


def test_an_error_says_the_shape_of_one_example_and_which_axis_is_mapped():
    with pytest.raises(ShapeError, match=r"\(4,\)") as caught:
        ml.vmap(lambda x: x @ ops.ones((3, 2)), 0)(X)
    notes = "\n".join(caught.value.__notes__)
    assert "MatMul was called at" in notes
    assert "test_vmap.py" in notes
    assert "which maps axis 0 of args[0]: shapes are those of one of 3 examples" in notes


def test_parameters_are_read_and_not_assigned():
    p = ml.Parameter(np.ones(4), name="scale")
    same(ml.vmap(lambda x: x * p)(X), X * 1.0)
    with pytest.raises(GraphError, match="assigns Parameter 'scale' a value that differs"):
        ml.vmap(lambda x: ops.assign(p, x))(X)
    same(ml.vmap(lambda x: x * p)(X), X * 1.0)


def test_a_value_that_outlives_it_is_refused():
    kept = []
    ml.vmap(lambda x: kept.append(x) or x)(X)
    with pytest.raises(MinimlError, match="outlived"):
        _ = kept[0] + 1


def test_a_loop_with_a_bound_under_vmap():
    def doubled(x):
        return ops.while_loop(lambda v: ops.any(v < 10), lambda v: v * 2.0, x, 5)

    x = np.array([[1.0, 2.0], [3.0, 40.0], [0.1, 99.0]])
    for run in (ml.vmap(doubled), ml.jit(ml.vmap(doubled))):
        np.testing.assert_array_equal(
            run(x).asnumpy(), [doubled(ml.Tensor(row)).asnumpy() for row in x]
        )
