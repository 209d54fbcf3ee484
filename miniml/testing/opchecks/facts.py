"""Facts that a class states, and its rules for batches and tangents, beside what its kernels and
its bprop compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from ...core.dtype import float64, is_float, uint64
from ...core.tensor import Tensor
from ...grad.batching import batch_rules, vmap
from ...grad.forward import jvp_rules
from ...grad.transforms import jvp, vjp
from ...ops.checks import normal_axes
from ..calls import Array, Arrays, Call, as_tuple, launch, launched
from .gradients import Slope, has_bprop
from .values import SMOOTH
from .variants import Compute, Variant, compilable, fixed

Made = Callable[[Arrays], Arrays]


def stated(call: Call) -> bool:
    """True for calls of a class that states a fact about numbers."""
    cls = type(call.primitive)
    facts = cls.view or cls.reduces or cls.elementwise or cls.linear or cls.batch
    return launched(call) and bool(facts or batch_rules.find(cls) or jvp_rules.find(cls))


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


def as_batch(call: Call) -> Iterator[Variant]:
    """Some examples at once, beside each alone; a rule also where only one input differs."""
    cls = type(call.primitive)
    rule = "the batch rule" if batch_rules.find(cls) else ""
    said = rule or (cls.elementwise and "elementwise = True") or (cls.batch and 'batch = "leading"')
    if not said or not compilable(call) or not call.arrays:
        return
    every = range(len(call.arrays))
    # Where examples share the state of a random stream, each draws for itself.
    draws = any(d == uint64 for d in call.dtypes)
    apart = len(every) > 1 and not cls.elementwise and not draws
    for mapped in (every, *([i] for i in every if apart)):
        yield from _mapped(call, set(mapped), f"under vmap, by {said}")


def _mapped(call: Call, mapped: set[int], words: str) -> Iterator[Variant]:
    """The call for examples that differ in the inputs `mapped`."""
    axes = tuple(0 if i in mapped else None for i in range(len(call.arrays)))
    examples, each = [], []
    for change in (np.asarray, np.flip, _halved):
        arrays = tuple(change(a) if i in mapped else a for i, a in enumerate(call.arrays))
        try:
            each.append(call.run(tuple(map(Tensor, arrays))))
            examples.append(arrays)
        except Exception:  # other numbers are refused
            continue
    if len(examples) < 2:
        return
    given = [
        Tensor(np.stack(parts) if i in mapped else parts[0])
        for i, parts in enumerate(zip(*examples))
    ]

    def run() -> Arrays:
        outs = vmap(lambda *xs: call.primitive(*call.args(xs)), axes)(*given)
        return tuple(out.asnumpy() for out in as_tuple(outs))

    expected = tuple(np.stack(parts) for parts in zip(*each))
    shared = " that share an input" * (len(mapped) < len(axes))
    yield Variant(
        f"{words}, examples{shared} give something else than each alone", run, fixed(expected)
    )


def _halved(a: Array) -> Array:
    """The numbers of which the last half stands in both halves, so that sums and extrema differ."""
    flat = np.flip(a).flatten()
    half = flat.size // 2
    flat[:half] = flat[flat.size - half :].copy()
    return flat.reshape(a.shape)


def as_tangent(call: Call) -> Iterator[Variant]:
    """The tangent by a rule or a fact, beside the transpose of the bprop."""
    cls = type(call.primitive)
    facts = cls.elementwise or cls.linear or cls.view
    asked = (jvp_rules.find(cls) or facts) and all(a.size for a in call.arrays)
    if not asked or not compilable(call) or not has_bprop(call):
        return
    slope = Slope(call)
    rng = np.random.default_rng(0)
    tangents = [Tensor(np.asarray(rng.normal(size=x.shape), x.dtype)) for x in slope.xs]
    points = tuple(map(Tensor, slope.xs))

    def moved() -> Arrays:
        _, along = jvp(slope.outputs, points, tuple(tangents))
        return tuple(t.asnumpy() for t in along)

    try:
        ones = [Tensor(np.ones_like(d)) for d in slope.some_cotangents()]
        _, back = vjp(lambda *douts: slope.pulled(*points, *douts), *ones)
        expected = tuple(t.asnumpy() for t in back(tuple(tangents)))
    except Exception:  # the bprop check reports it
        return
    said = "the jvp rule" if jvp_rules.find(cls) else "what the class says of itself"
    words = f"by {said}, the tangent is not what the transpose of the bprop gives"
    yield Variant(words, moved, fixed(expected))
