"""Rows of random draws, against Philox 4x32-10 in Python integers."""

import itertools
import math

import numpy as np
from scipy import stats

from miniml import bfloat16, ops
from miniml.errors import DTypeError, ShapeError, ValueRefusedError
from miniml.testing import OpInfo, Refusal, Sample

FLOATS = (np.float16, bfloat16, np.float32, np.float64)
SHAPES = ((), (0, 3), (1,), (2, 3, 5))
MASK = 2**32 - 1


def philox(key, counter):
    """One block: four 32-bit words (Salmon et al., 2011)."""
    words = [counter >> shift & MASK for shift in (0, 32, 64, 96)]
    keys = [key & MASK, key >> 32]
    for _ in range(10):
        first, second = words[0] * 0xD2511F53, words[2] * 0xCD9E8D57
        words = [
            second >> 32 ^ words[1] ^ keys[0],
            second & MASK,
            first >> 32 ^ words[3] ^ keys[1],
            first & MASK,
        ]
        keys = [(keys[0] + 0x9E3779B9) & MASK, (keys[1] + 0xBB67AE85) & MASK]
    return words


def stream(state, skip, count):
    """The first `count` words of a draw, as Python ints."""
    key, offset = (int(word) for word in state)
    blocks = [philox(key, (offset + skip + i) % 2**64) for i in range(-(-count // 4))]
    return [word for block in blocks for word in block][:count]


def fractions(state, skip, count, wide):
    """Numbers in [0, 1): 24 bits of a word, or 53 bits of two."""
    if not wide:
        return np.array([w >> 8 for w in stream(state, skip, count)], np.float32) / np.float32(
            2**24
        )
    words = stream(state, skip, 2 * count)
    pairs = zip(words[::2], words[1::2])
    return np.array([(high << 32 | low) >> 11 for low, high in pairs], float) / 2.0**53


def uniform(state, shape, dtype, low=0.0, high=1.0, skip=0):
    wide = dtype == np.float64
    real = np.float64 if wide else np.float32
    units = fractions(state, skip, int(np.prod(shape)), wide)
    return (real(low) + real(high - low) * units).astype(dtype).reshape(shape)


def normal(state, shape, dtype, mean=0.0, std=1.0, skip=0):
    wide = dtype == np.float64
    size = int(np.prod(shape))
    even = size + size % 2
    if wide:
        units = fractions(state, skip, even, True)
    else:
        units = np.array(stream(state, skip, even), np.float32) * np.float32(2.0**-32)
    half = units.dtype.type(2.0**-53 if wide else 2.0**-33)
    radius = np.sqrt(-2 * np.log((units[::2] + half).astype(float)))
    # Near a zero of cos or sin the rounding of the angle decides, so it is rounded here too.
    angle = (units[1::2] * units.dtype.type(2 * np.pi)).astype(float)
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1)
    return (mean + std * pairs.ravel()[:size]).reshape(shape)


def bernoulli(state, shape, dtype, p=0.5, skip=0):
    size = int(np.prod(shape))
    drawn = [(w >> 8) / 2**24 < p for w in stream(state, skip, size)]
    return np.array(drawn, bool).astype(dtype).reshape(shape)


def inner(state, skip, count):
    """Odd multiples of 2^-53: numbers in (0, 1)."""
    words = stream(state, skip, 2 * count)
    pairs = zip(words[::2], words[1::2])
    return np.array([(high << 32 | low) >> 11 | 1 for low, high in pairs], float) / 2.0**53


def gumbel(state, shape, dtype, loc=0.0, scale=1.0, skip=0):
    return stats.gumbel_r.ppf(inner(state, skip, int(np.prod(shape)))).reshape(shape) * scale + loc


def truncated_normal(state, shape, dtype, mean=0.0, std=1.0, low=-2.0, high=2.0, skip=0):
    u = inner(state, skip, int(np.prod(shape))).reshape(shape)
    a, b = (low - mean) / std, (high - mean) / std
    side = -1 if a > 0 else 1  # of which cdf has more digits
    start, end = sorted(stats.norm.cdf([side * a, side * b]))
    return mean + side * std * stats.norm.ppf(start + u * (end - start))


def parametrised(attempt, state, given, shape, skip, wrong):
    """The first accepted attempt of each element; the blocks repeat after prod(shape) of them."""
    key, offset = (int(word) for word in state)
    out = np.empty(given.size)
    for e, parameter in enumerate(given.ravel().tolist()):
        low = (offset + skip + e % max(math.prod(shape), 1)) % 2**64
        draw = wrong(parameter)
        for high in itertools.count():
            if draw is not None:
                break
            draw = attempt(philox(key, high << 64 | low), parameter)
        out[e] = draw
    return out.reshape(given.shape)


def gamma(state, alpha, shape, dtype, log=False, skip=0):
    """Marsaglia and Tsang's method, with the test as in their paper."""

    def attempt(words, alpha):
        radius, angle, u, boost = ((w + 0.5) / 2**32 for w in words)
        d = (alpha + 1 if alpha < 1 else alpha) - 1 / 3
        z = math.sqrt(-2 * math.log(radius)) * math.cos(2 * math.pi * angle)
        v = (1 + z / math.sqrt(9 * d)) ** 3
        if v <= 0 or math.log(u) >= z * z / 2 + d - d * v + d * math.log(v):
            return None
        less = math.log(boost) / alpha if alpha < 1 else 0.0
        return math.log(d * v) + less if log else d * v * math.exp(less)

    ends = lambda alpha: None if 0 < alpha < math.inf else alpha if alpha > 0 else math.nan  # noqa: E731
    return parametrised(attempt, state, alpha, shape, skip, ends)


def poisson(state, lam, shape, dtype, skip=0):
    """Quantiles below 10, Hormann's PTRS above, with the test as in his paper."""

    def attempt(words, lam):
        pairs = [words[i + 1] << 32 | words[i] for i in (0, 2)]
        first, v = ((pair >> 11 | 1) / 2**53 for pair in pairs)
        if lam < 10:
            return stats.poisson.ppf(first, lam)
        b = 0.931 + 2.53 * math.sqrt(lam)
        a, u = 0.02483 * b - 0.059, first - 0.5
        us = 0.5 - abs(u)
        k = math.floor((2 * a / us + b) * u + lam + 0.43)
        if us >= 0.07 and v <= 0.9277 - 3.6224 / (b - 2):
            return k
        if k < 0 or (us < 0.013 and v > us):
            return None
        hat = math.log(v * (1.1239 + 1.1328 / (b - 3.4)) / (a / us**2 + b))
        return k if hat <= k * math.log(lam) - lam - math.lgamma(k + 1) else None

    wrong = {"i": -1.0, "u": 0.0}.get(np.dtype(dtype).kind, math.nan)
    bad = lambda lam: None if 0 <= lam < math.inf else wrong  # noqa: E731
    out = parametrised(attempt, state, lam, shape, skip, bad)
    if np.dtype(dtype).kind not in "iu":
        return out
    most = np.iinfo(dtype).max
    return np.array([min(int(k), most) for k in out.flat], dtype).reshape(out.shape)


def states(rng):
    """Any key with an offset that stays, and one that runs over 2**64."""
    key = int(rng.integers(2**62)) * 3
    return np.array([key, 5], np.uint64), np.array([key, 2**64 - 3], np.uint64)


def draws(dtypes, *attrs):
    def samples(rng, _):
        near, far = states(rng)
        for dtype in dtypes:
            for shape in SHAPES:
                yield Sample((near,), {"shape": shape, "dtype": dtype})
            for more in attrs:
                yield Sample((far,), {"shape": (3, 7), "dtype": dtype, "skip": 2, **more})

    return samples


def with_parameters(dtypes, parameters, *attrs):
    def samples(rng, _):
        near, far = states(rng)
        for dtype in dtypes:
            for shape in SHAPES:
                given = rng.choice(parameters, shape)
                yield Sample((near, given), {"shape": shape, "dtype": dtype})
            for more in attrs or ({},):
                # Rows share the stream; logarithms near 0 have no digits to compare.
                far_from_one = [p for p in parameters if not 0.1 < p < 10]
                wide = rng.choice(far_from_one if "log" in more else parameters, (2, 5, 3))
                yield Sample((far, wide), {"shape": (5, 3), "dtype": dtype, "skip": 2, **more})

    return samples


SHAPED = {"shape": (3,), "dtype": np.float32}
STATE = np.zeros(2, np.uint64)


ONES = np.ones(3)


def of_parameters(name):
    return (
        Refusal((STATE, ONES.astype(np.float32)), f"{name} of float64; got float32", SHAPED,
                DTypeError),
        Refusal((STATE, np.ones(4)), rf"of shape \(3,\) got {name} of shape \(4,\)", SHAPED,
                ShapeError),
        Refusal((STATE[:1], ONES), r"state of shape \(2,\).*got \(1,\)", SHAPED, ShapeError),
        Refusal((STATE.astype(np.int64), ONES), "state of uint64; got int64", SHAPED, DTypeError),
    )  # fmt: skip


def refusals(*attrs_and_match):
    return tuple(
        Refusal((STATE,), match, {**SHAPED, **attrs}, ValueRefusedError)
        for attrs, match in attrs_and_match
    ) + (
        Refusal((STATE[:1],), r"state of shape \(2,\).*got \(1,\)", SHAPED, ShapeError),
        Refusal((STATE.astype(np.int64),), "state of uint64; got int64", SHAPED, DTypeError),
    )


INTS = Refusal(
    (STATE,), "draws floats; got dtype int64", {"shape": (3,), "dtype": np.int64}, DTypeError
)

ROWS = (
    OpInfo(ops.Uniform, draws(FLOATS, {"low": -2.0, "high": 3.0}), reference=uniform, refused=(
        INTS,
        *refusals(({"low": 2.0, "high": 1.0}, "low=2.0 and high=1.0"),
                  ({"low": np.nan}, "both are finite"), ({"high": np.inf}, "both are finite")),
    )),
    OpInfo(ops.Normal, draws(FLOATS, {"mean": 4.0, "std": 0.5}), reference=normal, refused=(
        INTS,
        *refusals(({"std": -1.0}, "std=-1.0; exp"), ({"mean": np.inf}, "mean=inf; expected a fin")),
    )),
    OpInfo(ops.Gumbel, draws(FLOATS, {"loc": 4.0, "scale": 0.5}), reference=gumbel, refused=(
        INTS,
        *refusals(({"scale": -1.0}, "scale=-1.0; exp"), ({"loc": np.inf}, "loc=inf; exp")),
    )),
    OpInfo(ops.TruncatedNormal,
           draws(FLOATS, {"mean": 4.0, "std": 0.5, "low": 3.5, "high": np.inf},
                 {"low": 3.0, "high": 8.0}),
           reference=truncated_normal, refused=(
               INTS,
               *refusals(({"std": 0.0}, "std=0.0; exp"), ({"mean": np.inf}, "mean=inf; exp"),
                         ({"low": 2.0}, "low=2.0 and high=2.0"), ({"low": np.nan}, "low=nan"),
                         ({"low": 40.0, "high": 50.0}, "within 37 std of the mean")),
           )),
    OpInfo(ops.Bernoulli, draws((np.bool_, np.int8, *FLOATS), {"p": 0.25}, {"p": 0.0}, {"p": 1.0}),
           reference=bernoulli, refused=refusals(({"p": 1.5}, "p=1.5; expected"),
                                                 ({"p": np.nan}, "expected a finite number"))),
    OpInfo(ops.Gamma,
           with_parameters(FLOATS, (0.01, 0.3, 0.9, 1.0, 2.5, 40.0, 1e6), {}, {"log": True}),
           reference=gamma, dtypes="d", nan="handled", refused=(
               Refusal((STATE, ONES), "draws floats; got dtype int64",
                       {"shape": (3,), "dtype": np.int64}, DTypeError),
               *of_parameters("alpha"),
           )),
    OpInfo(ops.Poisson,
           with_parameters((np.int64, np.uint8, np.int8, *FLOATS), (0.0, 0.3, 4.0, 9.9, 80.0)),
           reference=poisson, nan="handled", refused=(
               Refusal((STATE, ONES), "no meaning for bool", {"shape": (3,), "dtype": np.bool_},
                       DTypeError),
               *of_parameters("lam"),
           )),
)  # fmt: skip
