"""Device memory of the CUDA simulator, its settings, and the faults of kernels in words.

Parts: settings, one value per context; the stream, the queue of launches; CUDA graphs, what is
recorded and what is refused meanwhile (of a GPU, too); memory, in NumPy storage with poison, guard
zones and a record of writes; faults, the runtime's findings with lines of the user's own text.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ....core.errors import CaptureError, DeviceMemoryError, KernelFaultError
from ....core.scope import Block, Scoped
from ...compiled import lock_of_process
from .unit import NAME

# --- Settings -------------------------------------------------------------------------------------


MODES = ("check", "fast")
SCHEDULES = ("forward", "reverse", "shuffled")


@dataclass(frozen=True, slots=True)
class SimSettings:
    """Settings of launches and allocations.

    mode: "check" checks every memory access, "fast" none.
    schedule: the order of blocks, and of the threads of a block.
    seed: of the "shuffled" schedule, which may also change threads at any checked access.
    deferred: launches wait in their stream until it is synchronised, as on a GPU.
    seconds: of the machine's work, after which a launch counts as hung; in fast mode ten times
    as many.
    """

    mode: str = "check"
    schedule: str = "forward"
    seed: int = 0
    deferred: bool = False
    seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode {self.mode!r} of the CUDA simulator; one of {MODES}")
        if self.schedule not in SCHEDULES:
            raise ValueError(
                f"schedule {self.schedule!r} of the CUDA simulator; one of {SCHEDULES}"
            )


def _initial() -> SimSettings:
    """MINIML_SIM is a mode; MINIML_SIM_SCHEDULE a schedule, with a seed as in shuffled:3;
    MINIML_SIM_SECONDS the time of a launch."""
    schedule, _, seed = os.environ.get("MINIML_SIM_SCHEDULE", "forward").partition(":")
    seconds = float(os.environ.get("MINIML_SIM_SECONDS", "60"))
    mode = os.environ.get("MINIML_SIM", "check")
    return SimSettings(mode, schedule, int(seed or 0), seconds=seconds)


_default = _initial()
_here: Scoped[SimSettings] = Scoped("miniml_cuda_sim")


def current() -> SimSettings:
    """The settings of this context."""
    return _here.get() or _default


def using(**changes: Any) -> Block[SimSettings]:
    """Settings changed inside one `with`, in this context only."""
    return _here.use(lambda: replace(current(), **changes))


# --- The stream -----------------------------------------------------------------------------------


class Stream:
    """The queue of all launches. They run at once, unless the settings say `deferred`."""

    def __init__(self) -> None:
        self._queue: list[Callable[[], None]] = []

    def do(self, launch: Callable[[], None]) -> None:
        """Run a launch now, or queue it where launches are deferred."""
        if current().deferred:
            self._queue.append(launch)
        else:
            launch()

    def synchronize(self) -> None:
        """Run the queue; its errors surface here, and launches after a fault never run."""
        refuse_recording("waiting for the stream")
        try:
            self._run()
        finally:
            self._queue.clear()

    def _run(self) -> None:
        while self._queue:
            self._queue.pop(0)()


STREAM = Stream()


# --- CUDA graphs ----------------------------------------------------------------------------------


class Recording(list[Callable[[], None]]):
    """The simulator's launches while a graph is recorded. refused: the error that spoilt it."""

    refused: CaptureError | None = None


_recording: ContextVar[Recording | None] = ContextVar("miniml_cuda_recording", default=None)
recorded = _recording.get  # None while nothing is recorded


@contextmanager
def recording() -> Iterator[Recording]:
    """Record a CUDA graph inside a `with`; CaptureError at its end, too, if a kernel has caught
    one."""
    made = Recording()
    token = _recording.set(made)
    try:
        yield made
    finally:
        _recording.reset(token)
    if made.refused is not None:
        raise made.refused


