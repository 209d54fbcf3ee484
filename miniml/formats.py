"""Memory formats: the orders in which images (N, C, H, W) may lie in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .errors import ShapeError

Shape = tuple[int, ...]
PLAIN = "NCHW"


class Format(NamedTuple):
    """order: the axes of images, the outermost in memory first. block: so many channels lie
    together innermost, the last ones beside zeros; 0 for none."""

    order: tuple[int, int, int, int]
    block: int = 0


FORMATS = {
    PLAIN: Format((0, 1, 2, 3)),
    "NHWC": Format((0, 2, 3, 1)),
    "CHWN": Format((1, 2, 3, 0)),
    "NC16HW": Format((0, 1, 2, 3), 16),
}
OTHERS = tuple(f for f in FORMATS if f != PLAIN)


def known(name: object) -> bool:
    """True for the name of a format."""
    return isinstance(name, str) and name in FORMATS


def unknown(name: object) -> str:
    """What to say of one that is not known."""
    return f"memory format {name!r} is unknown; the formats are {', '.join(FORMATS)}"


def stored(shape: Shape, name: str | None) -> Shape:
    """The shape of the array in memory that holds images of this shape.

    >>> stored((2, 20, 8, 9), "NHWC"), stored((2, 20, 8, 9), "NC16HW")
    ((2, 8, 9, 20), (2, 2, 8, 9, 16))
    """
    if name is None or name == PLAIN:
        return shape
    if len(shape) != 4:
        raise ShapeError(f"format {name} is for images (N, C, H, W); got shape {shape}")
    order, block = FORMATS[name]
    if block:
        return (shape[0], -(-shape[1] // block), *shape[2:], block)
    return tuple([shape[a] for a in order])


def moves(shape: Shape, source: str | None, target: str | None) -> bool:
    """True where images change their order in memory from one format to the other."""
    return source != target and _order(shape, source) != _order(shape, target)


def _order(shape: Shape, name: str | None) -> tuple[object, ...]:
    """The axes that have an extent, as they lie in memory; the block's among them."""
    order, block = FORMATS[name or PLAIN]
    axes: list[object] = [a for a in order if shape[a] != 1]
    if not block or (shape[1] % block == 0 and shape[2] * shape[3] == 1):
        return tuple(axes)
    return (*axes, shape[1])


Look = Callable[[Any], Any]  # from an array to a view of it


def images(name: str | None) -> Look:
    """From an array in a format without blocks to its images (N, C, H, W)."""
    order = FORMATS[name or PLAIN].order
    axes = tuple([order.index(a) for a in range(4)])
    return lambda array: array.transpose(axes)


def pairs(source: str | None, target: str | None, channels: int) -> list[tuple[Look, Look]]:
    """Views of arrays in two formats that show the same images; together they show all."""
    block = max(FORMATS[f or PLAIN].block for f in (source, target))
    if not block:
        return [(images(source), images(target))]
    halves = [_halves(f, channels, block) for f in (source, target)]
    some = channels // block, channels % block
    return [pair for pair, any_of in zip(zip(*halves, strict=True), some, strict=True) if any_of]


def _halves(name: str | None, channels: int, block: int) -> tuple[Look, Look]:
    """The whole blocks (N, C // block, block, H, W), and the channels left (N, C % block, H, W)."""
    whole, rest = channels // block, channels % block
    if FORMATS[name or PLAIN].block:
        return (
            lambda array: array.transpose(0, 1, 4, 2, 3)[:, :whole],
            lambda array: array.transpose(0, 1, 4, 2, 3)[:, -1, :rest],
        )
    seen = images(name)

    def blocks(array: Any) -> Any:
        x = seen(array)[:, : whole * block]
        return x.reshape(x.shape[0], whole, block, *x.shape[2:])

    return blocks, lambda array: seen(array)[:, whole * block :]


def padding(name: str | None, channels: int) -> Look | None:
    """The zeros beside the last channels, where there are any."""
    block = FORMATS[name or PLAIN].block
    if not block or channels % block == 0:
        return None
    return lambda array: array.transpose(0, 1, 4, 2, 3)[:, -1, channels % block :]
