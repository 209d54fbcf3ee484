"""The polynomials of miniml/backends/cc/text: `python -m tools.minimax`, with mpmath installed.

Prints the coefficients of each, lowest first, and the logarithm of its largest error. The headers
have them up to the last digits, which depend on the points that are tried; erfc has its first
coefficient in two parts.
"""

import numpy as np
from mpmath import mp

mp.dps = 50
TINY = mp.mpf(10) ** -12  # stands for 0, where quotients are 0 / 0


def nodes(low, high, n, bend=1):
    """Points as Chebyshev's, a little to one side so that none is 0; bend > 1: more below."""
    turns = (-mp.cos(mp.pi * (i + mp.mpf("0.45")) / n) for i in range(n))
    return [low + (high - low) * ((1 + t + (1 - t * t) / 270) / 2) ** bend for t in turns]


def remez(f, powers, low, high, weight, bend):
    """The c with the least largest |weight(x) (sum of c_k x^powers_k - f(x))|, by exchange."""
    n, grid = len(powers) + 1, nodes(low, high, 400, bend)
    rows = [(x, f(x), weight(x)) for x in grid]
    xs = nodes(low, high, n, bend)
    for _ in range(8):
        a = mp.matrix([[*(x**p for p in powers), (-1) ** i / weight(x)] for i, x in enumerate(xs)])
        c = mp.lu_solve(a, mp.matrix([f(x) for x in xs]))[: n - 1]
        tops = []  # the largest error of each run of one sign
        for x, y, w in rows:
            e = w * (sum(ck * x**p for ck, p in zip(c, powers, strict=True)) - y)
            if not tops or (tops[-1][1] > 0) != (e > 0):
                tops.append((x, e))
            elif abs(e) > abs(tops[-1][1]):
                tops[-1] = (x, e)
        if len(tops) != n:
            break
        xs = [x for x, _ in tops]
    return c


def rounded(f, degree, low, high, weight, kind, bend=1):
    """The best of: the m lowest coefficients rounded one by one, the rest fitted again after each
    and rounded at once."""
    powers, fixed, found = range(degree + 1), [], []
    low, high = mp.mpf(low), mp.mpf(high)
    for m in range(4):
        done = tuple(fixed)
        left = lambda x, done=done: f(x) - sum(c * x**k for k, c in enumerate(done))  # noqa: E731
        c = remez(left, powers[m:], low, high, weight, bend)
        made = [*fixed, *(mp.mpf(float(kind(float(ck)))) for ck in c)]
        error = max(
            abs(weight(x) * (sum(ck * x**k for k, ck in enumerate(made)) - f(x)))
            for x in nodes(low, high, 500, bend)
        )
        found.append((error, made))
        fixed.append(made[m])
    return min(found)


def squared(f):
    """f(x) as a function of x^2."""
    return lambda z: f(mp.sqrt(z))


def scaled_erfc(k):
    """exp(x^2) erfc(x) (1 + 2 x) as a function of (x - k) / (x + k)."""

    def f(t):
        x = k * (1 + t) / (1 - t)
        return mp.exp(x * x) * mp.erfc(x) * (1 + 2 * x)

    return f


def scaled_normcdf(t):
    """2^-64 exp(a^2 / 2) (a + c) / (2 c) times the probability of numbers above a.

    t = 2 c / (a + c) - 1, c = 3.25. Some coefficients in the header are a few last digits off,
    which makes the largest error of all floats less.
    """
    c = mp.mpf(13) / 4
    a = 2 * c / (1 + t) - c
    return mp.exp(a * a / 2) * (a + c) * mp.erfc(a / mp.sqrt(2)) / (4 * c) / mp.mpf(2) ** 64


