"""NumPy kernels of 2-d pooling: one strided view of the image per tap of the window.

Attributes of all: `kernel_size` (KH, KW), `stride` (sh, sw) and `padding` ((top, bottom),
(left, right)), each of which must be smaller than the kernel, so that every window holds a pixel.
Padding is never materialized: a tap is applied only to the windows in which it meets the image.
Images are taken a few at a time, so that the data that the taps share stay in the cache.
"""

from collections.abc import Iterator

import numpy as np

from ..kernel import Array
from ..typecodes import FLOAT
from .registering import register, register_floats

Pair = tuple[int, int]
Padding = tuple[Pair, Pair]
Region = tuple[slice, slice]

# Bytes of input to pool at a time: half of a usual level-two cache. One image at least.
SCRATCH = 1 << 19


def pieces(x: Array) -> Iterator[slice]:
    """Slices of the first axis of `x` that hold about `SCRATCH` bytes each; none if it is empty."""
    images = x.shape[0]
    if x.size:
        step = max(1, images * SCRATCH // x.nbytes)
        for start in range(0, images, step):
            yield slice(start, start + step)


def tap(offset: int, size: int, windows: int, stride: int) -> tuple[slice, slice]:
    """Of one axis: the windows whose pixel at `offset` lies in [0, size), and those pixels.

    Window r has its pixel at r * stride + offset; offset is the tap less the padding.
    """
    first = max(0, -(offset // stride))
    stop = max(first, min(windows, (size - 1 - offset) // stride + 1))
    start = first * stride + offset
    return slice(first, stop), slice(start, start + (stop - first) * stride, stride)


def plane_taps(
    kernel_size: Pair, stride: Pair, padding: Padding, image: Pair, windows: Pair
) -> Iterator[tuple[Region, Region]]:
    """For each tap in row-major order: its windows and their pixels, as indices of a plane."""
    for i in range(kernel_size[0]):
        rows = tap(i - padding[0][0], image[0], windows[0], stride[0])
        for j in range(kernel_size[1]):
            columns = tap(j - padding[1][0], image[1], windows[1], stride[1])
            yield (rows[0], columns[0]), (rows[1], columns[1])


def max_pool2d(
    x: Array, *, kernel_size: Pair, stride: Pair, padding: Padding, out: tuple[Array, Array]
) -> None:
    """x (N, C, H, W) to (values (N, C, OH, OW), indices (N, C, OH, OW) int64).

    An index counts the H*W pixels of the unpadded plane, and is that of the first maximum in
    row-major order of the window. NaN is larger than all: the first NaN of a window wins.

    Memory, for each window of a few images: a pixel, a truth value and two small integers.
    """
    image, windows = (x.shape[2], x.shape[3]), (out[0].shape[2], out[0].shape[3])
    taps = list(plane_taps(kernel_size, stride, padding, image, windows))
    corner = [np.arange(windows[k]) * stride[k] - padding[k][0] for k in (0, 1)]
    first = [np.maximum(starts, 0) for starts in corner]
    begin = np.add.outer((first[0] - corner[0]) * kernel_size[1], first[1] - corner[1])
    base = np.add.outer(corner[0] * image[1], corner[1])
    steps = np.add.outer(np.arange(kernel_size[0]) * image[1], np.arange(kernel_size[1])).ravel()
    for part in pieces(x):
        values, indices, pixels = out[0][part], out[1][part], x[part]
        if begin.any():
            values[...] = pixels[:, :, first[0]][:, :, :, first[1]]
        else:
            values[...] = pixels[:, :, *taps[0][1]]
        # The winner is the number of a tap: small integers fill SIMD lanes, indices would not.
        winner = np.empty(values.shape, np.min_scalar_type(len(taps)))
        winner[...] = begin
        compete(pixels, taps, values, winner)
        np.take(steps, winner, out=indices, mode="clip")
        indices += base


def compete(pixels: Array, taps: list[tuple[Region, Region]], values: Array, winner: Array) -> None:
    """Raise `values` to the largest pixel of each window and `winner` to its tap, in place.

    Initially they are the first pixel of each window that lies in the image, and its tap.
    """
    rival, better = np.empty_like(values), np.empty(values.shape, np.bool_)
    number = np.empty_like(winner)
    for i, (windows, places) in enumerate(taps):
        # A copy pays off: the three passes over it then run over contiguous memory.
        if pixels[0, 0][places].shape != values.shape[2:]:
            rival[...] = values  # windows that this tap does not reach compete with themselves
        rival[:, :, *windows] = pixels[:, :, *places]
        np.greater(rival, values, out=better)
        np.multiply(better.view(np.uint8), winner.dtype.type(i), out=number)
        np.maximum(winner, number, out=winner)
        np.maximum(values, rival, out=values)
    if (values != values).any():
        for i, (windows, places) in reversed(list(enumerate(taps))):
            rival = pixels[:, :, *places]
            np.copyto(winner[:, :, *windows], i, where=rival != rival, casting="unsafe")


def flat_places(indices: Array, plane: int) -> Array:
    """Indices (m, C, OH, OW) into planes of `plane` pixels, as indices into all m * C planes."""
    images, channels = indices.shape[:2]
    starts = np.arange(images * channels, dtype=np.int64) * plane
    places: Array = indices + starts.reshape(images, channels, 1, 1)
    return places


def max_pool2d_grad(dout: Array, indices: Array, *, input_shape: Pair, out: Array) -> None:
    """Add dout (N, C, OH, OW) up at `indices`: dx = out (N, C, H, W); `input_shape` is (H, W).

    Sums are taken in the promotion of `dout` with float32. Memory: one such sum for each pixel of
    a few images.
    """
    plane = out.shape[2] * out.shape[3]
    dtype = np.result_type(dout, np.float32)
    for part in pieces(out):
        places = flat_places(indices[part], plane).ravel()
        sums = np.zeros(out[part].size, dtype)
        np.add.at(sums, places, dout[part].ravel().astype(dtype, copy=False))
        out[part] = sums.reshape(out[part].shape)


def max_pool2d_gather(x: Array, indices: Array, *, out: Array) -> None:
    """x (N, C, H, W) read at `indices` (N, C, OH, OW), the transpose of `max_pool2d_grad`."""
    plane = x.shape[2] * x.shape[3]
    for part in pieces(out):
        np.take(x[part], flat_places(indices[part], plane), out=out[part], mode="clip")


def window_sizes(
    image: Pair, windows: Pair, kernel_size: Pair, stride: Pair, padding: Padding, padded: bool
) -> Array:
    """Pixels in each window, float64 (OH, OW); with `padded`, KH * KW in all of them."""
    sides = []
    for k in (0, 1):
        start = np.arange(windows[k]) * stride[k] - padding[k][0]
        inside = np.minimum(start + kernel_size[k], image[k]) - np.maximum(start, 0)
        sides.append(np.full(windows[k], kernel_size[k]) if padded else inside)
    sizes: Array = np.multiply.outer(*sides).astype(np.float64)
    return sizes


def avg_pool2d(
    x: Array,
    *,
    kernel_size: Pair,
    stride: Pair,
    padding: Padding,
    count_include_pad: bool,
    out: Array,
) -> None:
    """Means of the windows of x (N, C, H, W): out (N, C, OH, OW); padding counts as zeros, or not.

    Rows are summed first, over whole runs of memory, then columns: KH + KW taps instead of KH * KW.
    Sums are taken in the promotion of `x` with float32. Memory: two such sums of a few images.
    """
    (_, _, h, w), (oh, ow) = x.shape, out.shape[2:]
    dtype = np.result_type(x, np.float32)
    sizes = window_sizes((h, w), (oh, ow), kernel_size, stride, padding, count_include_pad)
    sizes = sizes.astype(dtype)
    for part in pieces(x):
        pixels, target = x[part], out[part]
        rows = np.zeros((*pixels.shape[:2], oh, w), dtype)
        for i in range(kernel_size[0]):
            windows, places = tap(i - padding[0][0], h, oh, stride[0])
            rows[:, :, windows] += pixels[:, :, places]
        sums = np.zeros(target.shape, dtype)
        for j in range(kernel_size[1]):
            windows, places = tap(j - padding[1][0], w, ow, stride[1])
            sums[..., windows] += rows[..., places]
        np.divide(sums, sizes, out=target, casting="same_kind")


def avg_pool2d_grad(
    dout: Array,
    *,
    input_shape: Pair,
    kernel_size: Pair,
    stride: Pair,
    padding: Padding,
    count_include_pad: bool,
    out: Array,
) -> None:
    """The transpose of `avg_pool2d`: dout (N, C, OH, OW) to dx = out (N, C, H, W).

    `input_shape` is (H, W). Memory: two sums, as for `avg_pool2d`.
    """
    (h, w), (oh, ow) = input_shape, dout.shape[2:]
    dtype = np.result_type(dout, np.float32)
    sizes = window_sizes((h, w), (oh, ow), kernel_size, stride, padding, count_include_pad)
    sizes = sizes.astype(dtype)
    for part in pieces(out):
        target = out[part]
        share = dout[part] / sizes
        rows = np.zeros((*target.shape[:2], oh, w), dtype)
        for j in range(kernel_size[1]):
            windows, places = tap(j - padding[1][0], w, ow, stride[1])
            rows[..., places] += share[..., windows]
        sums = np.zeros(target.shape, dtype)
        for i in range(kernel_size[0]):
            windows, places = tap(i - padding[0][0], h, oh, stride[0])
            sums[:, :, places] += rows[:, :, windows]
        target[...] = sums


# Indices are int64.
register_floats("MaxPool2D", max_pool2d, "{}->{}l")
register_floats("MaxPool2DGrad", max_pool2d_grad, "{}l->{}")
register("MaxPool2DGather", max_pool2d_gather, *[f"{c}l->{c}" for c in FLOAT])
register_floats("AvgPool2D", avg_pool2d)
register_floats("AvgPool2DGrad", avg_pool2d_grad)
