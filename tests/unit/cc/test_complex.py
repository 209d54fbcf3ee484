"""Loops over complex numbers, against the plain formulas of their parts."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.grad import grad
from miniml.runtime.jit import Jit
from tests.frame.native import needs_compiler

from .programs import in_c

pytestmark = needs_compiler
TYPES = pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
ODD = [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 3e30, -2e-30]
FEW_BITS = [0.0, -0.0, 0.5, 1.0, -1.0, -1.5, 2.0, np.inf, -np.inf, np.nan]


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def joined(re, im):
    """The complex numbers with these parts: `re + 1j * im` would change infinite ones."""
    out = np.empty(np.broadcast_shapes(re.shape, im.shape), np.result_type(re, np.complex64))
    out.real, out.imag = re, im
    return out


def numbers(rng, shape, dtype, odd=0.2):
    """Numbers of which a part may be none, infinite or a zero of either sign."""
    real = np.zeros((), dtype).real.dtype
    parts = [rng.standard_normal(shape), rng.standard_normal(shape)]
    picked = [np.where(rng.random(shape) < odd, rng.choice(ODD, shape), p) for p in parts]
    return joined(*(np.asarray(p, real) for p in picked))


def of_few_bits(rng, shape, dtype):
    real = np.zeros((), dtype).real.dtype
    return joined(*(rng.choice(np.array(FEW_BITS, real), shape) for _ in range(2)))


def same_bits(found, expected, signs=True):
    """signs: those of zeros, too."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    for part in "real", "imag":
        ours, plain = (np.ascontiguousarray(getattr(a, part)) for a in (found, expected))
        nan = ours != ours
        np.testing.assert_array_equal(nan, plain != plain)
        np.testing.assert_array_equal(ours[~nan], plain[~nan])
        of_zeros = ~nan & signs
        np.testing.assert_array_equal(np.signbit(ours[of_zeros]), np.signbit(plain[of_zeros]))


# --- Chains ---------------------------------------------------------------------------------------


def product(x, y):
    return joined(x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real)


# Ours, and the same of the parts.
STEPS = [
    (lambda x, y: x + y, lambda x, y: joined(x.real + y.real, x.imag + y.imag)),
    (lambda x, y: x - y, lambda x, y: joined(x.real - y.real, x.imag - y.imag)),
    (lambda x, y: x * y, product),
    (lambda x, _: x * x, lambda x, _: product(x, x)),
    (lambda x, _: -x, lambda x, _: joined(-x.real, -x.imag)),
    (lambda x, _: ops.conj(x), lambda x, _: joined(x.real, -x.imag)),
    (lambda x, y: ops.complex(ops.imag(x), ops.real(y)), lambda x, y: joined(x.imag, y.real)),
    (lambda x, _: x * (2 - 0.5j), lambda x, _: product(x, np.asarray(2 - 0.5j, x.dtype))),
    (
        lambda x, y: ops.where(ops.real(x) > ops.imag(y), x, y),
        lambda x, y: joined(*(np.where(x.real > y.imag, *p) for p in parts(x, y))),
    ),
    (
        lambda x, y: ops.where(x == y, y, x),
        lambda x, y: joined(*(np.where(equal(x, y), *reversed(p)) for p in parts(x, y))),
    ),
    (
        lambda x, y: x + ops.cast(ops.isnan(x) | ops.isinf(y), x.dtype),
        lambda x, y: joined(x.real + odd(x, y).astype(x.real.dtype), x.imag + 0),
    ),
]


def parts(x, y):
    return (x.real, y.real), (x.imag, y.imag)


def equal(x, y):
    return (x.real == y.real) & (x.imag == y.imag)


def odd(x, y):
    return np.isnan(x.real) | np.isnan(x.imag) | np.isinf(y.real) | np.isinf(y.imag)


def chain(seed):
    """A random chain: of tensors, and of arrays."""
    draws = np.random.default_rng(seed).integers(0, 1 << 30, (6, 3))

    def run(which, values):
        for step, a, b in draws:
            # The second one is an input, so that products of few bits are exact.
            made = STEPS[step % len(STEPS)][which](values[a % len(values)], values[b % 2])
            values = [*values, made]
        return values[-3:]

    return (lambda *xs: run(0, list(xs))), (lambda *xs: run(1, list(xs)))


