"""NumPy kernels of gather and scatter; large sums by index are sparse matrix products."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from ...core.abstract import from_type_code
from ...core.errors import OutOfRangeError
from ...core.signature import ANY, COMPLEX, HELD, INT, LOW, WIDE
from ..expressions import identity
from ..kernel import Array, largest, least, opened, scalars
from ..product import dense_strides
from ..registry import in_float32, register

# From this many elements on, a product with a sparse matrix beats add.at and repays its import.
_SPARSE = 16384
_FEW = 256  # up to here `at` takes less on rows than on their elements, whose positions take time


def inside(numbers: Array, extent: int) -> bool:
    """True if there are integers, and all are from 0 to extent - 1."""
    if not numbers.size:
        return False
    unsigned, top = _RANGES[numbers.dtype]  # a negative number is above top as an unsigned one
    return bool(largest(numbers.view(unsigned)) < min(extent, top))


_RANGES = {
    d: (np.dtype(f"u{d.itemsize}"), int(np.iinfo(d).max) + 1) for d in map(from_type_code, INT)
}


def check(name: str, indices: Array, extent: int, axis: int) -> bool:
    """True for some index that counts from the end; OutOfRangeError, which names the index, unless
    all are inside an axis of this extent."""
    if inside(indices, extent) or not indices.size:
        return False
    low, high = least(indices), largest(indices)
    if low < -extent or high >= extent:
        bad = high if high >= extent else low
        has = f"indices run from {-extent} to {extent - 1}" if extent else "it has no elements"
        raise OutOfRangeError(f"{name} got index {bad} for axis {axis} of extent {extent}; {has}")
    return True


def gather(x: Array, indices: Array, *, axis: int, out: Array) -> None:
    axis %= x.ndim
    whole = x.flags.c_contiguous or out.size > x.size  # else take would copy all of x first
    if whole and out.size <= _FEW:
        try:
            x.take(indices, axis, out)
        except IndexError:
            check("Gather", indices, x.shape[axis], axis)  # says which one
            raise
        return
    check("Gather", indices, x.shape[axis], axis)
    if whole:
        x.take(opened(indices), axis, out, "wrap")  # "raise" would buffer the output
    else:
        out[...] = x[(slice(None),) * axis + (indices,)]


def index(x: Array, *indices: Array, axes: tuple[int, ...], at: int, out: Array) -> None:
    for axis, named in zip(axes, indices, strict=True):
        check("Index", named, x.shape[axis], axis)
    rest = [a for a in range(x.ndim) if a not in axes]
    out[...] = x.transpose((*rest[:at], *axes, *rest[at:]))[(slice(None),) * at + indices]


def index_add(
    updates: Array,
    *indices: Array,
    axes: tuple[int, ...],
    at: int,
    shape: tuple[int, ...],
    out: Array,
) -> None:
    combine_at("IndexAdd", updates, indices, axes, at, out, 0, add_rows)


def index_reduce(
    updates: Array,
    *indices: Array,
    axes: tuple[int, ...],
    at: int,
    shape: tuple[int, ...],
    mode: str,
    out: Array,
) -> None:
    reduce, first = partial(reduce_rows, _REDUCTIONS[mode]), identity(mode, out.dtype)
    combine_at("IndexReduce", updates, indices, axes, at, out, first, reduce)


def combine_at(
    name: str,
    updates: Array,
    indices: tuple[Array, ...],
    axes: tuple[int, ...],
    at: int,
    out: Array,
    first: Any,
    combine: Callable[[Array, Array, Array], None],
) -> None:
    """Fill `out` with `first`, which broadcasts with `axes` in front, and combine(matrix,
    positions, rows): of the matrix, whose rows are the positions along `axes`, row positions[i] is
    combined with rows[i]."""
    shape = out.shape
    ndim = max([i.ndim for i in indices])
    matrix, in_front, rows_first = arranged(shape, axes, at, ndim, updates.ndim)
    positions: Any = None  # row-major, one for each entry of the indices
    for axis, named in zip(axes, indices, strict=True):
        from_end = check(name, named, shape[axis], axis)
        inside = np.where(named < 0, named + shape[axis], named) if from_end else named
        wide = inside.astype(np.int64, copy=False)
        positions = wide if positions is None else positions * shape[axis] + wide
    positions = positions.reshape(-1)
    rows = updates.transpose(rows_first).reshape(len(positions), matrix[1])
    moved = out.transpose(in_front)
    found = moved if moved.flags.c_contiguous else np.empty(moved.shape, out.dtype)
    found[...] = first
    combine(found.reshape(matrix), positions, rows)
    if found is not moved:
        moved[...] = found


@lru_cache(maxsize=256)
def arranged(
    shape: tuple[int, ...], axes: tuple[int, ...], at: int, ndim: int, rank: int
) -> tuple[tuple[int, ...], ...]:
    """Of a combination at indices of `ndim` axes, with updates of `rank` axes: the shape of the
    matrix, and the orders of axes of the result and of the updates."""
    rest = tuple([a for a in range(len(shape)) if a not in axes])
    inside, outside = tuple([shape[a] for a in axes]), tuple([shape[a] for a in rest])
    named = tuple(range(at, at + ndim))
    others = tuple([a for a in range(rank) if a not in named])
    return (prod(inside), prod(outside)), axes + rest, named + others


def add_rows(sums: Array, positions: Array, rows: Array) -> None:
    """sums[positions[i]] += rows[i] for every i; sums and rows are matrices, sums is contiguous."""
    count, width = rows.shape
    if width == 1:
        np.add.at(sums.reshape(-1), positions, rows.reshape(-1))
    elif rows.size <= _FEW:
        np.add.at(sums, positions, rows)
    elif rows.size < _SPARSE:
        elements = positions[:, None] * width + np.arange(width)
        np.add.at(sums.reshape(-1), elements.reshape(-1), rows.reshape(-1))
    else:
        from scipy.sparse import csc_array

        ones = np.ones(count, rows.dtype)
        sums += csc_array((ones, positions, np.arange(count + 1)), shape=(len(sums), count)) @ rows


_REDUCTIONS: dict[str, np.ufunc] = {"mul": np.multiply, "min": np.minimum, "max": np.maximum}


def reduce_rows(ufunc: np.ufunc, found: Array, positions: Array, rows: Array) -> None:
    """found[positions[i]] = ufunc(found[positions[i]], rows[i]) for every i; found is a contiguous
    matrix of the ufunc's identity, rows a matrix."""
    count, width = rows.shape
    if not rows.size:
        return
    starts = np.flatnonzero(np.concatenate(([True], positions[1:] != positions[:-1])))
    # In runs of equal positions, in any order of the runs, there is a loop in C for each: up to 20
    # times as fast for long ones, and slower than `at` for runs of few elements.
    named = positions[starts]
    if 4 * len(starts) <= count and len(np.unique(named)) == len(named):
        found[named] = ufunc.reduceat(rows, starts, axis=0, dtype=rows.dtype)
        return
    if width > 1:  # `at` is quick in one dimension only
        positions = (positions[:, None] * width + np.arange(width)).reshape(-1)
    ufunc.at(found.reshape(-1), positions, rows.reshape(-1))


