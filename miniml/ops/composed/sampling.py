"""Images whose pixels are moved or sampled: pixel shuffles, affine grids, grid_sample.

In order: blocks of pixels exchanged for channels; the grid of an affine map; images sampled at the
points of a grid. `resize`, which samples at points that its arguments say, is in `images`.
"""

from __future__ import annotations

from functools import reduce
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.abstract import Shape
from ...core.dtype import float32, int64, promote
from ...core.errors import ShapeError
from ...core.options import choice, count, flag
from ..checks import as_shape, composition, dtype_of, needs_float, shape_of
from ..elementwise import abs, add, cast, clip, floor, minimum, mod, mul, round, sub
from ..images import EXTENTS, MODES, Array
from ..index import gather
from ..linalg import matmul
from ..logic import greater, greater_equal, isnan, less, less_equal, logical_and, select
from ..reduce import any as any_of
from ..shape import expand_dims, reshape, split, squeeze, swapaxes, transpose

if TYPE_CHECKING:
    from ...core.tensor import Tensor

__all__ = [
    "depth_to_space", "pixel_shuffle", "pixel_unshuffle", "space_to_depth",
    "affine_grid",
    "grid_sample",
]  # fmt: skip


# --- Blocks of pixels and channels ----------------------------------------------------------------


ORDERS = ("DCR", "CRD")


@composition
def depth_to_space(x: Any, block_size: int, mode: str = "DCR") -> Tensor:
    """x (..., C b^2, H, W) as (..., C, H b, W b), b = block_size: b^2 channels become the pixels of
    a block.

    out[c, h b + i, w b + j] = x[(i b + j) C + c, h, w] for mode "DCR" (depth, column, row), and
    x[(c b + i) b + j, h, w] for "CRD", which `pixel_shuffle` is. The names are ONNX's; "DCR" is
    TensorFlow's order. ShapeError where b^2 does not divide the channels.

    >>> depth_to_space([[[1]], [[2]], [[3]], [[4]]], 2).tolist()
    [[[1, 2], [3, 4]]]
    """
    return _spread("depth_to_space", x, count("depth_to_space", "block_size", block_size), mode)


@composition
def space_to_depth(x: Any, block_size: int, mode: str = "DCR") -> Tensor:
    """x (..., C, H b, W b) as (..., C b^2, H, W), b = block_size: the pixels of a block become
    channels. The inverse of `depth_to_space` of the same mode.

    ShapeError where b does not divide height and width.

    >>> space_to_depth([[[1, 2], [3, 4]]], 2).tolist()
    [[[1]], [[2]], [[3]], [[4]]]
    """
    return _packed("space_to_depth", x, count("space_to_depth", "block_size", block_size), mode)


@composition
def pixel_shuffle(x: Any, upscale_factor: int) -> Tensor:
    """out[c, h r + i, w r + j] = x[(c r + i) r + j, h, w], r = upscale_factor: x (..., C r^2, H, W)
    as (..., C, H r, W r).

    As `depth_to_space` in mode "CRD". Source: Shi et al. 2016, "Real-Time Single Image and Video
    Super-Resolution Using an Efficient Sub-Pixel Convolutional Neural Network".

    >>> pixel_shuffle([[[1]], [[2]], [[3]], [[4]]], 2).tolist()
    [[[1, 2], [3, 4]]]
    """
    by = count("pixel_shuffle", "upscale_factor", upscale_factor)
    return _spread("pixel_shuffle", x, by, "CRD")


@composition
def pixel_unshuffle(x: Any, downscale_factor: int) -> Tensor:
    """out[(c r + i) r + j, h, w] = x[c, h r + i, w r + j], r = downscale_factor: x (..., C, H r,
    W r) as (..., C r^2, H, W), the inverse of `pixel_shuffle`.

    >>> pixel_unshuffle([[[1, 2], [3, 4]]], 2).tolist()
    [[[1]], [[2]], [[3]], [[4]]]
    """
    by = count("pixel_unshuffle", "downscale_factor", downscale_factor)
    return _packed("pixel_unshuffle", x, by, "CRD")


