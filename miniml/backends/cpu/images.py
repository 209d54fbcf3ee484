"""NumPy kernels of 2-d convolution, by im2col and matrix products, and of pooling.

All three of convolution are the same sum over (n, o, c, r, q, i, j), read for one of its factors:

    out[n, o, r, q]  +=  w[o, c, i, j] * x[n, c, r*sh + i*dh - top, q*sw + j*dw - left]

with x zero outside its plane (cross-correlation), and o and c running inside one group. Attributes
of all: `stride` (sh, sw), `padding` ((top, bottom), (left, right)), `dilation` (dh, dw), `groups`.
Both inputs have one dtype of 32 or 64 bits: 16 bits are widened, so float16 costs no accuracy.

Scratch memory is bounded (see `SCRATCH`) and does not grow with the batch: a few images at a time
are gathered and multiplied while they are in the cache, which also spares the page faults of a
matrix of all windows.

Pooling takes one strided view of the image per tap of the window, of a few images at a time, too.
Attributes of all: `kernel_size` (KH, KW), `stride` (sh, sw) and `padding` ((top, bottom), (left,
right)), each of which must be smaller than the kernel, so that every window holds a pixel. Padding
is never materialized: a tap is applied only to the windows in which it meets the image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ...core.signature import FLOAT
from ..kernel import Array, largest, scalars, skips
from ..registry import register, register_floats, register_planned
from . import linalg

Pair = tuple[int, int]
Padding = tuple[Pair, Pair]

# Bytes of gathered windows, or of pooled images, to hold at a time: half of a usual level-two
# cache. One image at least.
SCRATCH = 1 << 19


# --- Convolution ----------------------------------------------------------------------------------


def conv2d(
    x: Array, w: Array, *, stride: Pair, padding: Padding, dilation: Pair, groups: int, out: Array
) -> None:
    """x (N, C, H, W), w (O, C/groups, KH, KW) to out (N, O, OH, OW), as in PyTorch.

    An infinite weight gives NaN where it meets the zero padding.
    """
    if 0 in (x.size, w.size, out.size):
        out[...] = 0
        return
    filters = w.reshape(groups, w.shape[0] // groups, -1)
    if w.shape[2:] == stride == (1, 1) and not any(map(any, padding)):
        # One tap: the image is its own matrix of windows, and the product lands in `out`.
        pixels = x.reshape(x.shape[0], groups, filters.shape[2], -1)
        result = out.reshape(x.shape[0], groups, filters.shape[1], -1)
        linalg.matmul(filters, pixels, out=result)
        return
    filters = filters.copy("K")  # BLAS takes no steps backwards
    patches = Patches(x.shape, w.shape[2:], stride, padding, dilation, x.dtype)
    scratch = np.empty(w.shape[0] * patches.step * patches.oh * patches.width, x.dtype)
    for start in range(0, x.shape[0], patches.step):
        columns = patches.gather(x[start : start + patches.step])
        images = columns.shape[3]
        product = scratch[: w.shape[0] * images * patches.oh * patches.width]
        found = product.reshape(groups, filters.shape[1], -1)
        linalg.matmul(filters, columns.reshape(groups, filters.shape[2], -1), found)
        rows = product.reshape(w.shape[0], images, patches.oh, patches.width)
        out[start : start + images] = rows[..., : patches.ow].transpose(1, 0, 2, 3)


def conv2d_input_grad(
    dout: Array, w: Array, *, input_shape: Pair, stride: Pair, padding: Padding, dilation: Pair,
    groups: int, out: Array,
) -> None:  # fmt: skip
    """dout (N, O, OH, OW), w (O, C/groups, KH, KW) to dx = out (N, C, H, W).

    `input_shape` is (H, W). With stride 1 this is `conv2d` of `dout` with the filters rotated by
    180 degrees and their two channel axes swapped; otherwise, and where there are so few input
    channels that the product would be slow, W^T dout is added back to the pixels of the windows.
    """
    if 0 in (dout.size, w.size, out.size):
        out[...] = 0
        return
    count, inner, kh, kw = w.shape
    outer = count // groups
    reach = (dilation[0] * (kh - 1), dilation[1] * (kw - 1))
    # With stride 1 these pads give back exactly H rows and W columns.
    vertical = (reach[0] - padding[0][0], reach[0] - padding[0][1])
    horizontal = (reach[1] - padding[1][0], reach[1] - padding[1][1])
    enough = min(*vertical, *horizontal) >= 0
    if stride == (1, 1) and enough and 4 * inner > outer:
        rotated = w.reshape(groups, outer, inner, kh, kw)[..., ::-1, ::-1].transpose(0, 2, 1, 3, 4)
        rotated = rotated.reshape(groups * inner, outer, kh, kw)
        around = vertical, horizontal
        conv2d(
            dout, rotated, stride=(1, 1), padding=around, dilation=dilation, groups=groups, out=out
        )
        return
    patches = Patches(out.shape, (kh, kw), stride, padding, dilation, dout.dtype)
    scatter_windows(patches, dout, w.reshape(groups, outer, -1), out)


def scatter_windows(patches: Patches, dout: Array, filters: Array, out: Array) -> None:
    """Add filters^T dout back to the windows: filters (groups, O/groups, C/groups*KH*KW)."""
    groups, outer, inner = filters.shape
    transposed = filters.transpose(0, 2, 1).copy("K")
    for start in range(0, dout.shape[0], patches.step):
        stop = min(start + patches.step, dout.shape[0])
        slopes = widened(dout[start:stop], patches.width).reshape(groups, outer, -1)
        columns = patches.view(stop - start)
        linalg.matmul(transposed, slopes, out=columns.reshape(groups, inner, -1))
        patches.scatter(columns, out[start:stop])


def conv2d_weight_grad(
    x: Array, dout: Array, *, kernel_shape: Pair, stride: Pair, padding: Padding, dilation: Pair,
    groups: int, out: Array,
) -> None:  # fmt: skip
    """x (N, C, H, W), dout (N, O, OH, OW) to dw = out (O, C/groups, KH, KW).

    `kernel_shape` is (KH, KW).
    """
    if 0 in (x.size, dout.size, out.size):
        out[...] = 0
        return
    patches = Patches(x.shape, kernel_shape, stride, padding, dilation, x.dtype)
    total = np.zeros((groups, out.shape[0] // groups, out[0].size), x.dtype)
    product = np.empty_like(total)
    for start in range(0, x.shape[0], patches.step):
        stop = start + patches.step
        columns = patches.gather(x[start:stop])
        columns[..., patches.ow :] = 0  # no infinity or NaN there enters a sum
        slopes = widened(dout[start:stop], patches.width).reshape(*total.shape[:2], -1)
        windows = columns.reshape(groups, total.shape[2], -1).transpose(0, 2, 1)
        linalg.matmul(slopes, windows, product)
        np.add(total, product, total)
    out[...] = total.reshape(out.shape)


def widened(dout: Array, width: int) -> Array:
    """dout (m, O, OH, OW) to (O, m, OH, width), the columns past OW zero."""
    images, channels, oh, ow = dout.shape
    result = np.empty((channels, images, oh, width), dout.dtype)
    result[..., ow:] = 0
    result[..., :ow] = dout.transpose(1, 0, 2, 3)
    return result


register_floats("Conv2D", conv2d, "{}{}->{}")
register_floats("Conv2DInputGrad", conv2d_input_grad, "{}{}->{}")
register_floats("Conv2DWeightGrad", conv2d_weight_grad, "{}{}->{}")


class Patches:
    """Scratch for im2col, from images (m, C, H, W), m <= step, to columns (C*KH*KW, m*OH*width).

    A plane is kept flat, its rows `pitch` apart, with the right padding of one row serving as the
    left padding of the next. With stride 1 the windows of one tap then are a single run of memory
    in each plane, rows of `width` = pitch rather than OW, which copies several times faster than
    rows of OW. The columns past OW hold windows that wrap around; callers drop or clear them.

    Memory: C * step planes, and C*KH*KW * step*OH*width for the columns.
    """

    def __init__(self, *of: Any):
        """of: the arguments of `layout`, but for the last."""
        (self.oh, self.ow, self.width, self.step, plane), inside, windows = layout(*of, SCRATCH)
        self.planes = np.zeros(plane, of[-1])
        self.inside: Array = np.ndarray(inside[0], of[-1], self.planes, *inside[1:])
        self.windows: Array = np.ndarray(windows[0], of[-1], self.planes, *windows[1:])
        self.columns = np.empty(self.windows.size, of[-1])

    def view(self, count: int) -> Array:
        """The columns of `count` images, uninitialised: (C, KH, KW, count, OH, width)."""
        channels, kh, kw = self.windows.shape[:3]
        size = channels * kh * kw * count * self.oh * self.width
        return self.columns[:size].reshape(channels, kh, kw, count, self.oh, self.width)

    def gather(self, x: Array) -> Array:
        """Copy the windows of images `x` (m, C, H, W) to the columns; wrapped ones included."""
        count = x.shape[0]
        self.inside[:, :count] = x.transpose(1, 0, 2, 3)
        columns = self.view(count)
        columns[...] = self.windows[:, :, :, :count]
        return columns

    def scatter(self, columns: Array, out: Array) -> None:
        """Add every column to the pixels it was gathered from: `out` (m, C, H, W), overwritten."""
        columns[..., self.ow :] = 0
        _, kh, kw, count = columns.shape[:4]
        self.planes[...] = 0
        for i, j in product(range(kh), range(kw)):
            tap = self.windows[:, i, j, :count]
            np.add(tap, columns[:, i, j], tap)
        out[...] = self.inside[:, :count].transpose(1, 0, 2, 3)


@lru_cache(maxsize=256)
def layout(
    shape: tuple[int, ...], kernel: Pair, stride: Pair, padding: Padding, dilation: Pair,
    dtype: np.dtype[Any], most: int,
) -> tuple[tuple[Any, ...], ...]:  # fmt: skip
    """OH, OW, width, step and the shape of the planes of `Patches` of at most so many bytes; then
    shape, offset and strides in them of the images, and of the windows. Made once."""
    images, channels, h, w = shape
    (kh, kw), (sh, sw), (dh, dw) = kernel, stride, dilation
    (top, bottom), (left, right) = padding
    if min(top, bottom, left, right) < 0:
        raise ValueError(f"convolution needs padding of at least 0; got {padding}")
    oh = (h + top + bottom - dh * (kh - 1) - 1) // sh + 1
    ow = (w + left + right - dw * (kw - 1) - 1) // sw + 1
    pitch = max(w + max(left, right), ow)
    # A wrapped column costs as much in the product as a real one; up to a quarter of them pays.
    width = pitch if stride == (1, 1) and 4 * pitch <= 5 * ow else ow
    one = channels * kh * kw * oh * width * dtype.itemsize
    step = -(-images // max(1, min(images, -(-images * one // most))))
    last = pitch * ((oh - 1) * sh + (kh - 1) * dh) + (width - 1) * sw + (kw - 1) * dw
    plane, item = max(last + 1, (top + h) * pitch), dtype.itemsize
    over_c, over_n, over_h = step * plane * item, plane * item, pitch * item
    start, strides = (top * pitch + left) * item, (over_c, over_n, over_h, item)
    taps = (over_c, dh * over_h, dw * item, over_n, sh * over_h, sw * item)
    inside, windows = (channels, step, h, w), (channels, kh, kw, step, oh, width)
    planes = channels, step, plane
    return (oh, ow, width, step, planes), (inside, start, strides), (windows, 0, taps)


# --- Pooling --------------------------------------------------------------------------------------


@skips(1)
def max_pool2d(
    x: Array, *, kernel_size: Pair, stride: Pair, padding: Padding, out: tuple[Array, Array | None]
) -> None:
    """x (N, C, H, W) to (values (N, C, OH, OW), indices (N, C, OH, OW) int64).

    An index counts the H*W pixels of the unpadded plane, and is that of the first maximum in
    row-major order of the window. NaN is larger than all: the first NaN of a window wins. Without
    indices, the largest of each column of a window are found first; of zeros, either is the larger.

    Memory, for each window of a few images: a pixel, a truth value and two small integers.
    """
    values, indices = out
    at: Any = kernel_size, stride, padding, x.shape[2:], values.shape[2:]
    if 0 < values.size * prod(kernel_size) <= FEW_PLACES * (1 if indices is None else 4):
        places, of_all, starts = gathered(x.shape[0] * x.shape[1], *at)
        pixels = x.reshape(-1, prod(x.shape[2:])).take(places, 1)
        winner = np.add(pixels.argmax(2).ravel(), starts).reshape(values.shape)
        pixels.take(winner, None, values, "clip")
        if indices is not None:
            of_all.take(winner, None, indices, "clip")
        return
    for part in pieces(x):
        if indices is None:
            values[part] = folded(np.maximum, -np.inf, x[part], at)
        else:
            compete(x[part], at, values[part], indices[part])


FEW_PLACES = 1200  # as many pixels are gathered in less time than each tap is compared


@lru_cache(maxsize=256)
def gathered(
    planes: int, kernel_size: Pair, stride: Pair, padding: Padding, image: Pair, windows: Pair
) -> tuple[Array, Array, Array]:
    """(windows, taps): the pixels of each window, where those outside are its first ones inside;
    the same for so many planes in one row, and where each window begins there."""
    sides = []
    for k in (0, 1):
        at = np.arange(windows[k])[:, None] * stride[k] - padding[k][0] + np.arange(kernel_size[k])
        sides.append(np.where((at < 0) | (at >= image[k]), np.maximum(at[:, :1], 0), at))
    places = sides[0][:, None, :, None] * image[1] + sides[1][:, None]
    places = places.reshape(-1, prod(kernel_size))
    starts = np.arange(planes * len(places)) * places.shape[1]
    return places, np.tile(places.ravel(), planes), starts


@lru_cache(maxsize=256)
def pooled(
    kernel_size: Pair, stride: Pair, padding: Padding, image: Pair, windows: Pair
) -> tuple[Any, ...]:
    """The windows of a pooling of an image, made once: small images take less time than this.

    In order: its taps, row-major, each with the windows in which it lies in the image, None for
    all, its pixels there, both as indices of images, and its number, small to fill SIMD lanes; the
    windows' first pixels in the image, on both axes; the numbers of their taps; True where some
    begin outside; the indices of their corners; the steps from there to each tap.
    """
    rows, columns = taps(kernel_size, stride, padding, image, windows)
    small = np.min_scalar_type(len(rows) * len(columns))
    whole = tuple([slice(0, count) for count in windows])
    meeting = []
    for i, tap in enumerate(product(rows, columns)):
        reached, pixels = zip(*tap, strict=True)
        those = None if reached == whole else (..., *reached)
        meeting.append((those, (..., *pixels), np.array(i, small)))
    corner = [np.arange(windows[k]) * stride[k] - padding[k][0] for k in (0, 1)]
    first = [np.maximum(starts, 0) for starts in corner]
    cut = any(np.any(f != c) for f, c in zip(first, corner, strict=True))
    begins = np.add.outer((first[0] - corner[0]) * kernel_size[1], first[1] - corner[1])
    base = np.add.outer(corner[0] * image[1], corner[1])
    steps = np.add.outer(np.arange(kernel_size[0]) * image[1], np.arange(kernel_size[1])).ravel()
    return meeting, first, begins.astype(small), cut, base, steps


def compete(x: Array, at: Any, values: Array, indices: Array) -> None:
    """Fill in the largest pixel of each window of images x, first its first one in the image."""
    meeting, (rows, columns), begins, cut, base, steps = pooled(*at)
    values[...] = x[:, :, rows][:, :, :, columns] if cut else x[meeting[0][1]]
    rival, number = np.empty(values.shape, values.dtype), np.empty(values.shape, begins.dtype)
    winner = np.broadcast_to(begins, values.shape).copy()
    flags = np.empty(values.shape, np.uint8)
    better = flags.view(np.bool_)
    for windows, pixels, tap in meeting[1:]:
        # A copy pays off: the three passes over it then run over contiguous memory.
        if windows is None:
            rival[...] = x[pixels]
        else:
            rival[...] = values  # windows that this tap does not reach compete with themselves
            rival[windows] = x[pixels]
        np.greater(rival, values, better)
        np.multiply(flags, tap, number)
        np.maximum(winner, number, out=winner)
        np.maximum(values, rival, out=values)
    if np.count_nonzero(np.not_equal(values, values, better)):
        for windows, pixels, tap in reversed(meeting):
            rival, won = x[pixels], winner[... if windows is None else windows]
            np.copyto(won, tap, where=rival != rival, casting="unsafe")
    steps.take(winner, out=indices, mode="clip")
    np.add(indices, base, out=indices)


def max_pool2d_grad(dout: Array, indices: Array, *, input_shape: Pair, out: Array) -> None:
    """Add dout (N, C, OH, OW) up at `indices`: dx = out (N, C, H, W); `input_shape` is (H, W).

    Sums are taken in the promotion of `dout` with float32. Memory: one such sum for each pixel of
    a few images.
    """
    plane = out.shape[2] * out.shape[3]
    dtype = np.result_type(dout, np.float32)
    for part in pieces(out):
        flat = flat_indices(indices[part], plane).ravel()
        sums = np.zeros(out[part].size, dtype)
        np.add.at(sums, flat, dout[part].ravel().astype(dtype, copy=False))
        out[part] = sums.reshape(out[part].shape)


def max_pool2d_gather(x: Array, indices: Array, *, out: Array) -> None:
    """x (N, C, H, W) read at `indices` (N, C, OH, OW), the transpose of `max_pool2d_grad`."""
    plane = x.shape[2] * x.shape[3]
    for part in pieces(out):
        np.take(x[part], flat_indices(indices[part], plane), out=out[part], mode="clip")


def flat_indices(indices: Array, plane: int) -> Array:
    """Indices (m, C, OH, OW) into planes of `plane` pixels, as indices into all m * C planes."""
    images, channels = indices.shape[:2]
    starts = np.arange(images * channels, dtype=np.int64) * plane
    flat: Array = indices + starts.reshape(images, channels, 1, 1)
    return flat


FEW = 1 << 16  # as many multiplications take less time than the calls of NumPy for the taps


@lru_cache(maxsize=256)
def averaging(
    shape: tuple[int, ...], out_shape: tuple[int, ...], dtype: np.dtype[Any], kernel_size: Pair,
    stride: Pair, padding: Padding, count_include_pad: bool, input_shape: Pair | None = None,
) -> Callable[..., None]:  # fmt: skip
    """The means of the windows of x (N, C, H, W), as average(x, out=out (N, C, OH, OW)); padding
    counts as zeros, or not. With `input_shape`, (H, W), its transpose, from means to images.

    Rows are summed first, over whole runs of memory, then columns: KH + KW taps instead of KH * KW.
    Memory: two sums of a few images. Of few pixels it is a product with a matrix of zeros and ones,
    done again by taps if it has NaN, as infinity times 0 is.
    """
    pixels, places, back = shape[2:], out_shape[2:], input_shape is not None
    at: Any = kernel_size, stride, padding, *((places, pixels) if back else (pixels, places))
    sizes, zero = scalars(dtype, prod(kernel_size), 0)
    if not count_include_pad:
        counts = folded(np.add, 0, np.ones((1, 1, *at[3]), dtype), at)[0, 0]
        sizes = counts[0, 0, ...] if np.unique(counts).size == 1 else counts

    def average(x: Array, *, out: Array) -> None:
        for part in pieces(out if back else x):
            means = x[part] / sizes if back else x[part]
            sums = np.add(folded(np.add, 0, means, at, back), zero, out[part])  # of -0.0 it is 0.0
            if not back:
                np.divide(sums, sizes, sums)

    if 0 in shape + out_shape or prod(shape) * max(prod(pixels), prod(places)) > FEW:
        return average
    units = np.eye(prod(pixels)).reshape(1, -1, *pixels)
    matrix = folded(np.add, 0, units, at, back).reshape(-1, prod(places))

    def multiply(x: Array, *, out: Array) -> None:
        means = np.divide(x, sizes) if back else x  # summed in float64, below
        out[...] = means.reshape(-1, len(matrix)).dot(matrix).reshape(out.shape)
        if np.isnan(largest(out)):
            average(x, out=out)
        elif not back:
            np.divide(out, sizes, out)

    return multiply


def folded(ufunc: np.ufunc, start: float, x: Array, at: Any, back: bool = False) -> Array:
    """x folded by the ufunc into windows, rows first, or `back` into pixels; at: the arguments of
    `sides`. What has no pixel is `start`."""
    for axis, extent, apart, ((to, taken), *rest) in sides(*at, back):
        if apart > 64 or (apart > 4 and x.size <= 2048):  # where calls take longer than elements
            x = ufunc.reduce(x.reshape(*x.shape[:2], extent, apart, x.shape[3]), axis=3)
            continue
        if to is not None:
            found = np.empty((*x.shape[:axis], extent, *x.shape[axis + 1 :]), x.dtype)
            found.fill(start)
            rest = [(to, taken), *rest]
        elif rest and rest[0][0] is None:  # in half of the passes
            found, rest = ufunc(x[taken], x[rest[0][1]]), rest[1:]
        else:
            found = x[taken].copy() if rest else x[taken]
        for to, taken in rest:
            into = found if to is None else found[to]
            ufunc(into, x[taken], out=into)
        x = found
    return x


@lru_cache(maxsize=256)
def sides(
    kernel_size: Pair, stride: Pair, padding: Padding, image: Pair, windows: Pair, back: bool
) -> list[tuple[int, int, int, list[tuple[Any, Any]]]]:
    """The axis of the rows and that of the columns, the extent it gets, its taps if they are rows
    side by side, and of each where it goes, None for everywhere, and what goes there."""
    found = []
    for k, side in enumerate(taps(kernel_size, stride, padding, image, windows)):
        extent, rest = (image if back else windows)[k], (slice(None),) * (1 - k)
        ends = [pair[::-1] if back else pair for pair in side]
        whole = slice(0, extent)
        steps = [(None if to == whole else (..., to, *rest), (..., at, *rest)) for to, at in ends]
        even = (len(side), extent * len(side), padding[k][0]) == (stride[k], image[k], 0)
        found.append((2 + k, extent, len(side) if even and not (k or back) else 0, steps))
    return found[::-1] if back else found


# Indices are int64.
register_floats("MaxPool2D", max_pool2d, "{}->{}l")
register_floats("MaxPool2DGrad", max_pool2d_grad, "{}l->{}")
register("MaxPool2DGather", max_pool2d_gather, *[f"{c}l->{c}" for c in FLOAT])
register_planned("AvgPool2D", averaging)
register_planned("AvgPool2DGrad", averaging)


def pieces(x: Array) -> Sequence[Any]:
    """Slices of the first axis of `x` that hold about `SCRATCH` bytes each; none if it is empty."""
    images, size = x.shape[0], x.nbytes
    if size <= SCRATCH:
        return (...,) if size else ()
    step = max(1, images * SCRATCH // size)
    return [slice(start, start + step) for start in range(0, images, step)]


def taps(
    kernel_size: Pair, stride: Pair, padding: Padding, image: Pair, windows: Pair
) -> list[list[tuple[slice, slice]]]:
    """Of each tap of the rows, and of the columns: the windows whose pixel at it lies in the image,
    and those pixels.

    Window r has its pixel at r * stride + offset; offset is the tap less the padding.
    """
    sides: list[list[tuple[slice, slice]]] = [[], []]
    for k in (0, 1):
        for offset in range(-padding[k][0], kernel_size[k] - padding[k][0]):
            first = max(0, -(offset // stride[k]))
            stop = max(first, min(windows[k], (image[k] - 1 - offset) // stride[k] + 1))
            start = first * stride[k] + offset
            pixels = slice(start, start + (stop - first) * stride[k], stride[k])
            sides[k].append((slice(first, stop), pixels))
    return sides
