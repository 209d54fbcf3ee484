"""NumPy kernels of random draws, made from the words of Philox 4x32-10, a counter-based generator.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).

The recipe, which every device repeats (`uniform` and `bernoulli` bit for bit, the others up to the
rounding of log, sqrt, sin, cos and the inverse of cdf):

- `state` is (key, offset), two unsigned 64-bit numbers. Block `i` of a draw encrypts the 128-bit
  counter whose low 64 bits are `(offset + skip + i) mod 2**64` and whose high 64 bits are zero,
  under the 64-bit key. Numbers are split into 32-bit words, the lowest first.
- A block is four words. The words of all blocks, in order, are the stream `w[0], w[1], ...`;
  element `e` of the output, counted in row-major order, takes its words by its position.
- `uniform` works in T = float64 for float64, otherwise in T = float32::

      float32:  u = (w[e] >> 8) * 2**-24
      float64:  u = ((w[2*e+1] << 32 | w[2*e]) >> 11) * 2**-53
      draw = T(low) + T(high - low) * u

  `high - low` is taken in float64; the product and then the sum are rounded to T, so a device
  must not fuse them. The draw is rounded (to nearest, ties to even) to `dtype` and cut off at the
  largest number of `dtype` below `dtype(high)`.
- `bernoulli` gives 1 where `(w[e] >> 8) < ceil(p * 2**24)`, whatever the dtype of the output.
- `normal` is the transform of Box and Muller (1958) on pairs of elements, in the same T::

      float32:  a = T(w[2*j]) * 2**-32 + 2**-33            in (0, 1]
                b = T(w[2*j+1]) * 2**-32
      float64:  a = ((w[4*j+1] << 32 | w[4*j]) >> 11) * 2**-53 + 2**-53
                b = ((w[4*j+3] << 32 | w[4*j+2]) >> 11) * 2**-53
      z[2*j], z[2*j+1] = sqrt(-2 log a) * (cos(2 pi b), sin(2 pi b))
      draw = T(mean) + T(std) * z

- `gumbel` and `truncated_normal` work in float64 for every dtype, and take two words an element::

      u = ((w[2*e+1] << 32 | w[2*e]) >> 11 | 1) * 2**-53     in (0, 1), both ends alike
      gumbel:            draw = loc - scale * log(-log(u))
      truncated_normal:  p = cdf(a) + u * (cdf(b) - cdf(a))
                         draw = mean + std * inverse(p), kept within [low, high]

  a and b are the bounds less the mean, in units of std. Where both are above 0, where cdf has
  lost its digits, a, b and std change their signs.

- `gamma` and `poisson` work in float64, and repeat an attempt until it is accepted. Element e takes
  its words from blocks of its own: those whose counters have the low 64 bits `(offset + skip +
  e % n) mod 2**64`, n the size of `shape`, and the number of the attempt, from 0, as high ones.
  With w of such a block and f[i] = (w[i] + 1/2) * 2**-32::

      gamma:    z = sqrt(-2 log f[0]) * cos(2 pi f[1]);  d = a - 1/3;  t = z / (3 sqrt d)
                accepted: t > -1 and log f[2] < d (3 (log(1 + t) - t) + 3/2 t^2 - t^3)
                draw = d (1 + t)^3
                for alpha >= 1 with a = alpha, else a = alpha + 1 and draw * f[3]^(1 / alpha)
      poisson:  u, v = ((w[1] << 32 | w[0]) >> 11 | 1) * 2**-53, the same of w[3], w[2]
                lam < 10: the least k with u <= sum of exp(-lam) lam^i / i! over i <= k
                else an attempt of the transformed rejection PTRS, with u and v

  Sources: Marsaglia, Tsang, "A simple method for generating gamma variables" (2000), whose test
  is written so that it keeps its digits for a large alpha; Hormann, "The transformed rejection
  method for generating Poisson random variables" (1993).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.signature import ANY, FLOAT
from ..expressions import STIRLING, truncation
from ..kernel import Array, Kernel, KernelNode
from ..registry import register

Words = npt.NDArray[np.uint32]
State = npt.NDArray[np.uint64]
Shape = tuple[int, ...]
Made = Callable[[Words], Array]  # from words (n, 4) to the numbers (n, k) that are made of them
Finish = Callable[[Array, Array], None]  # numbers, not to be written to; the draws made of them


class StreamDraw(Kernel, ABC):
    """Independent draws, each made of one number, and the numbers of the stream's words in order.

    Inputs: state (2,) uint64. The output has any shape.
    """

    @abstractmethod
    def recipe(self, attrs: Any, dtype: np.dtype[Any]) -> tuple[Made, Finish]:
        """The numbers, and what fills flat draws of that dtype with what comes of them."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        (out,) = node.outputs
        size, skip = math.prod(out.shape), node.attrs["skip"]
        made, finish = self.recipe(node.attrs, out.dtype)
        most = CHUNK * PER_BLOCK[made]

        def at_once(state: State, *, out: Array) -> None:
            key, offset = state.tolist()
            finish(numbers(key, offset + skip, size, made), out.reshape(-1))

        def by_pieces(state: State, *, out: Array) -> None:
            key, offset = state.tolist()
            for block, start in enumerate(range(0, size, most)):
                piece = out.reshape(-1)[start : start + most]
                first = offset + skip + block * CHUNK
                finish(numbers(key, first, piece.size, made), piece)

        self.call = at_once if size <= most else by_pieces
        self.calm = finish is as_they_are


