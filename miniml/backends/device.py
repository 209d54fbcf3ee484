"""Devices: where arrays live, and how they get there and back."""

from __future__ import annotations

import os
from typing import Any, Protocol

import numpy as np

from ..dtype import DType
from ..errors import DeviceError

Array = np.ndarray[Any, Any]


class Device(Protocol):
    """What the runtime asks of a device."""

    name: str

    def empty(self, shape: tuple[int, ...], dtype: DType) -> Any:
        """An uninitialised C-contiguous array of its own memory."""

    def arena(self, nbytes: int) -> Any:
        """A block of `nbytes` bytes, aligned to 64."""

    def carve(self, arena: Any, offset: int, shape: tuple[int, ...], dtype: DType) -> Any:
        """An array inside an arena, `offset` bytes from its start."""

    def from_host(self, array: Array) -> Any:
        """A device array with a NumPy array's contents, in memory of its own."""

    def to_host(self, buffer: Any) -> Array:
        """A fresh NumPy array with a device array's contents."""


class CPU:
    """The machine's own memory, as NumPy arrays."""

    name = "cpu"

    def empty(self, shape: tuple[int, ...], dtype: DType) -> Array:
        """An uninitialised C-contiguous array."""
        return np.empty(shape, dtype)

    def arena(self, nbytes: int) -> Array:
        """`nbytes` bytes whose address is a multiple of 64."""
        block = np.empty(nbytes + 64, np.uint8)
        start = -block.ctypes.data % 64
        return block[start : start + nbytes]

    def carve(self, arena: Array, offset: int, shape: tuple[int, ...], dtype: DType) -> Array:
        """A view of the arena's bytes as an array."""
        return np.ndarray(shape, dtype, arena.data, offset)

    def from_host(self, array: Array) -> Array:
        """A C-contiguous copy."""
        return np.array(array, order="C", copy=True)

    def to_host(self, buffer: Array) -> Array:
        """A copy."""
        return np.array(buffer, copy=True)


_CPU = CPU()


def get_device(name: str) -> Device:
    """The device of that canonical name; DeviceError says what to do about one that is absent."""
    if name == "cpu":
        return _CPU
    raise DeviceError(
        f"device {name!r} is not available: this version of miniml runs on the CPU only; "
        "use device_target='cpu'"
    )


def cpu_threads() -> int:
    """How many CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
