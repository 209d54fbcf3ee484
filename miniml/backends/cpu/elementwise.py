"""NumPy and SciPy kernels of elementwise primitives that are more than one ufunc of NumPy.

In order: rounding, casts and bounds; powers and the gamma functions; selection; erfc and its
relatives, whose tails SciPy rounds; and activations, with few passes over the data and few
temporaries.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...core.abstract import float32, float64, from_type_code
from ...core.errors import DTypeError
from ...core.signature import ANY, COMPLEX, FLOAT, HELD, INT, LOW, NUMBER, WIDE, same
from ..expressions import identity
from ..kernel import Array, Kernel, KernelNode, largest, least, scalars
from ..registry import in_float32, register, register_floats

register("Sign", in_float32(np.sign), *same(1, "E"), inplace=(0,))  # ml_dtypes' keeps -0


def copy(x: Array, *, out: Array) -> None:
    np.copyto(out, x)


def cast(x: Array, *, dtype: object, out: Array) -> None:
    out[...] = x  # unsafe, as np.copyto, which takes twice as long to call


# The least integer of each dtype, and the first number above all of its integers.
_ENDS = {
    d: (float(np.iinfo(d).min), 2.0 ** np.iinfo(d).max.bit_length())
    for d in map(from_type_code, INT)
}


def whole(x: Array, *, dtype: object, out: Array) -> None:
    """Floats to integers, saturated: NumPy leaves values out of range to the machine."""
    low, above = _ENDS[out.dtype]
    if x.itemsize == 2:
        x = x.astype(float32)
    if low <= least(x) and largest(x) < above:  # neither holds for NaN
        out[...] = x
    else:
        saturate(x.astype(float64), low, above, out)


def saturate(x: Array, low: float, above: float, out: Array) -> None:
    clipped = np.clip(x, low, np.nextafter(above, 0))
    np.copyto(out, np.where(np.isnan(x), 0, clipped), casting="unsafe")
    np.copyto(out, np.iinfo(out.dtype).max, where=x >= above)


class ClipKernel(Kernel):
    """min(max(x, min), max) in one pass, also for one bound: NumPy's extremum of an array and a
    number takes four times as long. Of few elements that of two arrays takes half. ReLU has min 0.
    """

    def prepare(self, node: KernelNode) -> None:
        (x,), low, high = node.inputs, node.attrs.get("min", 0), node.attrs.get("max")
        ufunc, bound = (np.maximum, low) if high is None else (np.minimum, high)
        if None in (low, high) and bound is not None and math.prod(x.shape) <= 4096:
            repeated = np.full(x.shape, bound, x.dtype)
            self.call = lambda x, out: ufunc(x, repeated, out=out)
        else:
            pairs = (("max", low), ("min", high))
            ends = [identity(m, x.dtype) if bound is None else bound for m, bound in pairs]
            least, most = (np.array(end, x.dtype) for end in ends)
            self.call = lambda x, out: x.clip(least, most, out)


class ExtremumKernel(Kernel):
    """The extremum of two arrays; of one of many elements and a number, a clip, too."""

    def prepare(self, node: KernelNode) -> None:
        (x, y), most = node.inputs, node.name == "Maximum"
        self.call = getattr(np, node.name.lower())
        if math.prod(x.shape) > 4096 and math.prod(y.shape) == 1:
            end = np.array(identity("min" if most else "max", x.dtype), x.dtype)
            self.call = lambda x, y, out: x.clip(*((y, end) if most else (end, y)), out)


for _name in ("Maximum", "Minimum"):
    register(_name, ExtremumKernel, *same(2, WIDE), inplace=(0, 1))
for _name in ("Floor", "Ceil", "Round", "Trunc"):  # of integers, the identity
    register(_name, copy, *same(1, "?" + INT), inplace=(0,))
register("Cast", whole, *[f"{a}->{b}" for a in FLOAT for b in INT])
register("Cast", cast, *[f"{a}->{b}" for a in ANY for b in ANY if a not in FLOAT or b not in INT])
register("Cast", cast, *[f"{a}->{c}" for a in HELD for c in COMPLEX])
register("Clip", ClipKernel, *same(1, NUMBER), inplace=(0,))


# --- Powers and the gamma functions ---------------------------------------------------------------


def int_power(x: Array, y: Array, *, out: Array) -> None:
    try:
        np.power(x, y, out=out)
    except ValueError:
        raise DTypeError(
            f"Pow got a negative exponent for {x.dtype.name}, which has no fractions; cast x to a "
            "float first"
        ) from None


def exp_of_parts(x: Array, *, out: Array) -> None:
    """exp(re) (cos(im) + i sin(im)) by NumPy's vector code for float32; element by element, with
    C's rules, where the size would leave float32 or the angle is none."""
    with np.errstate(all="ignore"):
        size = np.exp(x.real)
        np.multiply(size, np.cos(x.imag), out=out.real)
        np.multiply(size, np.sin(x.imag), out=out.imag)
        odd = ~np.isfinite(out) | (size == 0) | np.isnan(x)
        if odd.any():
            out[odd] = np.exp(x[odd])


