"""NumPy kernels of 2-d convolution: windows gathered into a matrix, then one matrix product.

All three are the same sum over (n, o, c, r, q, i, j), read for one of its factors:

    out[n, o, r, q]  +=  w[o, c, i, j] * x[n, c, r*sh + i*dh - top, q*sw + j*dw - left]

with x zero outside its plane (cross-correlation), and o and c running inside one group. Attributes
of all: `stride` (sh, sw), `padding` ((top, bottom), (left, right)), `dilation` (dh, dw), `groups`.
Products are summed in the promotion of the inputs with float32, so float16 costs no accuracy.

Scratch memory is bounded (see `SCRATCH`) and does not grow with the batch: a few images at a time
are gathered and multiplied while they are in the cache, which also spares the page faults of a
matrix of all windows.
"""

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..kernel import Array
from . import products
from .registering import register_floats

Pair = tuple[int, int]
Padding = tuple[Pair, Pair]

# Bytes of gathered windows to hold at a time: half of a usual level-two cache. One image at least.
SCRATCH = 1 << 19


class Patches:
    """Scratch that turns images (m, C, H, W), m <= step, into columns (C*KH*KW, m*OH*width).

    A plane is kept flat, its rows `pitch` apart, with the right padding of one row serving as the
    left padding of the next. With stride 1 the windows of one tap then are a single run of memory
    in each plane, rows of `width` = pitch rather than OW, which copies several times faster than
    rows of OW. The columns past OW hold windows that wrap around; callers drop or clear them.

    Memory: C * step planes, and C*KH*KW * step*OH*width for the columns.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        kernel: Pair,
        stride: Pair,
        padding: Padding,
        dilation: Pair,
        dtype: np.dtype[Any],
    ) -> None:
        images, channels, h, w = shape
        (kh, kw), (sh, sw), (dh, dw) = kernel, stride, dilation
        (top, bottom), (left, right) = padding
        if min(top, bottom, left, right) < 0:
            raise ValueError(f"convolution needs padding of at least 0; got {padding}")
        self.oh = (h + top + bottom - dh * (kh - 1) - 1) // sh + 1
        self.ow = (w + left + right - dw * (kw - 1) - 1) // sw + 1
        pitch = max(w + max(left, right), self.ow)
        # A wrapped column costs as much in the product as a real one: up to a quarter more pays
        # off.
        self.width = pitch if stride == (1, 1) and 4 * pitch <= 5 * self.ow else self.ow

        one = channels * kh * kw * self.oh * self.width * dtype.itemsize
        parts = max(1, min(images, -(-images * one // SCRATCH)))
        self.step = -(-images // parts)
        last = pitch * ((self.oh - 1) * sh + (kh - 1) * dh) + (self.width - 1) * sw + (kw - 1) * dw
        plane = max(last + 1, (top + h) * pitch)
        self.planes = np.zeros((channels, self.step, plane), dtype)
        over_c, over_n, item = self.planes.strides
        self.inside = as_strided(
            self.planes[:, :, top * pitch + left :],
            (channels, self.step, h, w),
            (over_c, over_n, pitch * item, item),
        )
        self.windows = as_strided(
            self.planes,
            (channels, kh, kw, self.step, self.oh, self.width),
            (over_c, dh * pitch * item, dw * item, over_n, sh * pitch * item, sw * item),
        )
        self.columns = np.empty(self.windows.size, dtype)

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

    def clear_wrapped(self, columns: Array) -> None:
        """Zero the columns past OW, so that infinities and NaN there reach no sum."""
        columns[..., self.ow :] = 0

    def scatter(self, columns: Array, out: Array) -> None:
        """Add every column to the pixels it was gathered from: `out` (m, C, H, W), overwritten."""
        self.clear_wrapped(columns)
        _, kh, kw, count = columns.shape[:4]
        self.planes[...] = 0
        for i in range(kh):
            for j in range(kw):
                tap = self.windows[:, i, j, :count]
                np.add(tap, columns[:, i, j], out=tap)
        out[...] = self.inside[:, :count].transpose(1, 0, 2, 3)


def conv2d(
    x: Array,
    w: Array,
    *,
    stride: Pair,
    padding: Padding,
    dilation: Pair,
    groups: int,
    out: Array,
) -> None:
    """x (N, C, H, W), w (O, C/groups, KH, KW) to out (N, O, OH, OW), as in PyTorch.

    An infinite weight gives NaN where it meets the zero padding.
    """
    if 0 in (x.size, w.size, out.size):
        out[...] = 0
        return
    dtype = np.result_type(x, w, np.float32)
    filters = w.reshape(groups, w.shape[0] // groups, -1)
    if w.shape[2:] == stride == (1, 1) and not np.any(padding):
        # One tap: the image is its own matrix of windows, and the product lands in `out`.
        pixels = x.reshape(x.shape[0], groups, filters.shape[2], -1)
        result = out.reshape(x.shape[0], groups, filters.shape[1], -1)
        products.matmul(filters, pixels, out=result, dtype=dtype)
        return
    filters = filters.astype(dtype)
    patches = Patches(x.shape, (w.shape[2], w.shape[3]), stride, padding, dilation, dtype)
    scratch = np.empty(w.shape[0] * patches.step * patches.oh * patches.width, dtype)
    for start in range(0, x.shape[0], patches.step):
        columns = patches.gather(x[start : start + patches.step])
        images = columns.shape[3]
        product = scratch[: w.shape[0] * images * patches.oh * patches.width]
        products.matmul(
            filters,
            columns.reshape(groups, filters.shape[2], -1),
            out=product.reshape(groups, filters.shape[1], -1),
        )
        rows = product.reshape(w.shape[0], images, patches.oh, patches.width)
        out[start : start + images] = rows[..., : patches.ow].transpose(1, 0, 2, 3)


def conv2d_input_grad(
    dout: Array,
    w: Array,
    *,
    input_shape: Pair,
    stride: Pair,
    padding: Padding,
    dilation: Pair,
    groups: int,
    out: Array,
) -> None:
    """dout (N, O, OH, OW), w (O, C/groups, KH, KW) to dx = out (N, C, H, W).

    `input_shape` is (H, W). With stride 1 this is `conv2d` of `dout` with the filters turned by
    180 degrees and their two channel axes exchanged; otherwise, and where there are so few input
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
        turned = w.reshape(groups, outer, inner, kh, kw)[..., ::-1, ::-1].transpose(0, 2, 1, 3, 4)
        conv2d(
            dout,
            turned.reshape(groups * inner, outer, kh, kw),
            stride=(1, 1),
            padding=(vertical, horizontal),
            dilation=dilation,
            groups=groups,
            out=out,
        )
        return
    patches = Patches(
        out.shape, (kh, kw), stride, padding, dilation, np.result_type(dout, w, np.float32)
    )
    scatter_windows(patches, dout, w.reshape(groups, outer, -1), out)


