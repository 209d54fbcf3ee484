"""The native executor: runs of native kernels as one function that releases the GIL.

A run is a table of calls for native.c, with the addresses of fixed arrays and the offsets of those
that are arguments. Further on, loops of calls and branches; calls back into Python, for kernels
that are not in C; the base class of native kernels; and texts that serve several sizes.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from ...core.abstract import DType
from ...core.errors import CompileError, DeviceError
from ...core.scope import Block, Scoped
from ..kernel import CPU, Array, Arrays, Kernel, start_of
from ..product import merged
from . import units
from .units import KERNEL, NUMBERED, Source, addresses_of, executor, run


class Moving(NamedTuple):
    """Memory in an argument of the run: the argument's position, and the offset in bytes."""

    argument: int
    offset: int = 0


Operands = tuple[Array | Moving, ...]
Positions = Collection[int]

Own = Literal["copy", "loop", "branch", "call_back", "copy_bounded"]


class Keeping(NamedTuple):
    """An input that a kernel may keep in the order in which it reads it, and the bytes of that. Two
    words tell it: 0; or 1, and the address where it is to be kept; or 2, if it is there."""

    operand: int
    nbytes: int

    def held(self, operand: int, word: int = 0) -> Held:
        """Memory for it, of which the kernel is told by this word; operand: of the caller."""
        room = CPU().arena(self.nbytes)
        return Held(operand, np.array([word, start_of(room)], np.int64), room)


class Held(NamedTuple):
    """The input of a node that one of its calls keeps, the words that tell it, and the memory."""

    operand: int
    words: Array
    room: Array


class Packing(NamedTuple):
    """A kernel that gets the words of a Keeping after its operands, and reads what is there; and
    the kernel that packs the operand if they say so, which gets both. pays: for a few calls that
    follow, and for all calls of later runs."""

    kernel: Source
    keeps: Keeping
    pack: Source
    pays: tuple[bool, bool]


class Call(NamedTuple):
    """A kernel, or one of the executor's own, and its inputs, outputs and workspace.

    packing: gives a replacement for where an operand is the same in many calls. stops: it may raise
    an error, after which the run makes no more calls. held: what it keeps for later runs.
    """

    kernel: Source | Own
    operands: tuple[Array | Moving, ...]
    packing: Callable[[], Packing | None] | None = None
    stops: bool = False
    held: Held | None = None

    def moved(self, positions: Sequence[int]) -> Call:
        """The call with other arguments of the run, by their positions, in place of its own."""
        operands = (
            o._replace(argument=positions[o.argument]) if isinstance(o, Moving) else o
            for o in self.operands
        )
        return self._replace(operands=tuple(operands))


Run = Callable[..., int]


def compiled_together() -> Block[list[_Table]]:
    """A block in which kernels of loops and branches are compiled with those of the run that has
    these calls, by `compile_calls`."""
    return _unfinished.use(lambda: [] if (tables := _unfinished.get()) is None else tables)


def compile_calls(calls: Sequence[Call]) -> None:
    """Compile what calls, and those of the loops and branches made before, lack, and the services.
    Errors: as `units.load`."""
    tables = _unfinished.get() or []
    kernels = [call.kernel for call in calls]
    kernels += [kernel for table in tables for _, kernel in table.missing]
    units.load_with_services([k for k in dict.fromkeys(kernels) if isinstance(k, Source)])
    for table in tables:
        for i, kernel in table.missing:
            table[i] = _address(kernel)
    tables.clear()


def native_run(calls: Sequence[Call], threads: int) -> Run:
    """A function of the moving arrays that makes the calls in order, on up to `threads` threads.

    Its arguments must be accepted by `unusable`. It keeps alive what it uses, and serves one call
    at a time.
    """
    words, kept = _table(calls, _address)
    return _bound(executor().run, [threads, 0, *words], kept)


def note_times(run: Any, stamps: Array) -> None:
    """Make a native run store the time at which each of its calls ended, in nanoseconds of
    CLOCK_MONOTONIC, in this array of int64, which the caller keeps alive."""
    run.__self__[1] = stamps.__array_interface__["data"][0]


Spec = tuple[tuple[int, ...], DType]


