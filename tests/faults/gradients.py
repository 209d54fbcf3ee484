"""Wrong pull-backs: each is a correct pair with one fault, and what the report must say of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from . import shaped
from .rows import Array, Arrays, WrongPair, apart, exactly, in_dtype, normal, signed
from .smooth import relu


def wrong(
    name: str,
    f: Callable[..., Array],
    vjp: Callable[..., Any],
    draw: Any,
    diagnosis: str,
    argnum: int | None = None,
    index: tuple[int, ...] | None = None,
    fault: str = "values",
) -> WrongPair:
    return WrongPair(name, f, vjp, draw, False, "", diagnosis, argnum, index, fault)


def sine(factor: Callable[[Array], Any] | float) -> dict[str, Any]:
    """sin, with its gradient cos times a factor, or cos changed by a function."""

    def vjp(x: Array, dout: Array) -> Arrays:
        slope = factor(np.cos(x)) if callable(factor) else factor * np.cos(x)
        return (dout * slope,)

    return {"f": np.sin, "vjp": vjp}


def one_element(at: tuple[int, ...], factor: float) -> Callable[[Array], Array]:
    def change(slope: Array) -> Array:
        slope = slope.copy()
        slope[at] *= factor
        return slope

    return change


def strided_only(x: Array, dout: Array) -> Arrays:
    """Right for dense cotangents; reads a strided one in the order of memory."""
    read = dout if dout.flags.c_contiguous else dout.ravel("K").reshape(dout.shape)
    return (read * np.cos(x),)


def broadcast_only(x: Array, dout: Array) -> Arrays:
    """Reads of a broadcast cotangent only the memory that it has."""
    if 0 in dout.strides and dout.size > 1:
        dout, shared = np.zeros(dout.shape), dout
        dout.flat[0] = shared.flat[0]
    return (dout * np.cos(x),)


def writes_cotangent(x: Array, dout: Array) -> Arrays:
    d = dout * np.cos(x)
    dout[...] = 0
    return (d,)


def writes_input(x: Array, dout: Array) -> Arrays:
    d = dout * np.cos(x)
    x *= 1 + 1e-9
    return (d,)


def sorted_first(x: Array, dout: Array) -> Arrays:
    return (np.broadcast_to(dout[..., None], x.shape) * (np.arange(x.shape[-1]) == 0),)


def no_accumulation(x: Array, rows: Array, dout: Array) -> tuple[Any, ...]:
    d = np.zeros_like(x)
    d[rows] = dout
    return d, None


def by_quotient(x: Array, dout: Array) -> Arrays:
    with np.errstate(all="ignore"):
        return (x.prod(-1)[..., None] / x * dout[..., None],)


def no_mean(x: Array, dout: Array) -> Arrays:
    return (dout / np.sqrt(x.var(-1, keepdims=True) + 1e-5),)


def unshifted(x: Array, dout: Array) -> Arrays:
    with np.errstate(all="ignore"):
        return (np.exp(x) / np.exp(x).sum(-1, keepdims=True) * dout[..., None],)


def cross_entropy_unscaled(x: Array, labels: Array, dout: Array) -> tuple[Any, ...]:
    return shaped.cross_entropy_vjp(x, labels, dout)[0] * len(x), None


V, M = (6,), (4, 4)
HIDDEN = np.random.default_rng(1)
XY = (np.multiply, normal((3, 4), (3, 4)))

FACTORS = (
    wrong("twice the gradient", **sine(2.0), draw=normal(V), diagnosis=r"factor.*2", argnum=0),
    wrong("the sign", **sine(-1.0), draw=normal(V), diagnosis=r"factor.*-1|sign", argnum=0),
    wrong("a half of a square", np.square, lambda x, d: (d * x,), normal(V), r"factor.*(0\.5|1/2)",
        0),
    wrong("a factor 1 + 1e-4", **sine(1.0001), draw=normal(V), diagnosis=r"factor.*1\.0001",
        argnum=0),
    wrong("a mean without its 1 / n", np.mean, lambda x, d: (np.full_like(x, d),), normal((3, 5)),
        r"factor.*(15|n\b)", 0),
    wrong("a cross entropy without its 1 / n", shaped.cross_entropy, cross_entropy_unscaled,
        lambda rng: (rng.normal(size=(3, 4)), shaped.LABELS), r"factor.*(3|n\b)", 0),
    wrong("1.5 of a gradient of 1e-7", lambda x: 1e-7 * x, lambda x, d: (1.5e-7 * d,), normal(V),
        r"factor.*1\.5", 0),
    wrong("twice a gradient of 1e25", lambda x: 1e25 * np.sin(x),
        lambda x, d: (2e25 * np.cos(x) * d,), normal(V), r"factor.*2", 0),
    wrong("1 % in 1,000 elements of float32", **sine(1.01),
        draw=in_dtype(np.float32, normal((1000,))), diagnosis=r"factor.*1\.0(1|0999)", argnum=0),
    wrong("10 % in float16", np.tanh, lambda x, d: (1.1 * (d * (1 - np.tanh(x) ** 2)),),
        in_dtype(np.float16, normal((30,))), r"factor.*1\.(1|099)", 0),
    wrong("a mask without its scale", lambda x: x * shaped.dropout_mask(x.shape),
        lambda x, d: (d * (shaped.dropout_mask(x.shape) > 0),), normal((3, 7)), r"factor.*0\.6", 0),
)  # fmt: skip

PLACES = (
    wrong("one element of 40 by 1 %", **sine(one_element((7,), 1.01)), draw=normal((40,)),
        diagnosis="", argnum=0, index=(7,)),
    wrong("one element of 4,000 by 1 %", **sine(one_element((1234,), 1.01)), draw=normal((4000,)),
        diagnosis="", argnum=0, index=(1234,)),
    wrong("one element of 100,000 by 1 %", **sine(one_element((99_999,), 1.01)),
        draw=normal((100_000,)), diagnosis="", argnum=0, index=(99_999,)),
    wrong("one element of 12 x 12", **sine(one_element((3, 8), 1.01)), draw=normal((12, 12)),
        diagnosis="", argnum=0, index=(3, 8)),
    wrong("one element of float32", **sine(one_element((5,), 1.01)),
        draw=in_dtype(np.float32, normal((100,))), diagnosis="", argnum=0, index=(5,)),
    wrong("one element a millionth off", **sine(one_element((2,), 1 + 1e-6)), draw=normal((30,)),
        diagnosis="", argnum=0, index=(2,)),
    wrong("the last element forgotten", **sine(one_element((-1,), 0.0)), draw=normal((30,)),
        diagnosis="", argnum=0, index=(29,)),
    wrong("one NaN", **sine(one_element((4,), np.nan)), draw=normal((30,)),
        diagnosis="(?i)nan|finite", argnum=0, index=(4,)),
    wrong("one infinity", **sine(one_element((4,), np.inf)), draw=normal((30,)),
        diagnosis="(?i)inf|finite", argnum=0, index=(4,)),
    wrong("one element of the second input", XY[0],
        lambda x, y, d: (d * y, one_element((2, 1), 1.01)(d * x)), XY[1], "", 1, (2, 1)),
    wrong("a slope of 2 at a kink", relu, lambda x, d: (d * np.where(x == 0, 2.0, x > 0),),
        exactly([-1.0, 0.0, 2.0]), "", 0, (1,)),
    wrong("a slope of -1e-3 at a kink", relu, lambda x, d: (d * np.where(x == 0, -1e-3, x > 0),),
        exactly([-1.0, 0.0, 2.0]), "", 0, (1,)),
    wrong("relu open below 0", relu, lambda x, d: (d * (x > -0.2),),
        exactly([-1.0, -0.1, 0.3, 2.0]), "", 0, (1,)),
    wrong("abs without its sign", np.abs, lambda x, d: (d * 1.0,), exactly([1.0, -0.5, 0.4, 2.0]),
        "", 0, (1,)),
    wrong("NaN where a product is 0", lambda x: x.prod(-1), by_quotient, exactly([[2.0, 0.0, 3.0]]),
        "(?i)nan|finite", 0, (0, 1)),
    wrong("an overflow in the gradient only", shaped.logsumexp, unshifted,
        normal((2, 3), shift=1000.0), "(?i)nan|finite", 0),
)  # fmt: skip

KINDS = (
    wrong("transposed", lambda a, b: a @ b, lambda a, b, d: ((d @ b.T).T, a.T @ d), normal(M, M),
        "transpos", 0),
    wrong("no sum over a broadcast axis", np.add, lambda x, y, d: (d, d[0]), normal((5, 3), (3,)),
        "(?i)broadcast|sum", 1),
    wrong("a mean over a broadcast axis", np.add, lambda x, y, d: (d, d.mean(0)),
        normal((5, 3), (3,)), "(?i)factor|broadcast|sum", 1),
    wrong("a gradient that ignores dout", np.sin, lambda x, d: (np.cos(x),), normal(V), "dout", 0),
    wrong("a gradient that sums dout", np.sin, lambda x, d: (np.cos(x) * d.sum(),), normal(V), "",
        0),
    wrong("shifted by one", np.sin, lambda x, d: (np.roll(d * np.cos(x), 1),), normal((12,)),
        "shift", 0),
    wrong("shifted along axis 1", np.sin, lambda x, d: (np.roll(d * np.cos(x), 1, 1),),
        normal((3, 5)), "shift.*axis 1|axis 1.*shift", 0),
    wrong("along the wrong axis", lambda x: x.sum(0),
        lambda x, d: (np.broadcast_to(d[:, None], x.shape),), normal(M), "(?i)transpos|axis", 0),
    wrong("swapped inputs", np.multiply, lambda x, y, d: (d * x, d * y), XY[1], "swap", None),
    wrong("the gradient of another input", lambda x, y: x * np.sin(y),
        lambda x, y, d: (d * x * np.cos(y),) * 2, XY[1],
        "(?i)(another|wrong|other) input|input 1|argument 1", 0),
    wrong("rounded to float32", **sine(lambda s: s.astype(np.float32).astype(np.float64)),
        draw=normal((30,)), diagnosis="float32|single", argnum=0),
    wrong("rounded to float16", **sine(lambda s: s.astype(np.float16).astype(np.float64)),
        draw=normal((30,)), diagnosis="float16|half", argnum=0),
    wrong("not linear: dout squared", np.sin, lambda x, d: (d * d * np.cos(x),), normal(V),
        "linear", 0),
    wrong("not linear: the sign of dout", np.sin, lambda x, d: (np.sign(d) * np.cos(x),), normal(V),
        "linear", 0),
    wrong("not linear: clipped", np.sin, lambda x, d: (np.clip(d, -1, 1) * np.cos(x),), normal(V),
        "linear", 0),
    wrong("a constant added", **sine(lambda s: s + 1e-3), draw=normal(V), diagnosis="", argnum=0),
    wrong("a term forgotten", lambda x: x * np.sin(x), lambda x, d: (d * np.sin(x),), normal(V), "",
        0),
    wrong("a power without its exponent", lambda x, y: x**y,
        lambda x, y, d: (d * x ** (y - 1), d * x**y * np.log(x)),
        lambda rng: (rng.uniform(0.5, 2, 5), rng.uniform(1.5, 3, 5)), "", 0),
    wrong("softmax without its sum", shaped.softmax, lambda x, d: (shaped.softmax(x) * d,),
        normal((3, 4)), "", 0),
    wrong("layer norm with fixed statistics", shaped.layer_norm, no_mean, normal((3, 6)), "", 0),
    wrong("sort without its order", lambda x: np.sort(x, -1), lambda x, d: (d,), apart((7,)), "",
        0),
    wrong("max to the first place", lambda x: x.max(-1), sorted_first,
        exactly([[0.5, 1.5, 2.5, -1.0]]), "", 0),
    wrong("a kernel not flipped", shaped.convolve,
        lambda x, w, d: (np.convolve(d, w[::-1]), np.correlate(x, d, "valid")), normal((9,), (3,)),
        "", 0),
    wrong("repeats not accumulated", lambda x, i: x[i], no_accumulation,
        lambda rng: (rng.normal(size=(4, 3)), shaped.ROWS), "", 0),
    wrong("gelu by its tanh formula's gradient", lambda x: x * special.ndtr(x),
        lambda x, d: (d * (special.ndtr(x) + x * np.exp(-x * x / 2) / 2.5),), signed(0.2, 2, (6,)),
        "", 0),
    wrong("zero where it matters", np.sin, lambda x, d: (np.zeros_like(x),), normal(V),
        "(?i)zero|factor.*0", 0),
)  # fmt: skip

CONTRACTS = (
    wrong("strided cotangents read in memory order", np.sin, strided_only, normal((4, 5)),
        "(?i)strid|contiguous|order", 0, fault="layout"),
    wrong("broadcast cotangents scaled", np.sin, broadcast_only, normal((4, 5)),
        "(?i)broadcast|stride", 0, fault="layout"),
    wrong("one gradient for two inputs", np.multiply, lambda x, y, d: (d * y,), XY[1],
        r"(?i)\b1\b.*\b2\b|one.*two|\b2\b.*\b1\b", fault="contract"),
    wrong("a gradient of another shape", np.add, lambda x, y, d: (d, d), normal((5, 3), (3,)),
        r"(?i)shape", fault="contract"),
    wrong("a gradient of float32 for float64", np.sin,
        lambda x, d: ((d * np.cos(x)).astype(np.float32),), normal(V), "float32", fault="contract"),
    wrong("a gradient of integers", lambda x: 2 * x, lambda x, d: (np.full(x.shape, 2),), normal(V),
        "(?i)int64|integer|dtype", fault="contract"),
    wrong("None for an input that matters", np.multiply, lambda x, y, d: (d * y, None), XY[1],
        "(?i)none|zero", fault="contract"),
    wrong("writes into dout", np.sin, writes_cotangent, normal(V),
        "(?i)dout|cotangent|wr(ote|ites)|chang|read-only", fault="memory"),
    wrong("writes into its input", np.sin, writes_input, normal(V),
        "(?i)wr(ote|ites)|chang|read-only", fault="memory"),
    wrong("draws in the pull-back", np.sin,
        lambda x, d: (d * np.cos(x) * (1 + 1e-3 * HIDDEN.random(x.shape)),), normal(V), "repeat",
        fault="determinism"),
)  # fmt: skip

WRONG = FACTORS + PLACES + KINDS + CONTRACTS
