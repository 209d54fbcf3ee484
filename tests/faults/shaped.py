"""Correct pairs that mix elements: reductions, products, norms, linear algebra, indexing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from .algebra import ALGEBRA
from .rows import Array, Arrays, Pair, apart, between, exactly, normal, signed

ROWS = np.array([0, 2, 2, 0, 2])
LABELS = np.array([1, 0, 3])
TIED = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, -1.0]])


def softmax(x: Array) -> Array:
    return special.softmax(x, axis=-1)


def softmax_vjp(x: Array, dout: Array) -> Arrays:
    s = softmax(x)
    return (s * (dout - (s * dout).sum(-1, keepdims=True)),)


def log_softmax_vjp(x: Array, dout: Array) -> Arrays:
    return (dout - softmax(x) * dout.sum(-1, keepdims=True),)


def logsumexp(x: Array) -> Array:
    return special.logsumexp(x, axis=-1)


def logsumexp_vjp(x: Array, dout: Array) -> Arrays:
    return (softmax(x) * dout[..., None],)


def cross_entropy(x: Array, labels: Array) -> Array:
    return -np.mean(special.log_softmax(x, -1)[np.arange(len(x)), labels])


def cross_entropy_vjp(x: Array, labels: Array, dout: Array) -> tuple[Any, ...]:
    d = softmax(x)
    d[np.arange(len(x)), labels] -= 1
    return dout * d / len(x), None


def unsort(x: Array, d: Array) -> Array:
    """Sorted positions back to where their values came from, along the last axis."""
    back = np.zeros_like(x)
    np.put_along_axis(back, np.argsort(x, -1, kind="stable"), d, -1)
    return back


def topk(x: Array) -> Array:
    return np.sort(x, -1)[..., :-3:-1]


def topk_vjp(x: Array, dout: Array) -> Arrays:
    d = np.zeros_like(x)
    d[..., -2:] = dout[..., ::-1]
    return (unsort(x, d),)


def max_vjp(x: Array, dout: Array) -> Arrays:
    """Shared evenly among the largest."""
    ties = x == x.max(-1, keepdims=True)
    return (ties / ties.sum(-1, keepdims=True) * dout[..., None],)


def max_vjp_first(x: Array, dout: Array) -> Arrays:
    first = np.arange(x.shape[-1]) == x.argmax(-1)[..., None]
    return (first * dout[..., None],)


def maximum_vjp(share: float) -> Callable[..., Arrays]:
    """`share` of the gradient to x where both are equal, the rest to y."""

    def vjp(x: Array, y: Array, dout: Array) -> Arrays:
        to_x = np.where(x > y, 1.0, np.where(x == y, share, 0.0))
        return dout * to_x, dout * (1 - to_x)

    return vjp


def normalise(x: Array) -> Array:
    return x / np.linalg.norm(x)


def normalise_vjp(x: Array, dout: Array) -> Arrays:
    y = normalise(x)
    return ((dout - y * (y * dout).sum()) / np.linalg.norm(x),)


def norm(x: Array) -> Array:
    return np.linalg.norm(x / np.abs(x).max()) * np.abs(x).max()


def norm_vjp(x: Array, dout: Array) -> Arrays:
    return (dout * x / norm(x),)


def prod_vjp(x: Array, dout: Array) -> Arrays:
    others = [np.prod(np.delete(x, i, -1), axis=-1) for i in range(x.shape[-1])]
    return (np.stack(others, -1) * dout[..., None],)


def cumsum_vjp(x: Array, dout: Array) -> Arrays:
    return (np.cumsum(dout[:, ::-1], axis=1)[:, ::-1],)


def convolve(x: Array, w: Array) -> Array:
    return np.correlate(x, w, "valid")


def convolve_vjp(x: Array, w: Array, dout: Array) -> Arrays:
    return np.convolve(dout, w, "full"), np.correlate(x, dout, "valid")


def conv2d(x: Array, w: Array) -> Array:
    """(H, W) against (h, w), no padding, stride 1."""
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape)
    return np.einsum("ijkl,kl->ij", windows, w)


def conv2d_vjp(x: Array, w: Array, dout: Array) -> Arrays:
    wide = np.pad(dout, [(n - 1, n - 1) for n in w.shape])
    return conv2d(wide, w[::-1, ::-1]), conv2d(x, dout)


def layer_norm(x: Array) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def layer_norm_vjp(x: Array, dout: Array) -> Arrays:
    y, scale = layer_norm(x), np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    mean = dout.mean(-1, keepdims=True) + y * (dout * y).mean(-1, keepdims=True)
    return ((dout - mean) / scale,)


def batch_norm(x: Array, gain: Array, bias: Array) -> Array:
    return layer_norm(x.T).T * gain + bias


def batch_norm_vjp(x: Array, gain: Array, bias: Array, dout: Array) -> Arrays:
    (dx,) = layer_norm_vjp(x.T, (dout * gain).T)
    return dx.T, (dout * layer_norm(x.T).T).sum(0), dout.sum(0)


def variance_vjp(x: Array, dout: Array) -> Arrays:
    return (2 * (x - x.mean(0)) / len(x) * dout,)


def gather_vjp(x: Array, rows: Array, dout: Array) -> tuple[Any, ...]:
    d = np.zeros_like(x)
    np.add.at(d, rows, dout)
    return d, None


def scatter_add(x: Array, updates: Array) -> Array:
    out = x.copy()
    np.add.at(out, ROWS, updates)
    return out


def pool(x: Array) -> Array:
    return x.reshape(-1, 2).max(1)


def pool_vjp(x: Array, dout: Array) -> Arrays:
    pairs = x.reshape(-1, 2)
    d = np.zeros_like(pairs)
    d[np.arange(len(pairs)), pairs.argmax(1)] = dout
    return (d.reshape(x.shape),)


def dropout_mask(shape: tuple[int, ...]) -> Array:
    """The same draw in each call: the generator is made from its seed."""
    return (np.random.default_rng(7).random(shape) < 0.6) / 0.6


def where_vjp(c: Array, x: Array, y: Array, dout: Array) -> tuple[Any, ...]:
    return None, np.where(c, dout, 0), np.where(c, 0, dout)


def rosenbrock(x: Array) -> Array:
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def rosenbrock_vjp(x: Array, dout: Array) -> Arrays:
    d, bend = np.zeros_like(x), x[1:] - x[:-1] ** 2
    d[:-1] = -400 * x[:-1] * bend - 2 * (1 - x[:-1])
    d[1:] += 200 * bend
    return (dout * d,)


def atan2_vjp(y: Array, x: Array, dout: Array) -> Arrays:
    return dout * x / (x * x + y * y), -dout * y / (x * x + y * y)


def power_vjp(x: Array, y: Array, dout: Array) -> Arrays:
    return dout * y * x ** (y - 1), dout * x**y * np.log(x)


MATRIX = ((3, 4),)
SHAPED = (
    Pair("softmax", softmax, softmax_vjp, normal(*MATRIX)),
    Pair("softmax of large values", softmax, softmax_vjp, normal(*MATRIX, scale=2, shift=1000.0),
         scales="it bends over 1/1000 of x"),
    Pair("log softmax", lambda x: special.log_softmax(x, -1), log_softmax_vjp, normal(*MATRIX)),
    Pair("logsumexp", logsumexp, logsumexp_vjp, normal(*MATRIX)),
    Pair("logsumexp of large values", logsumexp, logsumexp_vjp, normal(*MATRIX, shift=1e4)),
    Pair("cross entropy", cross_entropy, cross_entropy_vjp,
         lambda rng: (rng.normal(size=(3, 4)), LABELS)),
    Pair("sum", np.sum, lambda x, dout: (np.full_like(x, dout),), normal(*MATRIX)),
    Pair("mean over axis 0", lambda x: x.mean(0),
         lambda x, dout: (np.broadcast_to(dout / 3, x.shape),), normal(*MATRIX)),
    Pair("variance", lambda x: x.var(0), variance_vjp, normal(*MATRIX)),
    Pair("variance about a mean of 1e6", lambda x: x.var(0), variance_vjp,
         normal(*MATRIX, shift=1e6),
         scales="it bends over a millionth of x"),
    Pair("norm", norm, norm_vjp, normal((30,))),
    Pair("norm of values of 1e-200", norm, norm_vjp, normal((30,), scale=1e-200)),
    Pair("norm of 1e100", norm, norm_vjp, normal((30,), scale=1e100)),
    Pair("x / |x|", normalise, normalise_vjp, normal((6,))),
    Pair("prod", lambda x: x.prod(-1), prod_vjp, normal(*MATRIX)),
    Pair("prod with zeros", lambda x: x.prod(-1), prod_vjp,
         exactly([[2.0, 0.0, 3.0], [0.0, 0.0, 5.0], [1.0, 2.0, 4.0]])),
    Pair("cumsum", lambda x: x.cumsum(1), cumsum_vjp, normal(*MATRIX)),
    Pair("sort", lambda x: np.sort(x, -1), lambda x, dout: (unsort(x, dout),), apart((3, 5))),
    Pair("topk", topk, topk_vjp, apart((3, 5))),
    Pair("max", lambda x: x.max(-1), max_vjp, apart(*MATRIX)),
    Pair("max with ties, shared", lambda x: x.max(-1), max_vjp, exactly(TIED), kink=True),
    Pair("max with ties, the first", lambda x: x.max(-1), max_vjp_first, exactly(TIED), kink=True),
    Pair("maximum of equals, shared", np.maximum, maximum_vjp(0.5),
         exactly([1.0, 2.0], [1.0, 3.0]), kink=True),
    Pair("maximum of equals, to x", np.maximum, maximum_vjp(1.0),
         exactly([1.0, 2.0], [1.0, 3.0]), kink=True),
    Pair("pooling by maxima", pool, pool_vjp, apart((8,))),
    Pair("einsum", lambda a, b, c: np.einsum("ij,jk,i->k", a, b, c),
         lambda a, b, c, d: (
             np.einsum("k,jk,i->ij", d, b, c), np.einsum("k,ij,i->jk", d, a, c),
             np.einsum("k,ij,jk->i", d, a, b)),
         normal((2, 3), (3, 4), (2,))),
    Pair("outer", np.outer, lambda x, y, d: (d @ y, d.T @ x), normal((3,), (4,))),
    Pair("correlation", convolve, convolve_vjp, normal((9,), (3,))),
    Pair("conv2d", conv2d, conv2d_vjp, normal((6, 5), (3, 2))),
    Pair("layer norm", layer_norm, layer_norm_vjp, normal((3, 6))),
    Pair("layer norm far from 0", layer_norm, layer_norm_vjp, normal((3, 6), shift=1e4),
         scales="it bends over 1/10000 of x"),
    Pair("batch norm", batch_norm, batch_norm_vjp, normal((6, 3), (3,), (3,))),
    Pair("atan2", np.arctan2, atan2_vjp, signed(0.1, 2, (5,), (5,))),
    Pair("x^y", np.power, power_vjp, between(0.2, 3, (5,), (5,))),
    Pair("where", np.where, where_vjp,
         lambda rng: (rng.random(5) < 0.5, rng.normal(size=5), rng.normal(size=5))),
    Pair("gather with repeats", lambda x, i: x[i], gather_vjp,
         lambda rng: (rng.normal(size=(4, 3)), ROWS)),
    Pair("scatter with repeats", scatter_add, lambda x, u, d: (d, d[ROWS]), normal((4,), (5,))),
    Pair("a broadcast sum", np.add, lambda x, y, d: (d.sum(1, keepdims=True), d.sum(0)),
         normal((3, 1), (4,))),
    Pair("a broadcast product", np.multiply,
         lambda x, y, d: ((d * y).sum(1, keepdims=True), (d * x).sum(0)), normal((3, 1), (4,))),
    Pair("a fixed random mask", lambda x: x * dropout_mask(x.shape),
         lambda x, d: (d * dropout_mask(x.shape),), normal((3, 7))),
    Pair("Rosenbrock", rosenbrock, rosenbrock_vjp, normal((8,))),
    Pair("squares of 100,000", lambda x: np.sum(x * x), lambda x, d: (2 * x * d,),
         normal((100_000,))),
    Pair("an empty input beside another", np.append, lambda x, y, d: (x, d),
         exactly(np.zeros((0, 3)), np.ones(2))),
    *ALGEBRA,
)  # fmt: skip