def rsqrt(x: Array, *, out: Array) -> None:
    np.reciprocal(np.sqrt(x, out), out)


def lgamma(x: Array, *, out: Array) -> None:
    from scipy import special

    special.gammaln(x, out=out)
    if np.count_nonzero(np.isfinite(out)) < out.size:
        np.copyto(out, np.inf, where=np.isinf(x))
        # SciPy gives inf; gamma(x) is 1 / x to rounding
        near = np.abs(x) < np.finfo(np.float64).tiny
        np.negative(np.log(np.abs(x), where=near, out=np.ones_like(out)), out=out, where=near)
    for root in (1, 2) if out.dtype == np.float64 else ():
        near = np.abs(x - root) <= 0.5
        if near.any():
            out[near] = _lgamma_near(x[near] - root, root)


def _lgamma_near(d: Array, root: int) -> Array:
    """lgamma(root + d), root 1 or 2 and |d| <= 1/2, where SciPy's error is that of rounding 1.

    The sum of (1 - gamma) d and (zeta(k) - 1) (-d)^k / k over k >= 2, less log(1 + d) for 1.
    Source: Abramowitz and Stegun, 6.1.33.
    """
    from scipy import special

    terms = [special.zetac(k) / k * (-1) ** k for k in range(30, 1, -1)]
    above = np.polyval([*terms, 1 - np.euler_gamma, 0.0], d)
    return np.asarray(above - np.log1p(d) if root == 1 else above)


def polygamma(x: Array, *, n: int, out: Array) -> None:
    """Polygamma, by reflection below 0: p(x) = p(f) + (-1)^(n + 1) (p(g) - p(1 - x)), where f is
    the fraction of x, and g = 1 - f."""
    wide = np.asarray(x, np.float64)
    low = np.less_equal(wide, *scalars(wide.dtype, 0))
    if not np.count_nonzero(low):
        out[...] = above_zero(wide, n)
        return
    out[...] = above_zero(np.where(low, 1, wide), n)  # SciPy adds up -x terms below 0
    x = wide[low]
    down = np.floor(x)
    f, g = (above_zero(fraction, n) for fraction in (x - down, down + 1 - x))
    reflected = f + (-1) ** (n + 1) * (g - above_zero(1 - x, n))
    reflected[(x == down) & np.isfinite(x)] = (-1) ** (n + 1) * np.inf if n else np.nan
    if n == 0:
        reflected[x == 0] = np.copysign(np.inf, -x[x == 0])
    out[low] = reflected


def above_zero(x: Array, n: int) -> Array:
    """The derivative of order n of digamma, x >= 0 and float64."""
    from scipy import special

    factor = (-1) ** (n + 1) * math.factorial(n)
    return np.asarray(special.psi(x) if n == 0 else special.zeta(n + 1, x) * factor)


def logaddexp(x: Array, y: Array, *, out: Array) -> None:
    if out.size <= 128:  # one by one, in less than the time of eight calls
        np.logaddexp(x, y, out)
        return
    np.negative(np.absolute(np.subtract(x, y, out), out), out)
    np.fmax(out, scalars(out.dtype, -math.inf)[0], out)  # two infinities, whose difference is NaN
    np.add(np.log1p(np.exp(out, out), out), np.maximum(x, y), out)


def times_log(log: np.ufunc) -> Callable[..., None]:
    """x * log(y), but 0 where x is 0, and never -0.0; NaN where x or y is."""

    def kernel(x: Array, y: Array, *, out: Array) -> None:
        (zero,) = scalars(out.dtype, 0)
        np.add(np.multiply(x, log(y), out), zero, out)
        none = np.equal(x, zero)
        if np.count_nonzero(none):
            np.putmask(out, np.logical_and(none, np.equal(y, y)), zero)

    return kernel


