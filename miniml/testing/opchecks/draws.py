"""Drawn calls of a primitive, from its rules and the kernel table.

In order: calls with shapes that the rules accept, dtypes of the registered kernels and numbers of
several kinds; calls of primitives with const inputs, whose values are of a kind that rules and
kernels accept; the check that a call can be made much longer, because the time and memory of its
kernels grow like its inputs.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, combinations, islice, product
from math import prod
from typing import Any

import numpy as np

from ...backends import registry
from ...core.abstract import DType, Shape, float32, float64, is_complex, is_float
from ...core.primitive import Primitive
from ..calls import (
    ON_CPU,
    Array,
    Arrays,
    Call,
    Choices,
    drawn_layouts,
    failure,
    go_on,
    launch,
    launched,
    usual_layouts,
)
from .values import (
    APART,
    EXTREME,
    KINDS,
    LARGEST,
    LONGEST,
    NEGATIVE,
    SMOOTH,
    SPREAD,
    Pattern,
    Shapes,
    accepts,
    draw,
    extents,
    ladder,
    survey,
    symbols,
    why_refused,
)

Dtypes = tuple[DType, ...]
Keep = Callable[[Call], bool]
Patterns = list[tuple[Pattern, tuple[int, ...]]]
Surveys = dict[Dtypes, Patterns]

ENOUGH = 20  # valid calls; of fewer opcheck says that it cannot draw inputs
_EXTENTS = (1, 2, 3, 4, 0, 5, 7, 2, 1, 2, 3, 4, 6, 8, 12, 2)
LONG_AND_ODD = 1031
_LONG = (67, 300, LONG_AND_ODD, 2050)
_BLOCKS = (6, 8, 12)
_LONGEST = 40_000  # more than int16 can count, and than any block
_MODERATE = 512  # elements of one array
_AXES = 8
_PLAIN = 24  # patterns that are tried with plain extents
_FEW = 4
_SHARED, _THIN = 4, 16  # patterns that are stretched, and calls of them
_MIXED = 2  # layouts that are chosen for a call


def drawn(primitive: Primitive, seed: int | None, keep: Keep) -> Iterator[Call]:
    """Calls of a primitive that its rules and `keep` accept, simple ones first.

    Shapes come from those that the shape rule accepts, dtypes from the registered kernels, numbers
    from `values`; some of the shapes are then taken with every dtype and every kind of number.
    seed: None draws the same calls every time.
    """
    table = signatures(primitive)
    if primitive.const_inputs:
        yield from _with_const_inputs(primitive, table, KINDS, _seeded(seed or 0), keep)
        return
    surveys = {dtypes: survey(primitive, dtypes) for dtypes in _representatives(table)}
    found = []
    for draws in (_plain, _broadcast, _random):
        for call in draws(primitive, surveys, seed or 0, keep):
            found.append(call)
            yield call
    yield from _completed(primitive, found, surveys, seed or 0, keep)
    yield from _odd(primitive, surveys, seed or 0, keep)
    yield from _longest(primitive, surveys, keep)


def signatures(primitive: Primitive) -> list[Dtypes]:
    """The dtypes of inputs that CPU kernels take, the widest floats first; complex ones are not
    drawn."""
    found: dict[Dtypes, None] = {}
    for entry in registry.table.get((primitive.name, "cpu"), ()):
        if not ON_CPU.supports(entry):
            continue
        s = entry.signature
        if any(d is not None and is_complex(d) for d in (*s.inputs, *s.outputs)):
            continue
        counts = (2, 1, 3) if s.repeats_input else (len(s.inputs),)
        free = any(d is None for d in s.inputs)  # not `None in`: NumPy calls float64 == None true
        for any_dtype in (float64, float32) if free else (float64,):
            filled = tuple(any_dtype if d is None else d for d in s.inputs)
            for n in counts:
                found[filled[:-1] + filled[-1:] * max(0, n - len(filled) + 1)] = None
    order = {float64: 0, float32: 1}
    return sorted(found, key=lambda dtypes: [order.get(d, 2 + (not is_float(d))) for d in dtypes])


def _representatives(table: list[Dtypes]) -> list[Dtypes]:
    """One signature per number of inputs: the shape rule does not see dtypes."""
    first: dict[int, Dtypes] = {}
    for dtypes in table:
        first.setdefault(len(dtypes), dtypes)
    return list(first.values())


def why_none(primitive: Primitive) -> tuple[str, bool]:
    """The reason why too few calls can be drawn, as far as known; and True if a rule is wrong."""
    if primitive.const_inputs:
        return f"the values of {', '.join(primitive.const_inputs)} cannot be guessed", False
    dtypes = next(iter(signatures(primitive)), ())
    return why_refused(primitive, dtypes)


def _plain(primitive: Primitive, surveys: Surveys, seed: int, keep: Keep) -> Iterator[Call]:
    """Calls with the patterns of the survey, their extents all different, then with one extent
    0."""
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
    """Small shapes with each extent in turn set to 0: empty sums, and empty outputs."""
    for pattern, known in [p for p in patterns if p[1]][:_FEW]:
        for k in range(len(known)):
            yield extents(pattern, (*known[:k], 0, *known[k + 1 :]))


def _broadcast(primitive: Primitive, surveys: Surveys, seed: int, keep: Keep) -> Iterator[Call]:
    """Calls in which one axis is stretched, or one of each of two inputs: (3, 1) and (3, 4), or
    (3, 1) and (1, 4)."""
    if primitive.const_inputs:
        return
    for dtypes, patterns in surveys.items():
        shared = [p for p in patterns if _shared(p[0])]
        shared.sort(key=lambda p: _unlike_matrices(p[0]))
        tried = chain.from_iterable(_thinned(extents(*p), p[0]) for p in shared[:_SHARED])
        for number, shapes in enumerate(islice(dict.fromkeys(tried), _THIN)):
            if max(map(prod, shapes)) <= _MODERATE and accepts(primitive, shapes, dtypes):
                arrays = _numbers("ordinary", shapes, dtypes, seed + 53 * number)
                call = Call(primitive, arrays, kind="ordinary")
                if keep(call):
                    yield call


def _unlike_matrices(pattern: Pattern) -> tuple[int, int, int]:
    """The sort key by which patterns of matrices of one shape come first."""
    ranks = set(map(len, pattern))
    return len(ranks), abs(max(ranks) - 2), -symbols(pattern)


def _shared(pattern: Pattern) -> list[tuple[int, int]]:
    """The axes of inputs, as (input, axis), whose extent another input has, too."""
    return [
        (i, axis)
        for i, axes in enumerate(pattern)
        for axis, symbol in enumerate(axes)
        if any(symbol in others for k, others in enumerate(pattern) if k != i)
    ]


def _thinned(shapes: Shapes, pattern: Pattern) -> Iterator[Shapes]:
    """The shapes with one shared axis set to 1, then with two, of different inputs and extents."""
    shared = _shared(pattern)
    pairs = [
        (one, two)
        for one, two in combinations(shared, 2)
        if one[0] != two[0] and pattern[one[0]][one[1]] != pattern[two[0]][two[1]]
    ]
    for ones in chain(zip(shared), pairs):
        yield tuple(
            tuple(1 if (i, axis) in ones else n for axis, n in enumerate(shape))
            for i, shape in enumerate(shapes)
        )


def _random(primitive: Primitive, surveys: Surveys, seed: int, keep: Keep) -> Iterator[Call]:
    """Calls with everything drawn at random: dtypes, shapes, kinds of numbers, layouts."""
    usable = [d for d in signatures(primitive) if surveys.get(_like(d, surveys))]
    if not usable:
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
                mixed = tuple(drawn_layouts(choices, ranks) for _ in range(_MIXED))
                yield replace(call, layouts=(*mixed, *usual_layouts(len(ranks), 1)))


def _like(dtypes: Dtypes, surveys: dict[Dtypes, Any]) -> Dtypes:
    return next(d for d in surveys if len(d) == len(dtypes))


def _shapes(
    choices: Choices, primitive: Primitive, patterns: Patterns, dtypes: Dtypes
) -> Shapes | None:
    """Shapes of a pattern that the rules accept; None if eight attempts find none. In the last four
    some extents are those of the pattern: the rules may ask for them."""
    pattern, known = choices.of(patterns)
    count = symbols(pattern)
    for number in range(8):
        values = [choices.of(_EXTENTS) for _ in range(count)]
        if number >= 4:
            values = [choices.of((k, k, v)) for k, v in zip(known, values)]
        if count and choices.below(16) == 0:
            values = [1] * count
            values[choices.below(count)] = choices.of(_LONG)
        shapes = extents(pattern, values)
        if len(dtypes) > 1 and choices.below(4) == 0:
            shapes = _stretched(choices, shapes)
        if max(map(prod, shapes), default=0) <= LARGEST and accepts(primitive, shapes, dtypes):
            return shapes
    shapes = extents(pattern, known)
    return (
        shapes if accepts(primitive, shapes, dtypes) and max(map(prod, shapes)) <= LARGEST else None
    )


def _stretched(choices: Choices, shapes: Shapes) -> Shapes:
    """The shapes with one axis of one input set to 1, so that it broadcasts."""
    i = choices.below(len(shapes))
    if not shapes[i]:
        return shapes
    axis = choices.below(len(shapes[i]))
    thin = tuple(1 if a == axis else n for a, n in enumerate(shapes[i]))
    return (*shapes[:i], thin, *shapes[i + 1 :])


def _completed(
    primitive: Primitive, found: list[Call], surveys: Surveys, seed: int, keep: Keep
) -> Iterator[Call]:
    """Calls in every dtype: with every kind of number, empty or 0-d, with long axes."""
    small = [c for c in found if c.arrays and all(1 <= a.size <= 64 for a in c.arrays)]
    several = [c for c in small if any(a.size > 1 for a in c.arrays)] or small
    bare = [c for c in found if any(a.ndim == 0 for a in c.arrays)]
    empty = [c for c in found if any(a.size == 0 for a in c.arrays) and launched(c)]
    for number, dtypes in enumerate(signatures(primitive)):
        shaped, *odd = (
            [tuple(a.shape for a in c.arrays) for c in calls if len(c.arrays) == len(dtypes)]
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


def _counts_beside(dtypes: Dtypes, shapes: Shapes) -> bool:
    """True if signed integers have the shape of floats: they are numbers then, not indices."""
    signed = {s for s, d in zip(shapes, dtypes) if d.kind == "i"}
    return bool(signed) and signed <= {s for s, d in zip(shapes, dtypes) if is_float(d)}


def _blocks(patterns: Patterns) -> Iterator[Shapes]:
    """Shapes with each of `_BLOCKS` as the extent of each axis of one pattern: blocked algorithms
    may be wrong for them alone."""
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
    """A shape, for floats of 16 bits, so long that sums in them stagnate: what is added is less
    than half a unit in the last place."""
    narrow = bool(dtypes) and is_float(dtypes[0]) and dtypes[0].itemsize == 2
    return _with_extent(patterns, _LONG[3], number)[:1] if narrow else []


def _odd(primitive: Primitive, surveys: Surveys, seed: int, keep: Keep) -> Iterator[Call]:
    """For each number of inputs calls with the first axis, and the last one, long and odd."""
    for dtypes, patterns in surveys.items():
        found = [_with_extent(patterns, LONG_AND_ODD, number)[:2] for number in (0, -1)]
        for shapes in dict.fromkeys(chain.from_iterable(zip(*found))):
            arrays = _numbers("ordinary", shapes, dtypes, seed + len(shapes[0]))
            call = Call(primitive, arrays, kind="ordinary")
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


def _too_large(call: Call, most: int = LARGEST) -> bool:
    """True if an output has more elements than checks have time for, or more axes than CUDA kernels
    take."""
    return any(o.size > most or len(o.shape) > _AXES for o in call.inferred)


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
    """Arrays of one kind; of kinds at the ends of a dtype's range only one of the largest
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


