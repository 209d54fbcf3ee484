"""Forward mode: tangents of every operation and transform are those that reverse mode implies."""

import tracemalloc

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, float64, kernel, nn, ops
from miniml.core.abstract import is_float
from miniml.errors import (
    BpropNotFoundError,
    DeclarationError,
    GradientArgumentError,
    GraphError,
    MinimlError,
    ShapeError,
)
from miniml.grad import (
    bprop_getters,
    custom_bprop,
    grad,
    hessian,
    hvp,
    jacfwd,
    jacobian,
    jacrev,
    jvp,
    jvp_rules,
    linearize,
    per_example,
    transforms,
    vjp,
)
from tests.opinfo import ROWS

DIFFERENTIABLE = [
    r
    for r in ROWS
    if r.primitive.differentiable and r.primitive.name not in ("Assign", "WhileLoop", "Called")
]


def as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=lambda row: row.primitive.name)
def test_a_tangent_is_the_transpose_of_the_pull_back(row):
    """dout . (J t) = (J^T dout) . t, of all inputs at once and of each alone."""
    tried, rng = 0, np.random.default_rng(5)
    for sample in row.samples(np.random.default_rng(0), float64):
        op = row.primitive(**sample.attrs)
        inputs = sample.inputs
        kinds = [getattr(x, "dtype", np.dtype(int)).kind for x in inputs]
        floats = [i for i, kind in enumerate(kinds) if kind == "f"]
        for moving in [floats, *([i] for i in floats if len(floats) > 1)]:
            if not moving:
                continue

            def fn(*xs, moving=moving, op=op, inputs=inputs):
                given = dict(zip(moving, xs))
                return op(*(given.get(i, x) for i, x in enumerate(inputs)))

            points = [inputs[i] for i in moving]
            tangents = [rng.normal(size=p.shape).astype(p.dtype) for p in points]
            try:
                out, pull = vjp(fn, *points)
            except MinimlError:
                continue
            outs, moved = jvp(fn, tuple(points), tuple(tangents))
            kept = [k for k, o in enumerate(as_tuple(outs)) if is_float(o.dtype)]
            douts = [rng.normal(size=o.shape) for o in as_tuple(out)]
            given = [
                ml.Tensor(d.astype(o.dtype)) if k in kept else None
                for k, (d, o) in enumerate(zip(douts, as_tuple(out)))
            ]
            back = pull(tuple(given) if isinstance(out, tuple) else given[0])
            left = sum(np.vdot(douts[k], as_tuple(moved)[k].asnumpy()) for k in kept)
            right = sum(np.vdot(b.asnumpy(), t) for b, t in zip(back, tangents))
            scale = sum(np.abs(b.asnumpy() * t).sum() for b, t in zip(back, tangents))
            if not (kept and np.isfinite(right) and points[0].size):
                continue
            exact = min(o.dtype.itemsize for o in as_tuple(out) if is_float(o.dtype)) == 8
            error = 1e-9 if exact else 1e-2
            assert abs(left - right) <= error * max(scale, 1.0), (op, [p.shape for p in points])
            assert all(t is None for k, t in enumerate(as_tuple(moved)) if k not in kept)
            tried += 1
    assert tried or row.primitive.name in NO_FLOATS


NO_FLOATS = {"CheckedLabels"}


# --- With the other transforms --------------------------------------------------------------------

X = np.random.default_rng(0).normal(size=4)
T = np.random.default_rng(1).normal(size=4)


@custom_bprop(lambda x, out, dout: (3.0 * dout * x,))
def thrice(x):
    return x * x


def held(x):
    scale = x * 2.0

    @custom_bprop(lambda y, out, dout: (dout * scale,))
    def inner(y):
        return y * scale

    return inner(ops.sin(x))


def picked(x):
    return ops.cond(ops.sum(x) > 0, lambda v: ops.sin(v) * v, lambda v: v * v * v, x)


def running(x):
    carry = ops.scan(lambda c, v: (c * 0.5 + v * v, c * v), x[0], x)
    return ops.sum(carry[0]) * carry[1]


def halved(x):
    return ops.while_loop(lambda v: ops.sum(v * v) > 0.1, lambda v: v * 0.5 * ops.cos(v), x)


FUNCTIONS = {
    "chain": lambda x: ops.tanh(x @ x[:, None]) * ops.exp(-x),
    "indexing": lambda x: x[1:] * x[ops.argmax(x)] + ops.sort(x)[:3],
    "reductions": lambda x: ops.max(x) * ops.mean(x) + ops.logsumexp(x),
    "softmax": lambda x: ops.log_softmax(x) * ops.softmax(x),
    "norm": lambda x: ops.layer_norm(x[None], ops.ones((4,), float64), ops.zeros((4,), float64)),
    "custom gradient": thrice,
    "custom gradient that reads a value": held,
    "recompute": ml.recompute(lambda v: ops.tanh(v) * v),
    "cond": picked,
    "scan": running,
    "gradient": grad(lambda x: ops.sum(ops.tanh(x) ** 3)),
    "pull-back": lambda x: vjp(ops.sin, x)[1](x * x)[0],
    "tangent": lambda x: jvp(lambda v: ops.sin(v) * v, (x,), (x * x,))[1],
    "vmap": ml.vmap(lambda v: ops.sin(v) * v),
    "jit": ml.jit(lambda x: ops.gelu(x) * 2.0),
    "stopped": lambda x: ops.stop_gradient(x) * x,
}


