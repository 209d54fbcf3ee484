"""Modules and kernels of the CUDA simulator: CUDA C loaded into this process and launched.

Parts: modules and kernels; arguments of a launch, the values that cupy would pass, checked against
the kernel's parameters; ranges, the device memory that a launch may access; symbols, the addresses
of a unit's kernels, shared arrays and variables; notes, the compiler's warnings.
"""

from __future__ import annotations

import ctypes
import re
import signal
import struct
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from weakref import ref

import numpy as np

from ....core.errors import KernelWarning, LaunchError
from ...compiled import lock_of_process
from ..text.source import MAX_BLOCK, MAX_GRID, MAX_THREADS, STATIC_SHARED, fits, misfit, scalar
from . import unit
from .memory import (
    SCHEDULES,
    STREAM,
    Borrowed,
    DeviceAllocation,
    Fault,
    Memory,
    RawFault,
    SimSettings,
    current,
    error,
    explain,
    recorded,
    source_lines,
    using,
)
from .unit import TOOLS, log_of, runtime_library

DYNAMIC_SHARED = 227 * 1024  # of an H100, if the kernel requests it
_MAX_FAULTS = 64  # the runtime records; those that explain the others are listed
_INTERRUPTED = -2  # sim_launch's result after Ctrl-C

# Launches share the fibers and the checker: one at a time in a process.
_lock = lock_of_process()
_found = (RawFault * _MAX_FAULTS)()


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
        self.symbols = read_symbols(path)
        self.notes = read_notes(path)
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
    """CUDA C text with the options of NVRTC; compiled at the first use in each mode.

    mode: of the launches; None: as the settings say at each.
    """

    def __init__(self, code: str, options: Sequence[str] = (), mode: str | None = None):
        self.code, self.options, self.mode = code, tuple(options), mode
        self._loaded: dict[str, _Loaded] = {}

    def loaded(self, mode: str) -> _Loaded:
        """The unit for a mode; CompileError with the log and the user's lines."""
        with _lock:
            if mode not in self._loaded:
                self._loaded[mode] = _Loaded(unit.build(self.code, self.options, mode))
            return self._loaded[mode]

    def settings(self) -> SimSettings:
        """The settings of a launch from here."""
        now = current()
        return now if self.mode in (None, now.mode) else replace(now, mode=self.mode)

    def function(self, name: str) -> SimKernel:
        """The kernel of that name; LaunchError lists those that exist."""
        known = self.loaded(self.settings().mode).symbols.kernels
        if name not in known:
            raise LaunchError(
                f'no extern "C" kernel {name!r} in this CUDA source; '
                f"it has {', '.join(known) or 'none'}"
            )
        return SimKernel(self, name)

    def get_global(self, name: str) -> Memory:
        """The memory of a variable or constant of the text."""
        address, nbytes = self.loaded(self.settings().mode).place_of(name)
        return Memory(Borrowed(address, nbytes), 0, (nbytes,), np.dtype(np.uint8))