# --- Const inputs ---------------------------------------------------------------------------------


Numbers = Callable[[str, Shapes, Dtypes, int], Arrays]

# Values of a const input, given the rank of an input; those that fit fewer primitives come first.
GUESSES: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "a permutation of the axes": lambda rng, rank: tuple(map(int, rng.permutation(rank))),
    "an int for each axis": lambda rng, rank: tuple(map(int, rng.integers(-2, 4, rank))),
    "an axis": lambda rng, rank: int(rng.integers(max(rank, 1))),
    "floats": lambda rng, rank: tuple(map(float, rng.normal(size=rng.integers(1, 5)).round(2))),
    "a float": lambda rng, rank: float(rng.uniform(0.25, 2.0)),
    "True or False": lambda rng, rank: bool(rng.integers(2)),
}

_SHAPES: tuple[Shape, ...] = ((2, 3), (4,), (2, 3, 5), (3, 2, 2, 3), (5, 1), (), (0, 3), (67,))
_TRIED = 5  # shapes, several times each
_MOST = 2  # const inputs whose kinds are guessed together


def _with_const_inputs(
    primitive: Primitive,
    table: Sequence[Dtypes],
    kinds: Sequence[str],
    numbers: Numbers,
    keep: Keep,
) -> Iterator[Call]:
    """Calls in every dtype and with every kind of number, with const inputs of the kinds that
    `_guessed` gives; none if it gives none.

    numbers: a function from a kind of number, shapes, dtypes and a seed to arrays.
    """
    guesses = _guessed(primitive, table, numbers)
    cases = product(table, _SHAPES, kinds) if guesses else ()
    for number, (dtypes, shape, kind) in enumerate(cases):
        shapes = (shape,) * len(dtypes)
        call = _call(primitive, guesses, numbers(kind, shapes, dtypes, number), number)
        call = replace(call, smooth=kind in SMOOTH, kind=kind)
        if _accepted(call) and keep(call):
            yield call