def as_they_are(given: Array, piece: Array) -> None:
    """The numbers are the draws."""
    piece[...] = given


class Uniform(StreamDraw):
    """Draws from [low, high), both rounded to the dtype; `low` alone if they are equal."""

    def recipe(self, attrs: Any, dtype: np.dtype[Any]) -> tuple[Made, Finish]:
        low, high = attrs["low"], attrs["high"]
        made, real = (unit64, np.float64) if dtype == np.float64 else (unit32, np.float32)
        if (low, high) == (0, 1) and dtype == real:
            return made, as_they_are
        start, span = real(low), real(float(high) - float(low))
        ceiling = np.nextafter(np.asarray(high, dtype), np.asarray(low, dtype))

        def finish(unit: Array, piece: Array) -> None:
            draw = np.multiply(unit, span)
            np.add(draw, start, out=draw)
            piece[...] = draw
            np.minimum(piece, ceiling, out=piece)

        return made, finish


class Normal(StreamDraw):
    """Draws from the normal distribution of `mean` and standard deviation `std`."""

    def recipe(self, attrs: Any, dtype: np.dtype[Any]) -> tuple[Made, Finish]:
        mean, std = attrs["mean"], attrs["std"]
        made, real = (normal64, np.float64) if dtype == np.float64 else (normal32, np.float32)
        if (mean, std) == (0, 1) and dtype == real:
            return made, as_they_are

        def finish(standard: Array, piece: Array) -> None:
            np.multiply(standard, std, out=piece)
            np.add(piece, mean, out=piece)

        def rounded(standard: Array, piece: Array) -> None:
            draw = np.multiply(standard, real(std))
            np.add(draw, real(mean), out=draw)
            piece[...] = draw

        return made, finish if dtype == real else rounded


class Bernoulli(StreamDraw):
    """Draws that are 1 with probability `p` (to 24 bits, rounded up), otherwise 0, at the same
    indices in each dtype."""

    def recipe(self, attrs: Any, dtype: np.dtype[Any]) -> tuple[Made, Finish]:
        threshold = math.ceil(float(attrs["p"]) * 2.0**24)

        def finish(upper: Array, piece: Array) -> None:
            piece[...] = upper < threshold

        return upper24, finish


class Gumbel(StreamDraw):
    """Draws of loc - scale * log(-log(u)), u uniform in (0, 1)."""

    def recipe(self, attrs: Any, dtype: np.dtype[Any]) -> tuple[Made, Finish]:
        loc, scale = attrs["loc"], attrs["scale"]

        def finish(unit: Array, piece: Array) -> None:
            piece[...] = loc - scale * np.log(-np.log(unit))

        return inner64, finish


class TruncatedNormal(StreamDraw):
    """Draws from the part of the normal distribution of `mean` and `std` in [low, high]."""

    def recipe(self, attrs: Any, dtype: np.dtype[Any]) -> tuple[Made, Finish]:
        from scipy import special

        mean, low, high = attrs["mean"], attrs["low"], attrs["high"]
        start, span, spread = truncation(mean, attrs["std"], low, high)
        ends = np.asarray(low, dtype), np.asarray(high, dtype)

        def finish(unit: Array, piece: Array) -> None:
            piece[...] = mean + spread * special.ndtri(start + unit * span)
            piece[...] = np.minimum(np.maximum(piece, ends[0]), ends[1])

        return inner64, finish


# --- Draws by rejection ---------------------------------------------------------------------------


Reals = npt.NDArray[np.float64]
Accepted = npt.NDArray[np.bool_]
Attempt = Callable[[Words, Reals], tuple[Reals, Accepted]]