class SimKernel:
    """A kernel: function(grid, block, args, shared_mem=0).

    args: Memory, NumPy scalars, arrays of one element, Python's bool, int, float.
    LaunchError: arguments or sizes that a device refuses. KernelFaultError: faults of the kernel.
    """

    def __init__(self, module: Module, name: str):
        self.module, self.name = module, name
        self._dynamic_limit = STATIC_SHARED
        self._entries: dict[str, ctypes.c_void_p] = {}
        self.parameters, self.bound = self._describe()

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        """Bytes of dynamic shared memory that launches may ask for: 48 KiB unless set higher."""
        return self._dynamic_limit

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, nbytes: int) -> None:
        if not 0 <= nbytes <= DYNAMIC_SHARED:
            raise ValueError(
                f"{nbytes} bytes of dynamic shared memory; a block has {DYNAMIC_SHARED}"
            )
        self._dynamic_limit = nbytes

    def get_global(self, name: str) -> Memory:
        """The memory of a variable or constant of the text."""
        return self.module.get_global(name)

    def __call__(
        self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], shared_mem: int = 0
    ) -> None:
        settings, kept = self.module.settings(), recorded()
        if kept is not None or settings.deferred:
            self.sizes(grid, block, shared_mem)  # a GPU refuses these at once, too
        if kept is None:
            STREAM.do(lambda: self._launch(grid, block, args, shared_mem, settings))
            return
        # A graph holds addresses, but keeps no memory alive.
        weak = [Address(a) if isinstance(a, Memory) else a for a in args]

        def again() -> None:
            now = replace(current(), mode=settings.mode)
            found = [a.found(self.name) if isinstance(a, Address) else a for a in weak]
            self._launch(grid, block, found, shared_mem, now)

        kept.append(again)

    def _describe(self) -> tuple[tuple[KernelParameter, ...], int]:
        """The parameters, and the threads of a block that __launch_bounds__ allows (0: all)."""
        library = self.module.loaded(self.module.settings().mode).library
        table, bound = (ctypes.c_int * (5 * 256))(), ctypes.c_int()
        count = library[f"sim_parameters_{self.name}"](table, ctypes.byref(bound))
        rows = [table[5 * i : 5 * i + 5] for i in range(count)]
        parameters = (KernelParameter(chr(k), n, chr(pk), pn, bool(c)) for k, n, pk, pn, c in rows)
        return tuple(parameters), bound.value

    def _launch(
        self, grid: Any, block: Any, args: Sequence[Any], shared_bytes: int, now: SimSettings
    ) -> None:
        """Run the kernel to its end."""
        grid3, block3 = self.sizes(grid, block, shared_bytes)
        packed = Packed(self.name, args, self.parameters)
        with _lock, using(mode=now.mode):
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
        if not 0 <= shared_bytes <= self._dynamic_limit:
            raise LaunchError(
                f"{shared_bytes} bytes of dynamic shared memory for {self.name}; "
                f"max_dynamic_shared_size_bytes is {self._dynamic_limit}"
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
            lines = source_lines(self.module.code)
            warn(loaded.notes, self.name, loaded.symbols.kernels, lines)
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
            listed = explain(found, self.name, self.module.code, loaded.path, loaded.base)
        listed += self._aftermath(packed, check, used.value, shared_bytes)
        if listed:
            raise error(listed)

    def _aftermath(self, packed: Packed, check: bool, used: int, dynamic: int) -> list[Fault]:
        """Faults found after the launch: overrun buffers, too much static shared memory."""
        found = []
        limit = STATIC_SHARED if self._dynamic_limit <= STATIC_SHARED else DYNAMIC_SHARED
        if used > STATIC_SHARED or used + dynamic > limit:
            message = (
                f"{used} bytes of static shared memory and {dynamic} of dynamic; "
                f"at most {STATIC_SHARED} and {limit} in all are allowed"
            )
            found.append(Fault("shared-limit", self.name, message))
        for i, pointer, parameter in packed.pointers:
            if not check and not parameter.pointee_const:
                pointer.allocation.mark(pointer.offset, pointer.nbytes, True)
            overrun = pointer.allocation.overrun()
            if overrun:
                found.append(Fault("overrun", self.name, f"argument {i}: {overrun}"))
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


# --- Arguments of a launch ------------------------------------------------------------------------


DType = np.dtype[Any]


class Address:
    """The place of an array, without keeping its memory alive."""

    __slots__ = ("_allocation", "_range")

    def __init__(self, array: Memory):
        self._allocation = ref(array.allocation)
        self._range = array.offset, array.shape, array.dtype

    def found(self, kernel: str) -> Memory:
        """The array; KernelFaultError when its memory has been freed."""
        allocation = self._allocation()
        if allocation is None:
            message = "a graph uses memory that has been freed"
            raise error([Fault("illegal-access", kernel, message)])
        return Memory(allocation, *self._range)


class KernelParameter(NamedTuple):
    """A parameter of a kernel, as sim_entry.h describes it.

    kind: p pointer, b bool, i signed, u unsigned, f floating point, s structure, v void.
    """

    kind: str
    size: int
    pointee_kind: str
    pointee_size: int
    pointee_const: bool

    def __str__(self) -> str:
        if self.kind != "p":
            return _in_words(self.kind, self.size)
        pointee = _in_words(self.pointee_kind, self.pointee_size)
        return f"pointer to {'const ' if self.pointee_const else ''}{pointee}"


def _in_words(kind: str, size: int) -> str:
    if kind == "v":
        return "void"
    if kind == "s":
        return f"a structure of {size} bytes"
    name = {"b": "bool", "i": "int", "u": "uint", "f": "float"}[kind]
    return name if kind == "b" else f"{name}{8 * size}"


class Packed:
    """The arguments of a launch in memory: `slots[i]` is the address of argument i's value."""

    __slots__ = ("slots", "pointers", "_kept")

    def __init__(self, kernel: str, args: Sequence[Any], parameters: Sequence[KernelParameter]):
        if len(args) != len(parameters):
            raise LaunchError(
                f"{kernel} has {len(parameters)} parameters; got {len(args)} arguments"
            )
        self.slots = (ctypes.c_void_p * max(len(args), 1))()
        self.pointers: list[tuple[int, Memory, KernelParameter]] = []
        self._kept: list[Any] = []
        for i, (argument, parameter) in enumerate(zip(args, parameters, strict=True)):
            if isinstance(argument, Memory):
                if not _points(argument.dtype, parameter):
                    raise misfit(kernel, i, parameter, argument.dtype, array=True)
                if argument.nbytes:
                    self.pointers.append((i, argument, parameter))
                value: Any = ctypes.c_uint64(argument.address)
                self.slots[i] = ctypes.addressof(value)
            else:
                value = scalar(kernel, i, argument)
                is_address = parameter.kind == "p" and value.view(np.uint8).any()
                if not _takes(value.dtype, parameter, bool(is_address)):
                    raise misfit(kernel, i, parameter, value.dtype, array=False)
                self.slots[i] = value.ctypes.data
            self._kept.append(value)


@lru_cache(None)
def _points(dtype: DType, parameter: KernelParameter) -> bool:
    """True when a pointer parameter may get an array of that dtype."""
    if parameter.kind != "p":
        return False
    kind, size = parameter.pointee_kind, parameter.pointee_size
    if kind == "v":
        return True
    if kind == "s":  # __half, float4: only its size is known
        return size % dtype.itemsize == 0
    return fits(dtype, kind, size, array=True)


@lru_cache(None)
def _takes(dtype: DType, parameter: KernelParameter, address: bool) -> bool:
    """True when a parameter may get the bytes of a scalar; a pointer only gets null."""
    if parameter.kind == "p":
        return dtype.kind in "iu" and dtype.itemsize == parameter.size and not address
    if parameter.kind == "s":
        return dtype.itemsize == parameter.size
    return fits(dtype, parameter.kind, parameter.size, array=False)


# --- Ranges of device memory ----------------------------------------------------------------------


# Overruns by less than this are found; ranges closer to a neighbour are moved for the launch.
APART = 64


@dataclass(slots=True)
class Range:
    """Bytes of an allocation that some arguments point into; const if all of them are."""

    allocation: DeviceAllocation
    start: int
    nbytes: int
    const: bool
    granule: int
    arguments: list[int] = field(default_factory=list)
    origin: tuple[DeviceAllocation, int] | None = None

    @property
    def end(self) -> int:
        """The offset past its last byte."""
        return self.start + self.nbytes

    def move_away(self, slots: Any) -> None:
        """Copy the range to memory of its own for one launch, and redirect its arguments."""
        own = DeviceAllocation(self.nbytes)
        own.bytes[:] = self.allocation.bytes[self.start : self.end]
        if self.allocation.initialised is None:
            own.initialised = None
        elif own.initialised is not None:
            own.initialised[:] = self.allocation.initialised[self.start : self.end]
        moved = own.address - self.allocation.address - self.start
        for i in self.arguments:
            ctypes.c_uint64.from_address(slots[i]).value += moved
        self.origin = (self.allocation, self.start)
        self.allocation, self.start = own, 0

    def give_back(self) -> None:
        """Copy the launch's writes back to the original memory."""
        if self.origin is None:
            return
        home, start = self.origin
        if not self.const:
            home.bytes[start : start + self.nbytes] = self.allocation.bytes
            if home.initialised is not None and self.allocation.initialised is not None:
                home.initialised[start : start + self.nbytes] = self.allocation.initialised


def merged(pointers: Sequence[tuple[int, Memory, KernelParameter]]) -> list[Range]:
    """The arguments in the order of their addresses, overlapping ones as one range."""
    ranges: list[Range] = []
    for i, pointer, parameter in sorted(pointers, key=lambda p: p[1].address):
        size = parameter.pointee_size
        granule = 4 if size % 4 == 0 else 2 if size % 2 == 0 else 1
        last = ranges[-1] if ranges else None
        if last and last.allocation is pointer.allocation and pointer.offset < last.end:
            last.nbytes = max(last.end, pointer.offset + pointer.nbytes) - last.start
            last.const = last.const and parameter.pointee_const
            last.granule = min(last.granule, granule)
            last.arguments.append(i)
            continue
        ranges.append(
            Range(
                pointer.allocation, pointer.offset, pointer.nbytes, parameter.pointee_const,
                granule, [i],
            )
        )  # fmt: skip
    return ranges


def separate(ranges: list[Range], slots: Any) -> list[Range]:
    """Move ranges that are close behind another, so that no overrun of one reaches the next.

    The ranges neither overlap nor adjoin then."""
    before: tuple[DeviceAllocation, int] | None = None
    for part in ranges:
        near = (
            before is not None and before[0] is part.allocation and part.start - before[1] < APART
        )
        before = (part.allocation, part.end)
        if near:
            part.move_away(slots)
    return ranges


# --- Symbols of a compiled unit -------------------------------------------------------------------


_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"),
     ("size", "<u8")]
)  # fmt: skip
_SECTION = struct.Struct("<IIQQQQIIQQ")
_OBJECT, _SYMTAB, _WRITABLE, _PROTECTED = 1, 2, 1, 3
# A static local in the names of C++: _ZZ, the function, E, the variable's name with its length.
_LOCAL = re.compile(r"_ZZ.*E(\d+)(\w+?)(?:_\d+|__\d+_)?$")