def _guessed(primitive: Primitive, table: Sequence[Dtypes], numbers: Numbers) -> tuple[str, ...]:
    """For each const input the first kind of value that the rules accept for several shapes and
    that no kernel then refuses; () where there is none."""
    names = primitive.const_inputs
    if not table or not names or len(names) > _MOST:
        return ()
    for guesses in product(GUESSES, repeat=len(names)):
        tried = [
            _call(primitive, guesses, numbers("ordinary", (s,) * len(table[0]), table[0], k), k)
            for k, s in enumerate(_SHAPES[:_TRIED] * 3)
        ]
        taken = [call for call in tried if _accepted(call)]
        several = len({c.arrays[0].shape for c in taken if c.arrays}) > 1
        if several and not any(failure(e, c) for c in taken if launched(c) for e in c.entries):
            return guesses
    return ()


def guesses_of(primitive: Primitive) -> tuple[str, ...]:
    """The kind of value that each const input is drawn as; () where that cannot be guessed."""
    return _guessed(primitive, signatures(primitive), _seeded(0))


def _seeded(seed: int) -> Numbers:
    return lambda kind, shapes, dtypes, k: _numbers(kind, shapes, dtypes, seed + 31 * k)


def _call(primitive: Primitive, guesses: Sequence[str], arrays: Arrays, number: int) -> Call:
    rng = np.random.default_rng(number)
    rank = arrays[0].ndim if arrays else 0
    values = {n: GUESSES[g](rng, rank) for n, g in zip(primitive.const_inputs, guesses)}
    return Call(primitive, arrays, values)