def _spread(name: str, x: Any, b: int, mode: str) -> Tensor:
    """Channels moved into blocks of b by b pixels."""
    choice(name, "mode", mode, ORDERS)
    *rest, c, h, w = _pixels(name, shape_of(x))
    if c % b**2:
        raise ShapeError(
            f"{name} cannot make blocks of {b} x {b} pixels of the {c} channels of x of shape "
            f"{shape_of(x)}; their number is a multiple of {b**2}"
        )
    n, depth = prod(rest), c // b**2
    if mode == "DCR":
        apart = transpose(reshape(x, (n, b, b, depth, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        apart = transpose(reshape(x, (n, depth, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return reshape(apart, (*rest, depth, h * b, w * b))


def _packed(name: str, x: Any, b: int, mode: str) -> Tensor:
    """Blocks of b by b pixels moved into channels."""
    choice(name, "mode", mode, ORDERS)
    *rest, c, h, w = _pixels(name, shape_of(x))
    if h % b or w % b:
        raise ShapeError(
            f"{name} cannot cut x of shape {shape_of(x)} into blocks of {b} x {b} pixels; height "
            f"and width are multiples of {b}"
        )
    n = prod(rest)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    apart = transpose(reshape(x, (n, c, h // b, b, w // b, b)), order)
    return reshape(apart, (*rest, c * b * b, h // b, w // b))


def _pixels(name: str, shape: Shape) -> Shape:
    if len(shape) < 3:
        raise ShapeError(f"{name} got x of shape {shape}; it takes images, of shape (..., C, H, W)")
    return shape


# --- The grid of an affine map --------------------------------------------------------------------


@composition
def affine_grid(theta: Any, size: Any, align_corners: bool = False) -> Tensor:
    """grid[n, h, w] = theta[n] (x_w, y_h, 1): the points of `grid_sample` for an affine map of
    images.

    theta (N, 2, 3) floats, size (N, C, H, W): grid (N, H, W, 2), the coordinates (x, y) in x_w and
    y_h, which run from -1 to 1 over the pixels of an image of that size: with align_corners from
    the centre of the first pixel to that of the last, else from edge to edge. theta (N, 3, 4) and
    size (N, C, D, H, W) in the same way: (N, D, H, W, 3). Floats of 16 bits are computed in
    float32. ShapeError for other shapes. Source: Jaderberg et al. 2015, "Spatial Transformer
    Networks".

    >>> affine_grid([[[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]]], (1, 1, 1, 2)).tolist()
    [[[[0.0, 0.0], [1.0, 0.0]]]]
    """
    align = flag("affine_grid", "align_corners", align_corners)
    out, shape = as_shape(size, "affine_grid"), shape_of(theta)
    d = len(out) - 2
    if d not in (1, 2, 3) or shape != (out[0], d, d + 1) or min(out) < 0:
        raise ShapeError(
            f"affine_grid got theta of shape {shape} and size {out}; expected (N, 2, 3) and "
            "(N, C, H, W), or (N, 3, 4) and (N, C, D, H, W)"
        )
    given = needs_float("affine_grid", dtype_of(theta))
    dtype = promote(given, float32)
    axes = [_centres(n, align) for n in out[2:]]
    points = np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(out[2:])], -1)
    flat = points.reshape(prod(out[2:]), d + 1).astype(dtype)
    grid = matmul(flat, swapaxes(cast(theta, dtype), 1, 2))
    return cast(reshape(grid, (out[0], *out[2:], d)), given)


def _centres(n: int, align_corners: bool) -> Array:
    """The coordinates of n pixels on an axis from -1 to 1."""
    if align_corners:
        return np.linspace(-1.0, 1.0, n) if n > 1 else np.zeros(n)
    return (2 * np.arange(n) + 1) / max(n, 1) - 1


# --- Images at the points of a grid ---------------------------------------------------------------


GRID_MODES = tuple(m for m in MODES if m != "nearest-exact")
GRID_PADDINGS = ("zeros", "border", "reflection")
_REACH = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}  # taps, from the floor on
_A = -0.75  # of Keys' cubic kernel, as of `resize`


@composition
def grid_sample(
    x: Any,
    grid: Any,
    mode: str = "linear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Tensor:
    """out[n, c, p] = sum over i, j of k(q - i) k(r - j) x[n, c, i, j], where (r, q) is the point
    grid[n, p] in pixels and k the kernel: images sampled at points.

    x (N, C, H, W) floats; grid (N, ..., 2) floats, the points (x, y), of which -1 and 1 are the
    ends of the image: with align_corners the centres of its first and last pixel, else their outer
    edges; out (N, C, ...). With one or three axes behind (N, C) points have one or three
    coordinates, the one of the last axis first. mode: "nearest", the nearest pixel (of two, the
    even one), "linear" and "cubic" as in `resize`. padding_mode, outside of the image: "zeros";
    "border" repeats the pixels at its ends; "reflection" mirrors it at the ends. These are
    PyTorch's and ONNX's numbers. Computed in float32 or float64; out has x's dtype. A point that is
    NaN gives NaN. The gradient in the grid is that of k, 0 for "nearest". ShapeError for other
    shapes, and images without pixels.

    >>> grid_sample([[[1.0, 3.0]]], [[[0.0], [0.25], [2.0]]]).tolist()
    [[[2.0, 2.5, 0.0]]]
    """
    hint = ", for any number of axes: bilinear and trilinear are 'linear', bicubic is 'cubic'"
    choice("grid_sample", "mode", mode, GRID_MODES, hint)
    choice("grid_sample", "padding_mode", padding_mode, GRID_PADDINGS)
    align = flag("grid_sample", "align_corners", align_corners)
    shape, at = shape_of(x), shape_of(grid)
    d = len(shape) - 2
    if d not in EXTENTS or len(at) < 2 or (at[0], at[-1]) != (shape[0], d):
        raise ShapeError(
            f"grid_sample got x of shape {shape} and grid of shape {at}; expected "
            "(N, C, H, W) and (N, ..., 2), or as many axes behind (N, C) as points have "
            "coordinates, from one to three"
        )
    if 0 in shape[2:]:
        raise ShapeError(f"grid_sample got x of shape {shape}, whose images have no pixels")
    given = needs_float("grid_sample", dtype_of(x))
    computed = promote(promote(given, needs_float("grid_sample", dtype_of(grid))), float32)
    # Pixels as rows of their channels: a row is what each point takes.
    n, c, size = *shape[:2], prod(shape[2:])
    rows = reshape(swapaxes(reshape(cast(x, computed), (n, c, size)), 1, 2), (n * size, c))
    points = reshape(cast(grid, computed), (n, prod(at[1:-1]), d))
    out = cast(_sampled(rows, points, shape[2:], mode, padding_mode, align), given)
    return reshape(swapaxes(out, 1, 2), (n, c, *at[1:-1]))


def _sampled(
    rows: Any, points: Any, extents: Shape, mode: str, padding_mode: str, align_corners: bool
) -> Tensor:
    """Images as rows (N * pixels, C), of these extents, at the points (N, P, d): (N, P, C)."""
    coordinates = [squeeze(g, -1) for g in split(points, len(extents), -1)[::-1]]
    axes = [
        _taps(g, n, mode, padding_mode, align_corners)
        for g, n in zip(coordinates, extents, strict=True)
    ]
    image: Any = np.arange(shape_of(points)[0])[:, None]
    total: Any = select(any_of(isnan(points), -1, True), float("nan"), 0.0)
    for taps in product(*axes):
        index, factors = image, [w for _, w in taps if w is not None]
        for (i, _), n in zip(taps, extents, strict=True):
            index = add(mul(index, n), i)
        values = gather(rows, index, 0)
        if factors:
            values = mul(values, expand_dims(reduce(mul, factors), -1))
        total = add(total, values)
    return total  # type: ignore[no-any-return]


def _taps(g: Any, n: int, mode: str, padding: str, align: bool) -> list[tuple[Any, Any]]:
    """(index, weight) for each of the pixels around points on an axis of extent n."""
    low, high = (0.0, n - 1.0) if align else (-0.5, n - 0.5)
    at = add(mul(add(g, 1.0), (high - low) / 2), low)
    if mode != "cubic":  # its pixels are mapped into the image one by one, by their distances
        at = _inside(at, padding, n, low, high)
    first = round(at) if mode == "nearest" else floor(at)
    share = sub(at, first)
    taps = []
    for k in _REACH[mode]:
        tap = add(first, float(k))
        weight = None if mode == "nearest" else _kernel(abs(sub(share, float(k))), mode)
        if padding == "zeros":
            within = logical_and(greater_equal(tap, 0.0), less(tap, float(n)))
            weight = select(within, 1.0 if weight is None else weight, 0.0)
        else:
            tap = _inside(tap, padding, n, low, high)
        index = select(greater(tap, 0.0), minimum(tap, n - 1.0), 0.0)  # NaN has an index, too
        taps.append((cast(index, int64), weight))
    return taps


def _inside(at: Any, padding: str, n: int, low: float, high: float) -> Any:
    """Coordinates, mapped into the image where its padding repeats it."""
    if padding == "border":
        return clip(at, 0.0, n - 1.0)
    if padding == "zeros" or high == low:
        return at
    span = high - low
    turn = mod(sub(at, low), 2 * span)
    return add(minimum(turn, sub(2 * span, turn)), low)


def _kernel(t: Any, mode: str) -> Any:
    """The kernel at distance t >= 0, at most its support."""
    if mode == "linear":
        return sub(1.0, t)
    near = add(mul(mul(sub(mul(t, _A + 2), _A + 3), t), t), 1.0)
    far = mul(sub(mul(add(mul(sub(t, 5.0), t), 8.0), t), 4.0), _A)
    return select(less_equal(t, 1.0), near, far)
