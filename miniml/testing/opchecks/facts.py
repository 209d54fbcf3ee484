"""Facts that a class states, beside what its kernels compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from ...core.dtype import float64, is_float
from ...ops.checks import normal_axes
from ..calls import Array, Arrays, Call, launch, launched
from .values import SMOOTH
from .variants import Compute, Variant

Made = Callable[[Arrays], Arrays]


def stated(call: Call) -> bool:
    """True for calls of a class that states a fact about numbers."""
    cls = type(call.primitive)
    return launched(call) and bool(cls.view or cls.reduces or cls.elementwise or cls.linear)


def as_view(call: Call) -> Iterator[Variant]:
    if type(call.primitive).view:
        yield from _beside_kernels(call, "view", "the input so viewed", partial(_viewed, call))


def _viewed(call: Call, arrays: Arrays) -> Arrays:
    (x,), shape, view = arrays, call.inferred[0].shape, type(call.primitive).view
    if view == "transpose":
        x = x.transpose(call.attrs["axes"])
    elif view == "broadcast":
        x = np.broadcast_to(x, shape)
    return (np.ascontiguousarray(x if view in ("transpose", "same") else x.reshape(shape)),)


def as_reduction(call: Call) -> Iterator[Variant]:
    if type(call.primitive).reduces and all(a.size for a in call.arrays):
        made = partial(_reduced, call)
        yield from _beside_kernels(call, "reduces", "NumPy's reduction of the input", made)


def _reduced(call: Call, arrays: Arrays) -> Arrays:
    (x,), (out,) = arrays, call.inferred
    if "axis" in call.attrs:
        axes = normal_axes(call.primitive.name, call.attrs["axis"], x.ndim)
    else:
        lead = x.ndim - len(out.shape)
        axes = (*range(lead), *(lead + i for i, n in enumerate(out.shape) if n == 1))
    reduce = getattr(np, str(type(call.primitive).reduces))
    found = reduce(x.astype(float64) if is_float(x.dtype) else x, axis=axes)
    return (np.asarray(found).astype(out.dtype).reshape(out.shape),)


def _beside_kernels(call: Call, fact: str, what: str, made: Made) -> Iterator[Variant]:
    """Each kernel beside what a fact of one input and one output says."""
    value = getattr(type(call.primitive), fact)
    for entry in call.entries():
        words = f"{fact} = {value!r}, but the kernel {entry.describe()} does not give {what}"
        yield Variant(words, partial(launch, entry, call), made, call.arrays)


def as_elements(call: Call) -> Iterator[Variant]:
    """The elements of all arrays in another order."""
    shape = call.inferred[0].shape
    order = np.random.default_rng(0).permutation(call.inferred[0].size)

    def moved(a: Array) -> Array:
        return np.broadcast_to(a, shape).reshape(-1)[order].reshape(shape)

    def run(kernel: Made, arrays: Arrays) -> Arrays:
        return tuple(map(moved, kernel(arrays)))

    def got(kernel: Made) -> Arrays:
        return kernel(tuple(map(moved, call.arrays)))

    for entry in call.entries() if type(call.primitive).elementwise else ():
        words = (
            f"elementwise = True, but of elements in another order the kernel {entry.describe()} "
            "does not give the same results in that order"
        )
        kernel = partial(launch, entry, call)
        yield Variant(words, partial(got, kernel), partial(run, kernel), call.arrays)


def as_linear(call: Call) -> Iterator[Variant]:
    """f(2 x + 3 y), for each group of inputs, beside 2 f(x) + 3 f(y)."""
    names = [n for n in call.primitive.input_names or () if n not in call.consts]
    plain = call.sample or call.kind in SMOOTH
    for group in type(call.primitive).linear if plain else ():
        chosen = [n in group.split() for n in names]
        exact = all(d == float64 for d, at in zip(call.dtypes, chosen) if at)
        for entry in call.entries() if exact else ():
            words = (
                f"linear = {group!r}, but the kernel {entry.describe()} gives another f(2 x + 3 y) "
                "than 2 f(x) + 3 f(y)"
            )
            run = _sum(partial(launch, entry, call), chosen)
            got = partial(launch, entry, call, _summed(call.arrays, chosen))
            yield Variant(words, got, run, call.arrays)


def _sum(kernel: Made, chosen: list[bool]) -> Compute:
    """2 f(x) + 3 f(y)."""

    def run(arrays: Arrays) -> Arrays:
        return tuple(2 * a + 3 * b for a, b in zip(kernel(arrays), kernel(_others(arrays, chosen))))

    return run


def _summed(arrays: Arrays, chosen: list[bool]) -> Arrays:
    others = _others(arrays, chosen)
    return tuple(2 * a + 3 * b if at else a for a, b, at in zip(arrays, others, chosen))


def _others(arrays: Arrays, chosen: list[bool]) -> Arrays:
    """Other numbers in the chosen arrays."""
    return tuple(np.flip(a) if at else a for a, at in zip(arrays, chosen))