def along(x: Array, indices: Array, axis: int) -> Array:
    """np.take_along_axis(x, indices, axis) of an axis >= 0, in a quarter of its time if small."""
    at = numbers(x.shape)
    return x[(*at[:axis], indices, *at[axis + 1 :])]  # type: ignore[no-any-return]


def numbers(shape: tuple[int, ...]) -> tuple[Array, ...]:
    """The numbers of the elements along each axis of a shape, all of which broadcast together."""
    return _numbers(shape) if sum(shape) <= 4096 else _numbers.__wrapped__(shape)


@lru_cache(maxsize=256)
def _numbers(shape: tuple[int, ...]) -> tuple[Array, ...]:
    return np.ogrid[tuple(map(slice, shape))]


def take_along_axis(x: Array, indices: Array, *, axis: int, out: Array) -> None:
    axis %= x.ndim
    from_end = check("TakeAlongAxis", indices, x.shape[axis], axis)
    alike = x.shape == (*out.shape[:axis], x.shape[axis], *out.shape[axis + 1 :])
    if out.size > _FEW and alike and x.flags.c_contiguous and not from_end:
        x.reshape(-1).take(places(indices, x.shape, axis), None, out, "wrap")
    else:
        out[...] = along(x, indices, axis)


def places(indices: Array, shape: tuple[int, ...], axis: int) -> Array:
    """Where the elements with these indices along an axis lie, in row-major order of the shape."""
    steps = dense_strides(shape, 1)
    rest: Any = sum(n * steps[i] for i, n in enumerate(numbers(shape)) if i != axis)
    far = indices if steps[axis] == 1 else np.multiply(indices, steps[axis], dtype=np.int64)
    found: Array = np.add(far, rest)  # one array of some MB: making it costs more than filling it
    return found


