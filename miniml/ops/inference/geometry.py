"""Attributes of windows by axis, and the shapes of images: made uniform, or refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...abstract import Shape
from ...attributes import freeze
from ...errors import ShapeError
from .windows import axes_of

Pair = tuple[int, int]
Padding = tuple[Pair, Pair]
Paddings = tuple[Pair, ...]  # of any number of axes
Lengths = int | Sequence[int]
PaddingSpec = str | int | Sequence[int] | Sequence[Sequence[int]]
UNIT: Pair = (1, 1)
NO_PADDING: Padding = ((0, 0), (0, 0))

# The extents behind (N, C), and those of filters, by the number of axes.
EXTENTS = {1: "L", 2: "H, W", 3: "D, H, W"}
TAPS = {1: "K", 2: "KH, KW", 3: "KD, KH, KW"}
_COUNTS = {1: "one int", 2: "two ints", 3: "three ints"}


def windows(op: Any, image: Shape, kernel: Shape, dilation: Pair) -> Pair:
    """How many windows (rows, columns) fit into a padded plane; ShapeError where none does."""
    strides, dilations = pair(op, "stride", op.stride, 1), pair(op, "dilation", dilation, 1)
    pads = sides(op, op.padding)
    rows, columns = axes_of(op.name, image, kernel, strides, pads, dilations)
    return rows.count, columns.count


def images(name: str, what: str, shape: Shape, n: int = 2) -> Shape:
    """The shape itself if it is (N, C) and n extents; ShapeError for another rank."""
    if len(shape) != 2 + n:
        raise ShapeError(
            f"{name} needs {what} of shape (N, C, {EXTENTS[n]}); got shape {shape}; add the axes "
            "that are missing with ops.expand_dims"
        )
    return shape


def fits(name: str, what: str, got: Shape, expected: Shape) -> None:
    """ShapeError unless the two shapes are equal."""
    if got != expected:
        raise ShapeError(f"{name} got {what} of shape {got}; the other shapes ask for {expected}")


def pair(op: Any, what: str, value: Any, least: int) -> Pair:
    """The value if it is two ints of at least `least`; ShapeError otherwise."""
    return whole(op.name, what, value, least, 2)  # type: ignore[return-value]


def whole(name: str, what: str, value: Any, least: int, n: int) -> tuple[int, ...]:
    """The value if it is n ints of at least `least`; ShapeError otherwise."""
    found = isinstance(value, tuple) and len(value) == n
    if not found or any(type(v) is not int or v < least for v in value):
        raise ShapeError(f"{name} got {what}={value!r}; it is {_COUNTS[n]} of at least {least}")
    return value  # type: ignore[no-any-return]


def sides(op: Any, padding: Any) -> Padding:
    """The padding if it is two pairs of ints of at least 0; ShapeError otherwise."""
    found = isinstance(padding, tuple) and len(padding) == 2
    if not found or not all(isinstance(p, tuple) and len(p) == 2 for p in padding):
        raise ShapeError(f"{op.name} got padding={padding!r}; it is ((top, bottom), (left, right))")
    for p in padding:
        pair(op, "padding", p, 0)
    return padding  # type: ignore[no-any-return]


def lengths(name: str, what: str, value: Lengths, n: int = 2, least: int = 1) -> tuple[int, ...]:
    """n ints of at least `least`, from one for all axes or one for each."""
    given = freeze(value, name, what)
    return whole(name, what, given if isinstance(given, tuple) else (given,) * n, least, n)


def paddings(name: str, value: PaddingSpec, n: int = 2) -> Paddings:
    """n pairs (before, after), from an int, n ints, n pairs or "valid"."""
    frozen = freeze(value, name, "padding")
    if frozen == "valid":
        return ((0, 0),) * n
    if not isinstance(frozen, (int, tuple)):
        raise ShapeError(
            f"{name} got padding={value!r}; it is an int, one int or pair (before, after) for each "
            "axis, 'valid' or, for convolution, 'same'"
        )
    given = frozen if isinstance(frozen, tuple) else (frozen,) * n
    if len(given) != n:
        raise ShapeError(
            f"{name} got padding={value!r}; give one int or pair (before, after) for each axis of "
            f"({EXTENTS[n]})"
        )
    pairs = (s if isinstance(s, tuple) else (s, s) for s in given)
    return tuple(whole(name, "padding", p, 0, 2) for p in pairs)  # type: ignore[misc]


def same_padding(image: Shape, kernel: Shape, stride: Shape, dilation: Shape) -> Paddings:
    """The zeros that make the output's extents ceil(extent / stride); an odd one goes behind."""
    pads = []
    for n, k, s, d in zip(image, kernel, stride, dilation, strict=True):
        total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
        pads.append((total // 2, total - total // 2))
    return tuple(pads)