def unusable(specs: Sequence[Spec]) -> Run:
    """A function that returns 0 for arrays of these shapes and dtypes, aligned and in row-major
    order, which kernels read in place, and 1 for any others."""
    words = [w for shape, dtype in specs for w in (id(dtype), len(shape), *shape)]
    return _bound(executor().unusable, words, [dtype for _, dtype in specs])


def made_usable(specs: Sequence[Spec], *arrays: Any) -> list[Array]:
    """Copies that kernels can read; ValueError for another shape."""
    return [_copied(*spec, array) for spec, array in zip(specs, arrays, strict=True)]


def _copied(shape: tuple[int, ...], dtype: DType, array: Any) -> Array:
    if np.shape(array) != shape:
        raise ValueError(f"a program got an array of shape {np.shape(array)}; it takes {shape}")
    copied = np.empty(shape, dtype)
    copied[...] = array
    return copied


def in_slots(example: object, array: object, kind: object) -> bool:
    """True where C finds an array of the host and its kind in objects as this one: they are the two
    words behind its head. False where the executor would have to be compiled first."""
    try:
        with units.cached_only():
            executor()
    except (units.NotCached, CompileError, DeviceError):
        return False
    if type(example).__basicsize__ < object.__basicsize__ + 16:
        return False
    slots = (ctypes.c_void_p * 2).from_address(id(example) + object.__basicsize__)
    return [*slots] == [id(array), id(kind)]


def unwrapping(cls: type, kinds: Sequence[object]) -> Callable[..., Any]:
    """A function from objects of a class, which are `in_slots`, to a tuple of their arrays; to None
    for others than of this class and these kinds."""
    words = [id(cls), len(kinds), *map(id, kinds)]
    return _bound(executor().unwrapped, words, (cls, *kinds))


def wrapping(cls: type, kinds: Sequence[object]) -> Callable[..., Any]:
    """A function from arrays, to which nobody writes any more, to a tuple of such objects."""
    words = [id(cls), len(kinds), *map(id, kinds)]
    return _bound(executor().wrapped, words, (cls, *kinds))


_new = ctypes.pythonapi.PyCFunction_NewEx
_new.argtypes, _new.restype = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p), ctypes.py_object


def _bound(method: int, words: Sequence[int], kept: Sequence[object]) -> Callable[..., Any]:
    """The function of native.c that has this table."""
    function: Callable[..., Any] = _new(method, _owning(words, kept), None)
    return function


class _Table(np.ndarray[Any, Any]):
    """The words of a function's table, and the objects that must live as long. missing: the words
    that will be addresses of kernels."""

    kept: Sequence[object]
    missing: Sequence[tuple[int, Source | Own]]


_unfinished: Scoped[list[_Table]] = Scoped("miniml_unfinished")


class _Missing(int):
    """The address of a kernel that is compiled later: 0 for now."""

    kernel: Source | Own


def _owning(words: Sequence[int], kept: Sequence[object]) -> _Table:
    table = np.array(words, np.int64).view(_Table)
    table.kept = kept
    tables = _unfinished.get()
    if tables is not None:
        table.missing = [(i, w.kernel) for i, w in enumerate(words) if isinstance(w, _Missing)]
        tables.append(table)
    return table


def _address(kernel: Source | Own) -> int:
    if not isinstance(kernel, Source):
        address: int = getattr(executor(), kernel)
        return address
    (function,) = units.load([kernel])
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


def _address_then(kernel: Source | Own) -> int:
    """The address that a kernel has when the tables that are being made are finished."""
    if _unfinished.get() is None:
        return _address(kernel)
    missing = _Missing()
    missing.kernel = kernel
    return missing


def _table(
    calls: Sequence[Call], address: Callable[[Source | Own], int] = _address_then
) -> tuple[list[int], list[Array]]:
    """The words of a table of calls, in the order that `run_calls` in text/native.c says, and the
    arrays that must live as long."""
    operands = [operand for call in calls for operand in call.operands]
    fixed = [o for o in operands if not isinstance(o, Moving)]
    moving = [(o.argument, o.offset, i) for i, o in enumerate(operands) if isinstance(o, Moving)]
    known = dict(zip(map(id, fixed), addresses_of(fixed), strict=True))
    begins = np.cumsum([0, *(len(call.operands) for call in calls)])
    words = [len(calls), len(moving), 4 + 2 * len(calls) + 3 * len(moving)]
    words.append(any(call.stops for call in calls))
    for call, begin in zip(calls, begins, strict=False):
        words += [address(call.kernel), int(begin)]
    words += [word for move in moving for word in move]
    words += [known.get(id(operand), 0) for operand in operands]
    return words, fixed


