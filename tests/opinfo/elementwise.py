"""Rows of elementwise primitives; and, at the end, the slopes that their gradients are held to."""

from __future__ import annotations

import math

import numpy as np
from scipy import special
from scipy.special import erfinv, expit, ndtr

from miniml import ops
from miniml.core.abstract import INTEGERS, REAL, is_float, type_code
from miniml.errors import AttributeRefusedError, DTypeError, ShapeError, ValueRefusedError
from miniml.testing import OpInfo, Refusal, Sample

from .draws import SHAPES, apart, numbers

# Pairs that broadcast: equal, with a missing axis, with an axis of extent 1 on either side.
PAIRS = (
    ((), ()), ((), (4,)), ((4,), (4,)), ((1,), (4,)), ((0, 3), (3,)), ((2, 3, 5), (3, 1)),
    ((2, 1, 5), (3, 5)),
)  # fmt: skip
BOOLS = np.ones(3, bool)


def unary(low=-2.0, high=2.0):
    """Samples of one tensor with numbers from [low, high), some of them near 0 if it is inside,
    where naive formulas cancel."""

    def samples(rng, dtype):
        for shape in SHAPES:
            yield Sample((numbers(rng, shape, dtype, low, high),))
        if low < 0 < high:
            yield Sample((numbers(rng, (4,), dtype, -1e-3, 1e-3),))

    return samples


def binary(low=-2.0, high=2.0, other=(-2.0, 2.0)):
    """Samples of two tensors, the second with numbers from `other`."""

    def samples(rng, dtype):
        for x, y in PAIRS:
            yield Sample((numbers(rng, x, dtype, low, high), numbers(rng, y, dtype, *other)))

    return samples


def off_zero(rng, shape, dtype):
    """Distinct floats of either sign that are odd multiples of 1/8; any numbers for integers."""
    return apart(rng, shape, dtype) if is_float(dtype) else numbers(rng, shape, dtype)


def unary_off_zero(rng, dtype):
    for shape in SHAPES:
        yield Sample((off_zero(rng, shape, dtype),))


def binary_off_zero(rng, dtype):
    for x, y in PAIRS:
        yield Sample((off_zero(rng, x, dtype), off_zero(rng, y, dtype)))


def without_ties(rng, dtype):
    """Pairs in which floats differ by at least 1/2."""
    for x, y in PAIRS:
        if is_float(dtype):
            right = apart(rng, y, dtype, 1.0) + dtype.type(0.5)
            yield Sample((apart(rng, x, dtype, 1.0), right.astype(dtype)))
        else:
            yield Sample((numbers(rng, x, dtype), numbers(rng, y, dtype)))


def fractions(rng, dtype):
    """Floats at least 0.2 away from whole numbers."""
    for shape in SHAPES:
        if is_float(dtype):
            x = rng.integers(-3, 3, shape) + rng.uniform(0.2, 0.8, shape)
            yield Sample((np.asarray(x).astype(dtype),))
        else:
            yield Sample((numbers(rng, shape, dtype),))


def halves(rng, dtype):
    """As `fractions`, and the halves, which Round takes to the even neighbour."""
    yield from fractions(rng, dtype)
    if is_float(dtype):
        yield Sample((np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5], dtype),))


def factors(rng, dtype):
    """A factor, 0 too, and a positive number away from 0."""
    for x, y in PAIRS:
        factor = numbers(rng, x, dtype)
        factor[rng.random(x) < 0.25] = 0
        yield Sample((factor, numbers(rng, y, dtype, 0.2, 3.0)))


def divisions(rng, dtype):
    """Quotients at least 0.2 away from whole numbers, with all four pairs of signs."""
    for x, y in PAIRS:
        divisor = numbers(rng, y, dtype, 1.0, 2.0)
        if not is_float(dtype):
            yield Sample((numbers(rng, x, dtype, -3.0, 3.0), divisor))
            continue
        sign = rng.choice([-1, 1], size=y)
        shape = np.broadcast_shapes(x, y)
        quotient = rng.integers(-3, 3, shape) + rng.uniform(0.2, 0.8, shape)
        divisor = (divisor * sign).astype(dtype)
        yield Sample((np.asarray(quotient * divisor).astype(dtype), divisor))