def gamma(
    state: State,
    alpha: Reals,
    *,
    shape: Shape,
    dtype: np.dtype[Any],
    log: bool,
    skip: int,
    out: Array,
) -> None:
    """Independent draws from the gamma distributions of shape parameters `alpha` and scale 1, or
    their logarithms; NaN where alpha is not above 0, inf where it is inf.

    `state` (2,) uint64; `out` has the shape of alpha, which ends in `shape`, and a float `dtype`.
    """

    def attempt(words: Words, alpha: Reals) -> tuple[Reals, Accepted]:
        unit = (words + 0.5) * 2.0**-32
        logs = np.log(unit)
        d = np.where(alpha < 1.0, alpha + 1.0, alpha) - 1.0 / 3.0
        t = np.sqrt(-2.0 * logs[:, 0]) * np.cos(2.0 * math.pi * unit[:, 1]) / (3.0 * np.sqrt(d))
        part = np.log1p(t)
        accepted = (t > -1.0) & (logs[:, 2] < d * (3.0 * (part - t) + 1.5 * t * t - t * t * t))
        boost = np.where(alpha < 1.0, logs[:, 3] / alpha, 0.0)
        if log:
            return np.log(d) + 3.0 * part + boost, accepted
        return d * (1.0 + t) ** 3 * np.exp(boost), accepted

    for counters, given, piece in parts(state, skip, math.prod(shape), alpha, out):
        sound = (given > 0.0) & (given < np.inf)
        draw = np.where(given == np.inf, np.inf, np.nan)
        rejecting(attempt, int(state[0]), counters, given, sound, draw)
        piece[...] = draw


def poisson(
    state: State, lam: Reals, *, shape: Shape, dtype: np.dtype[Any], skip: int, out: Array
) -> None:
    """Independent draws from the Poisson distributions of means `lam`. Where lam is not a finite
    number from 0 on, NaN, -1 in integers, 0 in unsigned ones.

    `state` (2,) uint64; `out` has the shape of lam, which ends in `shape`; `dtype` is not bool.
    """
    top = np.iinfo(dtype).max if dtype.kind in "iu" else 0
    wrong = {"i": -1.0, "u": 0.0}.get(dtype.kind, np.nan)

    def attempt(words: Words, lam: Reals) -> tuple[Reals, Accepted]:
        return transformed(inner64(words), lam)

    key = int(state[0])
    for counters, given, piece in parts(state, skip, math.prod(shape), lam, out):
        small = np.flatnonzero((given >= 0.0) & (given < 10.0))
        if len(small) == len(given):  # the common case, in which all draws are below 100
            piece[...] = inverted(made_of(inner64, key, counters)[:, 0], given)
            continue
        draw = np.full(len(given), wrong)
        draw[small] = inverted(made_of(inner64, key, counters[small])[:, 0], given[small])
        rejecting(attempt, key, counters, given, (given >= 10.0) & (given < np.inf), draw)
        # A float beyond the integers has no cast that is the same everywhere.
        piece[...] = np.where(draw < top, draw, 0.0) if top else draw
        if top:
            piece[draw >= top] = top


def inverted(u: Reals, lam: Reals) -> Reals:
    """The least k at which the distribution function of the mean lam < 10 is u or more."""
    k, term = np.zeros_like(u), np.exp(-lam)
    total = term.copy()
    for i in range(1, 100):
        more = np.greater(u, total)
        if not np.count_nonzero(more):
            break
        np.multiply(term, lam / i, term)
        np.add(k, more, k)
        np.add(total, term, total)
    return k


def transformed(unit: Reals, lam: Reals) -> tuple[Reals, Accepted]:
    """An attempt of PTRS, of means lam >= 10, and where it is accepted."""
    u, v = unit[:, 0] - 0.5, unit[:, 1]
    b = 0.931 + 2.53 * np.sqrt(lam)
    a = -0.059 + 0.02483 * b
    edge = 0.5 - np.abs(u)
    k = np.floor((2.0 * a / edge + b) * u + lam + 0.43)
    quick = (edge >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2.0))
    outside = (k < 0.0) | ((edge < 0.013) & (v > edge))
    hat = np.log(v) + np.log(1.1239 + 1.1328 / (b - 3.4)) - np.log(a / (edge * edge) + b)
    return k, quick | (~outside & (hat <= log_mass(k, lam)))


def log_mass(k: Reals, lam: Reals) -> Reals:
    """k log lam - lam - log k!, by deviations from k = lam, so that large numbers keep digits."""
    least = np.maximum(k, 1.0)
    e = (least - lam) / lam
    square = 1.0 / (least * least)
    series = (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680))) / least
    rest = np.where(
        least < 10.0, np.array(STIRLING)[np.minimum(least, 9.0).astype(np.intp)], series
    )
    near = -lam * ((1.0 + e) * np.log1p(e) - e) - 0.5 * np.log(2.0 * math.pi * least) - rest
    return np.where(k < 1.0, -lam, near)


