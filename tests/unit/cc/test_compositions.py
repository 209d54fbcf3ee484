"""Normalisations and losses in fused C against NumPy in float64, and as NumPy's kernels where rows
hold NaN, infinities or nothing but -inf."""

import numpy as np
import optree
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import OutOfRangeError
from miniml.runtime.jit import Jit
from tests.frame.native import needs_compiler

from .programs import load_all

pytestmark = needs_compiler

RNG = np.random.default_rng(0)
WIDE = {np.float64: 1e-13, np.float32: 3e-6}
NARROW = {np.float16: 6e-3}  # floats of 16 bits differ in loads and stores alone


def shares(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def normal(x, axes, eps=1e-5):
    mean = x.mean(axes, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + eps)


def losses(x, labels):
    return -np.log(shares(x, 1)[np.arange(len(x)), labels])


X, G, B = RNG.normal(size=(6, 33)), RNG.normal(size=33), RNG.normal(size=33)
IMAGES, GC, BC = RNG.normal(size=(4, 3, 5, 5)), RNG.normal(size=3), RNG.normal(size=3)
LABELS = RNG.integers(0, 33, 6)
PIXELS = RNG.normal(size=(5, 7, 1, 1))
WIDE_AXIS = {"batch_norm": (0, 2, 3)}
CASES = {
    "softmax": (ops.softmax, lambda x: shares(x, 1), (X,)),
    "softmax of columns": (lambda x: ops.softmax(x, 0), lambda x: shares(x, 0), (X,)),
    "softmax inside": (lambda x: ops.softmax(x, 1), lambda x: shares(x, 1), (IMAGES,)),
    "log_softmax": (ops.log_softmax, lambda x: np.log(shares(x, 1)), (X,)),
    "logsumexp": (
        lambda x: ops.logsumexp(x, (0, 2)), lambda x: np.log(np.exp(x).sum((0, 2))), (IMAGES,),
    ),
    "layer_norm": (ops.layer_norm, lambda x, g, b: normal(x, 1) * g + b, (X, G, B)),
    "batch_norm": (
        lambda x, g, b: ops.batch_norm(x, g, b, training=True)[0],
        lambda x, g, b: normal(x, (0, 2, 3)) * g[:, None, None] + b[:, None, None],
        (IMAGES, GC, BC),
    ),
    "batch_norm of rows": (
        lambda x, g, b: ops.batch_norm(x, g, b, training=True)[0],
        lambda x, g, b: normal(x, 0) * g + b,
        (X, G, B),
    ),
    "cross_entropy": (ops.cross_entropy, lambda x, y: losses(x, y).mean(), (X, LABELS)),
    "its sum": (
        lambda x, y: ops.cross_entropy(x, y, "sum"), lambda x, y: losses(x, y).sum(), (X, LABELS),
    ),
    "each": (lambda x, y: ops.cross_entropy(x, y, "none"), losses, (X, LABELS)),
    "var": (lambda x: ops.var(x, 0), lambda x: x.var(0), (X,)),
    "conv2d of a pixel": (
        lambda x, w: ops.conv2d(x, w, stride=2),
        lambda x, w: np.einsum("ncpq,ocpq->no", x, w)[:, :, None, None],
        (PIXELS, RNG.normal(size=(4, 7, 1, 1))),
    ),
}  # fmt: skip


def wave(y):
    """A sum whose gradient is another one at each element."""
    return (y * np.cos(np.arange(y.size)).reshape(y.shape)).sum()


def slope(fn, args, i):
    """The derivative of the wave in argument i by central differences."""
    out, h = np.empty(args[i].size), 1e-5
    for k in range(args[i].size):
        sides = []
        for step in (h, -h):
            moved = args[i].copy()
            moved.reshape(-1)[k] += step
            sides.append(wave(np.asarray(fn(*args[:i], moved, *args[i + 1 :]))))
        out[k] = (sides[0] - sides[1]) / (2 * h)
    return out.reshape(args[i].shape)


def with_slopes(fn, args):
    floats = tuple(i for i, a in enumerate(args) if a.dtype.kind == "f")

    def loss(*xs):
        y = fn(*xs)
        factors = np.cos(np.arange(y.size)).reshape(y.shape)
        return ops.sum(y * ml.Tensor(factors.astype(y.dtype)))

    return lambda *xs: (fn(*xs), *ml.grad.grad(loss, argnums=floats)(*xs))


def tolerances(name):
    """The dtypes in which a case is tested."""
    return WIDE | NARROW if name in ("softmax", "layer_norm") else WIDE


@pytest.fixture(scope="module")
def results():
    """What each case gives in each dtype, compiled as one unit."""
    jits = {}
    with ml.context(providers=("cc",), verify_passes=True):
        for name, (fn, _, args) in CASES.items():
            for dtype in tolerances(name):
                given = [ml.Tensor(a.astype(dtype) if a.dtype.kind == "f" else a) for a in args]
                jits[name, dtype] = Jit(with_slopes(fn, args)), given
        load_all([jit.compiled(*given).program for jit, given in jits.values()])
        return {key: optree.tree_leaves(jit(*given)) for key, (jit, given) in jits.items()}


@pytest.mark.parametrize("name", CASES)
def test_against_float64(name, results):
    _, reference, args = CASES[name]
    floats = [i for i, a in enumerate(args) if a.dtype.kind == "f"]
    expected = [reference(*args), *(slope(reference, args, i) for i in floats)]
    for dtype, tolerance in tolerances(name).items():
        for k, (one, two) in enumerate(zip(results[name, dtype], expected, strict=True)):
            least = tolerance if k == 0 else max(tolerance, 1e-8)  # of central differences
            scale = np.abs(two).max() + 1
            worst = np.abs(one.asnumpy().astype(np.float64) - two).max() / scale
            assert worst <= least, (name, dtype, k, worst)


def test_a_convolution_of_one_pixel_is_a_product():
    w = RNG.normal(size=(4, 7, 1, 1))
    with ml.context(providers=("cc",)):
        assert "MatMul" in str(ml.explain(ops.conv2d, PIXELS, w))
        assert "MatMul" not in str(ml.explain(ops.conv2d, np.ones((5, 7, 2, 1)), w))


ODD = np.array(
    [
        [np.nan, 1, 2], [np.inf, 1, 2], [-np.inf, 1, 2], [-np.inf] * 3, [np.inf] * 3,
        [1e-45, -0.0, 0.0], [3e38, 1, -1],
    ],
    np.float32,
)  # fmt: skip


def odd(x):
    return (
        ops.softmax(x), ops.log_softmax(x), ops.logsumexp(x, 1),
        ops.layer_norm(x, np.ones(3, np.float32), np.zeros(3, np.float32)),
        ops.cross_entropy(x, np.zeros(7, np.int64), "none"), ops.max(x, 1), ops.min(x, 1),
        ops.sum(x, 1), ops.any(x, 1), ops.all(x, 1),
    )  # fmt: skip


def test_rows_of_nan_and_infinities_are_as_numpys():
    with np.errstate(all="ignore"):
        both = []
        for provider in ("miniml", "cc"):
            with ml.context(providers=(provider,)):
                both.append(ml.jit(odd)(ODD))
    for i, (one, two) in enumerate(zip(*both, strict=True)):
        np.testing.assert_allclose(two.asnumpy(), one.asnumpy(), rtol=1e-6, err_msg=str(i))


def exact(x, y):
    """Elementwise arithmetic, in one group."""
    z = x * y + x
    return (
        z, z - y, x / y, ops.maximum(x, y), ops.minimum(x, y), ops.abs(x), ops.neg(x),
        ops.relu(x), ops.sqrt(x), ops.floor(x), ops.round(x), ops.sign(x), x > y, x == y,
        ops.select(x > y, x, y), ops.isnan(z), ops.cast(x > 0, ml.int32), ops.reciprocal(x),
        ops.clip(x, -1.0, 1.0), ops.relu_grad(x, y),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_arithmetic_gives_the_bits_of_numpy(dtype):
    """NaN, infinities, signed zeros and denormals among them."""
    tiny = np.finfo(dtype).smallest_subnormal
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, tiny, -tiny, 1.0, -2.5, 1e4, 0.3, 7.0]
    x, y = (a.reshape(-1).astype(dtype) for a in np.meshgrid(special, special))
    with np.errstate(all="ignore"):
        both = []
        for provider in ("miniml", "cc"):
            with ml.context(providers=(provider,)):
                both.append(ml.jit(exact)(x, y))
    for i, (one, two) in enumerate(zip(*both, strict=True)):
        a, b = one.asnumpy(), two.asnumpy()
        np.testing.assert_array_equal(b, a, err_msg=str(i))
        if a.dtype.kind == "f" and i not in (3, 4, 7):  # the larger of 0.0 and -0.0
            numbers = ~np.isnan(a)
            np.testing.assert_array_equal(np.signbit(b[numbers]), np.signbit(a[numbers]), str(i))


def test_a_loss_of_which_only_the_gradient_is_read():
    """Labels are checked there too."""
    fn = ml.grad.grad(ops.cross_entropy)
    x, y = np.eye(3, dtype=np.float32), np.arange(3)
    with ml.context(providers=("miniml",)):
        expected = fn(x, y).asnumpy()
    with ml.context(providers=("cc",), verify_passes=True):
        compiled = ml.jit(fn)
        np.testing.assert_allclose(compiled(x, y).asnumpy(), expected, rtol=1e-6)
        with pytest.raises(OutOfRangeError, match="got label 3 for 3 classes"):
            compiled(x, y + 1)
