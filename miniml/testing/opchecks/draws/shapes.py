"""The shapes a primitive accepts: its shape rule is tried on patterns of equal extents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice, product
from math import prod

from ....abstract import Abstract, Shape
from ....dtype import DType
from ....infer import infer
from ....primitive import Primitive

# One entry per input, one symbol per axis: ((0, 1), (1, 2)) is (n, k) and (k, m).
Pattern = tuple[tuple[int, ...], ...]
Shapes = tuple[Shape, ...]

_EXTENTS = (2, 3, 5, 7, 11, 13, 4, 6)
_WINDOWS = (5, 4, 13, 11, 6, 3, 2, 7)  # axes 2 and 3 large, later ones small, as of kernels
_AXES = {
    0: 0,
    1: 4,
    2: 5,
    3: 5,
    4: 4,
}  # by number of inputs: the total of axes up to which every pattern is tried
_MOST = 4000
_ONES = 4


def accepts(primitive: Primitive, shapes: Shapes, dtypes: Sequence[DType]) -> bool:
    """True when the rules take these inputs."""
    try:
        infer(primitive, tuple(map(Abstract, shapes, dtypes)))
    except Exception:  # whatever a rule raises, it refuses them
        return False
    return True


def why_refused(primitive: Primitive, dtypes: Sequence[DType]) -> str:
    """The clearest error of the rules for plain shapes."""
    refused: dict[str, str] = {}
    for rank in range(4):
        shapes = ((2, 3, 5)[:rank],) * len(dtypes)
        try:
            infer(primitive, tuple(map(Abstract, shapes, dtypes)))
        except Exception as error:
            text = str(error).partition("\n")[0]
            refused[type(error).__name__] = f"for shapes {shapes} it raises {text}"
    otherwise = next(iter(refused.values()), "most values are refused")
    return refused.get("DeclarationError", otherwise)


def extents(pattern: Pattern, values: Sequence[int]) -> Shapes:
    """The shapes of a pattern when its symbols have these values."""
    return tuple(tuple(values[s] for s in axes) for axes in pattern)


def symbols(pattern: Pattern) -> int:
    """How many different symbols a pattern has; they are counted from 0."""
    return 1 + max(chain.from_iterable(pattern), default=-1)


def survey(primitive: Primitive, dtypes: Sequence[DType]) -> list[tuple[Pattern, tuple[int, ...]]]:
    """Patterns that the shape rule accepts, each with extents for which it does.

    Few axes are tried in every pattern of equal extents there is; more of them in the patterns of
    common operations, and in those found with batch axes in front. Where no plain extents
    are accepted, those of windows and extents of 1 are tried.
    """
    hints = _hints(primitive)
    tries: list[tuple[int, ...]] = [_EXTENTS]
    if hints:
        tries += [hints + _EXTENTS, (prod(hints), *_EXTENTS)]
    found = _found(primitive, dtypes, tries)
    if not found:
        ones = [(*_EXTENTS[:k], 1, *_EXTENTS[k + 1 :]) for k in range(_ONES)]
        found = _found(primitive, dtypes, [_WINDOWS, *ones, (1,) * len(_EXTENTS)])
    for pattern in list(found)[-40:]:
        lifted = tuple((0, *(s + 1 for s in axes)) for axes in pattern)
        if lifted not in found:
            values = _accepted(primitive, lifted, tries, dtypes)
            if values is not None:
                found[lifted] = values
    return list(found.items())


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


def _patterns(count: int) -> Iterator[Pattern]:
    most = _AXES.get(count, count)
    for total in range(most + 1):
        for ranks in _ranks(count, total):
            for labels in _partitions(total):
                yield _split(labels, ranks)
    yield from _families(count)


def _ranks(count: int, total: int) -> Iterator[tuple[int, ...]]:
    """Ranks of `count` inputs with `total` axes together."""
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
    """Patterns with more axes: equal shapes, one large and small others, stacks, windows."""
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
