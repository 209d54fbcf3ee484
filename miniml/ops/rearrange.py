"""Elements kept, moved or repeated by place, made of other operations: tril, diag, roll, repeat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..abstract import Shape
from ..attributes import freeze
from ..dtype import bool_
from ..errors import AttributeRefusedError, ShapeError
from .compare import select
from .index import gather, values_like
from .inference.shapes import dtype_of, normal_axis, shape_of
from .join import Slice, SliceGrad, concat, split
from .shape import broadcast_to, broadcasts_to, expand_dims, reshape, squeeze

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["diag", "masked_fill", "meshgrid", "repeat", "roll", "tril", "triu", "unstack"]


def tril(x: Any, k: int = 0) -> Tensor:
    """x (..., n, m) with 0 above its diagonal k: x[..., i, j] stays where j - i <= k.

    >>> tril([[1, 2], [3, 4]]).tolist()
    [[1, 0], [3, 4]]
    """
    return _triangle("tril", x, k, upper=False)


def triu(x: Any, k: int = 0) -> Tensor:
    """x (..., n, m) with 0 below its diagonal k: x[..., i, j] stays where j - i >= k."""
    return _triangle("triu", x, k, upper=True)


def _triangle(name: str, x: Any, k: int, upper: bool) -> Tensor:
    shape, k = shape_of(x), _whole(name, "k", k)
    if len(shape) < 2:
        raise ShapeError(f"{name} got x of shape {shape}; it takes matrices, of shape (..., n, m)")
    n, m = (1, 1) if 0 in shape else shape[-2:]  # without elements the mask does not matter
    k = max(-n, min(k, m))
    kept = ~np.tri(n, m, k - 1, bool) if upper else np.tri(n, m, k, bool)
    return select(kept, x, False if dtype_of(x) == bool_ else 0)


def diag(x: Any, k: int = 0) -> Tensor:
    """Diagonal k of a matrix, the elements x[i, i + k]; of a vector the square matrix of zeros with
    it there. ShapeError for other ranks.

    >>> diag([1, 2], -1).tolist()
    [[0, 0, 0], [1, 0, 0], [0, 2, 0]]
    """
    shape, k = shape_of(x), _whole("diag", "k", k)
    if len(shape) == 1:
        n = shape[0] + abs(k)
        return reshape(SliceGrad((n * n,), *_diagonal(n, n, k))(x), (n, n))
    if len(shape) == 2:
        return Slice(*_diagonal(*shape, k))(reshape(x, shape[0] * shape[1]))
    raise ShapeError(f"diag got x of shape {shape}; it takes a vector or a matrix")


def _diagonal(n: int, m: int, k: int) -> tuple[Shape, Shape, Shape]:
    """Where diagonal k of an (n, m) matrix begins and ends in row-major order, and its step."""
    count = max(0, min(n + min(k, 0), m - max(k, 0)))
    begin = (k if k >= 0 else -k * m) if count else 0
    return (begin,), (begin + (count - 1) * (m + 1) + 1 if count else 0,), (m + 1,)


def roll(x: Any, shift: int | tuple[int, ...], axis: int | tuple[int, ...] | None = None) -> Tensor:
    """x with its elements moved by `shift` along `axis`, those that leave at the end coming in
    again at the front; for None in row-major order. Of several axes each has its shift.

    >>> roll([1, 2, 3, 4], 1).tolist()
    [4, 1, 2, 3]
    """
    if axis is None:
        return reshape(roll(reshape(x, -1), shift, 0), shape_of(x))
    shifts, axes = _entries("roll", "shift", shift), _entries("roll", "axis", axis)
    if len(shifts) == 1 or len(axes) == 1:
        shifts, axes = shifts * len(axes), axes * len(shifts)
    if len(shifts) != len(axes) or not axes:
        raise ShapeError(f"roll got {len(shifts)} shifts for {len(axes)} axes; give one for each")
    for by, along in zip(shifts, axes, strict=True):
        x = _rolled(x, by, normal_axis("roll", along, len(shape_of(x))))
    return x  # type: ignore[no-any-return]


def _rolled(x: Any, shift: int, axis: int) -> Tensor:
    n = shape_of(x)[axis]
    last = shift % n if n else 0
    return concat(split(x, (n - last, last), axis)[::-1], axis)


def repeat(x: Any, repeats: int | tuple[int, ...], axis: int | None = None) -> Tensor:
    """Each slice of x along `axis` repeated `repeats` times, or the i-th one repeats[i] times; for
    None each element, in row-major order. What repeats x as a whole is `tile`.

    >>> repeat([1, 2], 2).tolist(), repeat([1, 2], (0, 3)).tolist()
    ([1, 1, 2, 2], [2, 2, 2])
    """
    if axis is None:
        return repeat(reshape(x, -1), repeats, 0)
    shape = shape_of(x)
    at = normal_axis("repeat", axis, len(shape))
    counts = _entries("repeat", "repeats", repeats)
    if len(counts) not in (1, shape[at]) or any(n < 0 for n in counts):
        raise ShapeError(
            f"repeat got repeats={repeats!r} for axis {at} of shape {shape}; give one number of 0 "
            f"or more, or {shape[at]} of them"
        )
    if len(counts) > 1:
        return gather(x, np.repeat(np.arange(shape[at]), counts), at)
    (n,), before, behind = counts, shape[:at], shape[at + 1 :]
    spread = broadcast_to(expand_dims(x, at + 1), (*before, shape[at], n, *behind))
    return reshape(spread, (*before, shape[at] * n, *behind))


def meshgrid(*xs: Any, indexing: str = "xy") -> tuple[Tensor, ...]:
    """The coordinates of a grid: for each vector of `xs` a tensor of the shape of all of them, in
    which it runs along its own axis. "xy", NumPy's way, has the axes of the first two exchanged;
    "ij" has not, which is PyTorch's default.

    >>> [grid.tolist() for grid in meshgrid([1, 2], [5, 6, 7], indexing="ij")]
    [[[1, 1, 1], [2, 2, 2]], [[5, 6, 7], [5, 6, 7]]]
    """
    if indexing not in ("xy", "ij"):
        raise AttributeRefusedError(f"meshgrid got indexing={indexing!r}; use 'xy' or 'ij'")
    shapes = [shape_of(x) for x in xs]
    if any(len(shape) > 1 for shape in shapes):
        got = " and ".join(map(str, shapes))
        raise ShapeError(f"meshgrid got tensors of shape {got}; it takes vectors")
    places = list(range(len(xs)))
    if indexing == "xy" and len(xs) > 1:
        places[:2] = 1, 0
    extents = [shape[0] if shape else 1 for shape in shapes]
    out = tuple(extents[i] for i in places)
    return tuple(
        broadcast_to(reshape(x, tuple(n if a == place else 1 for a in range(len(xs)))), out)
        for x, n, place in zip(xs, extents, places, strict=True)
    )


def unstack(x: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices of x along `axis`, without that axis: what `stack` puts together."""
    shape = shape_of(x)
    at = normal_axis("unstack", axis, len(shape))
    parts = split(x, (1,) * shape[at], at) if shape[at] else ()
    return tuple(squeeze(part, at) for part in parts)


