"""The notation of einsum: an equation and shapes, made explicit label by label."""

from __future__ import annotations

import re
from functools import lru_cache
from string import ascii_letters
from typing import NamedTuple

from ...abstract import Shape
from ...errors import ShapeError

_WELL_FORMED = re.compile(r"[a-zA-Z]*(\.\.\.)?[a-zA-Z]*")


class Equation(NamedTuple):
    """An equation without "...": one string of labels per operand, and their extents."""

    operands: tuple[str, ...]
    output: str
    extents: dict[str, int]

    @property
    def shape(self) -> Shape:
        """The output's shape."""
        return tuple(self.extents[label] for label in self.output)


@lru_cache(maxsize=1024)
def parse(equation: str, shapes: tuple[Shape, ...]) -> Equation:
    """The equation with "..." replaced by fresh labels, right-aligned, and the output spelt out.

    An operand's extent of a fresh label may be 1 where `extents` says more: it broadcasts.
    ShapeError, which quotes the equation, for one that is malformed or does not fit the shapes.
    """
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    for term in (*terms, right):
        if not _WELL_FORMED.fullmatch(term):
            raise _refusal(equation, f"has the term {term!r}; a term is letters and one '...'")
    if len(terms) != len(shapes):
        raise _refusal(
            equation, f"has {len(terms)} terms; got {len(shapes)} operands; give one for each"
        )
    unused = [c for c in reversed(ascii_letters) if c not in text]
    ranks = [len(s) - len(t.replace("...", "")) for t, s in zip(terms, shapes, strict=True)]
    dots = max([r for t, r in zip(terms, ranks, strict=True) if "..." in t], default=0)
    if dots > len(unused):
        raise _refusal(equation, f"needs {dots} more labels for '...' than there are letters")
    fresh = "".join(unused[:dots])
    explicit = tuple(
        _explicit(equation, t, s, r, fresh) for t, s, r in zip(terms, shapes, ranks, strict=True)
    )
    return Equation(
        explicit,
        _output(equation, terms, arrow, right, fresh),
        _extents(equation, explicit, shapes, fresh),
    )


def _explicit(equation: str, term: str, shape: Shape, rank: int, fresh: str) -> str:
    """One term with "..." spelt out for an operand that has `rank` axes more than letters."""
    if rank < 0 or (rank and "..." not in term):
        raise _refusal(
            equation,
            f"labels {len(shape) - rank} axes in {term!r}; the operand has shape {shape}; label "
            "each axis, or write '...' for the rest",
        )
    return term.replace("...", fresh[len(fresh) - rank :])


def _output(equation: str, terms: list[str], arrow: str, right: str, fresh: str) -> str:
    letters = "".join(terms).replace("...", "")
    if not arrow:
        return fresh + "".join(c for c in sorted(set(letters)) if letters.count(c) == 1)
    named = right.replace("...", "")
    for label in named:
        if named.count(label) > 1:
            raise _refusal(equation, f"names {label!r} twice in its output; name it once")
        if label not in letters:
            raise _refusal(equation, f"names {label!r} in its output, which no operand has")
    if fresh and "..." not in right:
        raise _refusal(equation, "has '...' in an operand and none in its output; sum named axes")
    return right.replace("...", fresh)


def _extents(
    equation: str, terms: tuple[str, ...], shapes: tuple[Shape, ...], fresh: str
) -> dict[str, int]:
    found: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, extent in zip(term, shape, strict=True):
            known = found.setdefault(label, extent)
            if known == 1 and label in fresh:
                found[label] = extent
            elif known != extent and not (extent == 1 and label in fresh):
                what = "an axis of '...'" if label in fresh else f"label {label!r}"
                raise _refusal(
                    equation, f"gives {what} the extents {known} and {extent}; make them equal"
                )
    return found


def _refusal(equation: str, what: str) -> ShapeError:
    return ShapeError(f"Einsum equation {equation!r} {what}")