def refuse_recording(what: str) -> None:
    """CaptureError while a graph is recorded.

    CUDA does not refuse everything: memory of cupy's pool, and copies from the host, would be
    recorded, and would have changed when the graph runs again.
    """
    made = recorded()
    if made is not None:
        message = f"a CUDA graph only launches; got {what} while one was recorded"
        made.refused = CaptureError(message)
        raise made.refused


# --- Device memory --------------------------------------------------------------------------------


ALIGNMENT = 256  # cudaMalloc's
GUARD = 256  # bytes before and after each allocation that must not be written
_POISON = 0xFF  # a NaN in every floating-point type, -1 in every signed one
_GUARD_BYTE = 0xA5
_ZONE = bytes([_GUARD_BYTE]) * GUARD

_lock = lock_of_process()  # an allocation may be freed while this thread makes another
_used = 0
_limit: int | None = None


class DeviceAllocation:
    """`nbytes` of device memory, filled with poison, at an address that is a multiple of 256.

    initialised: one byte for each byte, 0 where nothing has been written; None: not recorded, as
    for an allocation of fast mode. DeviceMemoryError: beyond the limit set.
    """

    __slots__ = ("nbytes", "initialised", "address", "_raw", "_start", "_zones", "__weakref__")

    def __init__(self, nbytes: int):
        global _used
        if _limit is not None and _used + nbytes > _limit:
            raise no_room("cuda-sim", nbytes, *occupied())
        self.nbytes = nbytes
        self._raw = np.empty(nbytes + 2 * GUARD + ALIGNMENT, np.uint8)
        self._start = GUARD + -(self._raw.ctypes.data + GUARD) % ALIGNMENT
        self._raw[self._start : self._start + nbytes] = _POISON
        below = self._raw[self._start - GUARD : self._start]
        above = self._raw[self._start + nbytes :][:GUARD]
        below[:] = above[:] = _GUARD_BYTE
        self.address: int = self._raw.ctypes.data + self._start
        self.initialised = np.zeros(nbytes, np.uint8) if current().mode == "check" else None
        self._zones = (below, above)
        with _lock:
            _used += nbytes

    def __del__(self) -> None:
        global _used
        counted = hasattr(self, "_zones")  # else __init__ failed before
        if counted and _lock is not None:  # an ending interpreter has taken the globals away
            with _lock:
                _used -= self.nbytes

    @property
    def bytes(self) -> Any:
        """The memory as a writable uint8 array."""
        return self._raw[self._start : self._start + self.nbytes]

    def mark(self, offset: int, nbytes: int, written: bool) -> None:
        """Record bytes as written, or as not written."""
        if self.initialised is not None:
            self.initialised[offset : offset + nbytes] = written

    def forget(self, offset: int, nbytes: int) -> None:
        """Fill bytes with poison, and record them as not written."""
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