SHAPES = [
    ((7, 53), (7, 53)), ((5, 1029), (1029,)), ((4, 1, 6), (3, 1)), ((), (9,)), ((), ()),
    ((0, 4), (4,)), ((1,), (1,)), ((3, 40), (3, 40)),
]  # fmt: skip


def laid_out(a, how):
    """The same numbers in other strides."""
    if how == 1 and a.ndim:
        return np.repeat(a, 2, -1)[..., ::2]
    if how == 2 and a.ndim > 1:
        return np.asfortranarray(a)
    return a[..., ::-1].copy()[..., ::-1] if how == 3 and a.ndim else a


@TYPES
def test_chains_have_the_bits_of_the_plain_formulas(dtype):
    calls, expected = [], []
    for seed, (one, other) in enumerate(SHAPES * 3):
        rng, (ours, plain) = np.random.default_rng(seed), chain(seed)
        x, y = of_few_bits(rng, one, dtype), of_few_bits(rng, other, dtype)
        calls.append((ours, [laid_out(x, seed % 4), laid_out(y, (seed + 1) % 4)]))
        expected.append(plain(x, y))
    for found, made in zip(in_c(calls), expected, strict=True):
        for one, other in zip(found, made, strict=True):
            # GCC makes -(x y) - z of -(x y + z), whose zero may have another sign.
            same_bits(one.asnumpy(), other, signs=False)


@TYPES
def test_each_step_has_the_bits_of_the_plain_formula(dtype):
    rng = np.random.default_rng(8)
    x, y = (of_few_bits(rng, 999, dtype) for _ in range(2))
    found = in_c([(ours, [x, y]) for ours, _ in STEPS])
    for made, (_, plain) in zip(found, STEPS, strict=True):
        same_bits(made.asnumpy(), plain(x, y))


@TYPES
def test_a_chain_is_one_loop(dtype):
    x, y = (ml.Tensor(numbers(np.random.default_rng(k), (40, 300), dtype)) for k in range(2))

    def fn(x, y):
        turned = ops.conj(x * y) / (y - 1j)
        return ops.abs(turned.T), ops.angle(turned)

    with ml.context(providers=("cc",)):
        jit = Jit(fn)
        assert len(jit.compiled(x, y).program.graph.nodes) == 1


@TYPES
def test_products_that_neighbours_add_and_subtract_in_turn_are_rounded_first(dtype):
    x, y = (numbers(np.random.default_rng(k), (40, 130), dtype, 0) for k in (10, 11))

    def fn(x, y):
        a, b, c, d = ops.real(x), ops.imag(x), ops.real(y), ops.imag(y)
        return ops.complex(a * c - d, b * d + c), ops.complex(a * c - b * d, a * d + b * c)

    def woven(x, y):
        a, b, c, d = (v[:, k::2] for v in (x, y) for k in range(2))
        return ops.stack([a * c - d, b * d + c], -1)

    one, two = (a.asnumpy() for a in in_c([(fn, [x, y])])[0])
    (pairs,) = in_c([(woven, [v.view(v.real.dtype) for v in (x, y)])])
    plain = joined(x.real * y.real - y.imag, x.imag * y.imag + y.real)
    same_bits(one, plain)
    same_bits(two, product(x, y))
    same_bits(pairs.asnumpy(), np.stack([plain.real, plain.imag], -1))


# --- Quotients and absolute values ----------------------------------------------------------------


def every_pair(dtype):
    """All pairs of odd numbers, then ordinary ones."""
    real = np.zeros((), dtype).real.dtype
    a, b = (np.asarray(p, real).ravel() for p in np.meshgrid(ODD, ODD))
    some, rng = joined(a, b), np.random.default_rng(1)
    x, y = np.repeat(some, some.size), np.tile(some, some.size)
    more = (numbers(rng, 3001, dtype, 0) for _ in range(2))
    return [np.concatenate(pair) for pair in zip((x, y), more, strict=True)]