def put_along_axis_add(
    updates: Array, indices: Array, *, axis: int, extent: int, out: Array
) -> None:
    axis %= out.ndim
    check("PutAlongAxisAdd", indices, extent, axis)
    out.fill(0)
    if updates.shape[axis] == 1:  # each is added to 0 alone, which makes -0.0 that
        at = numbers(updates.shape)
        out[(*at[:axis], indices, *at[axis + 1 :])] = np.add(updates, *scalars(out.dtype, 0))
        return
    at_each = places(np.where(indices < 0, indices + extent, indices), out.shape, axis)
    np.add.at(out.reshape(-1), at_each.reshape(-1), updates.reshape(-1))


def scatter_add(x: Array, indices: Array, updates: Array, *, axis: int, out: Array) -> None:
    axis %= x.ndim
    full = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    if updates.shape != full:
        updates = np.broadcast_to(updates, full)
    first = x.transpose(axis, *range(axis), *range(axis + 1, x.ndim)) if axis else x
    combine_at("ScatterAdd", updates, (indices,), (axis,), axis, out, first, add_rows)


def scatter(x: Array, value: Array, *indices: Array, index: tuple[Any, ...], out: Array) -> None:
    np.copyto(out, x)
    # Contiguous and broadcast, so that NumPy assigns in row-major order and the last value stays.
    whole = np.broadcast_arrays(*indices) if indices else ()
    tensors = iter([np.array(a, order="C") for a in whole])
    target = tuple(next(tensors) if item == "tensor" else item for item in index)
    try:
        out[target] = value
    except IndexError as error:
        raise OutOfRangeError(f"Scatter refuses its indices: {error}") from None


def nonzero(x: Array) -> Array:
    return np.array(x.nonzero()).T if x.ndim else np.empty((int(x != 0), 0), np.int64)


NAMED = "il"
register("NonZero", nonzero, *[f"{c}->l" for c in ANY])
register("Gather", gather, *[f"{c}{i}->{c}" for c in HELD for i in NAMED])
register("Index", index, *[f"{c}{i}*->{c}" for c in HELD for i in NAMED])
register("IndexReduce", index_reduce, *[f"{c}{i}*->{c}" for c in INT + WIDE for i in NAMED])
register("IndexReduce", in_float32(index_reduce), *[f"{c}{i}*->{c}" for c in LOW for i in NAMED])
register("TakeAlongAxis", take_along_axis, *[f"{c}{i}->{c}" for c in HELD for i in NAMED])
for _name, _fn, _takes in (
    ("IndexAdd", index_add, "{0}{1}*"),
    ("PutAlongAxisAdd", put_along_axis_add, "{0}{1}"),
    ("ScatterAdd", scatter_add, "{0}{1}{0}"),
):
    for _body, _codes in ((_fn, INT + WIDE + COMPLEX), (in_float32(_fn), LOW)):
        register(_name, _body, *[f"{_takes}->{{0}}".format(c, i) for c in _codes for i in NAMED])
register("Scatter", scatter, *[f"{c}{c}{i}*->{c}" for c in HELD for i in NAMED])
