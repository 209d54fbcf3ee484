"""Elements at given places: pixels of images, moved or sampled, and bags of rows of a table.

In order: blocks of pixels exchanged for channels; the grid of an affine map; images sampled at the
points of a grid; sums, means and maxima of the rows that bags of indices name. `resize`, which
samples at points that its arguments say, is in `images`.
"""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import Any

import numpy as np

from ...core.abstract import DType, Shape, float32, int64, promote
from ...core.errors import AttributeRefusedError, ShapeError
from ...core.options import choice, count, flag, integer
from ..checks import Tensor, as_shape, composition, dtype_of, needs_float, shape_of
from ..create import zeros
from ..elementwise import (
    abs,
    add,
    cast,
    clip,
    div,
    floor,
    maximum,
    minimum,
    mod,
    mul,
    round,
    stop_gradient,
    sub,
)
from ..images import EXTENTS, MODES, Array
from ..index import as_indices, gather, scatter_add, take_along_axis
from ..linalg import matmul
from ..logic import (
    equal,
    greater,
    greater_equal,
    isnan,
    less,
    less_equal,
    logical_and,
    logical_or,
    not_equal,
    select,
)
from ..reduce import all as all_of
from ..reduce import argmax, searchsorted, sum
from ..shape import expand_dims, reshape, split, squeeze, swapaxes, transpose
from .elementwise import in_dtype
from .losses import checked
from .rearrange import segment_max, segment_min

__all__ = [
    "affine_grid", "depth_to_space", "embedding_bag", "grid_sample", "pixel_shuffle",
    "pixel_unshuffle", "space_to_depth",
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
    grid = matmul(flat, swapaxes(in_dtype(theta, dtype), 1, 2))
    return in_dtype(reshape(grid, (out[0], *out[2:], d)), given)


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
    rows = reshape(swapaxes(reshape(in_dtype(x, computed), (n, c, size)), 1, 2), (n * size, c))
    points = reshape(in_dtype(grid, computed), (n, prod(at[1:-1]), d))
    out = in_dtype(_sampled(rows, points, shape[2:], mode, padding_mode, align), given)
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
    corners: list[tuple[Any, Any]] = [(np.arange(shape_of(points)[0])[:, None], None)]
    for taps, n in zip(axes, extents, strict=True):
        first = [(mul(index, n), factor) for index, factor in corners]
        corners = [(add(index, i), _product(f, w)) for index, f in first for i, w in taps]
    nowhere = reduce(logical_or, map(isnan, coordinates))
    total: Any = expand_dims(select(nowhere, float("nan"), 0.0), -1)
    for index, factor in corners:
        values = gather(rows, index, 0)
        total = add(total, values if factor is None else mul(values, expand_dims(factor, -1)))
    return total  # type: ignore[no-any-return]


def _product(x: Any, y: Any) -> Any:
    """x y; None stands for 1."""
    return y if x is None else x if y is None else mul(x, y)


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
        weight = None if mode == "nearest" else _kernel(share, k, mode)
        if padding != "zeros":
            tap = _inside(tap, padding, n, low, high)
        inside = clip(tap, 0.0, n - 1.0)
        if padding == "zeros":
            weight = select(equal(tap, inside), 1.0 if weight is None else weight, 0.0)
        taps.append((cast(inside, int64), weight))  # of NaN, too: 0
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


def _kernel(share: Any, k: int, mode: str) -> Any:
    """The kernel at pixel k, counted from the one below a point that lies `share` above that."""
    if mode == "linear":
        return share if k else sub(1.0, share)
    t = abs(sub(share, float(k)))
    near = add(mul(mul(sub(mul(t, _A + 2), _A + 3), t), t), 1.0)
    far = mul(sub(mul(add(mul(sub(t, 5.0), t), 8.0), t), 4.0), _A)
    return select(less_equal(t, 1.0), near, far)


# --- Bags of rows ---------------------------------------------------------------------------------

BAG_MODES = ("sum", "mean", "max")


@composition
def embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any = None,
    mode: str = "mean",
    per_sample_weights: Any = None,
    padding_index: int | None = None,
) -> Tensor:
    """out[b] = sum over j of w[b, j] weight[indices[b, j]], the mean of these rows, or their
    largest elements: a row for each bag of indices.

    weight (V, F) floats. indices: integers, either (B, L), a bag in each row; or (n,), with the
    offsets (B,) at which the bags begin, ascending integers from 0 to n: bag b has the indices from
    offsets[b] up to, not including, offsets[b + 1], and the last those up to the end. Indices ahead
    of the first bag count nowhere. out (B, F); a bag without indices gives zeros.

    mode: "sum", "mean" or "max", whose gradient goes to the first of equal elements.
    per_sample_weights: w, of the shape of indices, for "sum" alone. padding_index: a row that bags
    leave out, in the number of which a mean is taken, too. ShapeError for what does not fit;
    OutOfRangeError for indices or offsets out of range, when it runs; NaN for offsets that
    descend. As PyTorch's, where the indices come first.

    >>> table = [[1.0, 2.0], [3.0, 4.0], [5.0, 0.0]]
    >>> embedding_bag(table, [[0, 1], [2, 2]]).tolist()
    [[2.0, 3.0], [5.0, 0.0]]
    >>> embedding_bag(table, [0, 1, 2], [0, 0], "max").tolist()
    [[0.0, 0.0], [5.0, 4.0]]
    """
    name = "embedding_bag"
    choice(name, "mode", mode, BAG_MODES)
    dtype = needs_float(name, dtype_of(weight))
    indices = as_indices(name, indices)
    _check_shapes(shape_of(weight), shape_of(indices), offsets)
    factors = _factors(per_sample_weights, mode, shape_of(indices), dtype)
    kept = _kept(indices, shape_of(weight)[0], padding_index)
    rows = gather(weight, indices, 0)
    if offsets is None:
        return _by_rows(rows, mode, factors, kept)
    return _by_offsets(rows, offsets, mode, factors, kept)