def differences(fn, x, t, h=1e-6):
    return (fn(ml.Tensor(x + h * t)).asnumpy() - fn(ml.Tensor(x - h * t)).asnumpy()) / (2 * h)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_agrees_with_reverse_mode_and_composes(name, compiled):
    fn = FUNCTIONS[name]

    def both(x, t):
        return jvp(fn, (x,), (t,))

    out, moved = (ml.jit(both) if compiled else both)(X, T)
    np.testing.assert_allclose(out.asnumpy(), fn(ml.Tensor(X)).asnumpy(), rtol=1e-12)
    rows = jacrev(fn)(X).asnumpy()
    np.testing.assert_allclose(moved.asnumpy(), rows @ T, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(jacfwd(fn)(X).asnumpy(), rows, rtol=1e-9, atol=1e-12)
    again, jvp_fn = linearize(fn, X)
    np.testing.assert_allclose(again.asnumpy(), out.asnumpy(), rtol=1e-12)
    np.testing.assert_allclose(jvp_fn(T).asnumpy(), rows @ T, rtol=1e-9, atol=1e-12)
    if "custom" not in name and name != "stopped":
        np.testing.assert_allclose(moved.asnumpy(), differences(fn, X, T), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_a_loop_of_unknown_length_has_tangents(compiled):
    def moved(x, t):
        return jvp(halved, (x,), (t,))[1]

    got = (ml.jit(moved) if compiled else moved)(X, T)
    np.testing.assert_allclose(got.asnumpy(), differences(halved, X, T), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["chain", "softmax", "cond", "scan", "vmap"])
def test_a_gradient_passes_through_a_tangent(name):
    fn = FUNCTIONS[name]

    def total(x):
        return ops.sum(jvp(fn, (x,), (ml.Tensor(T),))[1] ** 2)

    for found in (grad(total)(X), ml.jit(grad(total))(X)):
        numeric = [differences(total, X, e)[()] for e in np.eye(4)]
        np.testing.assert_allclose(found.asnumpy(), numeric, rtol=1e-5, atol=1e-7)


def test_trees_and_results_without_a_tangent():
    def fn(a, b):
        ones = ops.ones((2,), float64)
        return {"y": a["u"] * b[0], "n": ops.argmax(a["u"]), "c": 3.0 * ones, "s": None}

    _, moved = jvp(fn, ({"u": X}, [X]), ({"u": T}, [0 * T]))
    np.testing.assert_allclose(moved["y"].asnumpy(), T * X)
    assert moved["n"] is None
    assert moved["s"] is None
    np.testing.assert_array_equal(moved["c"].asnumpy(), [0.0, 0.0])


def test_parameters_keep_their_values_and_pass_tangents_on():
    p = ml.Parameter(np.ones(4), name="p")

    def fn(x):
        ops.assign(p, x * 2.0)
        return p * x

    _, moved = jvp(fn, (X,), (T,))
    np.testing.assert_allclose(moved.asnumpy(), 4.0 * X * T)
    np.testing.assert_allclose(p.asnumpy(), 2.0 * X)


def test_a_long_function_keeps_no_intermediate_values():
    def chain(x, steps):
        for _ in range(steps):
            x = ops.sin(x)
        return x

    peaks = []
    big = np.ones(50_000)
    for steps in (5, 50):
        jvp(lambda x, n=steps: chain(x, n), (big,), (big,))
        tracemalloc.start()
        jvp(lambda x, n=steps: chain(x, n), (big,), (big,))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


# --- Jacobians and gradients of each example ------------------------------------------------------


def test_jacobians_of_trees_both_ways():
    def fn(a):
        return {"u": a["x"][:2] * ops.sum(a["y"]), "v": ops.sin(a["y"])}

    point = {"x": X, "y": T.reshape(2, 2)}
    forward, back = jacfwd(fn)(point), jacrev(fn)(point)
    for out, shape in (("u", (2,)), ("v", (2, 2))):
        for name, own in (("x", (4,)), ("y", (2, 2))):
            assert forward[out][name].shape == shape + own
            np.testing.assert_allclose(forward[out][name].asnumpy(), back[out][name].asnumpy())


def test_a_jacobian_takes_the_shorter_way(monkeypatch):
    taken = []
    for name in ("_rows", "_columns"):
        way = getattr(transforms, name)
        note = lambda *given, way=way: taken.append(way.__name__) or way(*given)  # noqa: E731
        monkeypatch.setattr(transforms, name, note)
    np.testing.assert_allclose(jacobian(lambda x: ops.sum(ops.sin(x)))(X).asnumpy(), np.cos(X))
    tall = jacobian(lambda x: ops.sin(x[0]) * ops.ones((9,), float64))(X)
    np.testing.assert_allclose(tall.asnumpy()[:, 0], np.full(9, np.cos(X[0])))
    assert taken == ["_rows", "_columns"]


def test_hessians_and_products_with_them():
    def fn(x):
        return ops.sum(ops.exp(x) * x[::-1])

    full = hessian(fn)(X).asnumpy()
    np.testing.assert_allclose(full, jacrev(grad(fn))(X).asnumpy(), rtol=1e-12)
    np.testing.assert_allclose(full, full.T, rtol=1e-12)
    np.testing.assert_allclose(hvp(fn, X, T).asnumpy(), full @ T, rtol=1e-10)


def test_gradients_of_each_example():
    ml.manual_seed(0)
    net, loss = nn.Sequential(nn.Dense(4, 3), nn.Tanh(), nn.Dense(3, 2)), nn.CrossEntropyLoss()
    x = np.random.default_rng(3).normal(size=(5, 4)).astype(np.float32)
    labels = np.arange(5) % 2

    def one(x, label):
        return loss(net(x[None]), label[None])

    found = per_example(one, None, weights=net)(x, labels)
    for i, p in enumerate(net.trainable_params()):
        pairs = zip(map(ml.Tensor, x), map(ml.Tensor, labels))
        rows = [grad(one, None, weights=p)(a, b).asnumpy() for a, b in pairs]
        np.testing.assert_allclose(found[i].asnumpy(), np.stack(rows), rtol=1e-4, atol=1e-6)


# --- Primitives of one's own ----------------------------------------------------------------------


class ForwardCube(Primitive):
    """x^3."""

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x


@kernel("ForwardCube", "cpu", "d->d")
def cube_cpu(x, *, out):
    np.power(x, 3, out=out)


@bprop_getters.register(ForwardCube)
def get_bprop_cube(self):
    return lambda x, out, dout: (3.0 * dout * x * x,)


class ForwardOwn(ForwardCube):
    """x^3, whose rule counts its calls."""


@kernel("ForwardOwn", "cpu", "d->d")
def own_cpu(x, *, out):
    np.power(x, 3, out=out)


asked = []


@jvp_rules.register(ForwardOwn)
def get_jvp_own(self):
    def move(primals, tangents, out):
        asked.append(out)
        return 3.0 * primals[0] ** 2 * tangents[0]

    return move


@pytest.mark.parametrize("op", [ForwardCube(), ForwardOwn()], ids=["without a rule", "with one"])
def test_a_primitive_of_ones_own(op):
    asked.clear()
    np.testing.assert_allclose(jvp(op, (X,), (T,))[1].asnumpy(), 3 * X**2 * T)
    assert len(asked) == (op.name == "ForwardOwn")


# --- Refusals -------------------------------------------------------------------------------------


def test_refusals():
    with pytest.raises(GradientArgumentError, match="argument 0 of Sin is int64"):
        jvp(ops.sin, (np.arange(3),), (np.arange(3),))
    with pytest.raises(ShapeError, match="a cotangent or tangent has the shape"):
        jvp(ops.sin, (X,), (T[:2],))
    with pytest.raises(GradientArgumentError, match="got 2 tangents for 1 arguments"):
        linearize(ops.sin, X)[1](T, T)
    with pytest.raises(GradientArgumentError, match="linearize got 3"):
        linearize(3, X)
    with pytest.raises(GradientArgumentError, match="jacfwd needs a function that returns float"):
        jacfwd(ops.argmax)(X)
    with pytest.raises(DeclarationError, match="no getter of a jvp rule"):
        jvp_rules.register(ForwardCube)(lambda primals, tangents, out: None)
    with pytest.raises(GradientArgumentError, match=r"after float\(\), int\(\)"):
        jvp(lambda x: float(x[0]), (X,), (T,))
    with pytest.raises(GraphError, match="has a bprop of its own"):
        ml.jit(lambda x: jvp(lambda v: ops.cond(ops.sum(v) > 0, thrice, thrice, v), (x,), (x,)))(X)


class ForwardShared(Primitive):
    """x minus its mean, linear and without a bprop."""

    linear = ("x",)
    batch = "leading"

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x


@kernel("ForwardShared", "cpu", "d->d")
def shared_cpu(x, *, out):
    np.subtract(x, x.mean(-1, keepdims=True), out=out)


def test_a_linear_primitive_without_a_bprop_has_tangents_and_says_what_a_gradient_needs():
    t = np.array([1.0, 4.0])
    np.testing.assert_array_equal(jvp(ForwardShared(), (t,), (t,))[1].asnumpy(), [-1.5, 1.5])
    says = (
        r"ForwardShared has no bprop.*linear = \('x',\) gives its tangents, not its transpose; "
        r"write that in the class, as def bprop\(self, x, out, dout\), or register it with "
    )
    with pytest.raises(BpropNotFoundError, match=says):
        grad(lambda x: ops.sum(ForwardShared()(x)))(t)