@TYPES
def test_products_and_quotients_are_numpys(dtype):
    x, y = every_pair(dtype)
    of_one = np.ones((), dtype) / y

    def fn(x, y):
        return x / y, ops.reciprocal(y), x / 2, x * y, x * y * y

    q, r, half, p, long = (a.asnumpy() for a in in_c([(fn, [x, y])])[0])
    eps, two = 4 * np.finfo(dtype).eps, np.asarray(2, dtype)
    for found, expected in (q, x / y), (half, x / two), (p, x * y), (long, x * y * y):
        like(found, expected, eps)
    like(r[-3001:], of_one[-3001:], eps)
    like(r[:-3001], np.reciprocal(y)[:-3001], eps)


def like(found, expected, eps):
    """Where a part is not finite, or 0, it is so on both sides, with the same sign."""
    size = np.hypot(expected.real, expected.imag)
    for part in "real", "imag":
        a, b = getattr(found, part), getattr(expected, part)
        odd = ~np.isfinite(b) | (b == 0)
        same_bits(a[odd], b[odd])
        assert (
            abs(a - b)[~odd] <= np.where(np.isfinite(size), eps * size, eps * abs(b))[~odd]
        ).all()


@TYPES
def test_absolute_values_are_off_by_one_unit_and_do_not_overflow(dtype):
    rng, real = np.random.default_rng(2), np.zeros((), dtype).real.dtype
    info = np.finfo(real)
    low, high = np.log2(float(info.smallest_subnormal)), float(info.maxexp)
    size, apart = rng.uniform(low, high - 1, 20000), rng.uniform(-3, 3, 20000)
    a = np.exp2(size) * rng.choice([-1, 1], size.shape)
    b = np.exp2(np.clip(size + apart, low, high - 1))
    x = joined(a.astype(real), b.astype(real))
    special = every_pair(dtype)[0]
    found, of_special = in_c([(ops.abs, [x]), (ops.abs, [special])])
    exact = np.hypot(x.real.astype(np.longdouble), x.imag.astype(np.longdouble))
    unit = np.spacing(exact.astype(real))
    assert found.dtype == real
    assert (abs(found.asnumpy() - exact) <= unit).all()
    expected = np.hypot(special.real, special.imag)  # infinite beside NaN, too
    np.testing.assert_allclose(of_special.asnumpy(), expected, rtol=2 * info.eps)


@TYPES
def test_exponentials_are_within_three_units_and_keep_what_is_not_finite(dtype):
    rng, info = np.random.default_rng(9), np.finfo(dtype)
    most = np.log(float(info.max))
    a = [*rng.normal(size=4000), *rng.uniform(-most, 1.4 * most, 4000)]
    b = [*rng.normal(size=4000), *rng.uniform(-1e4, 1e4, 4000)]
    x = joined(np.asarray(a, info.dtype), np.asarray(b, info.dtype))
    sizes = [*ODD, most + 2, -2 * most, float(info.tiny)]
    special = joined(*(np.asarray(p, info.dtype).ravel() for p in np.meshgrid(sizes, sizes)))
    found, of_special = (a.asnumpy() for a in in_c([(ops.exp, [x]), (ops.exp, [special])]))
    angle, size = x.imag.astype(np.longdouble), np.exp(x.real.astype(np.longdouble))
    for part, exact in ("real", size * np.cos(angle)), ("imag", size * np.sin(angle)):
        rounded = exact.astype(info.dtype)
        kept = np.isfinite(rounded) & (abs(rounded) > info.tiny)
        units = abs(getattr(found, part) - exact)[kept] / np.spacing(abs(rounded[kept]))
        assert units.max() <= 3
    like(of_special, np.exp(special), 4 * info.eps)


# --- Reductions -----------------------------------------------------------------------------------