class Memory:
    """A C-contiguous array in an allocation, from byte `offset` on: what kernels are given."""

    __slots__ = ("allocation", "offset", "shape", "dtype", "nbytes", "__weakref__")

    def __init__(
        self, allocation: DeviceAllocation, offset: int, shape: Sequence[int], dtype: np.dtype[Any]
    ):
        self.allocation, self.offset, self.shape, self.dtype = allocation, offset, shape, dtype
        self.nbytes = prod(shape) * dtype.itemsize

    @property
    def address(self) -> int:
        """The address of the first element in this process; 0 if there is none."""
        return self.allocation.address + self.offset if self.nbytes else 0

    def __getitem__(self, part: slice) -> Memory:
        """Consecutive elements of a flat array."""
        start, stop, step = part.indices(*self.shape)
        if step != 1:
            raise ValueError("the simulator's arrays are contiguous: slices have no step")
        size = self.dtype.itemsize
        shape = (max(stop - start, 0),)
        return type(self)(self.allocation, self.offset + start * size, shape, self.dtype)

    def view(self, dtype: Any) -> Memory:
        """The bytes as a flat array of another dtype."""
        target = np.dtype(dtype)
        size, left = divmod(self.nbytes, target.itemsize)
        if left:
            raise ValueError(f"{self.nbytes} bytes are not whole elements of {target}")
        return type(self)(self.allocation, self.offset, (size,), target)

    def get(self) -> Any:
        """A NumPy array with the contents, after all launches."""
        STREAM.synchronize()
        return self._host().copy()

    def set(self, array: Any) -> None:
        """Copy in a NumPy array of this shape and dtype."""
        array = np.asarray(array)
        if array.shape != tuple(self.shape) or array.dtype != self.dtype:
            raise ValueError(f"{array.shape} {array.dtype} do not fit {self.shape} {self.dtype}")
        self.fill(array)

    def fill(self, value: Any) -> None:
        """Set every element to a number."""
        STREAM.synchronize()
        self._host()[...] = value
        self.allocation.mark(self.offset, self.nbytes, True)

    def forget(self) -> None:
        """Fill reused memory with poison that counts as uninitialised."""
        self.allocation.forget(self.offset, self.nbytes)

    def unwritten(self) -> int:
        """The number of bytes not written since they were allocated or forgotten (check mode)."""
        return self.allocation.unwritten(self.offset, self.nbytes)

    def _host(self) -> Any:
        own = self.allocation.bytes[self.offset : self.offset + self.nbytes]
        return own.view(self.dtype).reshape(self.shape)


def no_room(name: str, nbytes: int, used: int, size: int) -> DeviceMemoryError:
    """The error for a device without room for so many more bytes."""
    return DeviceMemoryError(
        f"device {name!r} has no room for {nbytes} more bytes: {used} of "
        f"{size} are in use; smaller batches take less, and tensors that nothing refers to any "
        "more give theirs back"
    )


def occupied() -> tuple[int, int]:
    """The bytes of all live allocations, and those of the device: 80 GB unless a limit is set."""
    return _used, _limit or 80 * 10**9


def set_limit(nbytes: int | None) -> None:
    """Set the size of the simulated device's memory; None: as much as the machine has."""
    global _limit
    _limit = nbytes


# --- Faults of kernels ----------------------------------------------------------------------------


# In the order of runtime.h.
KINDS = (
    "race", "out-of-bounds", "misaligned", "uninitialised", "const-write", "divergent-barrier",
    "warp-mask", "overflow", "shift", "conversion", "division", "shared-limit", "illegal-access",
    "stack-overflow", "assert", "trap", "hang",
)  # fmt: skip
# The Python side finds "overrun" and "unwritten".
_LISTED = 8  # faults of a launch; the rest are their consequences

_Index = ctypes.c_uint * 3
_DIRECTIVE = re.compile(r'^\s*#\s*(?:line\s+)?(\d+)(?:\s+"([^"]*)")?')
# Copies that a compiler writes for a structure, whose line is the structure's.
_COPIES = re.compile(r"(C\d|aS)E(RK|O)S\d*_$")


