"""Runs of native kernels as one function that takes NumPy arrays and releases the GIL."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from ...dtype import DType
from ...errors import CompileError, DeviceError
from ..kernel import Array
from . import units
from .services import player
from .source import Source, addresses_of

Run = Callable[..., int]
PAYS = 4  # steps from which on packing pays: it takes as long as a quarter of one product
_new = ctypes.pythonapi.PyCFunction_NewEx
_new.argtypes, _new.restype = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p), ctypes.py_object


class Moving(NamedTuple):
    """Memory inside an array that each call is given: the position of the argument, and the
    distance from its start in bytes."""

    argument: int
    offset: int = 0


class Packing(NamedTuple):
    """A kernel that reads one operand in another order, and the kernel that brings the operand into
    that order: `size` elements of a dtype."""

    kernel: Source
    operand: int
    pack: Source
    size: int
    dtype: DType


class Call(NamedTuple):
    """A kernel, or one of the player's own, and where its inputs, outputs and workspace are.

    packing: gives what may take its place where an operand is the same in many calls.
    """

    kernel: Source | Literal["copy", "loop"]
    operands: tuple[Array | Moving, ...]
    packing: Callable[[], Packing | None] | None = None


def copy(target: Array | Moving, source: Array | Moving, like: Array) -> Call:
    """A copy to memory in row-major order from memory with the strides of `like`."""
    extents, strides = _merged(like)
    about = np.array([like.itemsize, len(extents), *extents, *strides], np.int64)
    return Call("copy", (source, target, about))


class Argument(NamedTuple):
    """What a step of a loop is given: memory in an operand of the loop, `offset` bytes from its
    start; at each step, or at each second one, `stride` bytes further."""

    operand: int
    offset: int = 0
    stride: int = 0
    alternates: bool = False


class Carried(NamedTuple):
    """A value that a loop carries: the argument in which a step leaves the next one, the operand
    that receives the last one, and its size."""

    after: int
    last: int
    nbytes: int


def loop(
    steps: int,
    calls: Sequence[Call],
    arguments: Sequence[Argument],
    carried: Sequence[Carried],
    operands: tuple[Array | Moving, ...],
) -> list[Call]:
    """All steps of a loop, each of which makes the calls. Moving operands of these are in
    `arguments`, the first of which are the carried values, to begin with. Before the loop, what
    steps only read is packed for those kernels that read it faster so."""
    same = {i: operands[a.operand] for i, a in enumerate(arguments) if not a.stride}
    fixed = {i: operand for i, operand in same.items() if i >= len(carried)}
    before, calls = _packed(calls, fixed) if steps >= PAYS else ([], calls)
    words, kept = _table(calls)
    about = [steps, len(carried), len(arguments), *(word for value in carried for word in value)]
    for operand, offset, stride, alternates in arguments:
        about += [operand, offset, stride, 1 if alternates else -1]
    return [*before, Call("loop", (_owning([*about, *words], kept), *operands))]


def _packed(
    calls: Sequence[Call], fixed: Mapping[int, Array | Moving]
) -> tuple[list[Call], list[Call]]:
    """Calls that pack arguments which stay, and the calls on packed operands."""
    before: dict[tuple[int, Source], Call] = {}
    after: list[Call] = []
    for call in calls:
        packing = None if call.packing is None else call.packing()
        operand = None if packing is None else call.operands[packing.operand]
        whole = operand.argument if isinstance(operand, Moving) and not operand.offset else None
        if packing is None or whole is None or whole not in fixed:
            after.append(call)
            continue
        key = whole, packing.pack
        if key not in before:
            room = np.empty(packing.size, packing.dtype)
            before[key] = Call(packing.pack, (fixed[whole], room))
        given = list(call.operands)
        given[packing.operand] = before[key].operands[1]
        after.append(Call(packing.kernel, tuple(given)))
    try:
        units.load([c.kernel for c in (*before.values(), *after) if isinstance(c.kernel, Source)])
    except (CompileError, DeviceError):  # what is not packed has been compiled
        return [], [*calls]
    return [*before.values()], after


def _merged(array: Array) -> tuple[list[int], list[int]]:
    """Extents and strides of at least one axis, neighbours joined where one stride serves both."""
    extents, strides = [1], [array.itemsize]
    for extent, stride in zip(array.shape[::-1], array.strides[::-1], strict=True):
        if stride == strides[0] * extents[0] or extents[0] == 1:
            strides[0] = strides[0] if extents[0] > 1 else stride
            extents[0] *= extent
        elif extent != 1:
            extents.insert(0, extent)
            strides.insert(0, stride)
    return extents, strides


def native_run(calls: Sequence[Call], threads: int) -> Run:
    """A function of the arrays that move; it makes the calls in order, on up to `threads` threads.

    Its arguments must be what `unusable` accepts. It keeps alive what it uses, and serves one call
    at a time.
    """
    words, kept = _table(calls)
    return _bound(player().run, [threads, 0, *words], kept)


def note_times(run: Any, stamps: Array) -> None:
    """Make a native run note in this array of int64, which the caller keeps alive, when each of its
    calls was done: nanoseconds of CLOCK_MONOTONIC."""
    run.__self__[1] = stamps.__array_interface__["data"][0]


def _table(calls: Sequence[Call]) -> tuple[list[int], list[Array]]:
    """The words of a table of calls, and what must live as long."""
    operands = [operand for call in calls for operand in call.operands]
    fixed = [o for o in operands if not isinstance(o, Moving)]
    moving = [(o.argument, o.offset, i) for i, o in enumerate(operands) if isinstance(o, Moving)]
    known = dict(zip(map(id, fixed), addresses_of(fixed), strict=True))
    begins = np.cumsum([0, *(len(call.operands) for call in calls)])
    words = [len(calls), len(moving), 3 + 2 * len(calls) + 3 * len(moving)]
    for call, begin in zip(calls, begins, strict=False):
        words += [_address(call.kernel), int(begin)]
    words += [word for move in moving for word in move]
    words += [known.get(id(operand), 0) for operand in operands]
    return words, fixed


Spec = tuple[tuple[int, ...], DType]


def unusable(specs: Sequence[Spec]) -> Run:
    """A function that is 0 for arrays of these shapes and dtypes, aligned and in row-major order.

    Kernels read such arrays where they are; it is 1 for any others.
    """
    words = [w for shape, dtype in specs for w in (id(dtype), len(shape), *shape)]
    return _bound(player().unusable, words, [dtype for _, dtype in specs])


def made_usable(specs: Sequence[Spec], *arrays: Any) -> list[Array]:
    """Copies that kernels can read; ValueError for another shape."""
    return [_copied(*spec, array) for spec, array in zip(specs, arrays, strict=True)]


def _copied(shape: tuple[int, ...], dtype: DType, array: Any) -> Array:
    if np.shape(array) != shape:
        raise ValueError(f"a program got an array of shape {np.shape(array)}; it takes {shape}")
    copied = np.empty(shape, dtype)
    copied[...] = array
    return copied


class _Table(np.ndarray[Any, Any]):
    """The words of a function's table, and what must live as long."""

    kept: Sequence[object]


def _bound(method: int, words: Sequence[int], kept: Sequence[object]) -> Run:
    """The function of player.c that has this table."""
    function: Run = _new(method, _owning(words, kept), None)
    return function


def _owning(words: Sequence[int], kept: Sequence[object]) -> _Table:
    table = np.array(words, np.int64).view(_Table)
    table.kept = kept
    return table


def _address(kernel: Source | Literal["copy", "loop"]) -> int:
    if not isinstance(kernel, Source):
        return player().copy if kernel == "copy" else player().loop
    (function,) = units.load([kernel])
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
