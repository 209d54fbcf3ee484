"""Modules and kernels: CUDA C loaded into this process, and launched on device memory."""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ....errors import LaunchError
from ...forks import lock_of_process
from ..limits import MAX_BLOCK, MAX_GRID, MAX_THREADS, STATIC_SHARED
from . import faults, notes, symbols, unit
from .arguments import KernelParameter, Packed
from .ranges import Range, merged, separate
from .settings import SCHEDULES, SimSettings, current
from .toolchain import TOOLS, runtime_library

DYNAMIC_SHARED = 227 * 1024  # of an H100, if the kernel requests it
_MAX_FAULTS = 8
_INTERRUPTED = -2  # the result of sim_launch then

# Launches share the fibers and the checker: one at a time in a process.
_lock = lock_of_process()
_found = (faults.RawFault * _MAX_FAULTS)()


class _Buffer(ctypes.Structure):
    """struct Buffer of runtime.h."""

    _fields_ = (
        ("start", ctypes.c_void_p), ("bytes", ctypes.c_uint64), ("initialised", ctypes.c_void_p),
        ("name", ctypes.c_char_p), ("granule", ctypes.c_int), ("is_const", ctypes.c_int),
        ("is_shared", ctypes.c_int), ("unused", ctypes.c_int),
    )  # fmt: skip


class _Options(ctypes.Structure):
    """struct Options of runtime.h."""

    _fields_ = (
        ("check", ctypes.c_int), ("schedule", ctypes.c_int), ("seed", ctypes.c_uint64),
        ("seconds", ctypes.c_double), ("interruptible", ctypes.c_int), ("unused", ctypes.c_int),
        ("code_low", ctypes.c_void_p), ("code_high", ctypes.c_void_p),
    )  # fmt: skip


_Index = ctypes.c_uint * 3


@cache
def _runtime() -> ctypes.CDLL:
    return TOOLS.load(runtime_library())


class _Loaded:
    """A unit compiled for a mode and loaded, with the addresses of its variables."""

    def __init__(self, path: Path):
        _runtime()
        self.path = path
        self.library = TOOLS.load(path)
        self.symbols = symbols.read(path)
        self.notes = notes.read(path)
        anchor = ctypes.addressof(ctypes.c_char.in_dll(self.library, "sim_anchor"))
        self.base = anchor - self.symbols.anchor
        self.code = [self.base + at for at in self.symbols.code]
        self.buffers = [
            _Buffer(
                self.base + v.address, v.nbytes, None,
                f"{v.kind} {v.name}".encode(), 4, v.guard or v.constant, v.shared,
            )
            for v in self.symbols.variables
        ]  # fmt: skip
        for v in self.symbols.variables:
            if v.guard:  # __shared__ arrays have no initialisers, so nothing is constructed
                ctypes.c_char.from_address(self.base + v.address).value = b"\1"

    def place_of(self, name: str) -> tuple[int, int]:
        """Address and bytes of a variable of the text."""
        known = {v.name: v for v in self.symbols.variables if not (v.shared or v.guard)}
        if name not in known:
            raise LaunchError(
                f"no variable or constant {name!r} in this CUDA source that a kernel uses; "
                f"it has {', '.join(sorted(known)) or 'none'}"
            )
        return self.base + known[name].address, known[name].nbytes


class Module:
    """CUDA C text with the options of NVRTC; compiled at the first use in each mode."""

    def __init__(self, code: str, options: Sequence[str] = ()):
        self.code, self.options = code, tuple(options)
        self._loaded: dict[str, _Loaded] = {}

    def loaded(self, mode: str) -> _Loaded:
        """The unit for a mode; CompileError with the log and the user's lines."""
        with _lock:
            if mode not in self._loaded:
                self._loaded[mode] = _Loaded(unit.build(self.code, self.options, mode))
            return self._loaded[mode]

    def kernel(self, name: str) -> SimKernel:
        """The kernel of that name; LaunchError lists those that exist."""
        known = self.loaded(current().mode).symbols.kernels
        if name not in known:
            raise LaunchError(
                f'no extern "C" kernel {name!r} in this CUDA source; '
                f"it has {', '.join(known) or 'none'}"
            )
        return SimKernel(self, name)