def parts(
    state: State, skip: int, period: int, given: Reals, out: Array
) -> Iterator[tuple[npt.NDArray[np.uint64], Reals, Array]]:
    """Low halves of counters, the parameters and the part of `out`, flat, a cached piece at a time;
    the counters repeat after `period` elements."""
    flat, parameters = out.reshape(-1), given.reshape(-1)
    first = np.uint64((int(state[1]) + skip) % 2**64)
    for start in range(0, flat.size, CHUNK):
        end = min(start + CHUNK, flat.size)
        counters = np.arange(start, end, dtype=np.uint64) % np.uint64(period) + first
        yield counters, parameters[start:end], flat[start:end]


def rejecting(
    attempt: Attempt,
    key: int,
    counters: npt.NDArray[np.uint64],
    given: Reals,
    sound: Accepted,
    draws: Reals,
) -> None:
    """Fill the draws, where the parameters are sound, by the first attempt that is accepted."""
    left, number = np.flatnonzero(sound), 0
    while left.size:
        draw, accepted = attempt(made_of(as_words, key, counters[left], number), given[left])
        draws[left[accepted]] = draw[accepted]
        left, number = left[~accepted], number + 1


register("Uniform", Uniform, *[f"L->{c}" for c in FLOAT])
register("Normal", Normal, *[f"L->{c}" for c in FLOAT])
register("Gumbel", Gumbel, *[f"L->{c}" for c in FLOAT])
register("TruncatedNormal", TruncatedNormal, *[f"L->{c}" for c in FLOAT])
register("Bernoulli", Bernoulli, *[f"L->{c}" for c in ANY])
register("Gamma", gamma, *[f"Ld->{c}" for c in FLOAT])
register("Poisson", poisson, *[f"Ld->{c}" for c in ANY if c != "?"])


# --- Philox 4x32-10 -------------------------------------------------------------------------------


MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], np.uint64)
WEYL = np.array([0x9E3779B9, 0xBB67AE85], np.uint64)
STEPS = np.arange(10, dtype=np.uint64)[:, None] * WEYL  # of the key, in ten rounds
LOW_WORD = np.uint64(0xFFFFFFFF)
WORD_BITS = np.uint64(32)
# Blocks encrypted at a time: enough to hide the cost of a NumPy call, few enough for the cache.
CHUNK = 16384


def as_words(words: Words) -> Words:
    """The words themselves."""
    return words


# What was made last, of each kind: key, first offset, numbers. Where small draws follow each
# other, as eager ones do, the numbers of many are made at once, the more the longer it goes on:
# a NumPy call costs more than 16 of them.
AHEAD = 4096
_Ahead = tuple[int, int, Array]
_made: dict[tuple[Made, int], _Ahead] = {}  # by the high bits of counters, too
_NOTHING: _Ahead = (0, 0, np.zeros(0, np.uint32))


def numbers(key: int, offset: int, size: int, made: Made = as_words, high: int = 0) -> Array:
    """The first `size` numbers made of the blocks from `offset` on (modulo 2**64) of the stream of
    `key`, their counters with these high bits: (size,), not to be written to."""
    # Read and replaced as a whole, so threads need no lock.
    of, first, held = _made.get((made, high), _NOTHING)
    start = (offset - first) % 2**64 * PER_BLOCK[made]
    if of == key and start + size <= len(held):
        return held[start : start + size]
    return _more(key, offset, size, made, high)[:size]