def clips(rng, dtype):
    """Bounds of ints, of floats for floats, of one side or none; no float is near a bound."""
    low = 1 if dtype.kind == "u" else -1
    bounds = [{"min": low, "max": 2}, {"max": 1}, {"min": low}, {}]
    if is_float(dtype):
        bounds += [{"min": -0.5, "max": 0.75}, {"min": 1.0, "max": 0.5}]
    for shape, attrs in zip(SHAPES * 2, bounds * 2):
        yield Sample((off_zero(rng, shape, dtype),), attrs)


def casts(rng, dtype):
    for target in REAL:
        yield Sample((numbers(rng, (2, 3), dtype, *_held(dtype, target)),), {"dtype": target})
    for shape in SHAPES:
        yield Sample((numbers(rng, shape, dtype),), {"dtype": np.float32})
    for target in INTEGERS if is_float(dtype) else ():
        outside = np.array([np.nan, np.inf, -np.inf, 4e4, -4e4, 300.7, -300.7, -0.9])
        yield Sample((outside.astype(dtype),), {"dtype": target})


def cast(x, dtype):
    """Floats as the nearest integer of the dtype towards 0, NaN as 0."""
    if not (is_float(x.dtype) and dtype in INTEGERS):
        return x.astype(dtype)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    whole = [0 if np.isnan(v) else int(min(max(v, low), high)) for v in x.ravel().tolist()]
    return np.array(whole, dtype).reshape(x.shape)


def _held(dtype, target):
    """What both dtypes can hold: no sign where one has none, so that nothing wraps."""
    return (0.0, 2.0) if "u" in (dtype.kind, target.kind) else (-2.0, 2.0)


def no_bool(*inputs):
    return (Refusal(inputs, "no meaning for bool.*logical operators", error=DTypeError),)


APART = Refusal(
    (np.ones((2, 3)), np.ones(2)), r"cannot broadcast shapes \(2, 3\) and \(2,\)", error=ShapeError
)


UNCOMMON = Refusal(
    (np.ones(2, np.uint64), np.ones(2, np.int64)), "no common integer dtype", error=DTypeError
)

ARITHMETIC_ROWS = (
    OpInfo(ops.Cast, casts, reference=cast),
    OpInfo(ops.Add, binary(), reference=np.add, refused=(APART, UNCOMMON)),
    OpInfo(ops.Sub, binary(), reference=np.subtract, refused=(APART, *no_bool(BOOLS, BOOLS))),
    OpInfo(ops.Mul, binary(), reference=np.multiply, refused=(APART,)),
    OpInfo(ops.Div, binary(other=(0.5, 2.0)), reference=np.true_divide, refused=(APART,)),
    OpInfo(ops.FloorDiv, divisions, reference=np.floor_divide, refused=no_bool(BOOLS, BOOLS),
           nan="handled", domain="y != 0, x / y not whole"),
    OpInfo(ops.Mod, divisions, reference=np.remainder, refused=no_bool(BOOLS, BOOLS),
           nan="handled", domain="y != 0, x / y not whole"),
    OpInfo(ops.Maximum, without_ties, reference=np.maximum, domain="x != y", refused=(APART,)),
    OpInfo(ops.Minimum, without_ties, reference=np.minimum, domain="x != y", refused=(APART,)),
    OpInfo(ops.Neg, unary(), reference=np.negative, refused=no_bool(BOOLS)),
    OpInfo(ops.Abs, unary_off_zero, reference=np.absolute, domain="x != 0"),
    OpInfo(ops.Sign, unary_off_zero, reference=np.sign, refused=no_bool(BOOLS)),
    OpInfo(ops.Copysign, binary_off_zero, reference=np.copysign, domain="x != 0", nan="handled",
           refused=(APART,)),
    OpInfo(ops.Square, unary(), reference=np.square, refused=no_bool(BOOLS)),
    OpInfo(ops.Floor, fractions, reference=np.floor, domain="x not whole"),
    OpInfo(ops.Ceil, fractions, reference=np.ceil, domain="x not whole"),
    OpInfo(ops.Round, halves, reference=np.rint),
    OpInfo(ops.Trunc, fractions, reference=np.trunc, domain="x not whole"),
    OpInfo(ops.Clip, clips, reference=lambda x, min=None, max=None: np.clip(x, min, max),
           refused=(
               *no_bool(BOOLS),
               Refusal((np.arange(3),), "max=1.5 for int64", {"max": 1.5}, DTypeError),
               Refusal((np.ones(3, np.uint8),), "min=-1 for uint8", {"min": -1}, DTypeError),
               Refusal((np.ones(3),), "give a number", {"min": (0, 1)}, ShapeError),
           )),
    OpInfo(ops.Reciprocal, unary_off_zero, reference=lambda x: 1 / x, domain="x != 0"),
)  # fmt: skip


