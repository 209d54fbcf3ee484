"""Abstract values: shape, dtype and perhaps the value, known before an array exists.

Then the memory formats: the orders in which images (N, C, H, W) may lie in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .dtype import DType, canonical, is_inexact
from .errors import ShapeError

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Abstract:
    """A typed shape, such as float32[2, 3]; `value` is the array when it is a constant.

    `format` names the memory format ("NHWC") of images (N, C, H, W) in a lowered graph; None is
    row-major order.
    """

    shape: Shape
    dtype: DType
    value: np.ndarray[Any, Any] | None = None
    format: str | None = None

    @property
    def size(self) -> int:
        """The number of elements."""
        count = 1
        for n in self.shape:
            count *= n
        return count

    @property
    def stored(self) -> Shape:
        """The shape of the array that holds it in its memory format."""
        return self.shape if self.format is None else stored(self.shape, self.format)

    @property
    def nbytes(self) -> int:
        """The number of bytes of that array, dense."""
        if self.format is not None:
            return prod(self.stored) * self.dtype.itemsize
        return self.size * self.dtype.itemsize

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def key(self) -> tuple[object, ...]:
        """The identity of an abstract value; constants count by their bytes."""
        value = None if self.value is None else self.value.tobytes()
        return self.shape, self.dtype, value, self.format

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Abstract) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())

    def __str__(self) -> str:
        return typed(self) if self.format is None else f"{typed(self)} {self.format}"


class Kind:
    """Everything about a tensor but its elements: its class, type and device.

    Compared by identity: `Kind.of` gives one object for all tensors of a kind, as long as it is
    cached.
    """

    __slots__ = ("abstract", "device", "is_inexact")
    _known: ClassVar[dict[tuple[object, ...], Kind]] = {}
    _LIMIT: ClassVar[int] = 4096

    def __init__(self, abstract: Abstract, device: str):
        self.abstract, self.device = abstract, device
        self.is_inexact = is_inexact(abstract.dtype)

    @staticmethod
    def of(kind: type, shape: Shape, dtype: DType, device: str) -> Kind:
        """The kind of the tensors of a class, shape, dtype and device."""
        key = kind, shape, dtype, device
        found = Kind._known.get(key)
        if found is None:
            if len(Kind._known) >= Kind._LIMIT:
                Kind._known.clear()
            found = Kind(Abstract(shape, canonical(dtype)), device)
            Kind._known[key] = found
        return found


def broadcast(name: str, *shapes: Shape) -> Shape:
    """The shape that all of `shapes` broadcast to, by NumPy's rule; ShapeError naming them."""
    if len(set(shapes)) == 1:
        return tuple(shapes[0])
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        got = " and ".join(map(str, shapes))
        raise ShapeError(
            f"{name} cannot broadcast shapes {got}; axes are matched from the last, and two "
            "extents must be equal or one of them 1"
        ) from None


def typed(value: Any) -> str:
    """The name in messages of anything that has a dtype and a shape: float32[2, 3]."""
    return f"{value.dtype.name}{list(value.shape)}"


def listed(values: Iterable[Any]) -> str:
    """The names of several, as `typed` gives them: int64[], float32[2, 3]; "nothing" for none."""
    return ", ".join(map(typed, values)) or "nothing"


# --- Memory formats -------------------------------------------------------------------------------


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
    """The refusal of one that is not known."""
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