@dataclass(frozen=True, slots=True)
class Variable:
    """Memory of a unit: address in the file, bytes, the name in the source, __shared__ or not.

    constant: a kernel may only read it. guard: a flag for whether a static local has been
    constructed. GCC checks it before using an array of a class, such as __half, even if there is
    nothing to construct.
    """

    address: int
    nbytes: int
    name: str
    shared: bool
    constant: bool
    guard: bool

    @property
    def kind(self) -> str:
        """Its kind in messages."""
        return "shared array" if self.shared else "constant" if self.constant else "variable"


@dataclass(frozen=True, slots=True)
class Symbols:
    """The symbols of a unit, at addresses in the file.

    anchor: of sim_anchor, relative to which the others are found. code: the range of the functions.
    """

    anchor: int
    code: tuple[int, int]
    kernels: tuple[str, ...]
    variables: tuple[Variable, ...]


def read_symbols(path: Path) -> Symbols:
    """The symbols of a shared library (64-bit ELF, little-endian)."""
    data = path.read_bytes()
    (start,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", data, 0x3A)
    sections = [_SECTION.unpack_from(data, start + i * size) for i in range(count)]
    section_names = sections[names_index]
    table = next(s for s in sections if s[1] == _SYMTAB)
    names = sections[table[6]]
    symbols = np.frombuffer(data, _SYMBOL, table[5] // _SYMBOL.itemsize, table[4])
    anchor, kernels, variables = 0, [], []
    for name_at, info, other, section, value, nbytes in symbols.tolist():
        begin = names[4] + name_at
        name = data[begin : data.index(b"\0", begin)].decode()
        if name == "sim_anchor":
            anchor = value
        elif name.startswith("sim_enter_"):
            kernels.append(name.removeprefix("sim_enter_"))
        elif info & 15 == _OBJECT and nbytes and 0 < section < count:
            if sections[section][2] & _WRITABLE and not name.startswith(("_DYNAMIC", "__")):
                variables.append(_variable(name, value, nbytes, other & 3 == _PROTECTED))
    text = next(s for s in sections if data.startswith(b".text\0", section_names[4] + s[0]))
    code = text[3], text[3] + text[5]
    return Symbols(anchor, code, tuple(sorted(kernels)), tuple(variables))


def _variable(symbol: str, address: int, nbytes: int, constant: bool) -> Variable:
    shared = symbol.startswith("_ZZ")
    found = _LOCAL.match(symbol) if shared else None
    name = found.group(2)[: int(found.group(1))] if found else symbol
    return Variable(address, nbytes, name, shared, constant, symbol.startswith("_ZGV"))


# --- Notes of the compiler ------------------------------------------------------------------------


Position = tuple[str, int]  # a file and a line

# Python records the warnings that were shown here.
_shown: dict[str | tuple[str, type[Warning], int], int] = {}

_FUNCTION = re.compile(r"\bIn [a-z ]*function [‘'`](.*?)[’'](?:[,:]|$)", re.IGNORECASE)
_INLINED = re.compile(r"^\s+inlined from [‘'`](.*?)[’'] at ")
_AT = r"^(?P<file>[^\n]+?):(?P<line>\d+):\d+: "
_READ = re.compile(
    _AT + r"warning: (?:variable )?[‘'`](?P<name>\w[\w.:<>\[\]]*)[’'](?P<certain> is used)?.*"
    r"\[-W\w*-?uninitialized\]$"
)
_DECLARED = re.compile(_AT + r"note: [‘'`][\w.:<>\[\]]+[’'] (?:was )?declared here$")
_NAME = re.compile(r"(\w+)\s*(?:\(|$)")
_CLASS = re.compile(r"\w+(?:<[^.]*>)?::")  # g++ calls v.w, of a float4, v.float4::w
_ARGUMENTS = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
_DECLARES = r"(?!\s*return\b)[\w\s:<>,*&]*\b{}\s*[,;]"  # a variable, and no more
_SHUFFLE = re.compile(rf"(?:__shfl\w*_sync|\.\s*shfl\w*)\s*{_ARGUMENTS}")


class Note(NamedTuple):
    """A local variable, or a member of one, that a kernel may read before it writes it.

    A launch in check mode issues it as a KernelWarning: the compiler may be too careful.
    position: of the read. functions: the one it is in, then those into which the compiler has
    inlined it. certain: it is read so on every path. declared: the position of the declaration, if
    known.
    """

    position: Position
    variable: str
    functions: tuple[str, ...]
    certain: bool
    declared: Position | None = None


def read_notes(path: Path) -> tuple[Note, ...]:
    """The notes on a unit."""
    return tuple(_warnings_in(log_of(path)))


def warn(
    notes: Iterable[Note], kernel: str, kernels: tuple[str, ...], lines: Mapping[Position, str]
) -> None:
    """Issue a kernel's notes: those on itself, and on functions that are not kernels.

    kernels: all of the unit. lines: those of the text; notes on other lines concern our headers.
    """
    warned = set()
    for note in notes:
        position, owners = _quoted(note, lines), set(note.functions).intersection(kernels)
        variable = note.variable, note.declared or position
        if position is None or (owners and kernel not in owners) or variable in warned:
            continue
        warned.add(variable)
        message = (
            f"kernel {kernel}: the variable {note.variable} may be read before it is written in "
            f"{lines[position].strip()!r}"
        )
        warnings.warn_explicit(message, KernelWarning, *position, registry=_shown)


def _quoted(note: Note, lines: Mapping[Position, str]) -> Position | None:
    """The line that shows a note: of the read, or of the declaration where the compiler gives the
    read the line of a function that it has inlined. None where there is nothing to warn of, as for
    reads in our headers."""
    name = re.escape(re.split(r"[.\[]", note.variable)[0])
    read = lines.get(note.position)
    if read is None:
        return None
    if not re.search(rf"\b{name}\b", read):
        return note.declared if note.declared in lines else None
    alone = len(re.findall(rf"\b{name}\b", read)) == 1
    if alone and not note.certain and re.match(_DECLARES.format(name), read):
        return None  # g++ does not know where the value is read
    # Lanes that have no value yet may take part in the shuffle that delivers it.
    beside_shuffles = re.sub(rf"\b{name}\s*=(?!=)", "", _SHUFFLE.sub("", read))
    shown = note.certain or re.search(rf"\b{name}\b", beside_shuffles)
    return note.position if shown else None


def _warnings_in(log: str) -> Iterator[Note]:
    """The notes in a log of g++ or clang."""
    functions: tuple[str, ...] = ()
    note = None
    for line in log.splitlines():
        if header := _FUNCTION.search(line):
            functions = _names(header[1])
        elif inlined := _INLINED.match(line):
            functions += _names(inlined[1])
        elif seen := _READ.match(line):
            if note:
                yield note
            variable = _CLASS.sub("", seen["name"])
            note = Note(_position(seen), variable, functions, bool(seen["certain"]))
        elif note and (declared := _DECLARED.match(line)):
            note = note._replace(declared=_position(declared))
    if note:
        yield note


def _names(function: str) -> tuple[str, ...]:
    """The name in a signature, as a tuple: empty for none."""
    return tuple(_NAME.findall(function)[:1])


def _position(found: re.Match[str]) -> Position:
    return found["file"], int(found["line"])