# --- exponential ----------------------------------------------------------------------------------
# Rows of powers, roots, exponentials and logarithms.


def powers(rng, dtype):
    """Positive bases with any exponent for floats; exponents from 0 for integers."""
    low = (0.3, 2.0) if is_float(dtype) else (-2.0, 2.0)
    exponents = (-2.0, 2.0) if is_float(dtype) else (0.0, 3.0)
    yield from binary(*low, exponents)(rng, dtype)


def polygammas(rng, dtype):
    """Off the poles at 0, -1, -2 ..."""
    calls = (0, (2, 3), 0.3), (0, (4,), -1.8), (1, (3,), 0.3), (1, (2,), -0.8), (2, (), 0.5)
    for n, shape, low in calls:
        x = numbers(rng, shape, dtype, low, low + (0.6 if low < 0 else 3.0))
        yield Sample((x,), {"n": n})


EXPONENTIAL_ROWS = (
    OpInfo(ops.Pow, powers, reference=np.power, domain="x > 0; y >= 0 for integers",
           refused=(
               *no_bool(BOOLS, BOOLS),
               Refusal((np.arange(3), np.array(-1)), "negative exponent for int64",
                       error=DTypeError),
           )),
    OpInfo(ops.Sqrt, unary(0.1, 4.0), reference=np.sqrt, domain=(0.0, np.inf)),
    OpInfo(ops.Rsqrt, unary(0.2, 4.0), reference=lambda x: 1 / np.sqrt(x), domain=(0.0, np.inf)),
    OpInfo(ops.Exp, unary(), reference=np.exp),
    OpInfo(ops.Expm1, unary(), reference=np.expm1),
    OpInfo(ops.Exp2, unary(), reference=np.exp2),
    OpInfo(ops.Log, unary(0.1, 4.0), reference=np.log, domain=(0.0, np.inf)),
    OpInfo(ops.Log1p, unary(-0.8, 4.0), reference=np.log1p, domain=(-1.0, np.inf)),
    OpInfo(ops.Log2, unary(0.1, 4.0), reference=np.log2, domain=(0.0, np.inf)),
    OpInfo(ops.Log10, unary(0.1, 4.0), reference=np.log10, domain=(0.0, np.inf)),
    OpInfo(ops.LogAddExp, binary(), reference=np.logaddexp),
    OpInfo(ops.XLogY, factors, reference=special.xlogy, domain="y > 0"),
    OpInfo(ops.XLog1pY, factors, reference=special.xlog1py, domain="y > -1"),
    OpInfo(ops.Hypot, binary_off_zero, reference=np.hypot, domain="(x, y) != (0, 0)"),
    OpInfo(ops.LGamma, fractions, domain="not 0, -1, -2, ...",
           reference=lambda x: np.where(np.isinf(x), np.inf, special.gammaln(x))),  # C's at -inf
    OpInfo(ops.Polygamma, polygammas,
           reference=lambda x, n: np.where(x == -np.inf, np.nan, special.polygamma(n, x)),
           domain="not 0, -1, -2, ...", refused=(
               Refusal((np.ones(3),), "n=-1; expected an int from 0", {"n": -1}, ValueRefusedError),
               Refusal((np.ones(3),), "n=1.0; it is declared n: int", {"n": 1.0}),
           )),
)  # fmt: skip


