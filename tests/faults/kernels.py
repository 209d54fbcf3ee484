"""Primitives with wrong kernels: layouts, shapes, memory, precision, special values, providers."""

from __future__ import annotations

import itertools

import numpy as np

from .planted import (
    FLOATS,
    POWERS,
    PRODUCT,
    REFERENCE,
    SCALE,
    TOTAL,
    WAVE,
    Planted,
    Subject,
    product,
    same,
    sine,
    total,
    unary_samples,
)


def memory_order(x, *, out):
    sine(x.ravel("K").reshape(x.shape), out=out)


def unsigned_strides(x, *, out):
    for axis, stride in enumerate(x.strides):
        if stride < 0:
            x = np.flip(x, axis)
    sine(x, out=out)


def no_zero_stride(x, *, out):
    sine(x if 0 not in x.strides or x.size < 2 else x * 0, out=out)


def no_zero_beside_negative(x, y, *, out):
    """Wrong only where one input is broadcast and the other runs backwards."""
    wrong = 0 in x.strides and any(s < 0 for s in y.strides)
    np.multiply(x, y + y if wrong else y, out=out)


def by_rows(x, *, out):
    for i in range(len(x)):
        sine(x[i], out=out[i : i + 1].reshape(out[i].shape))


def zero_d_as_one(x, *, out):
    sine(x if x.ndim else np.ones_like(x), out=out)


def nothing_of_one(x, *, out):
    sine(x, out=out)
    if x.size == 1:
        out[...] = 0


def rank_three_backwards(x, *, out):
    sine(x if x.ndim < 3 else x[::-1], out=out)


def all_but_last(x, *, out):
    flat = np.empty(x.size, out.dtype)
    sine(x.ravel(), out=flat)
    out.reshape(-1)[:-1] = flat[:-1]


def last_doubled(x, *, out):
    sine(x, out=out)
    out.reshape(-1)[-1:] *= 2


def adds_to_output(x, y, *, out):
    np.add(out, x * y, out=out)


def writes_input(x, y, *, out):
    x *= y
    out[...] = x


def writes_a_little(x, *, out):
    sine(x, out=out)
    x *= x.dtype.type(1 + 2 * np.finfo(x.dtype).eps)


def returns_its_input(x, *, out):
    return x


def reads_late(x, y, *, out):
    out[...] = 1
    np.multiply(out, x, out=out)
    np.multiply(out, y, out=out)


def only_first_output(x, *, out):
    out[0][...] = x


def first_row_and_rest(x, *, axis, out):
    rows = np.moveaxis(x, axis, 0)
    out[...] = rows[0]
    for row in rows[1:]:
        out += row


def skips_empty(x, *, axis, out):
    if x.size:
        total(x, axis=axis, out=out)


def without_last(x, *, axis, out):
    total(np.moveaxis(x, axis, 0)[:-1], axis=0, out=out)


def root_of_square(x, *, out):
    np.sqrt(x * x, out=out)


def through_float16(x, y, *, out):
    out[...] = (x.astype(np.float16) * y.astype(np.float16)).astype(out.dtype)


def rougher(x, y, *, out):
    np.multiply(x, y, out=out)
    out *= np.asarray(1 + 1e-4, out.dtype)


def rougher_below_zero(x, y, *, out):
    np.multiply(x, y, out=out)
    out[x < 0] *= np.asarray(1 + 1e-4, out.dtype)


def through_int32(x, y, *, out):
    out[...] = x.astype(np.int32) * y.astype(np.int32)


def through_float64(x, y, *, out):
    out[...] = (x.astype(np.float64) * y.astype(np.float64)).astype(np.int64)


def nan_to_zero(x, *, out):
    sine(x, out=out)
    out[np.isnan(x)] = 0


def clipped(x, y, *, out):
    np.multiply(x, y, out=out)
    np.clip(out, -1e30, 1e30, out=out)


def signless_zero(x, y, *, out):
    np.multiply(x, y, out=out)
    out += out.dtype.type(0)


def flushes(x, y, *, out):
    np.multiply(x, y, out=out)
    out[np.abs(out) < np.finfo(out.dtype).tiny] = 0


def same_sizes(x, y, *, out):
    out[...] = np.resize(x, out.shape) * np.resize(y, out.shape)


def without_alpha(x, *, alpha, out):
    out[...] = x * np.asarray(2.5, x.dtype)


COUNT = itertools.count()
HIDDEN = np.random.default_rng(3)


def counts_calls(x, y, *, out):
    np.multiply(x, y, out=out)
    out *= out.dtype.type(1 + 1e-3 * next(COUNT))


def adds_noise(x, y, *, out):
    np.multiply(x, y, out=out)
    out *= (1 + 1e-2 * HIDDEN.random(out.shape)).astype(out.dtype)


def rounds_at_will(x, y, *, out):
    np.multiply(x, y, out=out)
    if out.size:
        up = HIDDEN.random(out.shape) < 0.5
        out[...] = np.where(up, np.nextafter(out, np.inf, dtype=out.dtype), out)


# |x|: for intermediate results that overflow. Its kernels of every dtype are right but for one.
MAGNITUDE = Subject(
    {"infer_shape": same, "infer_dtype": same, "differentiable": False},
    np.abs,
    None,
    np.abs,
    unary_samples,
)
# The largest along axis 0, where a NaN must win.
LARGEST = Subject(
    {**TOTAL.body, "differentiable": False},
    lambda x, *, axis, out: np.fmax.reduce(x, axis=axis, out=out, initial=-np.inf),
    None,
    lambda x, axis: np.max(x, axis=axis, initial=-np.inf),
    TOTAL.samples,
    attrs={"axis": 0},
)
# x * y for integers as well.
COUNTS = Subject(
    {**PRODUCT.body, "infer_dtype": lambda self, x, y: x, "differentiable": False},
    product, None, np.multiply, PRODUCT.samples, arity=2,
)  # fmt: skip