register_floats("LogAddExp", logaddexp, "{}{}->{}")
register_floats("XLogY", times_log(np.log), "{}{}->{}")
register_floats("XLog1pY", times_log(np.log1p), "{}{}->{}")
register_floats("LGamma", lgamma)
register_floats("Polygamma", polygamma)
register("Pow", int_power, *same(2, INT), inplace=(0, 1))
register("Exp", exp_of_parts, "F->F")
register("Rsqrt", rsqrt, *same(1, WIDE), inplace=(0,))
register("Rsqrt", in_float32(rsqrt), *same(1, LOW))


# --- Selection ------------------------------------------------------------------------------------


def select_complex(cond: Array, x: Array, y: Array, *, out: Array) -> None:
    np.copyto(out, y)
    np.copyto(out, x, where=cond)


register("Select", select_complex, *[f"?{c}{c}->{c}" for c in COMPLEX])


_BRANCHED = 256  # elements that are selected by branches


def select_of(bits: str) -> Callable[..., None]:
    """Select of elements of one size: y ^ ((x ^ y) * cond) on their bits.

    It takes three passes without a branch and without temporaries; np.where, which branches on
    every element, takes seven times as long on a random condition of 256 x 512 float32. On few
    elements branches take less than the calls of NumPy that avoid them.
    """

    of_bits = np.dtype(bits)

    def select(cond: Array, x: Array, y: Array, *, out: Array) -> None:
        count = out.size
        if cond.size == 1:
            out[...] = x if cond.item() else y
        elif count <= _BRANCHED and cond.size == count and y.size in (1, count):
            # x may share the memory of `out`, but for one that has its own.
            if out.base is None and x is not out and x.base is not out and x.size in (1, count):
                out[...] = y
                np.putmask(out, cond, x)
            else:
                out[...] = x
                np.putmask(out, np.logical_not(cond), y)
        else:
            picked, ys = out.view(of_bits), y.view(of_bits)
            np.bitwise_xor(x.view(of_bits), ys, picked)
            np.multiply(picked, cond, picked)
            np.bitwise_xor(picked, ys, picked)

    return select


for _comparison in ANY:
    _bits = f"i{from_type_code(_comparison).itemsize}"
    register(
        "Select", select_of(_bits), f"?{_comparison}{_comparison}->{_comparison}", inplace=(1,)
    )


# --- exp(-x^2), erfc and the normal distribution function, with accurate tails --------------------


# SciPy's erfc in float64 is exp(-x^2) times a quotient, with x^2 rounded: off by 26 units of the
# last digit at x = 5, by 400 at 25. float32 is computed in float64 there, and is right.

_BLOCK = 1 << 13  # numbers whose temporaries stay in the level-two cache
_ROOT = math.sqrt(0.5)
_ROOT_LOW = float.fromhex("-0x1.bdd3413b26456p-55")  # the rest of sqrt(1/2)
# f of `_far` as a polynomial of t, highest power first, to 2^-54: as in cc/text/erf.h, by
# tools/minimax.py. f(0) is in two parts: what it rounds to, and the rest.
_F = [np.array(float.fromhex(c)) for c in """
    0x1.a6491db52bd5fp-30 0x1.48bd51e654695p-29 -0x1.fae62c3febdf2p-27 -0x1.5217dfa7b0d03p-26
    0x1.db24fe837ddd7p-24 0x1.4afedee9bcde3p-24 -0x1.bb3c0a3a8a11bp-21 0x1.396fae24a4e0cp-22
    0x1.7f2aff3708c6ap-18 -0x1.7884a0620b27cp-17 -0x1.9959711e474adp-16 0x1.3be03ec1f3dd6p-13
    -0x1.a1df243b5d9b6p-13 -0x1.8d4a9a0a2debfp-11 0x1.49c67284cbc7bp-8 -0x1.09623884e5b37p-6
    0x1.3079edf686986p-5 -0x1.0fb06dfe4a34p-4 0x1.7fee004e123b9p-4 -0x1.9ddb23c3e903fp-4
    0x1.16ecefcfa539ep-4 0x1.f7f5df66fd7a9p-7 -0x1.1df1ad154a28ep-3 -0x1.a9e0eaeda961cp-55
""".split()]  # fmt: skip
_F_ZERO = float.fromhex("0x1.3ba5916e9fd7fp+0")


