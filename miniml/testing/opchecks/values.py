"""Contents of the calls of opcheck: numbers, shapes that the rules accept, and samples.

In order: numbers of several kinds; shapes, for which the shape rule is tried on patterns of equal
extents; the extents that a rule may ask for, from its code and its refusals; the calls that an
OpInfo gives: its samples, and drawn calls that its reference covers.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, combinations, islice, permutations, product
from math import prod
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from ...core.abstract import Abstract, DType, Shape, bool_, float16, is_float
from ...core.errors import MinimlError
from ...core.infer import infer
from ...core.primitive import EMPTY, Primitive, key
from ..calls import Array, Call, OpInfo, call_of, dtypes_of, go_on
from ..tolerance import limits_of

# Kinds of numbers. The smooth ones suit gradients: no two numbers are equal, none is at a kink. At
# the bent ones a gradient is checked, too, with kinks allowed.
SMOOTH = ("ordinary", "positive", "unit")
BENT = ("ties", "zeros", "large")
EXTREME = ("tiny", "huge")  # for one input of a call only: with two, little would be finite
SPREAD = ("outlier", "offset")
APART = 50_000  # between the starts of the ladders of two inputs
_INPUTS = 4  # whose ladders `ladder_text` knows
_STRIDE, _PERIOD, _QUARTER = 200_003, 2**19, 2**17
KINDS = (*SMOOTH, *BENT, *EXTREME, *SPREAD)
LONGEST = "longest"  # numbers of `ladder`
NEGATIVE = "negative"  # ordinary floats, and negative integers of the same shape beside them


def draw(kind: str, shape: Shape, dtype: DType, seed: int, beside_floats: bool) -> Array:
    """An array of numbers of one kind.

    beside_floats: integers beside float inputs are small and non-negative, like indices and counts.
    """
    rng = np.random.default_rng(seed)
    if dtype == bool_:
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    if is_float(dtype):
        return np.asarray(_FLOATS[kind](rng, shape, dtype)).astype(dtype)
    if kind == "huge" and not beside_floats:
        half = 2 ** (4 * dtype.itemsize - 1)  # products still fit
        least = 0 if dtype.kind == "u" else -half
        return np.asarray(rng.integers(least, half, shape)).astype(dtype)
    if kind == NEGATIVE and dtype.kind == "i":
        return np.asarray(rng.integers(-3, 0, shape)).astype(dtype)
    top = 2 if beside_floats else 4
    low = 0 if beside_floats or dtype.kind == "u" else 1 if kind == "positive" else -3
    return np.asarray(rng.integers(low, top, shape)).astype(dtype)


def _ordinary(rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
    size = int(np.prod(shape))  # neighbours are apart by half a step at least
    ladder = (np.arange(size) + rng.uniform(0.25, 0.75, size)) / max(size, 1)
    return np.asarray(rng.permutation(4.0 * ladder - 2.0)).reshape(shape)


def _tiny(rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
    """Subnormal numbers, the smallest normal one, the smallest of all, and 0."""
    limits = limits_of(dtype)
    below = rng.choice([-1.0, 1.0], shape) * rng.uniform(0.05, 0.9, shape) * float(limits.tiny)
    few = [float(limits.tiny), float(limits.smallest_subnormal), 0.0]
    return np.asarray(np.where(rng.random(shape) < 0.7, below, rng.choice(few, shape)))


def _outlier(rng: np.random.Generator, shape: Shape, dtype: DType) -> Array:
    """Ordinary numbers and one far larger: 512, whose square overflows in float16, or 1e5, whose
    seventh power does not in other dtypes."""
    numbers = _ordinary(rng, shape, dtype)
    if numbers.size:
        numbers.reshape(-1)[rng.integers(numbers.size)] = 512.0 if dtype == float16 else 1e5
    return numbers


# "huge" numbers fit in the dtype, though their squares do not; the mean of "offset" is so far above
# the spread that squares of the two cancel.
_FLOATS: dict[str, Callable[[np.random.Generator, Shape, DType], Any]] = {
    "ordinary": _ordinary,
    "positive": lambda *of: 1.6 + 0.7 * _ordinary(*of),
    "unit": lambda *of: 0.45 * _ordinary(*of),
    "ties": lambda rng, shape, _: rng.integers(-1, 3, shape),
    "zeros": lambda rng, shape, _: rng.choice([0.0, -0.0, 1.0, -1.0], size=shape),
    "tiny": _tiny,
    "large": lambda *of: 20.0 * _ordinary(*of),
    "huge": lambda rng, shape, dtype: (
        float(limits_of(dtype).max) ** 0.7 * _ordinary(rng, shape, dtype)
    ),
    "outlier": _outlier,
    "offset": lambda rng, shape, dtype: (
        (64.0 if dtype.itemsize == 2 else 1e3) + _ordinary(rng, shape, dtype)
    ),
    NEGATIVE: _ordinary,
}


def ladder(start: int, stop: int) -> Array:
    """Numbers from -2 to 2, all distinct and unordered, from a sequence with a short formula."""
    return np.arange(start, stop) * _STRIDE % _PERIOD / _QUARTER - 2.0


def ladder_text(a: Array) -> str | None:
    """An expression for an array that is the `ladder` of an input; None for other arrays."""
    for start in range(0, _INPUTS * APART, APART) if a.ndim == 1 else ():
        if np.array_equal(a, ladder(start, start + a.size).astype(a.dtype)):
            row = f"np.arange({start}, {start + a.size})"
            return f"({row} * {_STRIDE} % {_PERIOD} / {_QUARTER} - 2.0).astype({a.dtype.name!r})"
    return None


# --- Shapes that a primitive accepts --------------------------------------------------------------


# One entry per input, one symbol per axis: ((0, 1), (1, 2)) is (n, k) and (k, m).
Pattern = tuple[tuple[int, ...], ...]
Shapes = tuple[Shape, ...]

LARGEST = 2**14  # elements of one array
_EXTENTS = (2, 3, 5, 7, 11, 13, 4, 6)
_WINDOWS = (5, 4, 13, 11, 6, 3, 2, 7)  # axes 2 and 3 large, later ones small, as of kernels
# By number of inputs: the number of axes in all up to which every pattern is tried.
_AXES = {0: 0, 1: 4, 2: 5, 3: 5, 4: 4}
_MOST = 4000  # patterns
_ONES = 4  # axes, each of which is tried with extent 1
_PAIRED = 8  # constants that are tried in pairs
_TRIES = 20_000  # with constants


def survey(primitive: Primitive, dtypes: Sequence[DType]) -> list[tuple[Pattern, tuple[int, ...]]]:
    """Patterns that the shape rule accepts, each with extents for which it does.

    Few axes are tried in every possible pattern of equal extents; more of them in the patterns of
    common operations, and in those found with a batch axis in front. Where no plain extents are
    accepted, those of windows and extents of 1 are tried, then those that the rules name.
    """
    hints = _hints(primitive)
    tries: list[tuple[int, ...]] = [_EXTENTS]
    if hints:
        tries += [hints + _EXTENTS, (prod(hints), *_EXTENTS)]
    found = _found(primitive, dtypes, tries)
    if not found:
        ones = [(*_EXTENTS[:k], 1, *_EXTENTS[k + 1 :]) for k in range(_ONES)]
        found = _found(primitive, dtypes, [_WINDOWS, *ones, (1,) * len(_EXTENTS)])
    if not any(map(symbols, found)):
        found.update(_with_constants(primitive, dtypes))
    for pattern in list(found)[-40:]:
        lifted = tuple((0, *(s + 1 for s in axes)) for axes in pattern)
        if lifted not in found:
            values = _accepted(primitive, lifted, tries, dtypes)
            if values is not None:
                found[lifted] = values
    return list(found.items())


def _hints(primitive: Primitive) -> tuple[int, ...]:
    """Whole numbers among the attributes: they may be extents, as in a reshape."""
    found: list[int] = []

    def visit(value: object) -> None:
        if isinstance(value, tuple):
            for v in value:
                visit(v)
        elif isinstance(value, int) and not isinstance(value, bool) and 1 < value < 64:
            found.append(value)

    visit(tuple(primitive.attributes.values()))
    return tuple(found[:6])


def _found(
    primitive: Primitive, dtypes: Sequence[DType], tries: Sequence[tuple[int, ...]]
) -> dict[Pattern, tuple[int, ...]]:
    """The patterns that are accepted with the first extents of one of the tries."""
    found = {}
    for pattern in islice(_patterns(len(dtypes)), _MOST):
        values = _accepted(primitive, pattern, tries, dtypes)
        if values is not None:
            found[pattern] = values
    return found


def _accepted(
    primitive: Primitive,
    pattern: Pattern,
    tries: Sequence[tuple[int, ...]],
    dtypes: Sequence[DType],
) -> tuple[int, ...] | None:
    for values in tries:
        values = values[: symbols(pattern)]
        if len(values) == symbols(pattern) and accepts(primitive, extents(pattern, values), dtypes):
            return values
    return None


def _with_constants(
    primitive: Primitive, dtypes: Sequence[DType]
) -> Iterator[tuple[Pattern, tuple[int, ...]]]:
    """The patterns that are accepted with one or two extents, or all, among those that the rules
    may ask for."""
    constants, tried = _required(primitive, dtypes), 0
    for pattern in _patterns(len(dtypes)):
        count = symbols(pattern)
        if not 0 < count <= _ONES:
            continue
        for values in _filled(count, constants):
            tried += 1
            shapes = extents(pattern, values)
            if max(map(prod, shapes)) <= LARGEST and accepts(primitive, shapes, dtypes):
                yield pattern, values
                break
        if tried > _TRIES:
            return


def _filled(count: int, constants: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Extents with each constant at each position, then with each pair of constants at two."""
    plain = _EXTENTS[:count]
    for n, k in product(constants, range(count)):
        yield (*plain[:k], n, *plain[k + 1 :])
    pairs = combinations(range(count), 2)
    for (j, k), (m, n) in product(pairs, permutations(constants[:_PAIRED], 2)):
        yield tuple(m if i == j else n if i == k else p for i, p in enumerate(plain))