# --- trigonometric --------------------------------------------------------------------------------
# Rows of circular and hyperbolic functions and their inverses.


TRIGONOMETRIC_ROWS = (
    OpInfo(ops.Atan2, binary_off_zero, reference=np.arctan2, domain="(x, y) != (0, 0)"),
    OpInfo(ops.Sin, unary(), reference=np.sin),
    OpInfo(ops.Cos, unary(), reference=np.cos),
    OpInfo(ops.Tan, unary(-1.2, 1.2), reference=np.tan, domain=(-np.pi / 2, np.pi / 2)),
    OpInfo(ops.Asin, unary(-0.9, 0.9), reference=np.arcsin, domain=(-1.0, 1.0)),
    OpInfo(ops.Acos, unary(-0.9, 0.9), reference=np.arccos, domain=(-1.0, 1.0)),
    OpInfo(ops.Atan, unary(), reference=np.arctan),
    OpInfo(ops.Sinh, unary(), reference=np.sinh),
    OpInfo(ops.Cosh, unary(), reference=np.cosh),
    OpInfo(ops.Tanh, unary(), reference=np.tanh),
    OpInfo(ops.Asinh, unary(), reference=np.arcsinh),
    OpInfo(ops.Acosh, unary(1.2, 4.0), reference=np.arccosh, domain=(1.0, np.inf)),
    OpInfo(ops.Atanh, unary(-0.9, 0.9), reference=np.arctanh, domain=(-1.0, 1.0)),
)  # fmt: skip


# --- activation -----------------------------------------------------------------------------------
# Rows of the activations and of the error function.


erf = np.vectorize(math.erf, otypes=[float])
erfc = np.vectorize(math.erfc, otypes=[float])


def sloped(name, *values):
    """Samples off the kink at 0, with several values of one attribute."""

    def samples(rng, dtype):
        for value in values:
            for shape in SHAPES:
                yield Sample((off_zero(rng, shape, dtype),), {name: value})

    return samples


def saturating(rng, dtype):
    """Where a sigmoid bends, and far on both sides, where naive formulas cancel or overflow."""
    yield from unary(-4.0, 4.0)(rng, dtype)
    for ends in ((-30.0, -10.0), (90.0, 100.0)):
        yield Sample((numbers(rng, (4,), dtype, *ends),))


def pulls(rng, dtype):
    """x off the kink at 0, and any dout, broadcast."""
    for x, y in PAIRS:
        yield Sample((off_zero(rng, x, dtype), numbers(rng, y, dtype)))


def leaky_pulls(rng, dtype):
    for slope in (0.01, 0.0, 1.5, -0.5):
        for sample in pulls(rng, dtype):
            yield Sample(sample.inputs, {"slope": slope})


def either(name):
    """Samples of a bool attribute."""

    def samples(rng, dtype):
        for value in (False, True):
            for shape in SHAPES:
                yield Sample((numbers(rng, shape, dtype, -3.0, 3.0),), {name: value})

    return samples


def gelu(x, approximate):
    finite = np.maximum(x, -1e3)  # the limit at -inf is 0
    if approximate:
        inner = math.sqrt(2 / math.pi) * (finite + 0.044715 * finite**3)
        return finite * expit(2 * inner)
    return 0.5 * finite * erfc(-finite / math.sqrt(2))


def leaky_relu(x, slope):
    return np.where(x > 0, x, slope * x) if slope else relu(x)


def relu(x):
    return np.where(x < 0, np.zeros_like(x), x)