def _check_shapes(weight: Shape, indices: Shape, offsets: Any) -> None:
    bags = None if offsets is None else shape_of(offsets)
    ranks = (2, 2, 0) if bags is None else (2, 1, 1)
    if (len(weight), len(indices), len(bags or ())) != ranks:
        got = f"weight of shape {weight} and indices of shape {indices}"
        got += "" if bags is None else f" with offsets of shape {bags}"
        raise ShapeError(
            f"embedding_bag got {got}; expected weight (V, F), and indices (B, L), or indices (n,) "
            "with offsets (B,)"
        )


def _factors(given: Any, mode: str, shape: Shape, dtype: DType) -> Any:
    """The weight of each index, None for ones."""
    if given is None:
        return None
    if mode != "sum":
        raise AttributeRefusedError(
            f"embedding_bag got per_sample_weights for mode={mode!r}; only sums are weighted: "
            "divide one by the sum of the weights for a weighted mean"
        )
    if shape_of(given) != shape:
        raise ShapeError(
            f"embedding_bag got per_sample_weights of shape {shape_of(given)} for indices of shape "
            f"{shape}; there is one for each index"
        )
    return in_dtype(given, dtype)


def _kept(indices: Any, count: int, padding_index: int | None) -> Any:
    """True for indices that are not the padding; None where all are kept."""
    if padding_index is None:
        return None
    row = integer("embedding_bag", "padding_index", padding_index, -count, count - 1) % count
    return logical_and(not_equal(indices, row), not_equal(indices, row - count))


def _by_rows(rows: Any, mode: str, factors: Any, kept: Any) -> Tensor:
    """Bags (B, L, F) reduced over L."""
    bags, length, features = rows.shape
    counted = np.ones((bags, length), bool) if kept is None else kept
    number = sum(cast(counted, int64), 1, True)
    if mode == "max":
        if not length:
            return zeros((bags, features), rows.dtype)
        rows = _masked(rows, kept, -float("inf"))
        first = argmax(stop_gradient(rows), 1, True)
        return select(greater(number, 0), squeeze(take_along_axis(rows, first, 1), 1), 0.0)
    total = sum(_masked(_times(rows, factors), kept, 0.0), 1)
    return total if mode == "sum" else div(total, cast(maximum(number, 1), rows.dtype))


def _by_offsets(rows: Any, offsets: Any, mode: str, factors: Any, kept: Any) -> Tensor:
    """Bags of rows (n, F) that begin at the offsets (B,)."""
    n, features = rows.shape
    name = "embedding_bag"
    begins = in_dtype(checked(name, "offset", as_indices(name, offsets), n + 1), int64)
    bags = begins.shape[0]
    if not bags:
        return zeros((0, features), rows.dtype)
    bag = sub(searchsorted(begins, np.arange(n), "right"), 1)
    ahead = less(bag, 0)
    counted = greater_equal(bag, 0) if kept is None else logical_and(greater_equal(bag, 0), kept)
    bag = select(ahead, 0, bag)
    number = expand_dims(scatter_add(zeros(bags, int64), bag, cast(counted, int64)), 1)
    if mode == "max":
        rows = _masked(rows, counted, -float("inf"))
        out = select(greater(number, 0), _largest(rows, bag, counted, bags), 0.0)
    else:
        rows = _masked(_times(rows, factors), counted, 0.0)
        out = scatter_add(zeros((bags, features), rows.dtype), bag, rows)
        out = out if mode == "sum" else div(out, cast(maximum(number, 1), rows.dtype))
    ascending = all_of(greater_equal(begins[1:], begins[:-1]))
    return select(ascending, out, float("nan"))


def _largest(rows: Any, bag: Any, counted: Any, bags: int) -> Tensor:
    """The largest elements of each bag of rows (n, F): the first of equal ones, by its position."""
    n = rows.shape[0]
    if not n:
        return zeros((bags, rows.shape[1]), rows.dtype)
    values = stop_gradient(rows)
    top = gather(segment_max(values, bag, bags), bag, 0)
    first = logical_and(expand_dims(counted, 1), logical_or(equal(values, top), isnan(values)))
    at = segment_min(select(first, np.arange(n)[:, None], n - 1), bag, bags)
    return take_along_axis(rows, minimum(at, n - 1), 0)


def _times(rows: Any, factors: Any) -> Any:
    return rows if factors is None else mul(rows, expand_dims(factors, -1))


def _masked(rows: Any, kept: Any, value: float) -> Any:
    return rows if kept is None else select(expand_dims(kept, -1), rows, value)
