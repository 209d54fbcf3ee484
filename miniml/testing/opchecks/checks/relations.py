"""Relations: a variant of a call gives what the call gives. Each is a row of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...calls import Arrays, Call
from ..session import Problem
from .programs import difference


class Variant(NamedTuple):
    """The same thing in two ways. words: what `got` is, as the subject of a sentence."""

    words: str
    got: Callable[[], Arrays]
    expected: Callable[[], Arrays]


@dataclass(frozen=True, slots=True)
class Relation:
    """What must not matter. variants: of one call. advice: what to do where it does."""

    kind: str
    variants: Callable[[Call], Iterator[Variant]]
    advice: str


def related(call: Call, relations: Sequence[Relation]) -> Iterator[Problem]:
    """The first variant of each relation that differs from the call by more than rounding."""
    for relation in relations:
        for variant in relation.variants(call):
            wrong = _wrong(call, variant)
            if wrong is not None:
                said = f"{call}: {variant.words}: {wrong}"
                yield Problem(relation.kind, said, relation.advice)
                break


def _wrong(call: Call, variant: Variant) -> str | None:
    expected = variant.expected()
    try:
        got = variant.got()
    except Exception as error:  # where the expected outputs are there
        return f"it raises {type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return difference(call, got, expected)