def scatter_windows(patches: Patches, dout: Array, filters: Array, out: Array) -> None:
    """Add filters^T dout back to the windows: filters (groups, O/groups, C/groups*KH*KW)."""
    groups, outer, inner = filters.shape
    dtype = patches.columns.dtype
    transposed = filters.transpose(0, 2, 1).astype(dtype)
    for start in range(0, dout.shape[0], patches.step):
        stop = min(start + patches.step, dout.shape[0])
        slopes = widened(dout[start:stop], patches.width, dtype).reshape(groups, outer, -1)
        columns = patches.view(stop - start)
        products.matmul(transposed, slopes, out=columns.reshape(groups, inner, -1))
        patches.scatter(columns, out[start:stop])


def widened(dout: Array, width: int, dtype: np.dtype[Any]) -> Array:
    """dout (m, O, OH, OW) to (O, m, OH, width), the columns past OW zero."""
    images, channels, oh, ow = dout.shape
    result = np.empty((channels, images, oh, width), dtype)
    result[..., ow:] = 0
    result[..., :ow] = dout.transpose(1, 0, 2, 3)
    return result


def conv2d_weight_grad(
    x: Array,
    dout: Array,
    *,
    kernel_shape: Pair,
    stride: Pair,
    padding: Padding,
    dilation: Pair,
    groups: int,
    out: Array,
) -> None:
    """x (N, C, H, W), dout (N, O, OH, OW) to dw = out (O, C/groups, KH, KW).

    `kernel_shape` is (KH, KW).
    """
    if 0 in (x.size, dout.size, out.size):
        out[...] = 0
        return
    dtype = np.result_type(x, dout, np.float32)
    patches = Patches(x.shape, kernel_shape, stride, padding, dilation, dtype)
    total = np.zeros((groups, out.shape[0] // groups, out[0].size), dtype)
    product = np.empty_like(total)
    for start in range(0, x.shape[0], patches.step):
        stop = start + patches.step
        columns = patches.gather(x[start:stop])
        patches.clear_wrapped(columns)
        slopes = widened(dout[start:stop], patches.width, dtype)
        products.matmul(
            slopes.reshape(*total.shape[:2], -1),
            columns.reshape(groups, total.shape[2], -1).transpose(0, 2, 1),
            out=product,
        )
        np.add(total, product, out=total)
    out[...] = total.reshape(out.shape)


register_floats("Conv2D", conv2d, "{}{}->{}")
register_floats("Conv2DInputGrad", conv2d_input_grad, "{}{}->{}")
register_floats("Conv2DWeightGrad", conv2d_weight_grad, "{}{}->{}")