def copy(target: Array | Moving, source: Array | Moving, like: Array) -> Call:
    """A copy to memory in row-major order from memory with the strides of `like`; a kernel of its
    own, unless all elements lie side by side."""
    nbytes, extents, strides = _elements(like)
    if (len(extents), *strides) == (1, nbytes):
        return Call("copy", (source, target, np.array([like.nbytes], np.int64)))
    about = np.array([nbytes, len(extents), *extents, *strides], np.int64)
    return Call(_strided_copy(nbytes), (source, target, about))


_COPIES = units.template("text/copies.c")
_OF_SIZE = {
    1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t", 16: "struct { uint64_t low, high; }",
}  # fmt: skip


@lru_cache
def _strided_copy(nbytes: int) -> Source:
    """The C of copies from any strides of elements of 1, 2, 4, 8 or 16 bytes."""
    text = _COPIES.replace("KERNEL_T", _OF_SIZE[nbytes]).replace("KERNEL_BYTES", str(nbytes))
    return units.quickly(text)


def _elements(like: Array) -> tuple[int, list[int], list[int]]:
    """The bytes of the elements of a copy, their extents and strides: few that lie side by side are
    one larger element."""
    extents, strides = neighbours(like)
    row = extents[-1] * like.itemsize
    if len(extents) > 1 and strides[-1] == like.itemsize and row in _OF_SIZE:
        return row, extents[:-1], strides[:-1]
    return like.itemsize, extents, strides


def neighbours(array: Array) -> tuple[list[int], list[int]]:
    """Extents and strides in bytes, of an axis at least; neighbours with one stride are merged."""
    if array.size == 1:
        return [1], [array.itemsize]
    axes = merged(array.shape, [array.strides])
    return [extent for extent, _ in axes], [stride for _, (stride,) in axes]


# --- Loops ----------------------------------------------------------------------------------------


class Argument(NamedTuple):
    """An argument of a loop's steps: memory in an operand of the loop, `offset` bytes from its
    start; at each step, or at each second one, `stride` bytes further."""

    operand: int
    offset: int = 0
    stride: int = 0
    alternates: bool = False


class Carried(NamedTuple):
    """A value carried by a loop: the argument in which a step leaves the next one, the operand
    that receives the last one, and its size."""

    after: int
    last: int
    nbytes: int


PAYS = 4  # steps from which on packing pays: it takes as long as a quarter of one product
_FOREVER = 2**63 - 1


class Condition(NamedTuple):
    """Calls before each step that compute whether it is made: the argument that holds it then."""

    calls: Sequence[Call]
    flag: int


def loop(
    steps: int | None,
    calls: Sequence[Call],
    arguments: Sequence[Argument],
    carried: Sequence[Carried],
    operands: tuple[Array | Moving, ...],
    note: Callable[[BaseException, int], None],
    condition: Condition | None = None,
    lasting: Positions = (),
) -> list[Call]:
    """All steps of a loop, each of which makes the calls; None steps: as long as a condition holds.

    Moving operands of the calls are positions in `arguments`, which begin with the initial carried
    values. Loop-invariant operands are packed before the loop for kernels that read them faster so.
    note: gets an error that leaves the loop, and its step. With a condition the loop lets handlers
    of signals run, which may raise. lasting: as of `NativeKernel.calls_on`.
    """
    same = {i: a.operand for i, a in enumerate(arguments) if not a.stride}
    fixed = {i: operand for i, operand in same.items() if i >= len(carried)}
    many = steps is None or steps >= PAYS
    before, calls = _packed(calls, operands, fixed, lasting, many)
    words, kept = _table(calls)
    about = [word for value in carried for word in value]
    for operand, offset, stride, alternates in arguments:
        about += [operand, offset, stride, 1 if alternates else -1]
    tested, held = ([], []) if condition is None else _table(condition.calls)
    head = [
        _FOREVER if steps is None else steps, len(carried), len(arguments),
        -1 if condition is None else condition.flag, id(note), 6 + len(about) + len(words),
    ]  # fmt: skip
    table = _owning([*head, *about, *words, *tested], (note, *kept, *held))
    stops = condition is not None or any(call.stops for call in calls)
    return [*before, Call("loop", (table, *operands), stops=stops)]


