"""What is known of a value before it exists: its shape, dtype and perhaps its value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from .dtype import DType, canonical, is_float
from .formats import stored

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
        """What makes two abstract values the same one; constants count by their bytes."""
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

    __slots__ = ("abstract", "device", "is_float")
    _known: ClassVar[dict[tuple[object, ...], Kind]] = {}
    _LIMIT: ClassVar[int] = 4096

    def __init__(self, abstract: Abstract, device: str):
        self.abstract, self.device = abstract, device
        self.is_float = is_float(abstract.dtype)

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


def typed(value: Any) -> str:
    """How messages name anything that has a dtype and a shape: float32[2, 3]."""
    return f"{value.dtype.name}{list(value.shape)}"


def listed(values: Iterable[Any]) -> str:
    """The same for several: int64[], float32[2, 3]; "nothing" for none."""
    return ", ".join(map(typed, values)) or "nothing"
