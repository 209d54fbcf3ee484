"""Rows of convolution and its two transposes."""

from __future__ import annotations

import numpy as np

from miniml import ops
from miniml.errors import AttributeRefusedError, DTypeError, ShapeError, ValueRefusedError
from miniml.testing import OpInfo, Refusal, Sample

from .draws import apart, numbers

NO_PAD = ((0, 0), (0, 0))

# x, w, attributes: plain; padded on all sides; strides and dilations; groups; one channel each;
# one tap; images without a batch; a stride that leaves pixels over.
CASES = (
    ((2, 3, 4, 5), (2, 3, 3, 2), {}),
    ((1, 2, 3, 4), (3, 2, 2, 3), {"padding": ((1, 2), (0, 3))}),
    ((2, 1, 6, 7), (2, 1, 2, 3), {
        "stride": (2, 3), "dilation": (3, 2), "padding": ((0, 1), (2, 0)),
    }),
    ((1, 4, 3, 5), (6, 2, 2, 3), {"groups": 2}),
    ((1, 3, 4, 3), (3, 1, 3, 2), {"groups": 3, "padding": ((1, 1), (1, 1))}),
    ((2, 3, 2, 3), (4, 3, 1, 1), {}),
    ((0, 2, 4, 5), (3, 2, 3, 2), {}),
    ((1, 2, 5, 6), (1, 2, 2, 2), {"stride": (2, 4)}),
)  # fmt: skip


def places(x, w, stride=(1, 1), padding=NO_PAD, dilation=(1, 1), groups=1):
    """The padded extents, and for each tap the slices of the padded planes that it meets."""
    padded = [n + sum(p) for n, p in zip(x[2:], padding)]
    counts = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(padded, w[2:], stride, dilation)]
    taps = {
        tap: tuple(
            slice(t * d, t * d + (c - 1) * s + 1, s)
            for t, c, s, d in zip(tap, counts, stride, dilation)
        )
        for tap in np.ndindex(*w[2:])
    }
    return padded, counts, taps