def accepts(primitive: Primitive, shapes: Shapes, dtypes: Sequence[DType]) -> bool:
    """True when the rules take these inputs; TimeIsUpError when the time of the check is up."""
    go_on()
    try:
        infer(primitive, tuple(map(Abstract, shapes, dtypes)))
    except Exception:  # whatever a rule raises, it refuses them
        return False
    return True


def extents(pattern: Pattern, values: Sequence[int]) -> Shapes:
    """The shapes of a pattern when its symbols have these values."""
    return tuple(tuple(values[s] for s in axes) for axes in pattern)


def symbols(pattern: Pattern) -> int:
    """The number of different symbols in a pattern; they are numbered from 0."""
    return 1 + max(chain.from_iterable(pattern), default=-1)


def why_refused(primitive: Primitive, dtypes: Sequence[DType]) -> tuple[str, bool]:
    """The clearest error of the rules for plain shapes; and True if the result of a rule is
    malformed, which no other shapes would change."""
    refused: dict[str, str] = {}
    for rank in range(4):
        shapes = ((2, 3, 5)[:rank],) * len(dtypes)
        try:
            infer(primitive, tuple(map(Abstract, shapes, dtypes)))
        except Exception as error:
            text = str(error).partition("\n")[0]
            refused[type(error).__name__] = f"for shapes {shapes} it raises {text}"
    otherwise = next(iter(refused.values()), "most values are refused")
    malformed = refused.get("DeclarationError")
    return malformed or otherwise, malformed is not None