def _packed(
    calls: Sequence[Call],
    operands: Operands,
    fixed: Mapping[int, int],
    lasting: Positions,
    many: bool,
) -> tuple[list[Call], list[Call]]:
    """The calls that pack loop-invariant arguments, and the loop's calls on packed operands. fixed:
    the operands that these arguments are."""
    before: dict[tuple[int, Source], Call] = {}
    after: list[Call] = []
    for call in calls:
        packing = None if call.packing is None else call.packing()
        operand = None if packing is None else call.operands[packing.keeps.operand]
        whole = operand.argument if isinstance(operand, Moving) and not operand.offset else None
        of = None if whole is None else fixed.get(whole)
        lasts = packing is not None and packing.pays[1] and of in lasting
        if packing is None or of is None or not (lasts or (many and packing.pays[0])):
            after.append(call)
            continue
        if (key := (of, packing.pack)) not in before:
            held = packing.keeps.held(of, 0 if lasts else 1)
            given = operands[of], held.words, held.room
            before[key] = Call(packing.pack, given, held=held if lasts else None)
        after.append(Call(packing.kernel, (*call.operands, before[key].operands[1])))
    return [*before.values()], after


# --- Branches and calls back into Python ----------------------------------------------------------


class Branch(NamedTuple):
    """The calls of one branch. arguments: the operand that each of their arguments is."""

    calls: Sequence[Call]
    arguments: Sequence[int]


def branch(
    on_true: Branch, on_false: Branch, chosen: Array | Moving, operands: tuple[Array | Moving, ...]
) -> Call:
    """The calls of one of two branches, by the bool `chosen`; operand 0 is the first after it."""
    tables = [_table(b.calls) for b in (on_true, on_false)]
    parts = [
        [len(b.arguments), *(1 + i for i in b.arguments), *words]
        for b, (words, _) in zip((on_true, on_false), tables, strict=True)
    ]
    kept = [array for _, arrays in tables for array in arrays]
    table = _owning([2, 2 + len(parts[0]), *parts[0], *parts[1]], kept)
    stops = any(call.stops for b in (on_true, on_false) for call in b.calls)
    return Call("branch", (table, chosen, *operands), stops=stops)


def shown(like: Array, writeable: bool) -> Array:
    """An array of the shape, strides and dtype of `like` that owns no memory: `call_back` lets it
    show an operand."""
    array = np.lib.stride_tricks.as_strided(np.empty(1, like.dtype), like.shape, like.strides)
    if not writeable:
        array.flags.writeable = False
    return array


def call_back(
    function: Callable[[], object], moving: Sequence[tuple[Array, Array | Moving]]
) -> Call:
    """A call of a Python function, with the GIL. moving: arrays made by `shown`, which the function
    reads and fills, and the operands that they show."""
    arrays = [array for array, _ in moving]
    table = _owning([id(function), len(arrays), *map(id, arrays)], (function, *arrays))
    return Call("call_back", (table, *(operand for _, operand in moving)), stops=True)


_INT64 = range(-(2**63), 2**63)


def copy_bounded(
    target: Array | Moving,
    source: Array | Moving,
    like: Array,
    bounds: tuple[int, int, int | None],
    otherwise: Call,
) -> Call:
    """A copy of integers as those of `like`, in row-major order; if one is not in bounds, the call
    back into Python instead, which raises an error or makes the copy. bounds: the least integer,
    the end, and one that is taken besides."""
    least, end, besides = bounds
    besides = least if besides is None else besides
    if least >= end or not all(bound in _INT64 for bound in (least, end, besides)):
        return otherwise
    called, *moving = otherwise.operands
    assert isinstance(called, np.ndarray)
    bytes_ = -like.itemsize if like.dtype.kind == "u" else like.itemsize
    table = _owning([like.size, bytes_, least, end, besides, *called.tolist()], (called,))
    return Call("copy_bounded", (table, source, target, *moving), stops=True)