class RawFault(ctypes.Structure):
    """struct Fault of runtime.h."""

    _fields_ = (
        ("kind", ctypes.c_int), ("line", ctypes.c_int), ("block", _Index), ("thread", _Index),
        ("buffer", ctypes.c_int), ("unused", ctypes.c_int),
        ("pc", ctypes.c_uint64), ("other_pc", ctypes.c_uint64), ("callers", ctypes.c_uint64 * 2),
        ("file", ctypes.c_char * 120), ("text", ctypes.c_char * 240),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, at a line of a file as #line directives name it; source is the line's text.

    other: file and line of the other access of a race, "" if there is none.
    """

    kind: str
    kernel: str
    text: str
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    file: str = ""
    line: int = 0
    source: str = ""
    other: str = ""

    def __str__(self) -> str:
        message = f"{self.kind} in kernel {self.kernel}"
        if self.block is not None:
            message += f", block {self.block} thread {self.thread}"
        if self.line:
            message += f", {self.file}:{self.line}"
        message += f": {self.text}"
        if self.other:
            message += f" at {self.other}"
        return message + (f"\n    {self.source.strip()}" if self.source else "")


def error(faults: Iterable[Fault]) -> KernelFaultError:
    """The exception for the faults of a launch; the first fault is its first line."""
    found = tuple(faults)
    raised = KernelFaultError("\n".join(map(str, found)))
    raised.faults = found
    return raised


def explain(
    raw: Iterable[RawFault], kernel: str, code: str, library: Path, base: int
) -> list[Fault]:
    """Faults in words; `base` is the load address of the library."""
    raws = _causes_first(raw)[:_LISTED]
    lines = source_lines(code)
    all_pcs = [a for r in raws for a in (r.pc, r.other_pc, *r.callers)]
    addresses = tuple(a - base - 1 for a in all_pcs if a > base)
    places = _lines_of(str(library), addresses, frozenset(f for f, _ in lines)) if addresses else {}
    faults = []
    for r in raws:
        other = places.get(r.other_pc - base - 1) if r.other_pc else None
        # The innermost line of the user's text: `pc` may be in a function of our headers.
        known = (places[a - base - 1] for a in (r.pc, *r.callers) if a - base - 1 in places)
        file, line = next(known, ("", 0)) if r.pc else (r.file.decode(), r.line)
        faults.append(
            Fault(
                KINDS[r.kind], kernel, r.text.decode(), tuple(r.block), tuple(r.thread),
                file, line, lines.get((file, line), ""), f"{other[0]}:{other[1]}" if other else "",
            )
        )  # fmt: skip
    return faults


def _causes_first(raw: Iterable[RawFault]) -> list[RawFault]:
    """Faults in the order in which they explain each other, else as they were found.

    After a barrier that not all threads reach, memory is read too early; an index that leaves its
    buffer has touched the elements of other threads on its way.
    """
    raws = list(raw)
    kinds = [KINDS[r.kind] for r in raws]
    met = {r.buffer for r, kind in zip(raws, kinds) if kind in ("race", "uninitialised")}
    first = {"divergent-barrier": 0, "out-of-bounds": 1}
    ranks = [
        2 if kind == "out-of-bounds" and r.buffer not in met else first.get(kind, 2)
        for r, kind in zip(raws, kinds)
    ]
    return [r for _, r in sorted(zip(ranks, raws), key=lambda pair: pair[0])]


@lru_cache(16)
def source_lines(code: str) -> dict[tuple[str, int], str]:
    """The lines of a text by the name and number that a compiler gives them."""
    lines = {}
    file, number = NAME, 1
    for text in re.split(r"\r\n?|\n", code):  # splitlines() counts form feeds and others, too
        directive = _DIRECTIVE.match(text)
        if directive:
            number, file = int(directive.group(1)), directive.group(2) or file
            continue
        lines[file, number] = text
        number += 1
    return lines


def _lines_of(
    library: str, addresses: tuple[int, ...], known: frozenset[str]
) -> dict[int, tuple[str, int]]:
    """Files and lines of addresses in a library: the innermost frames in the user's text."""
    command = ["addr2line", "-a", "-f", "-i", "-e", library, *map(hex, addresses)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True).stdout
    except FileNotFoundError:  # binutils comes with g++, but not with every clang
        return {}
    places: dict[int, tuple[str, int]] = {}
    names = {Path(name).name: name for name in known}
    for block in re.split(r"^(?=0x)", answer, flags=re.MULTILINE)[1:]:
        first, *frames = block.splitlines()  # then, innermost first, a function and its line
        for function, place in zip(frames[::2], frames[1::2], strict=False):
            path, _, line = place.partition(" (")[0].rpartition(":")
            name = path if path in known else names.get(Path(path).name)
            if name is not None and line.isdigit():
                places[int(first, 16)] = (name, int(line))
                if not _COPIES.search(function):
                    break
    return places
