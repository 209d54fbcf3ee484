"""Geometry of windows on planes: attributes by axis, how many windows fit, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...abstract import Shape
from ...errors import ShapeError

Pair = tuple[int, int]
Padding = tuple[Pair, Pair]
Lengths = int | Sequence[int]
PaddingSpec = str | int | Sequence[int] | Sequence[Sequence[int]]
UNIT: Pair = (1, 1)
NO_PADDING: Padding = ((0, 0), (0, 0))


def windows(op: Any, image: Shape, kernel: Shape, dilation: Pair) -> Pair:
    """How many windows (rows, columns) fit into a padded plane; ShapeError where none does."""
    strides, dilations = pair(op, "stride", op.stride, 1), pair(op, "dilation", dilation, 1)
    pads = sides(op, op.padding)
    counts = []
    for n, k, s, (before, after), d in zip(image, kernel, strides, pads, dilations, strict=True):
        reach = d * (k - 1) + 1
        if n + before + after < reach:
            raise ShapeError(
                f"{op.name} cannot fit a window of {tuple(kernel)} with dilation {dilations} into "
                f"planes of {tuple(image)} with padding {op.padding}; one axis has "
                f"{n + before + after} pixels for a window of {reach}; pad more"
            )
        counts.append((n + before + after - reach) // s + 1)
    return counts[0], counts[1]


def planes(name: str, what: str, shape: Shape) -> Shape:
    """The shape itself if it is (N, C, H, W); ShapeError for another rank."""
    if len(shape) != 4:
        raise ShapeError(
            f"{name} needs {what} of shape (N, C, H, W); got shape {shape}; add the axes that are "
            "missing with ops.expand_dims"
        )
    return shape


def fits(name: str, what: str, got: Shape, expected: Shape) -> None:
    """ShapeError unless the two shapes are equal."""
    if got != expected:
        raise ShapeError(f"{name} got {what} of shape {got}; the other shapes ask for {expected}")


def pair(op: Any, what: str, value: Any, least: int) -> Pair:
    """The value if it is two ints of at least `least`; ShapeError otherwise."""
    found = isinstance(value, tuple) and len(value) == 2
    if not found or any(type(v) is not int or v < least for v in value):
        name = op if isinstance(op, str) else op.name
        raise ShapeError(f"{name} got {what}={value!r}; it is two ints of at least {least}")
    return value  # type: ignore[no-any-return]


def sides(op: Any, padding: Any) -> Padding:
    """The padding if it is two pairs of ints of at least 0; ShapeError otherwise."""
    found = isinstance(padding, tuple) and len(padding) == 2
    if not found or not all(isinstance(p, tuple) and len(p) == 2 for p in padding):
        name = op if isinstance(op, str) else op.name
        raise ShapeError(f"{name} got padding={padding!r}; it is ((top, bottom), (left, right))")
    for p in padding:
        pair(op, "padding", p, 0)
    return padding  # type: ignore[no-any-return]


def lengths(name: str, what: str, value: Lengths) -> Pair:
    """(rows, columns), both at least 1, from an int or a pair."""
    given = tuple(value) if isinstance(value, (list, tuple)) else (value, value)
    return pair(name, what, given, 1)


def paddings(name: str, value: PaddingSpec) -> Padding:
    """((top, bottom), (left, right)) from an int, a pair, two pairs or "valid"."""
    if value == "valid":
        return NO_PADDING
    if isinstance(value, str) or not isinstance(value, (int, list, tuple)):
        raise ShapeError(
            f"{name} got padding={value!r}; it is an int, (rows, columns), "
            "((top, bottom), (left, right)), 'valid' or, for convolution, 'same'"
        )
    sides = [value, value] if isinstance(value, int) else list(value)
    if len(sides) != 2:
        raise ShapeError(f"{name} got padding={value!r}; give rows and columns")
    top, left = (tuple(s) if isinstance(s, (list, tuple)) else (s, s) for s in sides)
    return pair(name, "padding", top, 0), pair(name, "padding", left, 0)


def same_padding(image: Shape, kernel: Shape, stride: Pair, dilation: Pair) -> Padding:
    """The zeros that make OH = ceil(H / stride); an odd one goes to the bottom and the right."""
    pads = []
    for n, k, s, d in zip(image, kernel, stride, dilation, strict=False):
        total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
        pads.append((total // 2, total - total // 2))
    return (pads[0], pads[1]) if len(pads) == 2 else NO_PADDING