ACTIVATION_ROWS = (
    OpInfo(ops.Erf, unary(), reference=erf),
    OpInfo(ops.Erfc, unary(-2.0, 4.0), reference=erfc),
    OpInfo(ops.ErfInv, unary(-0.99, 0.99), reference=erfinv, domain=(-1.0, 1.0)),
    OpInfo(ops.NormalCDF, unary(-4.0, 4.0), reference=ndtr),
    OpInfo(ops.ExpNegSquare, either("halved"),
           reference=lambda x, halved: np.exp(-x * x * (0.5 if halved else 1.0))),
    OpInfo(ops.Sigmoid, saturating, reference=expit),
    OpInfo(ops.Softplus, saturating, reference=lambda x: np.logaddexp(x, 0)),
    OpInfo(ops.SiLU, saturating, reference=lambda x: np.maximum(x, -1e3) / (1 + np.exp(-x))),
    OpInfo(ops.ReLU, unary_off_zero, reference=relu, domain="x != 0",
           refused=(Refusal((BOOLS,), "no meaning for bool", error=DTypeError),)),
    OpInfo(ops.ReLUGrad, pulls, reference=lambda x, dout: np.where(x > 0, dout, 0.0),
           domain="x != 0"),
    OpInfo(ops.LeakyReLU, sloped("slope", 0.01, 0.0, 1.5, -0.5), reference=leaky_relu,
           domain="x != 0"),
    OpInfo(ops.LeakyReLUGrad, leaky_pulls, domain="x != 0",
           reference=lambda x, dout, slope: dout * np.where(x > 0, 1.0, slope)),
    OpInfo(ops.ELU, sloped("alpha", 1.0, 0.3), domain="x != 0",
           reference=lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(x))),
    OpInfo(ops.GELU, either("approximate"), reference=gelu,
           refused=(
               Refusal((np.ones(3),), "approximate='tanh'", {"approximate": "tanh"},
                       AttributeRefusedError),
           )),
)  # fmt: skip


# --- compare --------------------------------------------------------------------------------------
# Rows of comparisons, logic, kinds of floats and selection.


TRIPLES = (
    ((), (), ()), ((4,), (), (4,)), ((0, 3), (3,), ()), ((3, 1), (2, 3, 5), (5,)), ((), (1,), (4,)),
    ((2, 3, 5), (2, 3, 5), (2, 3, 5)),
)  # fmt: skip


def whole(rng, shape, dtype):
    """-1, 0 and 1 (0 and 1 without a sign), so that ties are frequent."""
    low = 0 if dtype.kind in "bu" else -1
    return np.asarray(rng.integers(low, 2, size=shape)).astype(dtype)


def pairs(rng, dtype):
    for x, y in PAIRS:
        yield Sample((whole(rng, x, dtype), whole(rng, y, dtype)))


def bools(rng, dtype):
    for shape in SHAPES:
        yield Sample((whole(rng, shape, dtype),))


def kinds(rng, dtype):
    """Numbers, and for floats the special ones."""
    for shape in SHAPES:
        yield Sample((numbers(rng, shape, dtype),))
    if is_float(dtype):
        yield Sample((np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30], dtype),))


def selections(rng, dtype):
    for cond, x, y in TRIPLES:
        yield Sample(
            (
                np.asarray(rng.integers(0, 2, size=cond)).astype(bool),
                numbers(rng, x, dtype),
                numbers(rng, y, dtype),
            )
        )


def needs_bool(*inputs):
    return (Refusal(inputs, r"bool tensors; got float64.*x != 0", error=DTypeError),)


F = np.ones(3)