def by_group(groups, *sizes):
    """Slices of each of `sizes` channels, group by group."""
    for g in range(groups):
        yield tuple(slice(g * n // groups, (g + 1) * n // groups) for n in sizes)


def conv2d(x, w, **attrs):
    _, counts, taps = places(x.shape, w.shape, **attrs)
    wide = np.pad(x, ((0, 0), (0, 0), *attrs.get("padding", NO_PAD)))
    out = np.zeros((x.shape[0], w.shape[0], *counts))
    for outs, ins in by_group(attrs.get("groups", 1), w.shape[0], x.shape[1]):
        for (i, j), (rows, columns) in taps.items():
            pixels = wide[:, ins, rows, columns]
            out[:, outs] += np.einsum("ncrq,oc->norq", pixels, w[outs, :, i, j])
    return out


def input_grad(dout, w, input_shape, **attrs):
    groups = attrs.get("groups", 1)
    shape = (dout.shape[0], w.shape[1] * groups, *input_shape)
    padded, _, taps = places(shape, w.shape, **attrs)
    wide = np.zeros((*shape[:2], *padded))
    for outs, ins in by_group(groups, w.shape[0], shape[1]):
        for (i, j), (rows, columns) in taps.items():
            share = np.einsum("norq,oc->ncrq", dout[:, outs], w[outs, :, i, j])
            wide[:, ins, rows, columns] += share
    (top, _), (left, _) = attrs.get("padding", NO_PAD)
    return wide[:, :, top : top + input_shape[0], left : left + input_shape[1]]


def weight_grad(x, dout, kernel_shape, **attrs):
    groups = attrs.get("groups", 1)
    out = np.zeros((dout.shape[1], x.shape[1] // groups, *kernel_shape))
    _, _, taps = places(x.shape, out.shape, **attrs)
    wide = np.pad(x, ((0, 0), (0, 0), *attrs.get("padding", NO_PAD)))
    for outs, ins in by_group(groups, dout.shape[1], x.shape[1]):
        for (i, j), (rows, columns) in taps.items():
            pixels = wide[:, ins, rows, columns]
            out[outs, :, i, j] = np.einsum("norq,ncrq->oc", dout[:, outs], pixels)
    return out


def slopes(rng, x, w, attrs, dtype):
    return numbers(rng, (x[0], w[0], *places(x, w, **attrs)[1]), dtype)


def conv2d_samples(rng, dtype):
    for x, w, attrs in CASES:
        yield Sample((numbers(rng, x, dtype), numbers(rng, w, dtype)), attrs)


def input_grad_samples(rng, dtype):
    for x, w, attrs in CASES:
        dout = slopes(rng, x, w, attrs, dtype)
        yield Sample((dout, numbers(rng, w, dtype)), {**attrs, "input_shape": x[2:]})


def weight_grad_samples(rng, dtype):
    for x, w, attrs in CASES:
        dout = slopes(rng, x, w, attrs, dtype)
        yield Sample((numbers(rng, x, dtype), dout), {**attrs, "kernel_shape": w[2:]})


X, W, DOUT = np.ones((2, 4, 5, 6)), np.ones((6, 4, 3, 3)), np.ones((2, 6, 3, 4))


def refusal(inputs, match, error=ShapeError, **attrs):
    return Refusal(inputs, match, attrs, error)


WINDOW_ROWS = (
    OpInfo(
        ops.Conv2D, conv2d_samples, reference=conv2d, batch_axes=(0, None),
        refused=(
            refusal((X[0], W), r"shape \(N, C, H, W\); got shape \(4, 5, 6\)"),
            refusal((X, W[0]), r"shape \(O, C // groups, KH, KW\).*got \(4, 3, 3\)"),
            refusal((X, W[:, :3]), "x has 4 channels and the filters take 3"),
            refusal((X, W), "x has 4 channels and the filters take 8", groups=2),
            refusal((X, W[:5, :2]), "cannot split 5 filters into groups=2", groups=2),
            refusal((X, W), "cannot split 6 filters into groups=0", groups=0),
            refusal((X[:, :, :2], W), "2 pixels for a window of 3; pad more"),
            refusal((X, W), "6 pixels for a window of 7", dilation=(2, 3)),
            refusal((X, W), r"stride=\(1, 0\); expected two", ValueRefusedError, stride=(1, 0)),
            refusal((X, W), "stride=2; expected two ints", AttributeRefusedError, stride=2),
            refusal((X, W), r"dilation=\(0, 1\)", ValueRefusedError, dilation=(0, 1)),
            refusal((X, W), r"padding=\(1, 1\)", AttributeRefusedError, padding=(1, 1)),
            refusal((X, W), r"padding=\(-1, 0\)", ValueRefusedError, padding=((-1, 0), (0, 0))),
        ),
    ),
    OpInfo(
        ops.Conv2DInputGrad, input_grad_samples, reference=input_grad, batch_axes=(0, None),
        refused=(
            refusal((DOUT, W), r"dout of shape \(2, 6, 3, 4\).*\(2, 6, 3, 5\)", input_shape=(5, 7)),
            refusal((DOUT[:, :5], W), r"\(2, 5, 3, 4\).*\(2, 6, 3, 4\)", input_shape=(5, 6)),
            refusal((DOUT, W), "input_shape=5; expected", AttributeRefusedError, input_shape=5),
            refusal((DOUT[0], W), "needs dout of shape", input_shape=(5, 6)),
        ),
    ),
    OpInfo(
        ops.Conv2DWeightGrad, weight_grad_samples, reference=weight_grad,
        refused=(
            refusal((X, DOUT), r"dout of shape.*\(2, 6, 4, 4\)", kernel_shape=(2, 3)),
            refusal((X, DOUT[:1]), r"\(1, 6, 3, 4\).*\(2, 6, 3, 4\)", kernel_shape=(3, 3)),
            refusal((X, DOUT), "cannot split the 4 channels", kernel_shape=(3, 3), groups=3),
            refusal((X, DOUT), r"kernel_shape=\(0, 3\)", ValueRefusedError, kernel_shape=(0, 3)),
        ),
    ),
)  # fmt: skip


# --- pool -----------------------------------------------------------------------------------------
# Rows of pooling.


# x and attributes: halving; overlap with padding; gaps; one window; an empty batch.
POOL_CASES = (
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
    for shape, attrs in POOL_CASES:
        yield Sample((apart(rng, shape, dtype),), attrs)


def indexed_samples(rng, shape, attrs):
    """Indices into planes of x, each at least once drawn twice where there are windows enough."""
    size = shape[2] * shape[3]
    return rng.integers(0, size, out_shape(shape, attrs))


def grad_samples(rng, dtype):
    for shape, attrs in POOL_CASES:
        indices = indexed_samples(rng, shape, attrs)
        yield Sample((numbers(rng, indices.shape, dtype), indices), {"input_shape": shape[2:]})


def gather_samples(rng, dtype):
    for shape, attrs in POOL_CASES:
        yield Sample((numbers(rng, shape, dtype), indexed_samples(rng, shape, attrs)))


def avg_samples(rng, dtype):
    for shape, attrs in POOL_CASES:
        for included in {True, "padding" not in attrs}:
            yield Sample((numbers(rng, shape, dtype),), {**attrs, "count_include_pad": included})


def avg_grad_samples(rng, dtype):
    for shape, attrs in POOL_CASES:
        dout = out_shape(shape, attrs)
        for included in {True, "padding" not in attrs}:
            more = {"input_shape": shape[2:], "count_include_pad": included}
            yield Sample((numbers(rng, dout, dtype),), {**attrs, **more})


POOLED, POOL_DOUT, PLACES = (
    np.ones((2, 3, 4, 5)),
    np.ones((2, 3, 2, 2)),
    np.zeros((2, 3, 2, 2), int),
)
HALVES = {"kernel_size": (2, 2), "stride": (2, 2)}


def pool_refusal(inputs, match, error=ShapeError, **attrs):
    return Refusal(inputs, match, {**HALVES, **attrs}, error)


POOLING = (
    pool_refusal((POOLED[0],), r"shape \(N, C, H, W\); got shape \(3, 4, 5\)"),
    pool_refusal((POOLED,), "4 pixels for a window of 5; pad more", kernel_size=(5, 2)),
    pool_refusal((POOLED,), "pad by less than the kernel", padding=((0, 2), (0, 0))),
    pool_refusal((POOLED[:, :, :0],), "planes have no pixels", padding=((1, 1), (0, 0))),
    pool_refusal((POOLED,), "kernel_size=2; expected", AttributeRefusedError, kernel_size=2),
    pool_refusal((POOLED,), r"stride=\(0, 1\)", ValueRefusedError, stride=(0, 1)),
    Refusal((POOLED.astype(int),), "needs a float tensor; got int64", HALVES, DTypeError),
)

POOL_ROWS = (
    OpInfo(ops.MaxPool2D, max_samples, reference=max_pool2d, batch_axes=(0,), refused=POOLING,
           domain="no two pixels equal"),
    OpInfo(ops.MaxPool2DGrad, grad_samples, reference=max_pool2d_grad, batch_axes=(0, 0),
           domain="indices of MaxPool2D", refused=(
        Refusal((POOL_DOUT, PLACES[:1]), r"indices of shape \(1, 3, 2, 2\)",
                {"input_shape": (4, 5)}, ShapeError),
        Refusal((POOL_DOUT, PLACES.astype(float)), "indices of float64", {"input_shape": (4, 5)},
                DTypeError),
        Refusal((POOL_DOUT, PLACES), r"input_shape=\(0, 5\)", {"input_shape": (0, 5)},
                ValueRefusedError),
    )),
    OpInfo(ops.MaxPool2DGather, gather_samples, reference=max_pool2d_gather, batch_axes=(0, 0),
           nan="handled", domain="indices of MaxPool2D", refused=(
        Refusal((POOLED, PLACES[:1]), r"x of shape.*indices of shape \(1, 3, 2, 2\)",
                error=ShapeError),
        Refusal((POOLED, PLACES.astype(np.int32)), "indices of int32", error=DTypeError),
    )),
    OpInfo(ops.AvgPool2D, avg_samples, reference=avg_pool2d, batch_axes=(0,), refused=POOLING),
    OpInfo(ops.AvgPool2DGrad, avg_grad_samples, reference=avg_pool2d_grad, batch_axes=(0,),
           refused=(
        Refusal((POOL_DOUT,), r"dout of shape \(2, 3, 2, 2\).*\(2, 3, 2, 3\)",
                {**HALVES, "input_shape": (4, 6)}, ShapeError),
    )),
)  # fmt: skip

ROWS = (*WINDOW_ROWS, *POOL_ROWS)
