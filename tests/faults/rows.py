"""The kinds of rows in the corpus, and the draws that they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Arrays = tuple[Array, ...]
Draw = Callable[[np.random.Generator], Arrays]


@dataclass(frozen=True)
class Pair:
    """A NumPy function with a pull-back written by hand, and where it is checked.

    f(*xs) -> array; vjp(*xs, dout) -> one gradient for each input (None for integers), as a
    tuple; draw(rng) -> xs. Nothing here knows miniml, so other systems' checkers take it too.
    kink: a point stands on a kink, or as near to one as rounding. scales: why f is not smooth at
    ordinary scales there, which may cost a checker more calls of f.
    """

    name: str
    f: Callable[..., Array]
    vjp: Callable[..., Any]
    draw: Draw
    kink: bool = False
    scales: str = ""

    @property
    def most_calls(self) -> int:
        """The forward calls that gradcheck may need for one order."""
        return 150 if self.scales else 60


@dataclass(frozen=True)
class WrongPair(Pair):
    """A pair whose pull-back is wrong, and what a report must say of it.

    diagnosis: a regular expression that the report's text must hold. argnum, index: where the
    fault stands, when one place is to be named. fault: "values", or what else is wrong (a write,
    a count), so
    that tables can tell what a checker of values could have seen.
    """

    diagnosis: str = ""
    argnum: int | None = None
    index: tuple[int, ...] | None = None
    fault: str = "values"


def normal(*shapes: tuple[int, ...], scale: float = 1.0, shift: float = 0.0) -> Draw:
    """Normal numbers, one array for each shape."""
    return lambda rng: tuple(scale * rng.normal(size=s) + shift for s in shapes)


def between(low: float, high: float, *shapes: tuple[int, ...]) -> Draw:
    """Uniform numbers in [low, high), one array for each shape."""
    return lambda rng: tuple(rng.uniform(low, high, size=s) for s in shapes)


def signed(low: float, high: float, *shapes: tuple[int, ...]) -> Draw:
    """Numbers of either sign whose magnitudes lie in [low, high): away from 0."""
    return lambda rng: tuple(
        rng.choice([-1.0, 1.0], size=s) * rng.uniform(low, high, size=s) for s in shapes
    )


def apart(*shapes: tuple[int, ...]) -> Draw:
    """Distinct numbers, 0.3 from each other and 0.15 from 0."""

    def draw(rng: np.random.Generator) -> Arrays:
        sizes = [int(np.prod(s)) for s in shapes]
        steps = [rng.permutation(n) - n // 2 + 0.5 for n in sizes]
        return tuple(0.3 * v.reshape(s) for v, s in zip(steps, shapes))

    return draw


def exactly(*values: Any) -> Draw:
    """These inputs, every time."""
    return lambda rng: tuple(np.array(v, copy=True) for v in values)


def in_dtype(dtype: Any, draw: Draw) -> Draw:
    """The same inputs, rounded to another dtype."""
    return lambda rng: tuple(a.astype(dtype) if a.dtype.kind == "f" else a for a in draw(rng))


def curve(
    name: str,
    f: Callable[[Array], Array],
    slope: Callable[[Array], Array],
    draw: Draw,
    kink: bool = False,
    scales: str = "",
) -> Pair:
    """The pair of y = f(x), element by element, from its derivative."""
    return Pair(name, f, lambda x, dout: (dout * slope(x),), draw, kink, scales)