COMPARE_ROWS = (
    OpInfo(ops.Equal, pairs, reference=np.equal, refused=(APART, UNCOMMON)),
    OpInfo(ops.NotEqual, pairs, reference=np.not_equal, refused=(APART,)),
    OpInfo(ops.Less, pairs, reference=np.less, refused=(APART,)),
    OpInfo(ops.LessEqual, pairs, reference=np.less_equal, refused=(APART,)),
    OpInfo(ops.Greater, pairs, reference=np.greater, refused=(APART,)),
    OpInfo(ops.GreaterEqual, pairs, reference=np.greater_equal, refused=(APART,)),
    OpInfo(ops.LogicalAnd, pairs, reference=np.logical_and, refused=needs_bool(F, F)),
    OpInfo(ops.LogicalOr, pairs, reference=np.logical_or, refused=needs_bool(F, F)),
    OpInfo(ops.LogicalXor, pairs, reference=np.logical_xor, refused=needs_bool(F, F)),
    OpInfo(ops.LogicalNot, bools, reference=np.logical_not, refused=needs_bool(F)),
    OpInfo(ops.IsNan, kinds, reference=np.isnan),
    OpInfo(ops.IsInf, kinds, reference=np.isinf),
    OpInfo(ops.IsFinite, kinds, reference=np.isfinite),
    OpInfo(
        ops.Select,
        selections,
        reference=np.where,
        dtypes="".join(map(type_code, REAL)),
        refused=(
            Refusal((F, F, F), "bool condition; got float64", error=DTypeError),
            Refusal((F > 0, np.ones((2, 3)), np.ones(2)), "cannot broadcast", error=ShapeError),
        ),
    ),
)


# --- bits -----------------------------------------------------------------------------------------
# Rows of operations on the bits of integers.


def ends(rng, shape, dtype):
    """Any integers of the dtype, the least and the greatest among them; numbers of a dtype that
    is to be refused."""
    if dtype.kind not in "iu":
        return numbers(rng, shape, dtype)
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    edges = np.array([info.min, info.max, 0], dtype)
    return np.where(rng.random(shape) < 0.2, rng.choice(edges, shape), x)


def any_bits(rng, dtype):
    for shape in SHAPES:
        yield Sample((ends(rng, shape, dtype),))


def pairs_of_bits(rng, dtype):
    for x, y in PAIRS:
        yield Sample((ends(rng, x, dtype), ends(rng, y, dtype)))


def shifts(rng, dtype):
    """By 0, by all widths, and by what is negative or too wide."""
    width = 8 * dtype.itemsize
    for x, y in PAIRS:
        yield Sample((ends(rng, x, dtype), np.asarray(rng.integers(0, width, y)).astype(dtype)))
    if dtype.kind not in "iu":
        return
    by = np.array([0, 1, width - 1, width, width + 1, 100, np.iinfo(dtype).max], dtype)
    yield Sample((ends(rng, (3, 1), dtype), by))
    if dtype.kind == "i":
        yield Sample((ends(rng, (3, 1), dtype), np.array([-1, -width, -100], dtype)))


def shifted(x, y, direction):
    """In Python's integers, which have all bits."""

    def one(v, by):
        if not 0 <= by < 8 * x.dtype.itemsize:
            return -1 if direction < 0 and v < 0 else 0
        return v >> by if direction < 0 else (v << by) & (2 ** (8 * x.dtype.itemsize) - 1)

    x, y = np.broadcast_arrays(x, y)
    found = [one(v, by) for v, by in zip(x.ravel().tolist(), y.ravel().tolist(), strict=True)]
    kind = f"u{x.itemsize}" if direction > 0 else x.dtype
    return np.array(found, object).reshape(x.shape).astype(kind).view(x.dtype)


def needs_integer(*inputs):
    return (
        Refusal(inputs, r"integer tensors; got float64; compare first, as in x != 0",
                error=DTypeError),
        Refusal(tuple(x > 0 for x in inputs), "integer tensors; got bool; use the logical",
                error=DTypeError),
    )  # fmt: skip


BIT_ROWS = (
    OpInfo(ops.BitwiseAnd, pairs_of_bits, reference=np.bitwise_and, refused=needs_integer(F, F)),
    OpInfo(ops.BitwiseOr, pairs_of_bits, reference=np.bitwise_or, refused=needs_integer(F, F)),
    OpInfo(ops.BitwiseXor, pairs_of_bits, reference=np.bitwise_xor, refused=needs_integer(F, F)),
    OpInfo(ops.BitwiseNot, any_bits, reference=np.invert, refused=needs_integer(F)),
    OpInfo(ops.LeftShift, shifts, reference=lambda x, y: shifted(x, y, 1),
           refused=needs_integer(F, F)),
    OpInfo(ops.RightShift, shifts, reference=lambda x, y: shifted(x, y, -1),
           refused=needs_integer(F, F)),
)  # fmt: skip