def masked_fill(x: Any, mask: Any, value: Any) -> Tensor:
    """x with `value` where `mask` is True, in the dtype of x.

    mask (bool) and value broadcast to x's shape, else ShapeError; DTypeError for a value that x's
    dtype does not hold.

    >>> masked_fill([1.0, 2.0], [True, False], -float("inf")).tolist()
    [-inf, 2.0]
    """
    shape = shape_of(x)
    for name, given in (("mask", mask), ("value", value)):
        if not broadcasts_to(shape_of(given), shape):
            raise ShapeError(
                f"masked_fill got a {name} of shape {shape_of(given)} for x of shape {shape}, to "
                "which it does not broadcast"
            )
    return select(mask, values_like("masked_fill", x, value), x)


def _whole(name: str, what: str, number: Any) -> int:
    if type(frozen := freeze(number, name, what)) is int:
        return frozen
    raise AttributeRefusedError(f"{name} got {what}={number!r}; it takes a whole number, an int")


def _entries(name: str, what: str, given: Any) -> tuple[int, ...]:
    """One int or several as a tuple; AttributeRefusedError for anything else."""
    frozen = freeze(given, name, what)
    entries = frozen if isinstance(frozen, tuple) else (frozen,)
    if not all(type(n) is int for n in entries):
        raise AttributeRefusedError(f"{name} got {what}={given!r}; it takes whole numbers, ints")
    return entries