def erfc(x: Array, *, out: Array) -> None:
    from scipy import special

    if out.dtype == np.float64:
        _in_blocks(lambda x: _replaced(special.erfc(x), x, x > 0.46875, _far), x, out)
    else:
        special.erfc(x, out=out)


def normal(x: Array, *, out: Array) -> None:
    """Phi(x) = erfc(-x / sqrt(2)) / 2."""
    from scipy import special

    if out.dtype == np.float64:
        _in_blocks(lambda x: _replaced(special.ndtr(x), x, x < -0.6640625, _normal_below), x, out)
    else:
        special.ndtr(x, out=out)


def gaussian(x: Array, *, halved: bool, out: Array) -> None:
    rate, exact = 0.5 if halved else 1.0, out.dtype == float64
    _in_blocks(lambda x: _gaussian(x, rate, exact), x, out)


def _in_blocks(function: Callable[[Array], Array], x: Array, out: Array) -> None:
    """Apply a function of float64 in blocks whose temporaries stay in the cache."""
    flags, rights = ["external_loop", "buffered", "zerosize_ok"], [["readonly"], ["writeonly"]]
    dtypes = [float64, out.dtype]
    with np.nditer([x, out], flags, rights, dtypes, buffersize=_BLOCK) as blocks:  # type: ignore[arg-type]
        for wide, part in blocks:
            part[...] = function(wide)


def _replaced(y: Array, x: Array, where: Array, compute: Callable[[Array], Array]) -> Array:
    """y, with the elements `where` replaced by `compute` of those of x."""
    at = np.flatnonzero(where)
    if at.size:
        y[at] = compute(x[at])
    return y


def _gaussian(x: Array, rate: float, exact: bool) -> Array:
    """exp(-rate x^2); exact: with the rounding error of the square, but where the result is 0."""
    square = np.square(x)
    if exact:
        lost = np.where(square < 1600, _lost(x, x, square), 0.0)
    np.exp(np.multiply(square, -rate, out=square), out=square)
    return square * (1 - rate * lost) if exact else square


def _normal_below(x: Array) -> Array:
    x = np.minimum(-x, 40)
    a = x * _ROOT
    return _far(a, _lost(x, _ROOT, a) + x * _ROOT_LOW) / 2


def _far(x: Array, low: Array | float = 0.0) -> Array:
    """erfc(x + low), x > 0.4, low the rounding error of x.

    With a = x + low and t = (a - 4) / (a + 4) it is exp(-a^2) f(t) / (1 + 2 a). The rounding errors
    of all steps that would add up to more than a unit are kept.
    """
    a = np.minimum(x, 28)
    t = (a - 4) / (a + 4)
    g = _F[0] * t
    for c in _F[1:-1]:
        g += c
        g *= t
    g += _F[-1]
    f, below = _F_ZERO + g, 1 + 2 * a
    q, square = f / below, a * a
    f_low = (_F_ZERO - f) + g
    below_low = 2 * a - (below - 1)
    q_low = ((-_lost(q, below, f) - below_low * q) + f_low) / below
    square_low = _lost(a, a, square) + (2 * a + 1.7 * q) * low  # d log(erfc(a)) / da, nearly
    return np.asarray(np.exp(-square) * (q + (q_low - q * square_low)))


def _lost(x: Array, y: Array | float, product: Array) -> Array:
    """The rounding error x * y - product of the nearest product (Dekker 1971)."""
    x_high, y_high = (np.asarray(v).astype(np.float32).astype(np.float64) for v in (x, y))
    x_low, y_low = x - x_high, y - y_high
    return ((x_high * y_high - product) + (x_high * y_low + x_low * y_high)) + x_low * y_low


# --- Activations ----------------------------------------------------------------------------------


# The least finite float32: x * P(x) has the limit -0 at -inf, where -inf * 0 would give NaN.
_LOWEST = float(np.finfo(np.float32).min)


def erf(x: Array, *, out: Array) -> None:
    from scipy import special

    special.erf(x, out=out)


def erfinv(x: Array, *, out: Array) -> None:
    from scipy import special

    special.erfinv(x, out=out)
    np.copysign(out, x, out=out)  # -0.0 stays