_NOT_KEPT = np.zeros(2, np.int64)


# --- Kernels that the executor calls without Python -----------------------------------------------


class NativeKernel(Kernel):
    """A kernel whose `prepare` sets `source`; the inputs it gets are in row-major order, or have
    the strides of the node.

    The executor calls the C function itself, for a run of native kernels at once; `launch` calls it
    alone, on at most `threads` threads, 0 for all. strided: the answer of `bakes` for every input.
    native: False for one that only `launch` can run. stops: its calls may raise. called_back:
    operations for which its calls go back into Python. packing: as of a Call. own: arrays that its
    C gets after the workspace, for whatever differs between kernels that are to share one text.
    keeps: the first of these says whether it keeps an input. for_sizes: its C serves other sizes.
    """

    strided: ClassVar[bool] = False
    native: bool = True
    stops: bool = False
    called_back: Sequence[str] = ()
    source: Source | None = None
    packing: Callable[[], Packing | None] | None = None
    own: Arrays = ()
    keeps: Keeping | None = None
    for_sizes: bool = False
    threads: int = 0

    @classmethod
    def bakes(cls, attrs: Mapping[str, Any], index: int, strides: tuple[int, ...]) -> bool:
        """True where `source` has the strides of this input, in elements, as numbers."""
        return cls.strided

    @property
    def slots(self) -> int:
        """The number of addresses that its C gets."""
        arrays = self.node.inputs, self.node.outputs, self.workspace(), self.own
        return sum(map(len, arrays))

    def keep(self, operand: int, nbytes: int) -> None:
        """Have C that may keep an input; it does not, unless an executor says so."""
        self.keeps, self.own = Keeping(operand, nbytes), (_NOT_KEPT,)

    def take_numbers(self, source: Source, numbers: Array) -> None:
        """Have C that finds numbers in an array after all others, where it had constants; so
        kernels with other numbers have it, too."""
        self.source, self.own, self.packing = source, (*self.own, numbers), None

    def avoid(self, features: tuple[str, ...]) -> None:
        """Have its C compiled without these features of the processor."""
        if self.source is not None:
            self.source = self.source._replace(without=features)
        if self.packing is not None:
            self.packing = partial(_packing_without, self.packing, features)

    def calls_on(self, operands: Operands, lasting: Positions = ()) -> list[Call]:
        """The calls on these inputs, outputs and workspace, with other memory for each caller.
        lasting: inputs that stay the same from one run to the next, unless words say otherwise."""
        assert self.source is not None
        packing = self.packing() if lasting and self.packing is not None else None
        keeps = self.keeps if packing is None else packing.keeps if packing.pays[1] else None
        if keeps is None or keeps.operand not in lasting:
            return [Call(self.source, (*operands, *self.own), self.packing)]
        held = keeps.held(keeps.operand)
        if packing is None:
            return [Call(self.source, (*operands, held.words, *self.own[1:]), held=held)]
        pack = Call(packing.pack, (operands[held.operand], held.words), held=held)
        return [pack, Call(packing.kernel, (*operands, held.words))]

    def launch(self, inputs: Arrays, workspace: Arrays, outputs: Arrays, stream: Any) -> None:
        assert self.source is not None
        operands = (*inputs, *outputs, *workspace, *self.own)
        if self.threads:
            native_run([Call(self.source, operands)], self.threads)()
        else:
            run(self.source, operands)

    def loaded(self, threads: int) -> bool:
        """True once its C, for all but small extents, is there, to be launched on up to so many
        threads; False where there is none, and where the compiler fails, with a warning."""
        if self.source is None or not NUMBERED.search(self.source.text):
            return False
        of, keys = form(self.source), list[Numbers]()
        for i, n in enumerate(of.numbers):
            varies = n[-1] == "L" and (int(n[:-1]) > _FEW or i in of.counts)
            keys.append((str(i), n[:-1]) if varies else ())
        self.take_numbers(*general(self.source, keys, self.slots))
        self.threads = threads
        try:
            units.load_with_services([self.source])
        except (CompileError, DeviceError) as error:
            units.warn_without(error)
            return False
        return True


