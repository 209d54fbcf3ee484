"""What is known of a value before it exists: its shape, dtype and perhaps its value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .dtype import DType

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Abstract:
    """A typed shape, such as float32[2, 3]; `value` is the array when it is a constant.

    `format` names a memory layout ("NCHW") where a kernel asks for one.
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
    def nbytes(self) -> int:
        """The number of bytes of a dense array of this shape and dtype."""
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
        return typed(self)


def typed(value: Any) -> str:
    """How messages name anything that has a dtype and a shape: float32[2, 3]."""
    return f"{value.dtype.name}{list(value.shape)}"


def listed(values: Iterable[Any]) -> str:
    """The same for several: int64[], float32[2, 3]; "nothing" for none."""
    return ", ".join(map(typed, values)) or "nothing"
