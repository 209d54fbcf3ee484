"""DeviceArray: a typed, strided view of a block of a device's memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod
from sys import getrefcount
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ...core.abstract import DType, bfloat16
from ..product import Shape, dense_strides

_HELD_ONCE = 2  # references, one of which is getrefcount's own


class DeviceArray:
    """Elements of `dtype` in a block of bytes: element (i, j, ...) is at byte
    offset + i * strides[0] + j * strides[1] + ...

    block: a flat uint8 array of the driver's, shared by all views of it, which knows nothing of
    shapes, strides and dtypes (bfloat16 among them).
    """

    __slots__ = (
        "__weakref__", "device", "block", "offset", "shape", "dtype", "strides", "contiguous",
        "_flat",
    )  # fmt: skip

    def __init__(
        self,
        device: Any,
        block: Any,
        offset: int,
        shape: Shape,
        dtype: DType,
        strides: Shape | None = None,
    ):
        dense = dense_strides(shape, dtype.itemsize)
        self.device, self.block, self.offset = device, block, offset
        self.shape, self.dtype = shape, dtype
        self.strides = dense if strides is None else strides
        self.contiguous = strides is None or is_dense(shape, strides, dense)
        self._flat: Any = None

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """The number of bytes of an element."""
        return int(self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """The number of bytes of the elements."""
        return self.size * self.itemsize

    def bounds(self) -> tuple[int, int]:
        """The first byte of the block that an element occupies, and the one past the last."""
        if not self.size:
            return self.offset, self.offset
        steps = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        low = self.offset + sum(s for s in steps if s < 0)
        return low, self.offset + sum(s for s in steps if s > 0) + self.dtype.itemsize

    @property
    def flat(self) -> Any:
        """The bytes between the bounds as a flat array of the driver's, for a kernel's argument.

        bfloat16, which not every cupy supports, is passed as 16-bit integers.
        """
        if self._flat is None:
            low, high = self.bounds()
            carrier = np.dtype(np.uint16) if self.dtype == bfloat16 else self.dtype
            self._flat = self.block[low:high].view(carrier)
        return self._flat

    def owns_block(self) -> bool:
        """True for an array that is all of its block, in order, which no other array has."""
        self._flat = None  # a view of the block; it is made again when needed
        whole = self.contiguous and self.bounds() == (0, self.block.nbytes)
        return whole and getrefcount(self.block) == _HELD_ONCE

    def seen(self, look: Callable[[Any], Any]) -> DeviceArray:
        """The view that `look` makes of a NumPy array of this shape and these strides.

        The array is never read: NumPy only computes shapes and strides. `look` must not copy.
        """
        anchor = _anchor(self.dtype)
        start = anchor.ctypes.data
        view = look(as_strided(anchor, self.shape, self.strides))
        if not isinstance(view, np.ndarray):  # NumPy's scalar for a single element
            return self.view()
        moved = view.__array_interface__["data"][0] - start if view.size else 0
        return DeviceArray(
            self.device, self.block, self.offset + moved, view.shape, self.dtype, view.strides
        )

    def __getitem__(self, index: Any) -> DeviceArray:
        """The view that NumPy's basic indexing gives."""
        return self.seen(lambda a: a[index])

    def reshape(self, shape: Shape) -> DeviceArray:
        """The elements in another shape, one extent of which may be -1; a copy where no strides
        describe it."""
        if -1 in shape:
            rest = -prod(shape)
            shape = tuple(self.size // max(rest, 1) if n == -1 else n for n in shape)
        if self.contiguous:
            return DeviceArray(self.device, self.block, self.offset, shape, self.dtype)
        try:
            return self.seen(lambda a: a.reshape(shape, copy=False))
        except ValueError:
            return self.copy().reshape(shape)

    def view(self) -> DeviceArray:
        """A view of the same elements."""
        return DeviceArray(
            self.device, self.block, self.offset, self.shape, self.dtype, self.strides
        )

    def copy(self) -> DeviceArray:
        """The elements in memory of their own, in row-major order."""
        copied: DeviceArray = self.device.copy(self)
        return copied

    def planned(self) -> DeviceArray:
        """A Planned of this view: copies of it are uninitialised memory, since nothing is read."""
        return Planned(self.device, self.block, self.offset, self.shape, self.dtype, self.strides)

    def setflags(self, write: bool) -> None:
        """Do nothing: kernels cannot write to inputs that their text declares const."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise TypeError("an array on a device does not become a NumPy array by itself; to_host()")


class Planned(DeviceArray):
    """An array that is not computed yet."""

    __slots__ = ()

    def copy(self) -> DeviceArray:
        made: DeviceArray = self.device.empty(self.shape, self.dtype)
        return made


def is_dense(shape: Shape, strides: Shape, dense: Shape) -> bool:
    """True for row-major elements without gaps; strides of axes of one element do not matter."""
    if 0 in shape:
        return True
    return all(n == 1 or s == d for n, s, d in zip(shape, strides, dense, strict=True))


@cache
def _anchor(dtype: DType) -> Any:
    return np.zeros(1, dtype)