def _patterns(count: int) -> Iterator[Pattern]:
    most = _AXES.get(count, count)
    for total in range(most + 1):
        for ranks in _ranks(count, total):
            for labels in _partitions(total):
                yield _split(labels, ranks)
    yield from _families(count)


def _ranks(count: int, total: int) -> Iterator[tuple[int, ...]]:
    """Ranks of `count` inputs that have `total` axes in all."""
    if count == 0:
        if total == 0:
            yield ()
        return
    for first in range(total + 1):
        for rest in _ranks(count - 1, total - first):
            yield first, *rest


def _partitions(total: int) -> Iterator[tuple[int, ...]]:
    """Every partition of `total` axes into axes of equal extent, the most general one first."""
    found: list[tuple[int, ...]] = [()]
    for _ in range(total):
        found = [p + (s,) for p in found for s in range(max(p, default=-1) + 2)]
    yield from sorted(found, key=lambda p: -max(p, default=0))


def _split(labels: tuple[int, ...], ranks: tuple[int, ...]) -> Pattern:
    rest = iter(labels)
    return tuple(tuple(islice(rest, rank)) for rank in ranks)


def _families(count: int) -> Iterator[Pattern]:
    """Patterns with more axes: equal shapes, one large input and small ones, stacks, windows."""
    if count == 0:
        return
    for rank in range(2, 5):
        full = tuple(range(rank))
        small = [(), *((a,) for a in full), full[:-1], full[1:], full]
        for others in (
            product(small, repeat=count - 1) if count < 4 else ((s,) * (count - 1) for s in small)
        ):
            yield full, *others
    if count >= 2:
        rest = ((2,),) * (count - 2)
        yield (0, 1, 2), (0, 2, 3), *rest
        yield (0, 1, 2, 3), (0, 1, 3, 4), *rest
        yield (0, 1, 2), (3, 1, 4), *((3,),) * (count - 2)
        yield (0, 1, 2, 3), (4, 1, 5, 6), *((4,),) * (count - 2)


# --- Extents that the rules may ask for -----------------------------------------------------------


