"""Devices: the memory that holds arrays, and the copies to it and back."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import numpy as np

from ..core.dtype import DType
from ..core.errors import CaptureError
from .kernel import Kernel, KernelEntry

Array = np.ndarray[Any, Any]
PAGE = 4096  # bytes from which on a copy takes longer than to align it, for vectors of 64 bytes


class Device(Protocol):
    """The interface of a device to the runtime."""

    name: str

    def empty(self, shape: tuple[int, ...], dtype: DType) -> Any:
        """An uninitialised C-contiguous array in memory of its own."""

    def arena(self, nbytes: int) -> Any:
        """A block of `nbytes` bytes, aligned to 64."""

    def carve(self, arena: Any, offset: int, shape: tuple[int, ...], dtype: DType) -> Any:
        """An array inside an arena, `offset` bytes from its start."""

    def from_host(self, array: Array) -> Any:
        """A device array with a NumPy array's contents, in memory of its own."""

    def to_host(self, buffer: Any) -> Array:
        """A fresh NumPy array with a device array's contents."""

    def copy_into(self, target: Any, source: Any) -> None:
        """Overwrite an array of this device with one of its own, or a NumPy array, of the same
        shape and dtype."""

    def copy(self, array: Any) -> Any:
        """The elements in memory of their own."""

    def seen(self, look: Callable[..., Any], arrays: Sequence[Any]) -> tuple[Any, bool]:
        """The view that `look` makes of arrays that need not be computed yet, and True if it is a
        copy in new memory instead."""

    def contiguous(self, array: Any) -> Any:
        """The array, or a copy of it in row-major order."""

    def converted(self, array: Any, dtype: DType) -> Any:
        """The array, or a copy of it in another dtype."""

    def kernel(self, entry: KernelEntry) -> Kernel | None:
        """A registered kernel as a Kernel object; None for a function that is called directly."""

    def takes_strides(self, entry: KernelEntry) -> bool:
        """True when the kernel takes inputs of any strides; others get contiguous ones."""

    def has(self, feature: str) -> bool:
        """True for a feature that kernels may require and this device has."""

    def capture(self, launches: Callable[[], object]) -> Callable[[], None]:
        """The launches of `launches`, as one call that repeats them. CaptureError if it does
        anything else, or if the device has no graphs."""

    @property
    def stream(self) -> Any:
        """The stream on which kernels are launched; None on the CPU."""


class CPU:
    """The machine's own memory, as NumPy arrays."""

    name = "cpu"
    stream = None

    empty = staticmethod(cast(Callable[[tuple[int, ...], DType], Array], np.empty))

    def arena(self, nbytes: int) -> Array:
        """`nbytes` bytes whose address is a multiple of 64."""
        block = np.empty(nbytes + 64, np.uint8)
        start = -start_of(block) % 64
        return block[start : start + nbytes]

    def carve(self, arena: Array, offset: int, shape: tuple[int, ...], dtype: DType) -> Array:
        return np.ndarray(shape, dtype, arena.data, offset)

    def from_host(self, array: Array) -> Array:
        if array.nbytes < PAGE:
            return np.array(array, order="C", copy=True)
        own = self.carve(self.arena(array.nbytes), 0, array.shape, array.dtype)
        np.copyto(own, array)
        return own

    def to_host(self, buffer: Array) -> Array:
        return np.array(buffer, copy=True)

    def copy_into(self, target: Array, source: Array) -> None:
        np.copyto(target, source)

    copy = staticmethod(cast(Callable[[Any], Any], np.array))  # no Python frame in between

    def seen(self, look: Callable[..., Array], arrays: Sequence[Array]) -> tuple[Array, bool]:
        found = look(*arrays)
        return found, not any(np.may_share_memory(found, a) for a in arrays)

    def contiguous(self, array: Array) -> Array:
        return np.ascontiguousarray(array)

    def converted(self, array: Array, dtype: DType) -> Array:
        return array.astype(dtype, copy=False)

    def kernel(self, entry: KernelEntry) -> Kernel | None:
        """An instance of a kernel class; functions are called directly."""
        return entry.made()

    def takes_strides(self, entry: KernelEntry) -> bool:
        """True for kernels of NumPy; those in C have their strides as numbers in their text."""
        return entry.provider != "cc" or entry.strided

    def has(self, feature: str) -> bool:
        """True for an instruction set of this machine's CPU."""
        return machine_features().get(feature.upper(), False)

    def capture(self, launches: Callable[[], object]) -> Callable[[], None]:
        """CaptureError: calls of functions are not recorded."""
        raise CaptureError("the CPU launches nothing that could be recorded")


def start_of(array: Array) -> int:
    """The address of a NumPy array's first element."""
    start: int = array.__array_interface__["data"][0]
    return start


def machine_features() -> dict[str, bool]:
    """CPU features by NumPy's names (AVX2, AVX512F, NEON, ...), True where present."""
    return dict(np._core._multiarray_umath.__cpu_features__)  # type: ignore[attr-defined]


def cpus() -> int:
    """The number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_threads() -> int:
    """The number of threads that compute on the CPU: the first number of OMP_NUM_THREADS, as
    libraries and launchers read it, but at most the CPUs that this process may use."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return min(int(wanted), cpus()) if wanted.isdecimal() and int(wanted) else cpus()