def _more(key: int, offset: int, size: int, made: Made, high: int) -> Array:
    of, first, held = _made.get((made, high), _NOTHING)
    count, before = -(-size // PER_BLOCK[made]), len(held) // PER_BLOCK[made]
    kept = 4 * count <= AHEAD
    # Others may have drawn in between.
    goes_on = kept and of == key and (offset - first) % 2**64 <= before + AHEAD
    ahead = max(count, min(8 * before, AHEAD)) if goes_on else count
    low = np.arange(ahead, dtype=np.uint64) + np.uint64(offset % 2**64)
    found = made(blocks_at(key, low, high)).reshape(-1)
    if kept and high < 4:
        _made[made, high] = key, offset, found
    return found


def made_of(made: Made, key: int, low: npt.NDArray[np.uint64], high: int = 0) -> Array:
    """The numbers of the blocks of these counters, a row each: some of those that are made ahead
    where the counters go up in few steps."""
    count = int(low[-1]) - int(low[0]) + 1 if len(low) else 0
    if not 0 < count <= AHEAD // 4 or np.count_nonzero(low[1:] > low[:-1]) < len(low) - 1:
        return made(blocks_at(key, low, high))
    rows = numbers(key, int(low[0]), PER_BLOCK[made] * count, made, high).reshape(count, -1)
    return rows if len(low) == count else rows[(low - low[0]).astype(np.intp)]


def blocks_at(key: int, low: npt.NDArray[np.uint64], high: int) -> Words:
    """The blocks of counters with these low 64 bits and high ones: (n, 4)."""
    even, odd = np.empty((2, len(low)), np.uint64), np.empty((2, len(low)), np.uint64)
    np.bitwise_and(low, LOW_WORD, out=even[0])
    np.right_shift(low, WORD_BITS, out=odd[0])
    even[1], odd[1] = high & 0xFFFFFFFF, high >> 32
    return rounds(even, odd, np.array([key & 0xFFFFFFFF, key >> 32], np.uint64))


Wide = npt.NDArray[np.uint64]  # words of 32 bits


def rounds(even: Wide, odd: Wide, key: Wide) -> Words:
    """Words (n, 4) of counters under one key (2,), after ten rounds. even, odd: (2, n), words 0 and
    2 of the counters, and 1 and 3; they are overwritten."""
    product = np.empty_like(even)
    swapped = product[::-1]  # of word 0 it feeds words 2 and 3, of word 2 words 0 and 1
    for step in ((key + STEPS) & LOW_WORD)[:, :, None]:
        np.multiply(even, MULTIPLIERS, out=swapped)
        np.right_shift(product, WORD_BITS, out=even)
        np.bitwise_xor(even, odd, out=even)
        np.bitwise_xor(even, step, out=even)
        np.bitwise_and(product, LOW_WORD, out=odd)
    words = np.empty((len(product[0]), 4), np.uint32)
    words[:, 0], words[:, 1], words[:, 2], words[:, 3] = even[0], odd[0], even[1], odd[1]
    return words


def unit64(words: Words) -> npt.NDArray[np.float64]:
    """Convert words (n, 4) to float64 (n, 2): 53 bits of each little-endian pair, in [0, 1)."""
    wide = words.astype(np.uint64)
    wide = ((wide[:, 1::2] << WORD_BITS) | wide[:, 0::2]) >> np.uint64(11)
    return wide * np.float64(2.0**-53)


def inner64(words: Words) -> npt.NDArray[np.float64]:
    """Convert words (n, 4) to float64 (n, 2): odd multiples of 2^-53, in (0, 1)."""
    wide = words.astype(np.uint64)
    wide = ((wide[:, 1::2] << WORD_BITS) | wide[:, 0::2]) >> np.uint64(11)
    return (wide | np.uint64(1)) * np.float64(2.0**-53)


def upper24(words: Words) -> Words:
    """The upper 24 bits of each word."""
    return words >> np.uint32(8)


def unit32(words: Words) -> npt.NDArray[np.float32]:
    """Convert words (n, 4) to float32 (n, 4): the upper 24 bits of each, in [0, 1)."""
    return upper24(words).astype(np.float32) * np.float32(2.0**-24)


def normal64(words: Words) -> npt.NDArray[np.float64]:
    """Standard normal numbers, float64 (n, 2), of words (n, 4)."""
    return box_muller(unit64(words), np.float64(2.0**-53))


def normal32(words: Words) -> npt.NDArray[np.float32]:
    """Standard normal numbers, float32 (n, 4), of words (n, 4)."""
    return box_muller(words.astype(np.float32) * np.float32(2.0**-32), np.float32(2.0**-33))


def box_muller(unit: Array, least: Any) -> Array:
    """Standard normal numbers of pairs in [0, 1), the first of which `least` keeps from 0."""
    real = unit.dtype.type
    radius = unit[:, 0::2] + least
    np.log(radius, out=radius)
    radius *= real(-2.0)
    np.sqrt(radius, out=radius)
    angle = unit[:, 1::2] * real(2.0 * math.pi)
    pair = np.empty((*angle.shape, 2), real)
    np.multiply(np.cos(angle), radius, out=pair[..., 0])
    np.multiply(np.sin(angle, out=angle), radius, out=pair[..., 1])
    return pair.reshape(unit.shape)


PER_BLOCK: dict[Made, int] = {
    as_words: 4, unit32: 4, unit64: 2, inner64: 2, normal32: 4, normal64: 2, upper24: 4,
}  # fmt: skip
