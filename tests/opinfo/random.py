"""Rows of random draws, against Philox 4x32-10 in Python integers."""

import numpy as np
from scipy import stats

from miniml import ops
from miniml.core.dtype import bfloat16
from miniml.core.errors import DTypeError, ShapeError, ValueRefusedError
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


SHAPED = {"shape": (3,), "dtype": np.float32}
STATE = np.zeros(2, np.uint64)


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
)  # fmt: skip
