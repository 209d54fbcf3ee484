"""Layers, losses and forms with a fault in their gradient; pull-backs that misread a layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from miniml import Primitive, kernel, ops
from miniml.grad import bprop_getters

from .natural import (
    attention,
    bilinear,
    form,
    inside,
    layer,
    matrices,
    natural,
    numbers,
    reduced,
    reduced_pair,
    rows,
    same,
    square,
    two_sets,
)
from .rights_shaped import (
    attend,
    attend_gradient,
    bilinear_gradient,
    cosine,
    dense_gradient,
    deviation_gradient,
    distances,
    distances_gradient,
    inverse_gradient,
    normed,
    root_mean,
    same_rows,
    soft,
    through,
    wide,
)
from .rights_shaped import mirrored as mirror
from .rows import normal

MIX, SQUARES = normal((3, 4)), normal((3, 3), (3, 3))


class RowsSummed(Primitive):
    """The sum of dout over its rows, for planted gradients; takes broadcast rows for one row."""

    def infer_shape(self, d: Any) -> Any:
        return d[1:]

    def infer_dtype(self, d: Any) -> Any:
        return d


class Forwards(Primitive):
    """dout itself, for planted gradients; reads one of negative strides the other way."""

    def infer_shape(self, d: Any) -> Any:
        return d

    def infer_dtype(self, d: Any) -> Any:
        return d


@kernel("RowsSummed", "cpu", "f->f", "d->d")
def rows_summed(d: Any, *, out: Any) -> None:
    out[...] = d[0] if d.strides[0] == 0 and d.strides[-1] != 0 else d.sum(0)


@kernel("Forwards", "cpu", "f->f", "d->d")
def forwards(d: Any, *, out: Any) -> None:
    out[...] = np.flip(d) if any(s < 0 for s in d.strides) else d


bprop_getters.register(RowsSummed)(
    lambda self: lambda d, out, dout: (ops.broadcast_to(dout, d.shape),)
)
bprop_getters.register(Forwards)(lambda self: lambda d, out, dout: (dout,))


def scaled(gradient: Callable[..., Any], which: int, factor: float) -> Callable[..., Any]:
    """A gradient of several inputs, one of them by a factor too large."""

    def changed(*args: Any, **attrs: Any) -> Any:
        found = gradient(*args, **attrs)
        return tuple(factor * g if i == which else g for i, g in enumerate(found))

    return changed


def bias_of_first_row(x: Any, w: Any, b: Any, out: Any, dout: Any) -> Any:
    return (*dense_gradient(x, w, b, out, dout)[:2], (dout * (1.0 - out * out))[0])


def bias_of_rows_summed(x: Any, w: Any, b: Any, out: Any, dout: Any) -> Any:
    return *through(x, w, dout), RowsSummed()(dout)


def transposed(x: Any, w: Any, out: Any, dout: Any) -> Any:
    return ops.matmul(dout, w), ops.matmul(ops.swapaxes(x, 0, 1), dout)


def fixed_mean(x: Any, out: Any, dout: Any, eps: float) -> Any:
    r = ops.rsqrt(ops.var(x, -1, keepdims=True) + eps)
    return r * (dout - out * ops.mean(dout * out, -1, True))


def without_eps(x: Any, out: Any, dout: Any, eps: float) -> Any:
    r = ops.rsqrt(ops.mean(x * x, -1, True))
    return r * (dout - out * ops.mean(dout * out, -1, True))


def fixed_norm(x: Any, y: Any, out: Any, dout: Any) -> Any:
    length = wide(ops.sqrt(ops.sum(x * x, -1) * ops.sum(y * y, -1)))
    return wide(dout) * y / length, wide(dout) * x / length


def fixed_mirror(x: Any, v: Any, out: Any, dout: Any) -> Any:
    s = ops.sum(v * v, -1, True)
    a, b = ops.sum(x * v, -1, True) / s, ops.sum(dout * v, -1, True) / s
    return dout - 2.0 * v * b, -2.0 * (dout * a + x * b)


LAYERS = (
    natural("SoftmaxWithoutItsSum", rows, soft, lambda x, out, d: out * d, MIX, says="wrong"),
    natural("SoftmaxOverRowsForColumns", rows, soft,
        lambda x, out, d: out * (d - ops.sum(out * d, 0, True)), MIX, says="wrong"),
    natural("LayerNormFixesItsMean", rows, normed, fixed_mean, MIX, says="wrong", eps=1e-5),
    natural("RootMeanSquareForgetsEps", rows, root_mean, without_eps, MIX, says="wrong", eps=0.1),
    natural("BiasOfTheFirstRow", layer, lambda x, w, b: np.tanh(x @ w + b), bias_of_first_row,
        normal((4, 3), (3, 2), (2,)), says="broadcast|argument 2"),
    natural("WeightsNotTransposed", matrices, np.matmul, transposed, SQUARES, says="argument 0"),
    natural("AttentionForgetsItsRoot", attention, attend, scaled(attend_gradient, 1, 2.0**0.5),
        normal((3, 2), (4, 2), (4, 3)), says="argument 1.*factor 1.414"),
    natural("DenseScalesItsWeights", layer, lambda x, w, b: np.tanh(x @ w + b),
        scaled(dense_gradient, 1, 0.25), normal((4, 3), (3, 2), (2,)), says="factor 0.25"),
    natural("MirrorFixesItsLength", same_rows, mirror, fixed_mirror, normal((2, 3), (2, 3)),
        says="argument 1"),
    natural("SumsTheWrongWay", rows, lambda x: np.cumsum(x, -1),
        lambda x, out, d: ops.cumsum(d, -1), MIX, says="wrong"),
    natural("SumLeavesItselfOut", rows, lambda x: np.cumsum(x, -1),
        lambda x, out, d: ops.cumsum(d, -1, reverse=True, exclusive=True), MIX, says="wrong"),
)  # fmt: skip
LOSSES = (
    natural("EntropyForgetsOne", reduced, lambda x: -(x * np.log(x)).sum(-1),
        lambda x, out, d: -wide(d) * ops.log(x), inside(0.1, 0.9), says="wrong"),
    natural("DivergenceForgetsOne", reduced_pair,
        lambda p, q: (p * (np.log(p) - np.log(q))).sum(-1),
        lambda p, q, out, d: (wide(d) * (ops.log(p) - ops.log(q)), -wide(d) * p / q),
        inside(0.1, 0.9, 2), says="argument 0"),
    natural("CosineFixesItsLengths", reduced_pair, cosine, fixed_norm, normal((2, 3), (2, 3)),
        says="wrong"),
    natural("DistanceWithoutTwo", reduced_pair, lambda x, y: ((x - y) ** 2).sum(-1),
        lambda x, y, out, d: (wide(d) * (x - y), -wide(d) * (x - y)), numbers(2),
        says="factor 0.5|wrong"),
    natural("DeviationOfASample", reduced, lambda x: x.std(-1),
        lambda x, out, d: deviation_gradient(x, out, d) * x.shape[-1] / (x.shape[-1] - 1.0), MIX,
        says="factor 1.333"),
    natural("GeometricMeanForgetsN", reduced, lambda x: np.exp(np.log(x).mean(-1)),
        lambda x, out, d: wide(d * out) / x, lambda rng: (rng.uniform(0.5, 2, (3, 4)),),
        says="factor 4"),
)  # fmt: skip
FORMS = (
    natural("DistancesOfOneSide", two_sets, distances,
        lambda x, y, out, d: (distances_gradient(x, y, out, d)[0], None), normal((3, 2), (4, 2)),
        says="argument 1"),
    natural("FormTakenForSymmetric", form, lambda x, a: x @ a @ x,
        lambda x, a, out, d: (2.0 * d * ops.matmul(a, x), d * ops.outer(x, x)),
        normal((3,), (3, 3)), says="argument 0"),
    natural("BilinearTurned", bilinear, lambda x, a, y: x @ a @ y,
        lambda x, a, y, out, d: (bilinear_gradient(x, a, y, out, d)[0], d * ops.outer(y, x),
                                 bilinear_gradient(x, a, y, out, d)[2]),
        normal((3,), (3, 3), (3,)), says="argument 1.*transposed"),
    natural("InverseNotTurned", square, np.linalg.inv,
        lambda a, out, d: ops.swapaxes(inverse_gradient(a, out, d), 0, 1),
        lambda rng: (rng.normal(size=(3, 3)) + 3 * np.eye(3),), says="transposed|wrong"),
)  # fmt: skip
LAYOUTS = (
    natural("BroadcastCotangentTakenForOne", layer, lambda x, w, b: x @ w + b, bias_of_rows_summed,
        normal((4, 3), (3, 2), (2,)), says="broadcast along its first axis"),
    natural("CotangentReadForwards", same, np.sin,
        lambda x, out, d: Forwards()(d) * ops.cos(x), normal((3, 4)), says="reversed"),
)  # fmt: skip

SHAPED_WRONGS = LAYERS + LOSSES + FORMS + LAYOUTS
