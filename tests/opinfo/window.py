"""Rows of convolution and its two transposes."""

import numpy as np

from miniml import ops
from miniml.errors import ShapeError
from miniml.testing import OpInfo, Refusal, Sample

from .draws import numbers

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


def refusal(inputs, match, **attrs):
    return Refusal(inputs, match, attrs, ShapeError)


ROWS = (
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
            refusal((X, W), r"stride=\(1, 0\); it is two ints of at least 1", stride=(1, 0)),
            refusal((X, W), "stride=2; it is two ints", stride=2),
            refusal((X, W), r"dilation=\(0, 1\)", dilation=(0, 1)),
            refusal((X, W), r"padding=\(1, 1\)", padding=(1, 1)),
            refusal((X, W), r"padding=\(-1, 0\)", padding=((-1, 0), (0, 0))),
        ),
    ),
    OpInfo(
        ops.Conv2DInputGrad, input_grad_samples, reference=input_grad, batch_axes=(0, None),
        refused=(
            refusal((DOUT, W), r"dout of shape \(2, 6, 3, 4\).*\(2, 6, 3, 5\)", input_shape=(5, 7)),
            refusal((DOUT[:, :5], W), r"\(2, 5, 3, 4\).*\(2, 6, 3, 4\)", input_shape=(5, 6)),
            refusal((DOUT, W), "input_shape=5; it is two ints of at least 0", input_shape=5),
            refusal((DOUT[0], W), "needs dout of shape", input_shape=(5, 6)),
        ),
    ),
    OpInfo(
        ops.Conv2DWeightGrad, weight_grad_samples, reference=weight_grad,
        refused=(
            refusal((X, DOUT), r"dout of shape.*\(2, 6, 4, 4\)", kernel_shape=(2, 3)),
            refusal((X, DOUT[:1]), r"\(1, 6, 3, 4\).*\(2, 6, 3, 4\)", kernel_shape=(3, 3)),
            refusal((X, DOUT), "cannot split the 4 channels", kernel_shape=(3, 3), groups=3),
            refusal((X, DOUT), r"kernel_shape=\(0, 3\)", kernel_shape=(0, 3)),
        ),
    ),
)  # fmt: skip
