"""Variants of kernels: repeated, in place, in other layouts, row by row, wider, beside another
thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from ....abstract import Abstract
from ....backends.kernel import KernelEntry
from ....dtype import DType, bool_, float64, int64, is_float
from ....infer import infer_value
from ...calls import Arrays, Call, run_entry
from ...layouts import CONTIGUOUS, laid_out, named, usual
from ..draws.shapes import accepts
from .comparison import Variant, fixed
from .interleaved import interleaved
from .launches import copies, kernels_of, launch, wide_kernel

_RUNS = 4
_MANY = 300  # more terms than a byte can count
_MOST = 2**14


def again(call: Call) -> Iterator[Variant]:
    for entry in kernels_of(call):
        first = tuple(o.copy() for o in launch(entry, call))
        for _ in range(_RUNS):
            words = f"the kernel {entry.describe()} gives other numbers when it runs again"
            yield Variant(words, partial(launch, entry, call), fixed(first))


def in_place(call: Call) -> Iterator[Variant]:
    for entry in kernels_of(call):
        for i in entry.inplace:
            out, a = call.inferred[0], call.arrays[i]
            if (a.shape, a.dtype) == (out.shape, out.dtype):
                words = (
                    f"the kernel {entry.describe()} declares inplace={i}, but gives other numbers "
                    f"when out is input {i}"
                )
                got = partial(_into_input, entry, call, i)
                yield Variant(words, got, partial(launch, entry, call), call.arrays)


def _into_input(entry: KernelEntry, call: Call, i: int) -> Arrays:
    arrays = copies(call)
    return run_entry(entry, call, arrays, (arrays[i],))


def in_other_layouts(call: Call) -> Iterator[Variant]:
    count = len(call.arrays)
    alone = [
        tuple("sliced" if i == k else CONTIGUOUS for i in range(count))
        for k in range(count if count > 1 else 0)
    ]
    for entry in kernels_of(call):
        for layouts in call.layouts or (*usual(count), *alone):
            arrays = laid_out(call.arrays, layouts)
            words = (
                f"on {named(layouts[:count], 'input')} the kernel {entry.describe()} gives "
                "something else than on contiguous ones"
            )
            got, run = partial(launch, entry, call, arrays), partial(launch, entry, call)
            yield Variant(words, got, run, dense(arrays), replace(call, layouts=(layouts,)))


def dense(arrays: Arrays) -> Arrays:
    """Contiguous copies."""
    return tuple(np.array(a, order="C") for a in arrays)


def known_beforehand(call: Call) -> Iterator[Variant]:
    given = [Abstract(a.shape, a.dtype, a) if isinstance(a, np.ndarray) else a for a in call.args()]
    result = infer_value(call.primitive, tuple(given))
    if result is None:
        return
    known = [np.asarray(r) for r in ((result,) if call.primitive._single else tuple(result))]
    for entry in kernels_of(call):
        outs = launch(entry, call)
        got = tuple(k if k.dtype == object else k.astype(o.dtype) for k, o in zip(known, outs))
        words = f"infer_value gives something else than the kernel {entry.describe()}"
        yield Variant(words, partial(tuple, got), fixed(outs))


def row_by_row(call: Call) -> Iterator[Variant]:
    assert call.info is not None
    assert call.info.batch_axes is not None
    each = list(zip(call.info.batch_axes, call.arrays))
    axes = [None if axis is None else axis % max(a.ndim, 1) for axis, a in each]
    extents = {a.shape[x] for x, a in zip(axes, call.arrays) if x is not None and a.ndim > x}
    if len(extents) != 1 or extents == {0}:
        return
    for entry in call.entries():
        words = (
            f"row by row along batch_axes={call.info.batch_axes} the kernel {entry.describe()} "
            "gives something else than on all rows"
        )
        got = partial(_rows, entry, call, axes, *extents)
        yield Variant(words, got, partial(launch, entry, call), call.arrays)


def _rows(entry: KernelEntry, call: Call, axes: list[int | None], count: int) -> Arrays:
    parts = []
    for row in range(count):
        taken = [a if x is None else np.take(a, [row], x) for x, a in zip(axes, call.arrays)]
        parts.append(launch(entry, call.on(tuple(taken))))
    axis = next(x for x in axes if x is not None)
    return tuple(np.concatenate(outs, min(axis, outs[0].ndim - 1)) for outs in zip(*parts))


def in_a_wider_dtype(call: Call) -> Iterator[Variant]:
    """A kernel of narrow integers against that of int64 (or float64), wherever its dtype holds the
    result: on the call, on numbers from the whole range of each dtype, and on long axes."""
    for wide in (int64, float64):
        by = wide_kernel(call, _cast(call.arrays, wide))
        if by is not None:
            yield from _beside(call, by, wide)
            return


def _beside(call: Call, by: KernelEntry, wide: DType) -> Iterator[Variant]:
    for arrays in (call.arrays, _whole_range(call), *_prolonged(call)):
        other, twin = call.on(arrays), call.on(_cast(arrays, wide))
        for entry in call.entries():
            with suppress(Exception):  # these numbers are refused
                outs, rights = launch(entry, other), launch(by, twin)
                words = (
                    f"for {other} the kernel {entry.describe()} gives something else than the "
                    f"kernel in {wide.name}, whose result {outs[0].dtype.name} can hold"
                )
                yield Variant(words, partial(tuple, outs), fixed(_held(outs, rights)), (), other)


def _cast(arrays: Arrays, dtype: DType) -> Arrays:
    return tuple(a.astype(dtype) for a in arrays)


def _held(outs: Arrays, rights: Arrays) -> Arrays:
    """The right results in the dtypes of the others; those themselves where a dtype cannot hold the
    result."""
    with np.errstate(all="ignore"):
        cast = [r.astype(o.dtype) for o, r in zip(outs, rights)]
        held = [np.isfinite(c) if is_float(c.dtype) else c == r for c, r in zip(cast, rights)]
    return tuple(
        np.where(h, c, o) if h.shape == o.shape else o for h, c, o in zip(held, cast, outs)
    )


def _prolonged(call: Call) -> Iterator[Arrays]:
    """The largest numbers, in the shapes of the call with each extent in turn so large that a byte
    cannot count it, if the rules still take them."""
    for extent in sorted({n for a in call.arrays for n in a.shape if n > 1}):
        shapes = tuple(tuple(_MANY if n == extent else n for n in a.shape) for a in call.arrays)
        if max(map(prod, shapes)) <= _MOST and accepts(call.primitive, shapes, call.dtypes):
            yield tuple(np.full(s, _largest(d), d) for s, d in zip(shapes, call.dtypes))


def _largest(dtype: DType) -> int:
    return 1 if dtype == bool_ else int(np.iinfo(dtype).max)


def _whole_range(call: Call) -> Arrays:
    rng = np.random.default_rng(0)
    drawn = []
    for a in call.arrays:
        if a.dtype != bool_ and a.dtype.itemsize < int64.itemsize:
            limits = np.iinfo(a.dtype)
            a = np.asarray(rng.integers(limits.min, limits.max, a.shape, a.dtype, endpoint=True))
        drawn.append(a)
    return tuple(drawn)


def beside_another_thread(call: Call) -> Iterator[Variant]:
    other = tuple(np.flip(a.reshape(-1)).reshape(a.shape) for a in call.arrays)
    for entry in call.entries():
        words = (
            f"while another thread runs the kernel {entry.describe()} on other numbers, it gives "
            "something else than alone"
        )
        run = partial(launch, entry, call)
        yield Variant(words, partial(interleaved, run, partial(run, other)), run, call.arrays)