class SimKernel:
    """A kernel that can be launched.

    max_dynamic_shared: bytes of dynamic shared memory that launches may ask for.
    """

    def __init__(self, module: Module, name: str):
        self.module, self.name = module, name
        self.max_dynamic_shared = STATIC_SHARED
        self._entries: dict[str, ctypes.c_void_p] = {}
        self.parameters, self.bound = self._describe()

    def _describe(self) -> tuple[tuple[KernelParameter, ...], int]:
        """The parameters, and the threads of a block that __launch_bounds__ allows (0: all)."""
        library = self.module.loaded(current().mode).library
        table, bound = (ctypes.c_int * (5 * 256))(), ctypes.c_int()
        count = library[f"sim_parameters_{self.name}"](table, ctypes.byref(bound))
        rows = [table[5 * i : 5 * i + 5] for i in range(count)]
        parameters = (KernelParameter(chr(k), n, chr(pk), pn, bool(c)) for k, n, pk, pn, c in rows)
        return tuple(parameters), bound.value

    def launch(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Any],
        shared_bytes: int = 0,
        settings: SimSettings | None = None,
    ) -> None:
        """Runs the kernel to its end.

        args: Pointers, NumPy scalars, arrays of one element, Python's bool, int, float.
        LaunchError: arguments or sizes that a device refuses. KernelFaultError: faults of the
        kernel.
        """
        now = settings or current()
        grid3, block3 = self.sizes(grid, block, shared_bytes)
        packed = Packed(self.name, args, self.parameters)
        with _lock:
            self._run(grid3, block3, packed, shared_bytes, now)

    def sizes(
        self, grid: Sequence[int], block: Sequence[int], shared_bytes: int
    ) -> tuple[Any, Any]:
        """Grid and block with three axes, within the limits; 0 counts as 1, as in cupy."""
        grid3 = tuple(max(int(n), 1) for n in (*grid, 1, 1, 1)[:3])
        block3 = tuple(max(int(n), 1) for n in (*block, 1, 1, 1)[:3])
        if any(n > m for n, m in zip(grid3, MAX_GRID)):
            raise LaunchError(f"grid {grid3} of {self.name} exceeds {MAX_GRID}")
        threads = prod(block3)
        if any(n > m for n, m in zip(block3, MAX_BLOCK)) or threads > MAX_THREADS:
            raise LaunchError(
                f"block {block3} of {self.name} exceeds {MAX_BLOCK}, {MAX_THREADS} threads in all"
            )
        if self.bound and threads > self.bound:
            raise LaunchError(
                f"block {block3} of {self.name} has {threads} threads; __launch_bounds__ allows "
                f"{self.bound}"
            )
        if not 0 <= shared_bytes <= self.max_dynamic_shared:
            raise LaunchError(
                f"{shared_bytes} bytes of dynamic shared memory for {self.name}; "
                f"max_dynamic_shared_size_bytes is {self.max_dynamic_shared}"
            )
        return grid3, block3

    def _run(
        self, grid: Any, block: Any, packed: Packed, shared_bytes: int, now: SimSettings
    ) -> None:
        loaded = self.module.loaded(now.mode)
        entry = self._entries.get(now.mode)
        if entry is None:
            entry = ctypes.cast(loaded.library[f"sim_enter_{self.name}"], ctypes.c_void_p)
            self._entries[now.mode] = entry
        check = now.mode == "check"
        if loaded.notes:
            lines = faults.source_lines(self.module.code)
            notes.warn(loaded.notes, self.name, loaded.symbols.kernels, lines)
        dynamic, _shared = _dynamic_shared(shared_bytes)
        ranges = separate(merged(packed.pointers), packed.slots) if check else []
        buffers = [*loaded.buffers, *map(_described, ranges)] if check else []
        if check and shared_bytes:
            name = b"dynamic shared memory"
            buffers.append(_Buffer(dynamic, shared_bytes, None, name, 4, False, True))
        options = _Options(
            check, SCHEDULES.index(now.schedule), now.seed, now.seconds * (1 if check else 10),
            _interruptible(), 0, *loaded.code,
        )  # fmt: skip
        used = ctypes.c_uint64()
        count = _runtime().sim_launch(
            entry, packed.slots, _Index(*grid), _Index(*block), ctypes.c_void_p(dynamic),
            (_Buffer * len(buffers))(*buffers), len(buffers), ctypes.byref(options), _found,
            _MAX_FAULTS, ctypes.byref(used),
        )  # fmt: skip
        for moved in ranges:
            moved.give_back()
        if count == _INTERRUPTED:
            _raise_interrupt()
        if count < 0:
            raise MemoryError(
                f"this machine has too little memory to simulate kernel {self.name}; smaller "
                "arrays or mode 'fast' take less"
            )
        listed = []
        if count:
            found = _found[:count]
            listed = faults.explain(found, self.name, self.module.code, loaded.path, loaded.base)
        listed += self._aftermath(packed, check, used.value, shared_bytes)
        if listed:
            raise faults.error(listed)

    def _aftermath(
        self, packed: Packed, check: bool, used: int, dynamic: int
    ) -> list[faults.Fault]:
        """Faults found after the launch: overrun buffers, too much static shared memory."""
        found = []
        limit = STATIC_SHARED if self.max_dynamic_shared <= STATIC_SHARED else DYNAMIC_SHARED
        if used > STATIC_SHARED or used + dynamic > limit:
            message = (
                f"{used} bytes of static shared memory and {dynamic} of dynamic; "
                f"at most {STATIC_SHARED} and {limit} in all are allowed"
            )
            found.append(faults.Fault("shared-limit", self.name, message))
        for i, pointer, parameter in packed.pointers:
            if not check and not parameter.pointee_const:
                pointer.allocation.mark(pointer.offset, pointer.nbytes, True)
            overrun = pointer.allocation.overrun()
            if overrun:
                found.append(faults.Fault("overrun", self.name, f"argument {i}: {overrun}"))
        return found


def _interruptible() -> bool:
    """True if Ctrl-C is sure to raise an exception in this thread, so that it may end a launch
    midway."""
    main = threading.current_thread() is threading.main_thread()
    return main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _raise_interrupt() -> NoReturn:
    """Raise the pending KeyboardInterrupt."""
    ctypes.pythonapi.PyErr_CheckSignals()
    raise KeyboardInterrupt


def _dynamic_shared(nbytes: int) -> tuple[int, Any]:
    """The address of that much dynamic shared memory, and its owner; null for none."""
    if not nbytes:
        return 0, None
    memory = np.full(nbytes + 256, 0xFF, np.uint8)
    return memory.ctypes.data + -memory.ctypes.data % 128, memory


def _described(part: Range) -> _Buffer:
    """A range of device memory, as a struct for the checker."""
    known = part.allocation.initialised
    return _Buffer(
        part.allocation.address + part.start, part.nbytes,
        None if known is None else known.ctypes.data + part.start,
        f"argument {' and '.join(map(str, part.arguments))}".encode(),
        part.granule, part.const, False,
    )  # fmt: skip
