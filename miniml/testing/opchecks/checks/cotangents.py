"""Variants of a pull-back: cotangents in other layouts, 2^10 times as large and as small, zero."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from ....dtype import float64, is_float
from ....errors import MinimlError
from ....tensor import Tensor
from ...calls import Array, Arrays, Call
from ...layouts import laid_out, named, usual
from ...tolerance import limits_of
from ..vjp import Slope
from .accuracy import at_an_end
from .comparison import Compute, Variant, fixed
from .variants import dense

_POWERS = (2.0**10, 2.0**-10)  # powers of 2 change no rounding


def pulled(slope: Slope, xs_and_douts: Arrays) -> Arrays:
    """The gradients, as arrays; the arguments keep their strides."""
    given = [Tensor.wrap(a.view(), "cpu") for a in xs_and_douts]
    return tuple(g.asnumpy() for g in slope.pulled(*given))


def _base(slope: Slope) -> tuple[Compute, Arrays] | None:
    """The pull-back, which caches its last result, with inputs and cotangents of ordinary size;
    None if there is nothing to pull back, or it is refused."""
    douts = slope.some_cotangents()
    given = (*slope.xs, *douts)
    last: list[Arrays] = []

    def run(arrays: Arrays) -> Arrays:
        if not last or last[0] is not arrays:
            last[:] = arrays, pulled(slope, arrays)
        return last[1]

    try:
        return (run, given) if all(d.size for d in douts) and run(given) else None
    except MinimlError:
        return None  # the bprop check reports it


def in_other_layouts(call: Call) -> Iterator[Variant]:
    """Cotangents alone, and with the inputs, against contiguous ones."""
    slope = Slope(call)
    base = _base(slope)
    if base is None:
        return
    run, plain = base
    count, n = len(call.arrays), len(slope.xs)
    for layouts in call.layouts or usual(count + len(call.inferred), 2):
        inputs = laid_out(call.arrays, layouts[:count])
        own = tuple(word for word, o in zip(layouts[count:], call.inferred) if is_float(o.dtype))
        for beside in (False, True):
            xs = tuple(inputs[i] for i in slope.positions) if beside else slope.xs
            given = (*xs, *laid_out(plain[n:], own))
            words = f"with {named(own, 'cotangent')}"
            words += f" and {named(layouts[:count], 'input')}" if beside else ""
            words += " the gradient is not what it is with contiguous ones"
            repeated = any(0 in a.strides for a in given)  # broadcasting changes the numbers
            shown = replace(call, layouts=(layouts,))
            got, dense_ = partial(pulled, slope, given), dense(given) if repeated else plain
            yield Variant(words, got, run, dense_, shown)


def scaled(call: Call) -> Iterator[Variant]:
    """Gradients for scaled cotangents, divided by the scale."""
    slope = Slope(call)
    base = _base(slope)
    if base is None or at_an_end(call):
        return
    run, plain = base
    right, n = run(plain), len(slope.xs)
    for by in _POWERS if all(a.dtype.itemsize > 2 for a in (*plain[n:], *right)) else ():
        words = (
            f"for cotangents {by:g} times as large the gradient is not {by:g} times as large; "
            "divided by that"
        )
        yield Variant(words, partial(_scaled, slope, plain, by, right), run, plain)


def _scaled(slope: Slope, plain: Arrays, by: float, right: Arrays) -> Arrays:
    n = len(slope.xs)
    given = (*plain[:n], *(np.asarray(d * d.dtype.type(by)) for d in plain[n:]))
    with np.errstate(all="ignore"):
        return tuple(_divided(g, by, r) for g, r in zip(pulled(slope, given), right))


def _divided(gradient: Array, by: float, right: Array) -> Array:
    """`got`, which should be `by` times `right`, divided by `by`; `right` where the dtype has no
    such number."""
    limits, size = limits_of(right.dtype), np.abs(right.astype(float64)) * by
    kept = (size < 0.98 * float(limits.max)) & (size > float(limits.tiny))
    return np.where(kept | (right == 0), gradient / gradient.dtype.type(by), right)


def zero(call: Call) -> Iterator[Variant]:
    """Gradients for cotangents of zeros, where those for other cotangents are finite."""
    slope = Slope(call)
    base = _base(slope)
    if base is not None:
        run, plain = base
        n = len(slope.xs)
        got = pulled(slope, (*plain[:n], *map(np.zeros_like, plain[n:])))
        finite = (np.isfinite(r.astype(float64)).all() for r in run(plain))
        expected = tuple(np.zeros_like(g) if ok else g for g, ok in zip(got, finite))
        words = "the gradient is not zero for cotangents of zeros"
        yield Variant(words, partial(tuple, got), fixed(expected))