_COMMON = (1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64)
_LARGEST = 512
_MOST_CONSTANTS = 20
_DEPTH = 2
_RULES = ("infer_shape", "infer_dtype", "infer_value", "__infer__")
_SHAPES: tuple[tuple[int, ...], ...] = ((), (2,), (2, 3), (2, 3, 5), (2, 3, 5, 7))


def _required(primitive: Primitive, dtypes: Sequence[DType]) -> list[int]:
    """Extents to try where plain ones are refused, the likely ones first: those that the rules
    name, then `_COMMON` ones."""
    found = dict.fromkeys([*_in_refusals(primitive, dtypes), *_in_code(primitive)])
    named = [n for n in found if 1 <= n <= _LARGEST][:_MOST_CONSTANTS]
    return [*named, *(n for n in _COMMON if n not in named)]


def _in_refusals(primitive: Primitive, dtypes: Sequence[DType]) -> Iterator[int]:
    """The numbers in the messages with which plain shapes are refused."""
    for shape in _SHAPES:
        try:
            infer(primitive, tuple(Abstract(shape, d) for d in dtypes))
        except Exception as error:  # whatever a rule raises, it refuses them
            given = set(shape)
            numbers = map(int, re.findall(r"(?<![\w.])\d{1,4}(?![\w.]*\d)", str(error)))
            yield from (n for n in numbers if n not in given)


def _in_code(primitive: Primitive) -> Iterator[int]:
    """The whole numbers among the constants, globals, closures and attributes that rules use."""
    for rule in _RULES:
        function = getattr(getattr(type(primitive), rule, None), "__wrapped__", None)
        function = function or getattr(type(primitive), rule, None)
        if isinstance(function, FunctionType):
            yield from _used_by(function, primitive, _DEPTH)


def _used_by(function: FunctionType, primitive: Primitive, depth: int) -> Iterator[int]:
    """The whole numbers that a function uses, and those of the functions of its module that it
    calls."""
    for code in _codes(function.__code__):
        for value in code.co_consts:
            yield from _whole(value)
        for name in code.co_names:
            used = function.__globals__.get(name)
            yield from _whole(used)
            yield from _whole(getattr(primitive, name, None))
            if depth and isinstance(used, FunctionType) and used.__module__ == function.__module__:
                yield from _used_by(used, primitive, depth - 1)
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # an empty cell
            yield from _whole(cell.cell_contents)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A code object and those of the functions and comprehensions in it."""
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _codes(value)


def _whole(value: Any) -> Iterator[int]:
    """The whole numbers in a value; of an array, its extents."""
    if isinstance(value, np.ndarray):
        yield from value.shape
    elif isinstance(value, (tuple, list, frozenset)):
        for v in value:
            yield from _whole(v)
    elif isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        yield int(value)


# --- Calls of an OpInfo ---------------------------------------------------------------------------


def sampled(primitive: Primitive, info: OpInfo, seed: int | None) -> tuple[list[Call], list[str]]:
    """The calls of an OpInfo's samples, in every dtype it covers, and its refusals.

    A sample without attributes calls the primitive itself, one with attributes the primitive with
    these. Samples that only the attributes of this primitive refuse are left out.
    """
    own = _given(primitive, info)
    found, refused = [], []
    for number, dtype in enumerate(dtypes_of(info)):
        rng = np.random.default_rng([seed or 0, number])
        for sample in info.samples(rng, dtype):
            made, given = primitive, own
            try:
                if sample.attrs:
                    made, given = type(primitive)(**sample.attrs), dict(sample.attrs)
                call = call_of(made, sample, info, given)
                _ = call.inferred
            except MinimlError as error:
                if sample.attrs or not primitive.attributes:
                    refused.append(str(error).partition("\n")[0])
                continue
            found.append(call)
    return found, refused[:1]


def informed(call: Call, info: OpInfo) -> Call:
    """A drawn call, with the OpInfo's reference where any input is in its domain.

    One with an axis of 40,000 stays as it is: references are written for clarity, and some need
    memory of the square of that length.
    """
    if call.kind == LONGEST:
        return call
    if info.domain is not None or (call.arrays and call.dtypes[0] not in dtypes_of(info)):
        return call
    return replace(call, info=info, given=_given(call.primitive, info), smooth=False)


def _given(primitive: Primitive, info: OpInfo) -> dict[str, Any]:
    """The attributes that a reference gets: those it names, and all non-default ones."""
    try:
        named = set(inspect.signature(info.reference or _given).parameters)
    except (TypeError, ValueError):  # a ufunc
        named = set()
    defaults = {f.name: f.default for f in type(primitive)._fields}
    return {
        name: value
        for name, value in primitive.attributes.items()
        if name in named or defaults.get(name, EMPTY) is EMPTY or key(defaults[name]) != key(value)
    }