def _packing_without(
    packing: Callable[[], Packing | None], features: tuple[str, ...]
) -> Packing | None:
    made = packing()
    if made is None:
        return None
    kernel, pack = (source._replace(without=features) for source in (made.kernel, made.pack))
    return made._replace(kernel=kernel, pack=pack)


# --- Texts for several sizes ----------------------------------------------------------------------

# The programs of one function for other sizes have, kernel by kernel, texts that differ in numbers
# alone: extents, strides, counts of parts. The first programs hold all of them as constants, which
# compilers turn into the fastest code. From then on a kernel has a text with variables in place of
# the numbers that differed, whose values lie in an array beside its operands; so that further sizes
# find it compiled.

Numbers = tuple[str, ...]


class Form(NamedTuple):
    """A kernel's text without its numbers, and these. counts: the positions of counts of parts,
    which change at some sizes only. key: equal for equal forms."""

    between: tuple[str, ...]
    numbers: Numbers
    counts: frozenset[int]
    key: str


# Where C asks for constants they stay. Texts write sizes with the suffix L.
_SIZE, _FLOAT = r"\d+L", r"0x[\da-f.]+p[+-]?\d+f?|\d+\.\d*f?"
_NUMBER = re.compile(
    rf"^(?:static const|typedef|enum|#if|#pragma) .*|(?<![\w.])({_SIZE}|{_FLOAT})(?![\w.])",
    re.MULTILINE,
)
_COUNT = re.compile(
    r"(?:#define \w+_(?:PARTS|BLOCKS|SLICES|SPLITS|CUTS|THREADS)|at,|first \+|part \*) $"
)


@lru_cache(maxsize=1024)
def form(source: Source) -> Form:
    """The form of a kernel's text."""
    found = [m for m in _NUMBER.finditer(source.text) if m[1]]
    ends = [0, *(m.end() for m in found)]
    begins = [*(m.start() for m in found), len(source.text)]
    between = tuple(source.text[end:begin] for end, begin in zip(ends, begins))
    counts = frozenset(i for i, text in enumerate(between) if _COUNT.search(text))
    key = sha256("\0".join((*source.without, *source.shared, *between)).encode()).hexdigest()
    return Form(between, tuple(m[1] for m in found), counts, key)


class Texts:
    """The kernels in C of a function's programs, one program after another.

    exact: sizes for which kernels hold all their numbers as constants.
    """

    def __init__(self, exact: int):
        self.exact = exact
        self._sizes: list[object] = []  # of the first programs
        self._programs: list[dict[str, list[Numbers]]] = []  # of the kernels of each form, in order
        self._waiting: list[tuple[dict[str, list[Numbers]], Source]] = []  # nothing needs them yet

    @property
    def shared(self) -> bool:
        """True if the last program is for one more size than those with constants."""
        return len(self._sizes) > self.exact

    def program(self, size: object) -> Block[Texts]:
        """A block in which one more program is made, for arguments of some size."""
        return _texts.use(lambda: self._begun(size))

    def _begun(self, size: object) -> Texts:
        if not self.shared and size not in self._sizes:
            self._sizes.append(size)
        self._programs = [*self._programs[1 - _COMPARED :], {}]
        return self

    def note(self, sources: Iterable[Source]) -> None:
        """Note the next kernels of the last program."""
        self._waiting += [(self._programs[-1], source) for source in sources]

    def likes(self, source: Source) -> list[Numbers]:
        """The numbers of the kernel in each program that is the same in other sizes; those of
        `source`, the next of the last program, at the end."""
        self.note([source])
        for program, noted in self._waiting:
            program.setdefault(form(noted).key, []).append(form(noted).numbers)
        self._waiting.clear()
        key, now = form(source).key, self._programs[-1]
        index = len(now[key]) - 1
        return [p[key][index] for p in self._programs if len(p.get(key, ())) > index]


_texts: Scoped[Texts] = Scoped("miniml_texts")