ROWS = (
    *ARITHMETIC_ROWS, *EXPONENTIAL_ROWS, *TRIGONOMETRIC_ROWS, *ACTIVATION_ROWS, *COMPARE_ROWS,
    *BIT_ROWS,
)  # fmt: skip


# --- slopes ---------------------------------------------------------------------------------------
# Derivatives in closed form, computed in NumPy's long double: what gradients are held to.


PI = np.longdouble("3.14159265358979323846264338327950288")
LOG_2 = np.log(np.longdouble(2))


def logistic(x):
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


def bell(x):
    """2 / sqrt(pi) * exp(-x^2)."""
    return 2 / np.sqrt(PI) * np.exp(-x * x)


def silu_slope(x):
    s = logistic(x)
    return s + x * s * logistic(-x), s * (1 + np.abs(x))


def gelu_slope(x):
    """Phi(x) + x phi(x), which cancel at a root."""
    below = -np.abs(x)
    density = np.exp(-x * x / 2) / np.sqrt(2 * PI)
    scaled = special.erfcx((-below / np.sqrt(2)).astype(np.float64))  # erfc(a) exp(a^2)
    tail = scaled * np.exp(-x * x / 2) / 2
    cumulative = np.where(x > 0, 1 - tail, tail)
    return cumulative + x * density, cumulative + np.abs(x) * density


def gelu_tanh_slope(x):
    """As gelu, and with no value at infinity; the same beyond 1000 as there."""
    x = np.where(np.isinf(x), np.nan, np.clip(x, -1000, 1000))
    scale, cube = 2 * np.sqrt(2 / PI), np.longdouble("0.044715")
    v, dv = scale * (x + cube * x**3), scale * (1 + 3 * cube * x * x)
    s = logistic(v)
    return s + x * dv * s * logistic(-v), s * (1 + np.abs(x) * dv) * (1 + np.abs(v))


def erfinv_slope(x):
    y = special.erfinv(x.astype(np.float64)).astype(x.dtype)
    slope = np.sqrt(PI) / 2 * np.exp(y * y)
    return slope, slope * (1 + 2 * y * y)


def reflected(x, above, other, sign):
    """`above` of x; below 0 `other` of pi times the fraction of x, and `above` of 1 - x. What is
    rounded is 2 there at least, which are the terms of the fraction."""
    high = above(np.where(x > 0, x, 1 - x).astype(np.float64)).astype(x.dtype)
    rest = x - np.rint(x)
    low = np.where(rest == 0, np.nan, other(np.where(rest == 0, 1, PI * rest)))
    size = np.abs(high) + np.where(x > 0, 0, 2 + np.abs(low))
    return np.where(x > 0, high, low + sign * high), size


def digamma(x):
    return reflected(x, special.psi, lambda turn: -PI / np.tan(turn), 1)


def trigamma(x):
    return reflected(x, lambda x: special.zeta(2, x), lambda turn: (PI / np.sin(turn)) ** 2, -1)