LAYOUTS = (
    Planted("IgnoresStrides", WAVE, "layouts", fn=memory_order),
    Planted("IgnoresTheSignOfStrides", WAVE, "layouts", fn=unsigned_strides),
    Planted("IgnoresStrideZero", WAVE, "layouts", fn=no_zero_stride),
    Planted("MixesUpLayouts", PRODUCT, "layouts", "input 0 broadcast.*input 1 reversed",
        fn=no_zero_beside_negative),
    Planted("LoopsOverRows", WAVE, "kernels", r"0-d|\(\)|shape \[\]|len\(\)", fn=by_rows),
    Planted("TakesZeroDForOne", WAVE, "kernels", fn=zero_d_as_one, row=REFERENCE),
    Planted("NothingOfOne", WAVE, "kernels", fn=nothing_of_one, row=REFERENCE),
    Planted("BackwardsInRankThree", WAVE, "kernels", fn=rank_three_backwards,
        row=REFERENCE),
    Planted("DoublesTheLast", WAVE, "kernels", fn=last_doubled, row=REFERENCE),
    Planted("NeedsEqualSizes", PRODUCT, "kernels", fn=same_sizes, row=REFERENCE),
    Planted("DiesOfNothing", TOTAL, "kernels", fn=first_row_and_rest),
    Planted("WritesNothingOfNothing", TOTAL, "memory", fn=skips_empty),
    Planted("ForgetsTheLastTerm", TOTAL, "kernels", fn=without_last, row=REFERENCE),
)  # fmt: skip

MEMORY = (
    Planted("LeavesTheLast", WAVE, "memory", fn=all_but_last),
    Planted("AddsToOutput", PRODUCT, "memory", fn=adds_to_output),
    Planted("WritesInput", PRODUCT, "memory|kernels run", fn=writes_input),
    Planted("WritesInputALittle", WAVE, "memory|kernels run", fn=writes_a_little, letters="efd"),
    Planted("ReturnsItsInput", WAVE, "memory", fn=returns_its_input),
    Planted("FillsOneOfTwo", POWERS, "memory", fn=only_first_output, outs="{0}{0}"),
    Planted("FalselyInPlace", PRODUCT, "memory", fn=reads_late,
        options={"inplace": (0,)}),
    Planted("UndeclaredView", WAVE, "memory|kernels", fn=lambda x: x, options={"of": 0},
        row=REFERENCE),
)  # fmt: skip

NUMBERS = (
    Planted("OverflowsInFloat16", MAGNITUDE, "kernels", others=((root_of_square, "e", {}),)),
    Planted("OverflowsInFloat32", MAGNITUDE, "kernels", "leave the range",
        others=((root_of_square, "f", {}),), severity="warning"),
    Planted("BFloat16ThroughFloat16", PRODUCT, "kernels",
        others=((through_float16, "E", {}),)),
    Planted("Float32ThroughFloat16", PRODUCT, "kernels", others=((through_float16, "f", {}),)),
    Planted("RougherInFloat32", PRODUCT, "kernels", others=((rougher, "f", {}),)),
    Planted("RougherInFloat64", PRODUCT, "kernels", fn=rougher, row=REFERENCE),
    Planted("Int64ThroughInt32", COUNTS, "kernels", others=((through_int32, "l", {}),),
        letters="ild", row=REFERENCE),
    Planted("Int64ThroughFloat64", COUNTS, "kernels", others=((through_float64, "l", {}),),
        letters="ild", row=REFERENCE),
    Planted("SwallowsNaN", WAVE, "special", fn=nan_to_zero, row=REFERENCE),
    Planted("SwallowsNaNInFloat32", WAVE, "special|kernels", others=((nan_to_zero, "f", {}),)),
    Planted("SwallowsNaNInAMaximum", LARGEST, "special", severity="warning"),
    Planted("ClipsInfinity", PRODUCT, "special|kernels", others=((clipped, "f", {}),)),
    Planted("LosesTheSignOfZero", PRODUCT, "special|kernels", others=((signless_zero, "f", {}),),
        severity="warning"),
    Planted("FlushesDenormals", PRODUCT, "special|kernels", "smallest normal",
        others=((flushes, "f", {}),), severity="warning"),
    Planted("ProvidersDisagree", PRODUCT, "kernels", "other",
        others=((rougher, "f", {"provider": "other"}),)),
    Planted("ProvidersDisagreeBelowZero", PRODUCT, "kernels", "other",
        others=((rougher_below_zero, "d", {"provider": "other"}),)),
    Planted("IgnoresItsAttribute", SCALE, "kernels|attributes", fn=without_alpha,
        row=REFERENCE),
)  # fmt: skip

DETERMINISM = (
    Planted("CountsItsCalls", PRODUCT, "repeat", fn=counts_calls, letters="fd"),
    Planted("AddsNoise", PRODUCT, "repeat", fn=adds_noise, letters=FLOATS),
    Planted("RoundsAtWill", PRODUCT, "repeat", fn=rounds_at_will, letters="fd"),
)  # fmt: skip

KERNELS = LAYOUTS + MEMORY + NUMBERS + DETERMINISM
