"""The calls that opcheck makes: drawn from the rules and the kernel table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from math import prod
from typing import Any

from ....abstract import Shape
from ....backends import registry
from ....dtype import DType, float32, float64, is_float
from ....primitive import Primitive
from ... import layouts
from ...calls import ON_CPU, Array, Call
from ...choices import Choices
from ..checks.growth import grows_slowly
from ..checks.launches import launched
from .shapes import Pattern, Shapes, accepts, extents, survey, symbols, why_refused
from .values import APART, EXTREME, KINDS, LONGEST, NEGATIVE, SMOOTH, SPREAD, draw, ladder

Dtypes = tuple[DType, ...]
Keep = Callable[[Call], bool]
Patterns = list[tuple[Pattern, tuple[int, ...]]]
Surveys = dict[Dtypes, Patterns]

ENOUGH = 20
_EXTENTS = (1, 2, 3, 4, 0, 5, 7, 2, 1, 2, 3, 4, 6, 8, 12, 2)
_LONG = (67, 300, 1031, 2050)
_BLOCKS = (6, 8, 12)
_LONGEST = 40_000  # more than int16 can count, and than any block
_LARGEST = 2**14  # elements of one array
_MODERATE = 512
_AXES = 8
_PLAIN = 24
_FEW = 4
_MIXED = 2  # layouts that are chosen for a call


def signatures(primitive: Primitive) -> list[Dtypes]:
    """The dtypes of inputs that CPU kernels take, the widest floats first."""
    found: dict[Dtypes, None] = {}
    for entry in registry.table.get((primitive.name, "cpu"), ()):
        if not ON_CPU.supports(entry):
            continue
        s = entry.signature
        counts = (2, 1, 3) if s.repeats_input else (len(s.inputs),)
        free = any(d is None for d in s.inputs)  # not `None in`: NumPy calls float64 == None true
        for any_dtype in (float64, float32) if free else (float64,):
            filled = tuple(any_dtype if d is None else d for d in s.inputs)
            for n in counts:
                found[filled[:-1] + filled[-1:] * max(0, n - len(filled) + 1)] = None
    order = {float64: 0, float32: 1}
    return sorted(found, key=lambda dtypes: [order.get(d, 2 + (not is_float(d))) for d in dtypes])


def drawn(primitive: Primitive, seed: int | None, keep: Keep) -> list[Call]:
    """Calls of a primitive that its rules and `keep` accept, simple ones first.

    Shapes come from those that the shape rule accepts, dtypes from the registered kernels, numbers
    from `values`; some of the shapes are then taken with every dtype and every kind of number.
    seed: None draws the same calls every time.
    """
    table = signatures(primitive)
    surveys = {dtypes: survey(primitive, dtypes) for dtypes in _representatives(table)}
    found = list(_plain(primitive, surveys, seed or 0, keep))
    found += _random(primitive, surveys, seed or 0, keep)
    found += _completed(primitive, found, surveys, seed or 0, keep)
    return found + list(_longest(primitive, surveys, keep))


def _plain(primitive: Primitive, surveys: Surveys, seed: int, keep: Keep) -> Iterator[Call]:
    """Calls with the patterns that the survey found, their extents all different, then with one
    extent 0."""
    if primitive.const_inputs:
        return
    for dtypes, patterns in surveys.items():
        step = max(1, len(patterns) // _PLAIN)
        tried = [extents(pattern, known) for pattern, known in patterns[::step]]
        for number, shapes in enumerate((*tried, *_empty(patterns))):
            if max(map(prod, shapes), default=0) > _MODERATE:
                continue
            arrays = _numbers("ordinary", shapes, dtypes, seed + 31 * number)
            call = Call(primitive, arrays, kind="ordinary")
            if accepts(primitive, shapes, dtypes) and keep(call):
                yield call


def _empty(patterns: Patterns) -> Iterator[Shapes]:
    """Small shapes with each extent in turn 0: empty sums, and empty outputs."""
    for pattern, known in [p for p in patterns if p[1]][:_FEW]:
        for k in range(len(known)):
            yield extents(pattern, (*known[:k], 0, *known[k + 1 :]))


def _completed(
    primitive: Primitive, found: list[Call], surveys: Surveys, seed: int, keep: Keep
) -> Iterator[Call]:
    """Calls in every dtype: with every kind of number, with nothing or 0-d, with long axes."""
    small = [c for c in found if c.arrays and all(1 <= a.size <= 64 for a in c.arrays)]
    several = [c for c in small if any(a.size > 1 for a in c.arrays)] or small
    bare = [c for c in found if any(a.ndim == 0 for a in c.arrays)]
    empty = [c for c in found if any(a.size == 0 for a in c.arrays) and launched(c)]
    for number, dtypes in enumerate(signatures(primitive)):
        shaped, *odd = (
            [shapes_of(c) for c in calls if len(c.arrays) == len(dtypes)]
            for calls in (several, bare, empty)
        )
        kinds = KINDS if any(map(is_float, dtypes)) else ("ordinary", "huge")
        chosen = [("ordinary", shapes[number % len(shapes)]) for shapes in odd if shapes]
        if shaped:
            patterns = surveys.get(_like(dtypes, surveys), [])
            turns = ((number * len(KINDS) + k) % len(shaped) for k in range(len(kinds)))
            blocks = list(_blocks(patterns)) or shaped[:1]
            chosen = [(kind, shaped[k]) for kind, k in zip(kinds, turns)] + chosen
            chosen += [("ordinary", shapes) for shapes in (*_long(patterns, number), *blocks)]
            chosen += [("positive", shapes) for shapes in _summed(patterns, dtypes, number)]
            chosen += [(kind, blocks[0]) for kind in SPREAD]
            chosen += [(NEGATIVE, s) for s in shaped if _counts_beside(dtypes, s)][:1]
        for k, (kind, shapes) in enumerate(chosen):
            arrays = _numbers(kind, shapes, dtypes, seed + 97 * number + 7 * k)
            call = Call(primitive, arrays, smooth=kind in SMOOTH, kind=kind)
            if accepts(primitive, shapes, dtypes) and not _too_large(call) and keep(call):
                yield call


def _longest(primitive: Primitive, surveys: Surveys, keep: Keep) -> Iterator[Call]:
    """For each number of inputs one call with an axis of `_LONGEST`, if its cost is linear in that
    length."""
    for dtypes, patterns in surveys.items():
        found = _with_extent(patterns, _LONGEST, 0)
        for shapes in sorted(found, key=lambda s: -sum(_LONGEST in axes for axes in s))[:_FEW]:
            each = enumerate(zip(shapes, dtypes))
            arrays = tuple(_long_array(s, d, i * APART) for i, (s, d) in each)
            call = Call(primitive, arrays, kind=LONGEST)
            usable = accepts(primitive, shapes, dtypes) and not _too_large(call, 2 * _LONGEST)
            if usable and grows_slowly(call) and keep(call):
                yield call
                break


def _long_array(shape: Shape, dtype: DType, start: int) -> Array:
    if is_float(dtype):
        return ladder(start, start + prod(shape)).reshape(shape).astype(dtype)
    return draw("zeros", shape, dtype, 0, True)


def _too_large(call: Call, most: int = _LARGEST) -> bool:
    """True if an output has more elements than checks have time for, or more axes than CUDA kernels
    take."""
    return any(o.size > most or len(o.shape) > _AXES for o in call.inferred)


def shapes_of(call: Call) -> Shapes:
    """The shapes of the inputs."""
    return tuple(a.shape for a in call.arrays)


def _counts_beside(dtypes: Dtypes, shapes: Shapes) -> bool:
    """True if signed integers have the shape of floats: numbers, not indices."""
    signed = {s for s, d in zip(shapes, dtypes) if d.kind == "i"}
    return bool(signed) and signed <= {s for s, d in zip(shapes, dtypes) if is_float(d)}


def _blocks(patterns: Patterns) -> Iterator[Shapes]:
    """Each of `_BLOCKS` as the extent of each axis of one pattern: blocked algorithms may be wrong
    for them alone."""
    few = [p for p, _ in patterns if 0 < symbols(p) <= len(_BLOCKS)]
    for pattern in few and [max(few, key=symbols)]:
        for k in range(len(_BLOCKS)):
            yield extents(pattern, (*_BLOCKS[k:], *_BLOCKS[:k]))


def _long(patterns: Patterns, number: int) -> Iterator[Shapes]:
    """Shapes with one axis longer than a block of threads, and not a multiple of one."""
    for k, extent in enumerate(_LONG[1:3]):
        found = _with_extent(patterns, extent, number)
        if found:
            yield found[(number + k) % min(len(found), _FEW)]


def _summed(patterns: Patterns, dtypes: Dtypes, number: int) -> list[Shapes]:
    """For floats of 16 bits a shape so long that sums in them stand still, where what is added is
    less than half a unit in the last place."""
    narrow = bool(dtypes) and is_float(dtypes[0]) and dtypes[0].itemsize == 2
    return _with_extent(patterns, _LONG[3], number)[:1] if narrow else []


def _with_extent(patterns: Patterns, extent: int, number: int) -> list[Shapes]:
    """The shapes of patterns with one extent replaced, if no array becomes much larger."""
    found = []
    for pattern, known in patterns:
        k = number % max(len(known), 1)
        shapes = extents(pattern, (*known[:k], extent, *known[k + 1 :]))
        if extent in chain(*shapes) and max(map(prod, shapes)) <= 8 * extent:
            found.append(shapes)
    return found


def _numbers(kind: str, shapes: Shapes, dtypes: Dtypes, seed: int) -> tuple[Array, ...]:
    """Arrays of one kind; kinds at the ends of a dtype's range are given only to one of the largest
    arrays."""
    floats = any(map(is_float, dtypes))
    extreme = kind in EXTREME and floats
    sizes = list(map(prod, shapes))
    largest = [i for i, size in enumerate(sizes) if size == max(sizes)]
    alone = largest[seed % len(largest)] if largest else 0
    return tuple(
        draw("ordinary" if extreme and i != alone else kind, s, d, seed + i, floats)
        for i, (s, d) in enumerate(zip(shapes, dtypes))
    )


def _random(primitive: Primitive, surveys: Surveys, seed: int, keep: Keep) -> Iterator[Call]:
    """Calls with everything chosen: dtypes, shapes, kinds of numbers, layouts."""
    usable = [d for d in signatures(primitive) if surveys.get(_like(d, surveys))]
    if primitive.const_inputs or not usable:
        return
    for number in range(min(40 + 6 * len(usable), 100) if usable[0] else 1):
        choices = Choices(seed, number)
        dtypes, kind = choices.of(usable), choices.of(KINDS)
        shapes = _shapes(choices, primitive, surveys[_like(dtypes, surveys)], dtypes)
        if shapes is not None:
            arrays = _numbers(kind, shapes, dtypes, choices.below(2**12))
            call = Call(primitive, arrays, smooth=kind in SMOOTH, kind=kind)
            if not _too_large(call) and keep(call):
                ranks = [len(s) for s in shapes] + [len(o.shape) for o in call.inferred]
                mixed = tuple(layouts.drawn(choices, ranks) for _ in range(_MIXED))
                yield replace(call, layouts=(*mixed, *layouts.usual(len(ranks), 1)))


def _representatives(table: list[Dtypes]) -> list[Dtypes]:
    """One signature per number of inputs: the shape rule does not see dtypes."""
    first: dict[int, Dtypes] = {}
    for dtypes in table:
        first.setdefault(len(dtypes), dtypes)
    return list(first.values())


def _like(dtypes: Dtypes, surveys: dict[Dtypes, Any]) -> Dtypes:
    return next(d for d in surveys if len(d) == len(dtypes))


def _shapes(
    choices: Choices,
    primitive: Primitive,
    patterns: Patterns,
    dtypes: Dtypes,
) -> Shapes | None:
    """Shapes of a pattern that the rules accept; None if four tries find none."""
    pattern, known = choices.of(patterns)
    count = symbols(pattern)
    for _ in range(4):
        values = [choices.of(_EXTENTS) for _ in range(count)]
        if count and choices.below(16) == 0:
            values = [1] * count
            values[choices.below(count)] = choices.of(_LONG)
        shapes = extents(pattern, values)
        if len(dtypes) > 1 and choices.below(4) == 0:
            shapes = _stretched(choices, shapes)
        if max(map(prod, shapes), default=0) <= _LARGEST and accepts(primitive, shapes, dtypes):
            return shapes
    shapes = extents(pattern, known)
    return shapes if accepts(primitive, shapes, dtypes) else None


def _stretched(choices: Choices, shapes: Shapes) -> Shapes:
    """The shapes with one axis of one input set to 1, so that it broadcasts."""
    i = choices.below(len(shapes))
    if not shapes[i]:
        return shapes
    axis = choices.below(len(shapes[i]))
    thin = tuple(1 if a == axis else n for a, n in enumerate(shapes[i]))
    return (*shapes[:i], thin, *shapes[i + 1 :])


def why_none(primitive: Primitive) -> str:
    """Why too few calls can be drawn, as far as that is known."""
    if primitive.const_inputs:
        return f"the values of {', '.join(primitive.const_inputs)} cannot be guessed"
    dtypes = next(iter(signatures(primitive)), ())
    return why_refused(primitive, dtypes)
