"""Kernels of bools and narrow integers, beside the kernel of int64 or float64."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from ....abstract import Abstract
from ....backends.kernel import KernelEntry
from ....dtype import DType, bool_, float64, int64, is_float
from ....errors import MinimlError
from ....graph.ir import interleave
from ....infer import infer
from ...calls import ON_CPU, Array, Arrays, Call
from ...tolerance import mismatch
from ..draws.shapes import accepts
from ..session import Problem
from .launches import launch, launched

_MANY = 300
_MOST = 2**14


def narrow_integers(call: Call) -> bool:
    """True for calls of integers alone, some of them narrower than int64, and no reference."""
    told = call.info is not None and call.info.reference is not None
    kinds = [d.kind for d in call.dtypes]
    return (
        not told
        and bool(kinds)
        and set(kinds) <= set("biu")
        and any(d.itemsize < int64.itemsize for d in call.dtypes)
        and not call.primitive.dynamic_outputs
        and launched(call)
    )


def integers(call: Call) -> Iterator[Problem]:
    """Where the result fits a narrow dtype, its kernel gives what the wide one gives."""
    wide = _wide_kernel(call)
    if wide is None:
        return
    for arrays in (call.arrays, _whole_range(call), *_prolonged(call)):
        for entry in call.entries():
            yield from _against(call.on(arrays), entry, *wide)


def _wide_kernel(call: Call) -> tuple[KernelEntry, DType] | None:
    """The kernel for the same call in int64, else in float64."""
    for dtype in (int64, float64):
        abstracts = [Abstract(a.shape, dtype) for a in call.arrays]
        try:
            outs = infer(call.primitive, interleave(call.primitive, abstracts, dict(call.consts)))
            chosen = ON_CPU.select(call.primitive.name, abstracts, outs)
        except MinimlError:
            continue
        if chosen.cast is None:
            return chosen.entry, dtype
    return None


def _whole_range(call: Call) -> Arrays:
    """Numbers from the whole range of each dtype."""
    rng = np.random.default_rng(0)
    return tuple(_drawn(rng, a) for a in call.arrays)


def _prolonged(call: Call) -> Iterator[Arrays]:
    """The largest numbers in the shapes of the call with each extent in turn so large that their
    count leaves a byte: where the rules still take them."""
    for extent in sorted({n for a in call.arrays for n in a.shape if n > 1}):
        shapes = [tuple(_MANY if n == extent else n for n in a.shape) for a in call.arrays]
        if max(map(prod, shapes)) <= _MOST and accepts(call.primitive, tuple(shapes), call.dtypes):
            yield tuple(np.full(s, _largest(d), d) for s, d in zip(shapes, call.dtypes))


def _largest(dtype: DType) -> int:
    return 1 if dtype == bool_ else int(np.iinfo(dtype).max)


def _drawn(rng: np.random.Generator, a: Array) -> Array:
    if a.dtype == bool_ or a.dtype.itemsize == int64.itemsize:
        return a
    limits = np.iinfo(a.dtype)
    return np.asarray(rng.integers(limits.min, limits.max, a.shape, a.dtype, endpoint=True))


def _against(call: Call, entry: KernelEntry, wide: KernelEntry, dtype: DType) -> Iterator[Problem]:
    twin = call.on(tuple(a.astype(dtype) for a in call.arrays))
    try:
        outs, rights = launch(entry, call), launch(wide, twin)
    except Exception:  # these numbers are refused
        return
    for i, (out, right) in enumerate(zip(outs, rights)):
        if out.shape != right.shape:
            continue
        held = _held(out.dtype, right)
        with np.errstate(all="ignore"):
            expected = np.where(held, right, out).astype(out.dtype)
        wrong = mismatch(out, expected, call.terms)
        if wrong is not None:
            yield Problem(
                f"output {i}",
                f"{call}: output {i} of the kernel {entry.describe()} {wrong} (the kernel in "
                f"{dtype.name}, whose result {out.dtype.name} can hold)",
                "compute in a wider dtype, and convert the result; should the width of the dtype "
                "be meant, as in a count of bits, give an OpInfo with a reference",
                call=call,
            )


def _held(dtype: DType, right: Array) -> Array:
    """Where a dtype can hold a result."""
    with np.errstate(all="ignore"):
        there = right.astype(dtype)
        return np.asarray(np.isfinite(there) if is_float(dtype) else there == right)