@TYPES
@pytest.mark.parametrize("shape", [(5, 3001), (40, 70, 3), (3000, 5), (1, 1), (9, 16)])
def test_sums_and_means(dtype, shape):
    rng = np.random.default_rng(3)
    x = numbers(rng, shape, dtype, 0)
    axes = [None, 0, -1, tuple(range(len(shape)))[:2]]
    calls = [
        (
            lambda x, axis=axis: (ops.sum(x, axis), ops.mean(x * x, axis), ops.sum(ops.conj(x).T)),
            [a],
        )
        for axis in axes
        for a in (x, laid_out(x, 1), laid_out(x, 2))
    ]
    wide = x.astype(np.clongdouble)
    for k, (total, mean, turned) in enumerate(in_c(calls)):
        axis, eps = axes[k // 3], np.finfo(dtype).eps
        count = x.size / total.asnumpy().size
        for found, exact, sizes in (
            (total, wide.sum(axis), abs(wide).sum(axis)),
            (mean, (wide * wide).mean(axis), (abs(wide) ** 2).mean(axis)),
            (turned, wide.conj().sum(), abs(wide).sum()),
        ):
            assert found.dtype == dtype
            assert found.shape == exact.shape
            assert (abs(found.asnumpy() - exact) <= (4 + count**0.5 / 8) * eps * sizes).all()


@TYPES
def test_a_sum_keeps_what_is_infinite_in_its_part(dtype):
    x = numbers(np.random.default_rng(4), (6, 600), dtype, 0)
    x[1, 3], x[2, 4], x[3, 5] = complex(np.inf, 1), complex(0, -np.inf), complex(np.nan, 1)
    total, along, mean = in_c([(lambda x: (ops.sum(x), ops.sum(x, -1), ops.mean(x, -1)), [x])])[0]
    kinds = [np.isnan, np.isposinf, np.isneginf]
    for found, expected in (total, x.sum()), (along, x.sum(-1)), (mean, x.mean(-1)):
        for kind in kinds:
            for part in "real", "imag":
                ours, numpys = getattr(found.asnumpy(), part), getattr(expected, part)
                np.testing.assert_array_equal(kind(ours), kind(numpys))


# --- Slices, casts and gradients ------------------------------------------------------------------


@TYPES
def test_windows_casts_and_products_beside_complex_numbers(dtype):
    rng = np.random.default_rng(5)
    x, real = numbers(rng, (9, 70), dtype), np.zeros((), dtype).real.dtype
    a, b = (rng.standard_normal((4, 70)).astype(real) for _ in range(2))

    def fn(x, a, b):
        moved = x[1:, 2:] - x[:-1, :-2]
        return (
            moved,
            ops.cast(x, "complex64"),
            ops.cast(x, "complex128"),
            x[::2] + a[:, :1, None],
        )

    moved, narrow, wide, _ = in_c([(fn, [x, a, b])])[0]
    same_bits(moved.asnumpy(), joined(*(p[1:, 2:] - p[:-1, :-2] for p in (x.real, x.imag))))
    same_bits(narrow.asnumpy(), x.astype(np.complex64))
    same_bits(wide.asnumpy(), x.astype(np.complex128))
    (made,) = in_c([(lambda a, b: ops.complex(ops.relu(a @ b.T), 1.0) * 2j, [a, b])])
    like(
        made.asnumpy(),
        product(joined(np.maximum(a @ b.T, 0), real.type(1)), np.asarray(2j, dtype)),
        1e-5,
    )
    for given in (np.arange(9, dtype=np.int64), np.arange(9) % 2 == 0, np.arange(9, dtype="f2")):
        found = in_c([(lambda x: ops.cast(x, dtype), [given])])[0].asnumpy()
        same_bits(found, given.astype(dtype))


@TYPES
def test_gradients_are_those_of_the_steps_by_themselves(dtype):
    x, y = (numbers(np.random.default_rng(k), (30, 41), dtype, 0) for k in (6, 7))

    def loss(x, y):
        return ops.sum(ops.abs(x * y + ops.conj(x) / y)) + ops.sum(ops.real(ops.mean(x * x, 0)))

    with ml.context(providers=("miniml",)):
        expected = [g.asnumpy() for g in grad(loss, (0, 1))(x, y)]
    with ml.context(providers=("cc",)):
        found = [g.asnumpy() for g in ml.jit(grad(loss, (0, 1)))(x, y)]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=100 * np.finfo(dtype).eps)