# d/dx of the functions of one float, by name; NaN outside their domains. Where the rule adds terms
# that may cancel at a point, or rounds an exponent, also the size of what is rounded.
UNARY_SLOPES = {
    "sqrt": lambda x: 0.5 / np.sqrt(x),
    "rsqrt": lambda x: -0.5 / (x * np.sqrt(x)),
    "reciprocal": lambda x: -1 / (x * x),
    "exp": np.exp,
    "expm1": np.exp,
    "exp2": lambda x: np.exp2(x) * LOG_2,
    "log": lambda x: np.where(x < 0, np.nan, 1 / x),
    "log1p": lambda x: np.where(x < -1, np.nan, 1 / (1 + x)),
    "log2": lambda x: np.where(x < 0, np.nan, 1 / (x * LOG_2)),
    "log10": lambda x: np.where(x < 0, np.nan, 1 / (x * np.log(x.dtype.type(10)))),
    "sin": np.cos,
    "cos": lambda x: -np.sin(x),
    "tan": lambda x: 1 / np.cos(x) ** 2,
    "asin": lambda x: 1 / np.sqrt((1 - x) * (1 + x)),
    "acos": lambda x: -1 / np.sqrt((1 - x) * (1 + x)),
    "atan": lambda x: 1 / (1 + x * x),
    "sinh": np.cosh,
    "cosh": np.sinh,
    "tanh": lambda x: 1 / np.cosh(x) ** 2,
    "asinh": lambda x: 1 / np.sqrt(1 + x * x),
    "acosh": lambda x: np.where(x < 1, np.nan, 1 / np.sqrt((x - 1) * (x + 1))),
    "atanh": lambda x: np.where(np.abs(x) > 1, np.nan, 1 / ((1 - x) * (1 + x))),
    "neg": lambda x: np.full_like(x, -1),
    "abs": np.sign,
    "square": lambda x: 2 * x,
    "relu": lambda x: np.where(x > 0, 1, np.zeros_like(x)),
    "leaky_relu": lambda x: np.where(x > 0, 1, np.full_like(x, 0.01)),
    "elu": lambda x: np.where(x > 0, 1, np.exp(np.minimum(x, 0))),
    "erf": bell,
    "erfc": lambda x: -bell(x),
    "erfinv": erfinv_slope,
    "normal_cdf": lambda x: np.exp(-x * x / 2) / np.sqrt(2 * PI),
    "exp_neg_square": lambda x: -2 * x * np.exp(-x * x),
    "lgamma": digamma,
    "polygamma": trigamma,
    "sigmoid": lambda x: logistic(x) * logistic(-x),
    "softplus": logistic,
    "silu": silu_slope,
    "gelu": gelu_slope,
    "gelu_tanh": gelu_tanh_slope,
}


def power_slopes(x, y):
    """y x^(y - 1), whose exponent is rounded, and x^y log x."""
    off = (x < 0) & (y != np.rint(y))
    dx = np.where(off, np.nan, np.where(y == 0, 0, y * np.power(x, y - 1)))
    log = np.log(np.where(x > 0, x, 1))
    dy = np.where(off, np.nan, np.where(x > 0, np.power(x, y) * log, 0))
    return (dx, np.abs(dx) * (1 + np.abs((y - 1) * log))), dy


def atan2_slopes(x, y):
    return y / (x * x + y * y), -x / (x * x + y * y)


def times_log_slopes(x, y, log, shift):
    """log(y + shift) and x / (y + shift); 0 beside a 0 without a logarithm."""
    none = (x == 0) & ((y <= -shift) | (y == np.inf))
    dx, dy = log(np.where(none, 1 - shift, y)), np.where(none, 0, x / (y + shift))
    return dx, np.where((y < -shift) & ~none, np.nan, dy)


def shares(first, second):
    return np.where(first, 1, np.where(second, 0, 0.5)), np.where(
        second, 1, np.where(first, 0, 0.5)
    )


# (d/dx, d/dy) of the functions of two floats.
BINARY_SLOPES = {
    "copysign": lambda x, y: (np.sign(x) * np.copysign(1, y), np.zeros_like(y)),
    "add": lambda x, y: (np.ones_like(x), np.ones_like(x)),
    "sub": lambda x, y: (np.ones_like(x), -np.ones_like(x)),
    "mul": lambda x, y: (y, x),
    "div": lambda x, y: (1 / y, -x / (y * y)),
    "mod": lambda x, y: (np.ones_like(x), -np.floor_divide(x, y)),
    "pow": power_slopes,
    "atan2": atan2_slopes,
    "logaddexp": lambda x, y: (expit(x - y), expit(y - x)),
    "hypot": lambda x, y: (x / np.hypot(x, y), y / np.hypot(x, y)),
    "xlogy": lambda x, y: times_log_slopes(x, y, np.log, 0),
    "xlog1py": lambda x, y: times_log_slopes(x, y, np.log1p, 1),
    "maximum": lambda x, y: shares(x > y, x < y),
    "minimum": lambda x, y: shares(x < y, x > y),
}
