"""Arrays of emucupy: typed views of the simulator's flat device memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from types import SimpleNamespace
from typing import Any
from weakref import ref

import numpy as np

from ..array import Sized
from ..sim.arguments import Pointer
from ..sim.memory import DeviceAllocation
from .streams import CUDARuntimeError, current_stream

Shape = int | Sequence[int]


class MemoryPointer:
    """An address in the simulator's memory that an ndarray may be made at, as in cupy."""

    def __init__(self, allocation: DeviceAllocation):
        self._allocation = allocation
        self.ptr = allocation.address


class ndarray(Sized):
    """A C-contiguous array in the simulator's device memory; memptr: in existing memory."""

    __slots__ = ("_allocation", "_offset", "shape", "dtype", "__weakref__")

    def __init__(
        self,
        shape: Shape,
        dtype: Any = np.float32,
        memptr: MemoryPointer | None = None,
        *,
        _allocation: DeviceAllocation | None = None,
        _offset: int = 0,
    ):
        self.shape = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
        self.dtype = np.dtype(dtype)
        if memptr is not None:
            _allocation = memptr._allocation
            if self.nbytes > _allocation.nbytes:
                raise ValueError(f"{self.nbytes} bytes do not fit {_allocation.nbytes} of memory")
        if _allocation is None:
            current_stream()._forbid("an allocation")
            _allocation = DeviceAllocation(self.nbytes)
        self._allocation = _allocation
        self._offset = _offset

    @property
    def data(self) -> Any:
        """data.ptr is the address of the first element, 0 if there is none."""
        return SimpleNamespace(ptr=self._allocation.address + self._offset if self.size else 0)

    def reshape(self, *shape: Any) -> ndarray:
        """The same elements in another shape of equal size; one extent may be -1."""
        asked = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return self._as(np.empty(self.shape, np.bool_).reshape(asked).shape, self.dtype, 0)

    def view(self, dtype: Any) -> ndarray:
        """The same bytes as elements of another dtype; the last axis changes with its size."""
        target = np.dtype(dtype)
        if target.itemsize == self.itemsize:
            return self._as(self.shape, target, 0)
        last, left = divmod((self.shape[-1] if self.shape else 1) * self.itemsize, target.itemsize)
        if left or not self.shape:
            raise ValueError(
                f"{self.shape} elements of {self.dtype} are not whole ones of {target}"
            )
        return self._as((*self.shape[:-1], last), target, 0)

    def __getitem__(self, index: Any) -> ndarray:
        """Consecutive entries of the first axis: a slice without step, an integer, or `...`."""
        if index is Ellipsis:
            return self
        if not self.shape:
            raise IndexError("an array without axes has no entries to choose from")
        row = prod(self.shape[1:]) * self.itemsize
        if isinstance(index, slice):
            start, stop, step = index.indices(self.shape[0])
            if step != 1:
                raise ValueError("the simulator's arrays are contiguous: slices have no step")
            return self._as((max(stop - start, 0), *self.shape[1:]), self.dtype, start * row)
        start = range(self.shape[0])[index]
        return self._as(self.shape[1:], self.dtype, start * row)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Copies from another device array of that shape, or fills with a number."""
        target = self[index]
        if not isinstance(value, ndarray):
            target.fill(value)
            return
        if value.shape != target.shape or value.dtype != target.dtype:
            raise ValueError(
                f"{value.shape} {value.dtype} do not fit {target.shape} {target.dtype}"
            )
        current_stream().synchronize()
        target._bytes()[...] = value._bytes()
        known = value._allocation.initialised
        own = target._allocation.initialised
        if own is not None:
            here = slice(target._offset, target._offset + target.nbytes)
            own[here] = True if known is None else known[value._offset :][: value.nbytes]

    def get(self, stream: Any = None) -> Any:
        """A NumPy array with the contents, after all launches of the stream."""
        (stream or current_stream()).synchronize()
        return self._bytes().copy().view(self.dtype).reshape(self.shape)

    def set(self, array: Any, stream: Any = None) -> None:
        """Copies a NumPy array of this shape and dtype in."""
        array = np.asarray(array)
        if array.shape != self.shape or array.dtype != self.dtype:
            raise ValueError(f"{array.shape} {array.dtype} do not fit {self.shape} {self.dtype}")
        (stream or current_stream()).synchronize()
        self._host()[...] = array
        self._allocation.mark(self._offset, self.nbytes, True)

    def fill(self, value: Any) -> None:
        """Sets every element to a number."""
        current_stream().synchronize()
        self._host()[...] = value
        self._allocation.mark(self._offset, self.nbytes, True)

    def copy(self) -> ndarray:
        """The elements in memory of their own."""
        copied = ndarray(self.shape, self.dtype)
        copied[...] = self
        return copied

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("a device array does not become a NumPy array by itself; use .get()")

    def _as(self, shape: tuple[int, ...], dtype: Any, offset: int) -> ndarray:
        return ndarray(shape, dtype, _allocation=self._allocation, _offset=self._offset + offset)

    def _bytes(self) -> Any:
        return self._allocation.bytes[self._offset : self._offset + self.nbytes]

    def _host(self) -> Any:
        return self._bytes().view(self.dtype).reshape(self.shape)

    def _pointer(self) -> Pointer:
        return Pointer(self._allocation, self._offset, self.nbytes, self.dtype)


def forget(array: ndarray) -> None:
    """Resets reused memory to poison that counts as uninitialised.

    Not in cupy: before each launch of a kernel that is watched (watched.py).
    """
    array._allocation.forget(array._offset, array.nbytes)


def unwritten(array: ndarray) -> int:
    """The number of bytes not written since they were allocated or forgotten (check mode).

    Not in cupy: tells whether a kernel has filled its output.
    """
    return array._allocation.unwritten(array._offset, array.nbytes)


def empty(shape: Shape, dtype: Any = np.float32) -> ndarray:
    """Device memory full of NaN poison, which counts as uninitialised."""
    return ndarray(shape, dtype)


def zeros(shape: Shape, dtype: Any = np.float32) -> ndarray:
    """Device memory full of zeros."""
    array = ndarray(shape, dtype)
    array.fill(0)
    return array


def asarray(array: Any, dtype: Any = None) -> ndarray:
    """A copy of a NumPy array in device memory; a device array as it is."""
    if isinstance(array, ndarray):
        return array
    host = np.ascontiguousarray(array, dtype).reshape(np.shape(array))
    device = ndarray(host.shape, host.dtype)
    device.set(host)
    return device


class Address:
    """The address of an array, without keeping its memory alive, as a CUDA graph holds it."""

    __slots__ = ("_memory", "_place")

    def __init__(self, array: ndarray):
        self._memory = ref(array._allocation)
        self._place = array._offset, array.nbytes, array.dtype

    def pointer(self) -> Pointer:
        """The argument for a launch; an error when the memory has been freed."""
        allocation = self._memory()
        if allocation is None:
            raise CUDARuntimeError(
                700, "cudaErrorIllegalAddress: a graph uses memory that has been freed"
            )
        return Pointer(allocation, *self._place)
