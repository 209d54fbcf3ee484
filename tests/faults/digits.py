"""Primitives whose numbers are wrong: overflow, lost digits, isolated values, narrow integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from miniml import bool_, float64, int64, ops
from miniml.ops.checks import broadcast
from miniml.testing import Sample

from .bends import FD, curve, reduction
from .planted import PRODUCT, REFERENCE, TOTAL, Planted, Subject, floats, same, unary_samples


def quiet(f: Any) -> Subject:
    """out = f(x) element by element, without a gradient."""

    def body(x: Any, *, out: Any) -> None:
        out[...] = f(x)

    fields = {"infer_shape": same, "infer_dtype": floats, "differentiable": False}
    return Subject(fields, body, None, f, unary_samples)


def rows(f: Any) -> Subject:
    """out = f(x, axis), without a gradient."""

    def body(x: Any, *, axis: int, out: Any) -> None:
        out[...] = f(x, axis)

    return Subject({**TOTAL.body, "differentiable": False}, body, None, f, TOTAL.samples,
        attrs={"axis": 0})  # fmt: skip


def counted(f: Any, wide: Any, out: Any, arity: int = 1) -> tuple[Subject, Any]:
    """The subject of out = wide(*integers) and the kernel f of narrow ones; out: the result's
    dtype, None for that of the inputs."""

    def kernel_of(function: Any) -> Any:
        def body(*xs: Any, out: Any) -> None:
            out[...] = function(*xs)

        return body

    def shape(self: Any, *shapes: Any) -> Any:
        return broadcast(self.name, *shapes) if arity > 1 else shapes[0]

    fields = {
        "infer_shape": RULES[arity], "infer_dtype": OF[arity](out), "differentiable": False,
        "promote": True,
    }  # fmt: skip
    return Subject(fields, kernel_of(wide), None, wide, unary_samples, arity), kernel_of(f)


def pair(self: Any, x: Any, y: Any) -> Any:
    return broadcast(self.name, x, y)


RULES = {1: same, 2: pair}
OF = {
    1: lambda out: lambda self, x: x if out is None else out,
    2: lambda out: lambda self, x, y: x if out is None else out,
}


def narrow(name: str, f: Any, wide: Any, letters: str, out: Any = None, arity: int = 1) -> Planted:
    """A primitive whose kernels of narrow integers are f, that of int64 is right."""
    subject, fn = counted(f, wide, out, arity)
    outs = "" if out is None else out.char
    return Planted(name, subject, "integers", "kernel in int64", others=((fn, letters, {}),),
        letters=letters + "l", outs=outs)  # fmt: skip


def count_in(dtype: Any) -> Any:
    def body(x: Any, *, axis: int, out: Any) -> None:
        out[...] = np.add.reduce(x, axis=axis, dtype=dtype)

    return body


COUNT = Subject(
    {**TOTAL.body, "infer_dtype": lambda self, x: int64, "differentiable": False},
    count_in(np.int64), None, np.sum, TOTAL.samples, attrs={"axis": 0},
)  # fmt: skip
MEAN = Subject(
    {**TOTAL.body, "infer_dtype": lambda self, x: float64, "differentiable": False},
    lambda x, *, axis, out: np.mean(x, axis=axis, out=out, dtype=float64)
    if x.size else out.fill(0),
    None, np.mean, TOTAL.samples, attrs={"axis": 0},
)  # fmt: skip


def sum_in_float32(x: Any, *, axis: int, out: Any) -> None:
    out[...] = np.add.reduce(x, axis=axis, dtype=np.float32)


def product_in_float32(x: Any, y: Any, *, out: Any) -> None:
    out[...] = x.astype(np.float32) * y.astype(np.float32)


def variance(x: Any, axis: int, narrow: bool, squares: bool) -> Any:
    """Of float16 in float16 (narrow) or float32; of all as E[x^2] - E[x]^2 (squares)."""
    wide = x if narrow or x.dtype.itemsize > 2 else x.astype(np.float32)
    n = wide.dtype.type(max(x.shape[axis], 1))
    mean = np.add.reduce(wide / n, axis=axis, keepdims=True, dtype=wide.dtype)
    if squares:
        squared = np.add.reduce(wide * wide / n, axis=axis, dtype=wide.dtype)
        return squared - np.squeeze(mean * mean, axis)
    return np.add.reduce((wide - mean) ** 2, axis=axis, dtype=wide.dtype) / n


def exact_variance(x: Any, axis: int) -> Any:
    return variance(x, axis, narrow=False, squares=False)


def by_squares(x: Any, *, axis: int, out: Any) -> None:
    out[...] = variance(x, axis, narrow=False, squares=True)


def in_float16(x: Any, *, axis: int, out: Any) -> None:
    out[...] = variance(x, axis, narrow=True, squares=False)


def norm(x: Any, axis: int) -> Any:
    wide = x.astype(np.float64)
    return np.sqrt(np.add.reduce(wide * wide, axis=axis))


def norm_in_float16(x: Any, *, axis: int, out: Any) -> None:
    out[...] = np.sqrt(np.add.reduce(x * x, axis=axis, dtype=x.dtype))


def one_by_one(x: Any, *, axis: int, out: Any) -> None:
    sums = np.add.accumulate(x, axis=axis)
    out[...] = np.take(sums, -1, axis) if x.shape[axis] else 0


def sinc(x: Any) -> Any:
    return np.where(x == 0, 0, np.sin(x) / x)


def sinc_slope(x: Any, out: Any, dout: Any) -> Any:
    return dout * (ops.cos(x) - out) / x


def squared_but(value: float, instead: float) -> Subject:
    """x^2, and something else at one value."""
    return curve(
        lambda x: np.where(x == value, instead, x * x), lambda x, out, dout: 2.0 * dout * x
    )


OVERFLOW = tuple(
    Planted(name, quiet(f), "overflow", "half the size", severity="warning", letters=FD)
    for name, f in {
        "LogCoshOverflows": lambda x: np.log(np.cosh(x)),
        "TanhNaNFarBelowZero": lambda x: (1 - np.exp(-2 * x)) / (1 + np.exp(-2 * x)),
        "SoftplusOverflows": lambda x: np.log1p(np.exp(x)),
        "SigmoidNaNFarAbove": lambda x: np.exp(x) / (1 + np.exp(x)),
        "QuotientOfSquares": lambda x: x * x / (1 + x * x),
    }.items()
) + tuple(
    Planted(name, rows(f), "overflow", "half the size", severity="warning", letters=FD)
    for name, f in {
        "LogSumExpOverflows": lambda x, axis: np.log(np.sum(np.exp(x), axis=axis)),
        "SoftmaxWithoutMaximum":
            lambda x, axis: np.max(np.exp(x), axis=axis, initial=0) / np.sum(np.exp(x), axis=axis),
    }.items()
)  # fmt: skip

ISOLATED = (
    Planted("SincIsZeroAtZero", curve(sinc, sinc_slope), "isolated values", "lead to 1",
        letters=FD),
    Planted("WrongAtExactlyOne", squared_but(1.0, 0.0), "isolated values", "lead to 1", letters=FD),
    Planted("OneAtZero", squared_but(0.0, 1.0), "isolated values", "is 1 at", letters=FD),
    Planted("WrongAtMinusOne", squared_but(-1.0, 3.0), "isolated values", "is 3 at", letters=FD),
    Planted("WrongAtTwo", squared_but(2.0, 0.0), "isolated values", "lead to 4", letters=FD),
    Planted("ZeroCountsAsOne", reduction(
        lambda x, axis: np.sum(np.where(x == 0, 1, x), axis=axis),
        lambda self, x, out, dout: ops.broadcast_to(dout, x.shape)), "isolated values",
        letters=FD),
    Planted("NaNAtZero", quiet(lambda x: np.sin(x) / x), "isolated values", "is nan at",
        severity="warning", letters=FD),
    Planted("LogRatioNaNAtOne", quiet(lambda x: np.log(np.abs(x)) / (x - 1)), "isolated values",
        "is nan at", severity="warning", letters=FD),
)  # fmt: skip

PRECISION = (
    Planted("SumsFloat64InFloat32", TOTAL, "precision", "noise", fn=sum_in_float32, letters=FD),
    Planted("MultipliesFloat64InFloat32", PRODUCT, "precision", "noise", fn=product_in_float32,
        letters=FD),
    Planted("CancelsInFloat64", curve(
        lambda x: (np.sin(x) + 1e9) - 1e9, lambda x, out, dout: dout * ops.cos(x)),
        "precision", "terms cancel", letters="d"),
    Planted("SinesOfManyInFloat32", curve(
        lambda x: np.sin(x.astype(np.float32) if x.size > 512 else x),
        lambda x, out, dout: dout * ops.cos(x)), "precision of long inputs",
        r"\[513\].* noise", letters="d"),
    Planted("RootsInFloat32", quiet(lambda x: np.sqrt(np.abs(x).astype(np.float32))), "precision",
        "noise", letters="d"),
)  # fmt: skip

INTEGERS = (
    Planted("CountsInInt8", COUNT, "integers", "kernel in int64",
        others=((count_in(np.int8), "?", {}),), letters="?l", outs="l"),
    Planted("AddsBytesInBytes", COUNT, "integers", "kernel in int64",
        others=((count_in(np.uint8), "B", {}),), letters="Bl", outs="l"),
    Planted("AddsInt16InInt16", COUNT, "integers", "kernel in int64",
        others=((count_in(np.int16), "h", {}),), letters="hl", outs="l"),
    Planted("MeanOfBytesInFloat16", MEAN, "integers", "kernel in int64",
        others=((lambda x, *, axis, out: np.mean(x, axis=axis, out=out, dtype=np.float16)
            if x.size else out.fill(0), "B", {}),), letters="Bl", outs="d"),
    narrow("UnsignedDifferenceWraps", lambda x, y: np.abs(x - y), lambda x, y: np.abs(x - y),
        "B", arity=2),
    narrow("AverageOfIntegersWraps", lambda x, y: (x + y) // x.dtype.type(2),
        lambda x, y: (x + y) // 2, "bhi", arity=2),
    narrow("MidpointOfUnsignedWraps", lambda x, y: (x + y) // x.dtype.type(2),
        lambda x, y: (x + y) // 2, "BH", arity=2),
    narrow("SquaresInInt8", lambda x: x * x, lambda x: x * x, "b", int64),
    narrow("NegatesUnsigned", np.negative, np.negative, "B", int64),
    narrow("ComparesByDifference", lambda x, y: x - y > 0, lambda x, y: x > y, "Bb", bool_, 2),
    narrow("ScalesBeforeItDivides", lambda x: x * x.dtype.type(4) // x.dtype.type(8),
        lambda x: x * 4 // 8, "b"),
)  # fmt: skip

SPREADS = (
    Planted("VarianceOverflowsInFloat16", rows(exact_variance), "kernels", "float16",
        others=((in_float16, "e", {}),), letters="efd"),
    Planted("VarianceByMeanOfSquares", rows(exact_variance), "kernels", "float32",
        others=((by_squares, "f", {}),), letters="fd"),
    Planted("NormOverflowsInFloat16", rows(norm), "kernels", "float16",
        others=((norm_in_float16, "e", {}),), letters="efd"),
    Planted("SumsFloat16InFloat16", TOTAL, "kernels", "float16",
        others=((one_by_one, "e", {}),), letters="efd"),
)  # fmt: skip


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def below(rng: Any, dtype: Any) -> Any:
    """Where a sigmoid is nearly 0."""
    yield Sample((rng.uniform(-30.0, -20.0, 4).astype(dtype),))


REFERRED = (
    Planted("SigmoidNaNAtInfinity", quiet(sigmoid), "special", "is nan at .* reference is 1",
        fn=quiet(lambda x: np.exp(x) / (1 + np.exp(x))).fn, row=REFERENCE, severity="warning",
        letters=FD),
    Planted("SigmoidByTanh", quiet(sigmoid), "kernels", "the reference",
        fn=quiet(lambda x: (np.tanh(x / 2) + 1) / 2).fn, row={"samples": below},
        severity="warning", letters="d"),
)  # fmt: skip

DIGITS = REFERRED + OVERFLOW + ISOLATED + PRECISION + INTEGERS + SPREADS
