"""Rows of pooling."""

import numpy as np

from miniml import ops
from miniml.errors import DTypeError, ShapeError
from miniml.testing import OpInfo, Refusal, Sample

from .draws import apart, numbers

NO_PAD = ((0, 0), (0, 0))

# x and attributes: halving; overlap with padding; gaps; one window; an empty batch.
CASES = (
    ((2, 1, 4, 6), {"kernel_size": (2, 2), "stride": (2, 2)}),
    ((1, 2, 5, 4), {"kernel_size": (3, 2), "stride": (2, 1), "padding": ((1, 2), (0, 1))}),
    ((1, 1, 7, 8), {"kernel_size": (2, 3), "stride": (3, 4)}),
    ((1, 3, 2, 3), {"kernel_size": (2, 3), "stride": (1, 1)}),
    ((0, 2, 4, 5), {"kernel_size": (2, 2), "stride": (2, 2)}),
)


def out_shape(shape, attrs):
    sides = attrs["kernel_size"], attrs["stride"], attrs.get("padding", NO_PAD)
    counts = [(n + sum(p) - k) // s + 1 for n, k, s, p in zip(shape[2:], *sides)]
    return (*shape[:2], *counts)


def windows(shape, kernel_size, stride, padding=NO_PAD, **_):
    """For each window its place among the outputs, and its slices of the padded planes."""
    attrs = {"kernel_size": kernel_size, "stride": stride, "padding": padding}
    for r, q in np.ndindex(out_shape(shape, attrs)[2:]):
        rows = slice(r * stride[0], r * stride[0] + kernel_size[0])
        yield (r, q), (rows, slice(q * stride[1], q * stride[1] + kernel_size[1]))


def max_pool2d(x, **attrs):
    sides = ((0, 0), (0, 0), *attrs.get("padding", NO_PAD))
    wide = np.pad(x, sides, constant_values=-np.inf)
    inside = np.pad(np.ones(x.shape, bool), sides)
    numbered = np.pad(np.arange(x.shape[2] * x.shape[3]).reshape(x.shape[2:]), sides[2:])
    out = np.zeros(out_shape(x.shape, attrs))
    indices = np.zeros(out.shape, int)
    for (n, c), _ in np.ndenumerate(x[:, :, 0, 0]):
        for (r, q), place in windows(x.shape, **attrs):
            real = inside[n, c][place]
            best = np.argmax(wide[n, c][place][real])  # the first NaN, where there is one
            out[n, c, r, q] = wide[n, c][place][real][best]
            indices[n, c, r, q] = numbered[place][real][best]
    return out, indices


def max_pool2d_grad(dout, indices, input_shape):
    dx = np.zeros((*dout.shape[:2], input_shape[0] * input_shape[1]))
    for place, value in np.ndenumerate(dout):
        dx[place[0], place[1], indices[place]] += value
    return dx.reshape(*dout.shape[:2], *input_shape)


def max_pool2d_gather(x, indices):
    out = np.zeros(indices.shape)
    for place, index in np.ndenumerate(indices):
        out[place] = x[place[0], place[1]].flat[index]
    return out


def avg_pool2d(x, count_include_pad=True, **attrs):
    sides = ((0, 0), (0, 0), *attrs.get("padding", NO_PAD))
    wide, ones = (
        np.pad(x, sides),
        np.pad(np.ones(x.shape), sides, constant_values=count_include_pad),
    )
    out = np.zeros(out_shape(x.shape, attrs))
    for (r, q), (rows, columns) in windows(x.shape, **attrs):
        total = wide[:, :, rows, columns].sum((2, 3))
        out[:, :, r, q] = total / ones[:, :, rows, columns].sum((2, 3))
    return out


def avg_pool2d_grad(dout, input_shape, count_include_pad=True, **attrs):
    shape = (*dout.shape[:2], *input_shape)
    padding = attrs.get("padding", NO_PAD)
    sides = ((0, 0), (0, 0), *padding)
    wide = np.pad(np.zeros(shape), sides)
    ones = np.pad(np.ones(input_shape), padding, constant_values=count_include_pad)
    for (r, q), (rows, columns) in windows(shape, **attrs):
        share = dout[:, :, r, q] / ones[rows, columns].sum()
        wide[:, :, rows, columns] += share[:, :, None, None]
    (top, _), (left, _) = padding
    return wide[:, :, top : top + input_shape[0], left : left + input_shape[1]]


def max_samples(rng, dtype):
    for shape, attrs in CASES:
        yield Sample((apart(rng, shape, dtype),), attrs)


def indexed_samples(rng, shape, attrs):
    """Indices into planes of x, each at least once drawn twice where there are windows enough."""
    size = shape[2] * shape[3]
    return rng.integers(0, size, out_shape(shape, attrs))


def grad_samples(rng, dtype):
    for shape, attrs in CASES:
        indices = indexed_samples(rng, shape, attrs)
        yield Sample((numbers(rng, indices.shape, dtype), indices), {"input_shape": shape[2:]})


def gather_samples(rng, dtype):
    for shape, attrs in CASES:
        yield Sample((numbers(rng, shape, dtype), indexed_samples(rng, shape, attrs)))


def avg_samples(rng, dtype):
    for shape, attrs in CASES:
        for included in {True, "padding" not in attrs}:
            yield Sample((numbers(rng, shape, dtype),), {**attrs, "count_include_pad": included})


def avg_grad_samples(rng, dtype):
    for shape, attrs in CASES:
        dout = out_shape(shape, attrs)
        for included in {True, "padding" not in attrs}:
            more = {"input_shape": shape[2:], "count_include_pad": included}
            yield Sample((numbers(rng, dout, dtype),), {**attrs, **more})


X, DOUT, PLACES = np.ones((2, 3, 4, 5)), np.ones((2, 3, 2, 2)), np.zeros((2, 3, 2, 2), int)
HALVES = {"kernel_size": (2, 2), "stride": (2, 2)}


def refusal(inputs, match, **attrs):
    return Refusal(inputs, match, {**HALVES, **attrs}, ShapeError)


POOLING = (
    refusal((X[0],), r"shape \(N, C, H, W\); got shape \(3, 4, 5\)"),
    refusal((X,), "4 pixels for a window of 5; pad more", kernel_size=(5, 2)),
    refusal((X,), "pad by less than the kernel", padding=((0, 2), (0, 0))),
    refusal((X[:, :, :0],), "planes have no pixels", padding=((1, 1), (0, 0))),
    refusal((X,), "kernel_size=2; it is two ints", kernel_size=2),
    refusal((X,), r"stride=\(0, 1\)", stride=(0, 1)),
    Refusal((X.astype(int),), "needs a float tensor; got int64", HALVES, DTypeError),
)

ROWS = (
    OpInfo(ops.MaxPool2D, max_samples, reference=max_pool2d, batch_axes=(0,), refused=POOLING,
           domain="no two pixels equal"),
    OpInfo(ops.MaxPool2DGrad, grad_samples, reference=max_pool2d_grad, batch_axes=(0, 0),
           domain="indices of MaxPool2D", refused=(
        Refusal((DOUT, PLACES[:1]), r"indices of shape \(1, 3, 2, 2\)", {"input_shape": (4, 5)},
                ShapeError),
        Refusal((DOUT, PLACES.astype(float)), "indices of float64", {"input_shape": (4, 5)},
                DTypeError),
        Refusal((DOUT, PLACES), r"input_shape=\(0, 5\)", {"input_shape": (0, 5)}, ShapeError),
    )),
    OpInfo(ops.MaxPool2DGather, gather_samples, reference=max_pool2d_gather, batch_axes=(0, 0),
           nan="handled", domain="indices of MaxPool2D", refused=(
        Refusal((X, PLACES[:1]), r"x of shape.*indices of shape \(1, 3, 2, 2\)", error=ShapeError),
        Refusal((X, PLACES.astype(np.int32)), "indices of int32", error=DTypeError),
    )),
    OpInfo(ops.AvgPool2D, avg_samples, reference=avg_pool2d, batch_axes=(0,), refused=POOLING),
    OpInfo(ops.AvgPool2DGrad, avg_grad_samples, reference=avg_pool2d_grad, batch_axes=(0,),
           refused=(
        Refusal((DOUT,), r"dout of shape \(2, 3, 2, 2\).*\(2, 3, 2, 3\)",
                {**HALVES, "input_shape": (4, 6)}, ShapeError),
    )),
)  # fmt: skip