def share_texts(kernels: Sequence[NativeKernel]) -> None:
    """Give kernels the texts of those that programs for other sizes have in their places; they are
    in the order of their program's nodes."""
    texts = _texts.get()
    written = {k: k.source for k in kernels if k.source is not None}
    if texts is None or not texts.shared:
        if texts is not None:
            texts.note(written.values())
        _share_among(written)
        return
    likes = {k: texts.likes(source) for k, source in written.items()}
    plain = {k: [[n.rstrip("L") for n in row] for row in rows] for k, rows in likes.items()}
    columns = {k: [*zip(*rows)] for k, rows in plain.items()}
    differing = {c[-1] for of in columns.values() for c in of if len({*c}) > 1}
    common = {number for number in differing if number.isdigit() and int(number) > _FEW}
    for kernel, of in columns.items():
        # What a kernel without likes has in common with others is taken to vary as it does there.
        alone = len(likes[kernel]) == 1
        vary = [len({*c}) > 1 or (alone and c[0] in common) for c in of]
        assert kernel.source is not None
        if any(vary) and NUMBERED.search(kernel.source.text):
            counts = form(kernel.source).counts
            keys = [
                (str(i), c[-1]) if i in counts else c if vary[i] else () for i, c in enumerate(of)
            ]
            kernel.take_numbers(*general(kernel.source, keys, kernel.slots))
            kernel.for_sizes = True


def _share_among(written: Mapping[NativeKernel, Source]) -> None:
    """Give kernels of one program that compute arrays of equal shapes, as the steps of an unrolled
    loop do of other slices, one text, if there are several that differ in numbers alone."""
    alike: dict[object, list[NativeKernel]] = {}
    for kernel, source in written.items():
        if kernel.packing is None and NUMBERED.search(source.text):
            node = kernel.node
            alike.setdefault((node.name, node.inputs, node.outputs), []).append(kernel)
    for kernels in alike.values():
        if len({written[k].text for k in kernels}) < _ALIKE:
            continue
        forms: dict[str, list[NativeKernel]] = {}
        for kernel in kernels:
            forms.setdefault(form(written[kernel]).key, []).append(kernel)
        for same in forms.values():
            rows = [[n.rstrip("L") for n in form(written[k]).numbers] for k in same]
            columns = [*zip(*rows)]
            for kernel, own in zip(same, rows):
                keys = [(*c, n) if len({*c}) > 1 else () for c, n in zip(columns, own)]
                if any(keys) and len(same) >= _ALIKE:
                    source, numbers = general(written[kernel], keys, kernel.slots)
                    kept = written[kernel]
                    kernel.take_numbers(source._replace(room=kept.room, wide=kept.wide), numbers)


_ALIKE = 3  # texts of one program from which on to compile one of them takes less time
_COMPARED = 64  # programs, of which each keeps some 30 KB
_FEW = 16  # numbers up to which a kernel for them alone may be much faster


def general(source: Source, keys: Sequence[Numbers], slot: int) -> tuple[Source, Array]:
    """The text with variables in place of numbers, and the array of their values, at[slot].

    keys: for each number those of all kernels of the form, its own at the end, and () for one that
    stays a constant; numbers with equal keys have one variable.
    """
    found, text = form(source), ""
    names: dict[Numbers, str] = {}
    for before, number, key in zip(found.between, found.numbers, keys):
        text += before + (names.setdefault(key, f"{KERNEL}_{len(names)}") if key else number)
    numbers = [key[-1] for key in names]
    declared = [*_declared(numbers, slot)]
    text = NUMBERED.sub(lambda m: "".join(declared).replace("AT", m[1]), text + found.between[-1])
    values = np.array([*map(_bits, numbers)], np.int64)
    return source._replace(text=f"#define {KERNEL}_VARIES\n{text}", room=0, wide=0), values


def _declared(numbers: Sequence[str], slot: int) -> Iterator[str]:
    """The variables that hold the numbers."""
    for i, number in enumerate(numbers):
        c = "long" if number.isdigit() else "float" if number[-1] == "f" else "double"
        array = "int64_t" if c == "long" else "double"
        yield f"  const {c} {KERNEL}_{i} = ((const {array} *)(AT)[{slot}])[{i}];\n"


def _bits(number: str) -> int:
    """The eight bytes of a number, as those of an integer."""
    if number.isdigit():
        return int(number)
    value = number.removesuffix("f")
    parsed = float.fromhex(value) if value.startswith("0x") else float(value)
    return int(np.float64(parsed).view(np.int64))