def _accepted(call: Call) -> bool:
    """True if the rules accept the call."""
    go_on()
    try:
        _ = call.inferred
    except Exception:  # whatever a rule raises, it refuses
        return False
    return True


# --- Growth of time and memory --------------------------------------------------------------------


_PART = 2000  # elements along each axis
_MEMORY = 64  # times the bytes of inputs and outputs
_SECONDS = 2e-3  # for that part


def grows_slowly(call: Call) -> bool:
    """True if kernels on the first part of the call are fast and allocate no arrays far larger than
    inputs and outputs, such as a table of all pairs."""
    part = first_part(call)
    try:
        return all(light(partial(launch, entry, part), part.arrays) for entry in part.entries)
    except Exception:  # refused, or a kernel cannot run it: shorter calls show that
        return False


def first_part(call: Call) -> Call:
    """The call on the first elements along each axis."""
    return call.on(tuple(a[(slice(_PART),) * a.ndim] for a in call.arrays))


def light(run: Callable[[], Arrays], given: Arrays, seconds: float = _SECONDS) -> bool:
    """True if it takes no longer, and memory of the order of what it is given and what it gives."""
    run()  # the first time may compile or import
    start = time.process_time()  # which a busy machine does not lengthen: draws follow the seed
    outs = run()
    seconds -= time.process_time() - start
    return seconds > 0 and _peak(run) < _MEMORY * sum(a.nbytes for a in (*given, *outs))


def _peak(run: Callable[[], Arrays]) -> int:
    """The peak of what it allocates, in bytes."""
    traced = tracemalloc.is_tracing()
    if not traced:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        run()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        if not traced:
            tracemalloc.stop()