def sigmoid(x: Array, *, out: Array) -> None:
    # exp(-x) overflows to inf below -88 in float32, and 1 / inf is the right 0.
    (one,) = scalars(out.dtype, 1)
    np.reciprocal(np.add(np.exp(np.negative(x, out), out), one, out), out)


def softplus(x: Array, *, out: Array) -> None:
    # max(x, 0) + log1p(exp(-|x|)): the exponential never overflows.
    np.log1p(np.exp(np.negative(np.absolute(x, out), out), out), out)
    np.add(out, at_least(x, 0.0), out)


def at_least(x: Array, bound: float) -> Array:
    """max(x, bound) of floats: of many elements by a clip, which is quicker with a number."""
    low, high = scalars(x.dtype, bound, math.inf)
    return np.maximum(x, low) if x.size <= 4096 else x.clip(low, high)


def silu(x: Array, *, out: Array) -> None:
    (one,) = scalars(out.dtype, 1)
    np.add(np.exp(np.negative(x, out), out), one, out)
    np.divide(at_least(x, _LOWEST), out, out)


def elu(x: Array, *, alpha: float, out: Array) -> None:
    np.multiply(np.expm1(x, out), scalars(out.dtype, alpha)[0] if alpha else alpha, out)
    above = np.greater(x, *scalars(out.dtype, 0))
    if out.size <= _BRANCHED:
        np.putmask(out, above, x)
    else:
        select_of(f"i{out.itemsize}")(above, x, out.copy(), out=out)


def gelu(x: Array, *, approximate: bool, out: Array) -> None:
    x = at_least(x, _LOWEST)
    if approximate:
        gelu_tanh(x, out=out)
        return
    normal(x, out=out)
    np.multiply(out, x, out)


def gelu_tanh(x: Array, *, out: Array) -> None:
    # x * sigmoid(2 u) is x / 2 * (1 + tanh(u)) without the cancellation where tanh is near -1.
    one, cubed, twice = scalars(out.dtype, 1, 0.044715, 2 * math.sqrt(2 / math.pi))
    np.add(np.multiply(np.square(x, out), cubed, out), one, out)
    sigmoid(np.multiply(np.multiply(out, x, out), twice, out), out=out)
    np.multiply(out, x, out)


def leaky_relu(x: Array, *, slope: float, out: Array) -> None:
    if slope == 0:  # not 0 * inf
        np.maximum(x, 0, out=out)
        return
    (np.maximum if slope <= 1 else np.minimum)(x, np.multiply(x, slope, out), out=out)


def leaky_relu_grad(x: Array, dout: Array, *, slope: float, out: Array) -> None:
    np.greater(x, 0, out, casting="unsafe")
    if 0 <= slope <= 1:  # the greater is 1 or slope, exactly
        np.maximum(out, slope, out=out)
    else:
        np.add(np.multiply(out, 1 - slope, out), slope, out)
    np.multiply(out, dout, out)


def relu_grad_of(zero: Array) -> Callable[..., None]:
    """ReLUGrad of one dtype: dout's bits times 0 or 1 as integers, so that 0 * inf stays 0.

    It costs two passes without a branch; np.where on random signs costs ten times as much.
    """
    bits = np.dtype(f"i{zero.itemsize}")

    def relu_grad(x: Array, dout: Array, *, out: Array) -> None:
        picked = out.view(bits)
        np.greater(x, zero, out=picked, casting="unsafe")
        np.multiply(picked, dout.view(bits), out=picked)

    return relu_grad


register("ReLU", ClipKernel, *same(1, NUMBER), inplace=(0,))
for _code in FLOAT:
    register("ReLUGrad", relu_grad_of(np.zeros((), from_type_code(_code))), f"{_code * 2}->{_code}")
register_floats("Erf", erf)
register_floats("Erfc", erfc)
register_floats("ErfInv", erfinv)
register_floats("ExpNegSquare", gaussian)
register_floats("NormalCDF", normal)
register_floats("Sigmoid", sigmoid)
register_floats("Softplus", softplus)
register_floats("SiLU", silu)
register_floats("ELU", elu)
register_floats("GELU", gelu)
register_floats("LeakyReLU", leaky_relu)
register_floats("LeakyReLUGrad", leaky_relu_grad, "{}{}->{}")
