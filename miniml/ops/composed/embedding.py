"""embedding_bag: sums, means and maxima of the rows that bags of indices name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.abstract import Shape
from ...core.dtype import DType, int64
from ...core.errors import AttributeRefusedError, ShapeError
from ...core.options import choice, integer
from ..checks import composition, dtype_of, needs_float, shape_of
from ..create import zeros
from ..elementwise import cast, div, maximum, minimum, mul, stop_gradient, sub
from ..index import as_indices, gather, scatter_add, take_along_axis
from ..logic import (
    equal,
    greater,
    greater_equal,
    isnan,
    less,
    logical_and,
    logical_or,
    not_equal,
    select,
)
from ..reduce import all as all_of
from ..reduce import argmax, searchsorted, sum
from ..shape import expand_dims, squeeze
from .losses import checked
from .rearrange import segment_max, segment_min

if TYPE_CHECKING:
    from ...core.tensor import Tensor

__all__ = ["embedding_bag"]

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
    return cast(given, dtype)


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
    begins = cast(checked(name, "offset", as_indices(name, offsets), n + 1), int64)
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