def far_erfinv(s):
    """erfinv(x) / x as a function of s, with s^2 = -log2(1 - x^2)."""
    rest = mp.mpf(2) ** (-s * s)  # 1 - x^2
    x = mp.sqrt(1 - rest)
    y = mp.sqrt(s * s * mp.log(2) / 2)
    for _ in range(12):  # Newton's method for erfc, as 1 - x = rest / (1 + x) is exact
        y += (mp.erfc(y) - rest / (1 + x)) * mp.sqrt(mp.pi) / 2 * mp.exp(y * y)
    return y / x


def rows():
    """Name, function, degree, range, weight of the error, type."""
    f, d, half = np.float32, np.float64, mp.log(2) / 2
    rest = lambda r: (mp.expm1(r) - r) / r**2  # noqa: E731
    for kind, degree in ((f, 4), (d, 10)):
        yield "exp, expm1", rest, degree, -half, half, lambda r: r**2 / abs(mp.expm1(r)), kind
    yield "exp", rest, 4, -half, half, lambda r: r**2 / mp.exp(r), f
    yield "exp, rough", rest, 5, -half, half, lambda r: r**2 / mp.exp(r), d
    third = mp.mpf(1) / 3
    yield ("log", lambda x: (mp.log1p(x) - x + x * x / 2) / x**3, 7, -third, third,
           lambda x: abs(x**3 / mp.log1p(x)), f)  # fmt: skip
    yield ("log2", lambda x: (mp.log1p(x) - x) / mp.log(2) / x**2, 8, -third, third,
           lambda x: abs(x**2 * mp.log(2) / mp.log1p(x)), f)  # fmt: skip
    most = mp.mpf("0.02945")  # of s^2, s = (m - 1) / (m + 1)
    series = squared(lambda s: 2 * (mp.atanh(s) - s) / s**3)
    yield "log", series, 6, TINY, most, lambda z: z / 2, d
    yield "log2, rough", series, 4, TINY, most, lambda z: z / 2, d
    yield ("pow", squared(lambda s: 2 * (mp.atanh(s) - s - s**3 / 3) / s**5), 7, TINY, most,
           lambda z: z * z / 2, d)  # fmt: skip
    for kind, degree, end in ((f, 4, 0.625), (d, 10, 0.5625)):
        yield ("tanh", squared(lambda x: (mp.tanh(x) - x) / x**3), degree, TINY, end**2,
               squared(lambda x: x**3 / mp.tanh(x)), kind)  # fmt: skip
    for kind, degree in ((f, 6), (d, 12)):
        yield ("erf", squared(lambda x: mp.erf(x) / x - 1), degree, TINY, mp.mpf(1),
               squared(lambda x: x / mp.erf(x)), kind)  # fmt: skip
    yield "erf, far", lambda t: mp.erfc(t + 2.5), 15, -1.5, 1.5, lambda t: 1 / mp.erf(t + 2.5), f
    yield ("erf, far", lambda x: -mp.log(mp.erfc(x)), 18, 0.75, 5.93,
           lambda x: mp.erfc(x) / mp.erf(x), d, 1.5)  # fmt: skip
    yield "erfc of float32", scaled_erfc(2), 12, -1, mp.mpf(9) / 13, lambda t: 1, d
    yield ("normcdf of float32", scaled_normcdf, 9, mp.mpf("6.5") / mp.mpf("17.85") - 1, 1,
           lambda t: 1 / scaled_normcdf(t), f)  # fmt: skip
    yield "erfc, normcdf", scaled_erfc(4), 23, -0.82, 0.75, lambda t: 1, d
    eighth = (mp.pi / 4) ** 2
    for name, degree in (("sin of float32", 3), ("sin", 5)):
        yield (name, squared(lambda x: (mp.sin(x) - x) / x**3), degree, TINY, eighth,
               squared(lambda x: x**3 / mp.sin(x)), d)  # fmt: skip
    yield ("sin of float32, up to pi / 2", squared(lambda x: (mp.sin(x) - x) / x**3), 4, TINY,
           (mp.pi / 2) ** 2, squared(lambda x: x**3 / mp.sin(x)), d)  # fmt: skip
    yield ("tan of float32", squared(lambda x: (mp.tan(x) - x) / x**3), 6, TINY,
           mp.mpf("0.83") ** 2, squared(lambda x: x**3 / mp.tan(x)), f)  # fmt: skip
    yield ("cos of float32", squared(lambda x: (mp.cos(x) - 1) / x**2), 3, TINY, eighth,
           squared(lambda x: x**2 / mp.cos(x)), d)  # fmt: skip
    yield ("cos", squared(lambda x: (mp.cos(x) - 1 + x * x / 2) / x**4), 5, TINY, eighth,
           squared(lambda x: x**4 / mp.cos(x)), d)  # fmt: skip
    eighth_tan = mp.tan(mp.pi / 8)
    arc = squared(lambda x: (mp.atan(x) - x) / x**3)
    quarter, over_atan = mp.mpf(1) / 4, squared(lambda x: x**3 / mp.atan(x))
    for name, degree in (("atan2 of float32", 5), ("atan", 12)):
        yield name, arc, degree, TINY, eighth_tan**2, over_atan, d
    yield "atan of float32", arc, 8, TINY, mp.mpf(1), over_atan, f
    for name, degree, kind in (("asin of float32", 4, f), ("asin", 12, d)):
        yield (name, squared(lambda x: (mp.asin(x) - x) / x**3), degree, TINY, quarter,
               squared(lambda x: x**3 / mp.asin(x)), kind)  # fmt: skip
    for name, degree in (("sinh of float32", 3), ("sinh", 7)):
        yield (name, squared(lambda x: (mp.sinh(x) - x) / x**3), degree, TINY, 1,
               squared(lambda x: x**3 / mp.sinh(x)), d)  # fmt: skip
    near = lambda w: mp.erfinv(mp.sqrt(1 - mp.mpf(2) ** -w)) / mp.sqrt(1 - mp.mpf(2) ** -w)  # noqa: E731
    inverse = lambda w: near(w / mp.log(2)) if w < 4 else far_erfinv(mp.sqrt(w / mp.log(2)))  # noqa: E731
    for c, low, high, middle, degree in ((1.25, TINY, 5, 1.5, 9), (2.75, 5, 15.95, 9, 10)):
        at = lambda v, middle=middle: inverse(middle - v)  # noqa: E731
        yield ("erfinv of float32", lambda v, at=at, c=c: at(v) - c, degree, middle - high,
               middle - low, lambda v, at=at: 1 / at(v), f)  # fmt: skip
    turn = mp.sqrt(mp.log(2))  # from roots of -log2 to those of -log
    first = lambda v: near((v + 3.125) / turn**2)  # noqa: E731
    yield "erfinv, near", first, 21, -3.125 + 1e-9, 3.125, lambda v: 1 / first(v), d
    for middle, low, high in ((3.25, 2.5, 4), (5, 4, 6.02)):
        last = lambda v, middle=middle: far_erfinv((v + middle) / turn)  # noqa: E731
        yield ("erfinv, far", last, 17, low - middle, high - middle,
               lambda v, last=last: 1 / last(v), d)  # fmt: skip
    gamma = lambda u: mp.loggamma(u + 1.5) / (u * u - 0.25)  # noqa: E731
    yield "lgamma of float32", gamma, 10, -0.5, 0.5, lambda u: 1 / gamma(u), d
    yield ("sin(pi x) of float32", squared(lambda x: mp.sin(mp.pi * x) / x), 5, TINY, 0.25,
           squared(lambda x: x / mp.sin(mp.pi * x)), d)  # fmt: skip


if __name__ == "__main__":
    for name, *row in rows():
        error, coefficients = rounded(*row)
        print(f"{name}, {row[5].__name__}: 2^{float(mp.log(error, 2)):.2f}")
        print("  ", *(float(c).hex() for c in coefficients), flush=True)
