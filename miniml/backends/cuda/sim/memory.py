"""Device memory of the simulator: NumPy storage with poison, guard zones and a record of writes."""

from __future__ import annotations

import ctypes
import sys
import weakref
from typing import Any

import numpy as np

from ...forks import lock_of_process
from .settings import current

ALIGNMENT = 256  # cudaMalloc's
GUARD = 256  # bytes before and after each allocation that must not be written
_POISON = 0xFF  # a NaN in every floating-point type, -1 in every signed one
_GUARD_BYTE = 0xA5
_ZONE = bytes([_GUARD_BYTE]) * GUARD

_lock = lock_of_process()  # an allocation may be freed while this thread makes another
_live: weakref.WeakSet[DeviceAllocation] = weakref.WeakSet()
_used = 0
_limit: int | None = None


class OutOfMemoryError(MemoryError):
    """The limit of the simulated device's memory is reached."""


class DeviceAllocation:
    """`nbytes` of device memory, filled with poison, at an address that is a multiple of 256.

    initialised: one byte for each byte, 0 where nothing has been written; None: not recorded, as
    for what is allocated in fast mode. OutOfMemoryError: beyond the limit set.
    """

    __slots__ = (
        "nbytes",
        "initialised",
        "where",
        "address",
        "_raw",
        "_start",
        "_zones",
        "__weakref__",
    )

    def __init__(self, nbytes: int):
        global _used
        if _limit is not None and _used + nbytes > _limit:
            raise OutOfMemoryError(
                f"the simulated device has {_limit} bytes, {_used} of them in use; "
                f"{nbytes} more were asked for"
            )
        checking = current().mode == "check"
        self.nbytes = nbytes
        self._raw = np.empty(nbytes + 2 * GUARD + ALIGNMENT, np.uint8)
        self._start = GUARD + -(self._raw.ctypes.data + GUARD) % ALIGNMENT
        self._raw[self._start : self._start + nbytes] = _POISON
        below = self._raw[self._start - GUARD : self._start]
        above = self._raw[self._start + nbytes :][:GUARD]
        below[:] = above[:] = _GUARD_BYTE
        self._zones = (below, above)
        self.address: int = self._raw.ctypes.data + self._start
        self.initialised = np.zeros(nbytes, np.uint8) if checking else None
        self.where = _caller() if checking else ""
        with _lock:
            _used += nbytes
            _live.add(self)

    def __del__(self) -> None:
        global _used
        counted = hasattr(self, "where")  # else __init__ failed before
        if counted and _lock is not None:  # an ending interpreter has taken the globals away
            with _lock:
                _used -= self.nbytes

    @property
    def bytes(self) -> Any:
        """The memory as a writable uint8 array."""
        return self._raw[self._start : self._start + self.nbytes]

    def mark(self, offset: int, nbytes: int, written: bool) -> None:
        """Records bytes as written, or as not written."""
        if self.initialised is not None:
            self.initialised[offset : offset + nbytes] = written

    def forget(self, offset: int, nbytes: int) -> None:
        """Fills bytes with poison, and records them as not written."""
        self.bytes[offset : offset + nbytes] = _POISON
        self.mark(offset, nbytes, False)

    def unwritten(self, offset: int, nbytes: int) -> int:
        """The number of those bytes that are not written; 0 if that is not recorded."""
        if self.initialised is None:
            return 0
        return nbytes - int(np.count_nonzero(self.initialised[offset : offset + nbytes]))

    def overrun(self) -> str:
        """A description of writes into the guard zones; empty if there are none."""
        below, above = self._zones
        if below.tobytes() == _ZONE == above.tobytes():
            return ""
        for zone, side in ((below[::-1], "before the start"), (above, "past the end")):
            wrong = np.flatnonzero(zone != _GUARD_BYTE)
            if len(wrong):
                zone[:] = _GUARD_BYTE  # reported once
                return f"a write {wrong[0]} bytes {side} of an allocation of {self.nbytes} bytes"
        return ""


class Borrowed(DeviceAllocation):
    """Memory elsewhere in this process that is never freed: a variable of a unit."""

    __slots__ = ()

    def __init__(self, address: int, nbytes: int):
        self.nbytes, self.address, self.initialised, self._start = nbytes, address, None, 0
        self._raw = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))

    def overrun(self) -> str:
        """Empty: there are no guard zones around it."""
        return ""


def _caller() -> str:
    """The file and line outside miniml's backends that requested memory."""
    frame = sys._getframe(2)
    while frame.f_back is not None and ".backends." in frame.f_globals.get("__name__", ""):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def used_bytes() -> int:
    """The bytes of all allocations alive."""
    return _used


def limit() -> int | None:
    """The size of the simulated device's memory; None: as much as the machine has."""
    return _limit


def set_limit(nbytes: int | None) -> None:
    """Makes the simulated device's memory that large."""
    global _limit
    _limit = nbytes


def live() -> list[DeviceAllocation]:
    """The live allocations."""
    with _lock:
        return list(_live)
