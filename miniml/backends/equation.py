"""The labels of an Einstein sum that the rule of Einsum has accepted."""

from __future__ import annotations

from string import ascii_letters

Shape = tuple[int, ...]


def spelt_out(equation: str, shapes: tuple[Shape, ...]) -> tuple[list[str], str, dict[str, int]]:
    """The labels of each operand and of the output, with fresh ones for the axes of "...", and
    their extents; an axis of "..." may have 1 where its label has more, since ellipses broadcast.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    unused = "".join(c for c in reversed(ascii_letters) if c not in equation)
    counts = [len(s) - len(t.replace("...", "")) for t, s in zip(terms, shapes, strict=True)]
    fresh = unused[: max(counts, default=0)]
    letters = left.replace(",", "").replace("...", "")
    if not arrow:
        right = "..." + "".join(c for c in sorted(set(letters)) if letters.count(c) == 1)
    full = [t.replace("...", fresh[len(fresh) - n :]) for t, n in zip(terms, counts, strict=True)]
    extents: dict[str, int] = {}
    for term, shape in zip(full, shapes, strict=True):
        for label, n in zip(term, shape, strict=True):
            extents[label] = n if extents.get(label, 1) == 1 else extents[label]
    return full, right.replace("...", fresh), extents
