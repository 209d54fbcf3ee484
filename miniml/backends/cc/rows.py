"""Code generation in C for row programs: loops that compilers vectorise, split over threads.

Loops are the code around the rows and the statements in them; they are vectorised along the row, or
across rows where these are short.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple, TypeGuard

from ...core.abstract import HALVES, ArraySpec, DType, float16, is_complex
from ..expressions import (
    Call,
    Gather,
    Keep,
    Literal,
    Load,
    Pass,
    Recall,
    Reduce,
    RowProgram,
    Scalar,
    Statement,
    Store,
    computed,
    operands,
)
from .native import Keeping, Packing
from .scalars import (
    REDUCERS,
    STORED,
    Reducer,
    ScalarFunction,
    accumulator,
    block,
    elementary,
    in_c,
    literal,
    loaded,
    reducer,
    scalar_function,
    stored,
    value_type,
)
from .units import NUMBERS, Source, header


class Printed(NamedTuple):
    """A row program as a native kernel, and the scratch arrays that it needs.

    packing: as of a Call. keeps: as of a NativeKernel.
    """

    source: Source
    workspace: tuple[ArraySpec, ...]
    packing: Callable[[], Packing | None] | None = None
    keeps: Keeping | None = None


def printed(program: RowProgram) -> Printed:
    """The kernel of a row program: its arrays are the inputs, the outputs and the workspace."""
    return (AcrossRows if _across_rows(program) else AlongRows)(program).printed()


FEW = 8  # rows below which it does not pay to vectorise across them
SHORT = 16  # elements of a row that would not fill a vector
_VECTOR = 64  # bytes


def _across_rows(program: RowProgram) -> bool:
    """True where vectors run across rows."""
    short = prod(program.row) <= SHORT
    size, nbytes = prod(program.extents), max(a.dtype.itemsize for a in program.arrays)
    worth = program.reduces or (short and nbytes * prod(program.row) % _VECTOR and _dear(program))
    half = nbytes * prod(program.row) % (_VECTOR // 2) == 0  # vectors by themselves, if not as long
    room = min(_KEPT, 4 * size if short and not half else size // 2)  # partial results of lanes
    if not (program.outer and program.row and worth) or any(
        program.size(s) * _lanes_of(program) > room for s in _shared(program)
    ):
        return False
    if any(program.limited(k) for k in range(_first(program), program.outer)):
        return False  # lanes would be read apart
    streams = {program.along(s) for s in program.statements() if isinstance(s, (Load, Store))}
    wide = [strides for strides in streams if any(strides[program.outer :])]
    # What all rows share stays in the cache, where there are arrays with elements for each row.
    wide = [strides for strides in wide if strides[program.outer - 1]] or wide
    near = sum(strides[-1] == 1 for strides in wide)
    beside = sum(strides[program.outer - 1] == 1 for strides in wide)
    return _lanes_of(program) >= FEW and (beside > near or short)


def _shared(program: RowProgram) -> list[Gather]:
    """The gathers of elements by which rows side by side add to one number."""
    beside = slice(_first(program), program.outer)
    gathers = [s for p in program.passes for s in p.elements if isinstance(s, Gather)]
    return [s for s in gathers if not all(program.along(s)[beside])]


def _first(program: RowProgram) -> int:
    """The outer axis from which on rows lie side by side: the first where none has enough rows."""
    last = program.outer - 1
    return 0 if program.extents[last] < FEW and prod(program.row) <= SHORT else last


_LANES = (64, 32, 16)  # rows side by side: four vectors of float32, or fewer
_KEPT = 1 << 14  # elements that all lanes may keep on a thread's stack


def _lanes_of(program: RowProgram) -> int:
    """The number of rows side by side whose kept elements fit on the stack: whole vectors, and as
    few as that number of strips needs; of few, expensive ones in strips that overlap."""
    kept = prod(program.row) * sum(isinstance(s, Keep) for s in program.statements())
    first = _first(program)
    lanes = _LANES if first == program.outer - 1 else _LANES[-1:]  # where indices are divided
    fitting = [n for n in lanes if n * kept <= _KEPT]
    last = prod(program.extents[first : program.outer])
    whole = range(_LANES[-1], last + 1, _LANES[-1])
    if fitting and whole and last < fitting[0] and _dear(program):
        return -min((-(-last // n) * n, -n) for n in whole)[1]
    strips = -(-last // fitting[0]) if fitting else 0
    return min(last, -(-last // strips // _LANES[-1]) * _LANES[-1]) if strips else 0


# --- Loops ----------------------------------------------------------------------------------------


_LITTLE = 256  # bytes of an array that is always on the stack, where registers may hold it
_BLOCK = 512  # elements whose sum is taken in lanes; block sums are added in a wider type
_PART = 200_000  # statements of elements in a part: some 50 us, below which threads do not pay
_PARTS = 64
_GATHERED = 1024  # rows added one after another in float32, so that their sum stays accurate
_STRIP = 16  # elements that are whole vectors of all types and processors
_ROLLED = 16  # iterations up to which GCC unrolls a loop before it looks for vectors


class Loops(ABC):
    """The code around the loops, and the statements in them.

    Subclasses give the iteration over rows, by the methods at the end: here, one after another.
    """

    lanes = 1  # rows that are computed side by side
    overlaps = False  # whether the last strip of a row begins in the one before
    again = ""  # the condition that an element was computed before, where some are twice
    by_lane: Sequence[Gather] = ()  # those with partial results of each lane

    def __init__(self, program: RowProgram):
        self.program = program
        self.kept = program.row  # the extents of arrays of a row's elements
        self.rows = prod(program.extents[: program.outer])
        self.gathers = program.gathers
        self.reduces = program.reduces
        self.flat = not (self.reduces or self.gathers) and self.rows == 1 and len(program.row) == 1
        # If outputs are read, too: for what a pass before wrote, or since they lie where inputs do.
        last = max((s.array for s in program.statements() if isinstance(s, Load)), default=-1)
        self.rereads = not (self.reduces or self.gathers) or last >= program.inputs
        self.range = program.row[0] if self.flat else self.steps()
        self.parts, self.chunk = self._split()
        self.shared: dict[str, None] = dict.fromkeys((*header("convert"), *header("apart")))
        self.room = 0  # bytes of its arrays there
        self.functions: dict[tuple[Scalar, bool], ScalarFunction] = {}
        read = [v for s in program.statements() for v in operands(s) if not isinstance(s, Store)]
        self.unread = {s.of for s in program.statements() if isinstance(s, Store)} - set(read)

    def _split(self) -> tuple[int, int]:
        """The number of parts, and rows (or elements) of each, whatever the number of threads."""
        size = prod(self.program.extents)
        parts = min(size * sum(1 for _ in self.program.statements()) // _PART, _PARTS)
        if self.gathers:  # partial results are not to be more than what is reduced
            results = max(map(self._gathered, self.gathers))
            parts = min(max(parts, -(-self.rows // _GATHERED)), size // results)
        chunk = -(-self.range // min(max(parts, 1), self.range))
        return -(-self.range // chunk), chunk

    def printed(self) -> Printed:
        """The kernel: the parts, then the sum of what they gathered."""
        sums = [(self.parts * self._gathered(g), computed(self._type(g))) for g in self.gathers]
        specs = tuple(ArraySpec((n,), dtype) for n, dtype in sums)
        call = "  KERNEL_part((void *)at, 0);"
        if self.parts > 1:
            call = f"  miniml.parallel(KERNEL_part, (void *)at, {self.parts}L);"
        begin = [*self._part(), "", "void KERNEL(char *const *at) {", NUMBERS, call]
        text = "\n".join([*begin, *self._finish(), "}", ""])  # and self.shared is complete
        return Printed(Source(text, tuple(self.shared), room=self.room), specs)

    def _part(self) -> Iterator[str]:
        yield "MINIML_STRAIGHT static void KERNEL_part(void *data, long part) {"
        yield "  char *const *at = (char *const *)data;"
        yield NUMBERS
        yield f"  const long first = part * {self.chunk}L;"
        last = f"first + {self.chunk}L"
        if self.range % self.chunk:
            last = f"{last} < {self.range}L ? {last} : {self.range}L"
        yield f"  const long last = {last};"
        yield from self._pointers()
        yield "  {" if self.flat else "  for (long r = first; r < last; ++r) {"
        yield from (f"    {line}" for line in self.body())
        yield "  }"
        yield "}"

    def body(self) -> Iterator[str]:
        """The body of the outer loop."""
        if not self.flat:
            yield from self.indices()
        for s in self.program.statements():
            if isinstance(s, Keep):
                c, count = value_type(self.program.types[s.of]), prod(self.kept) * self.lanes
                yield from self.array(c, f"k{s.of}", count)
        for part in self.program.passes:
            yield from self._each(part) if part.elements else ()
            yield from self.between(part.row)

    def array(self, c: str, name: str, count: int) -> Iterator[str]:
        """An array, on the stack or, if large, in the room that an exported kernel is given."""
        nbytes = count * (4 if c == "float" else 16 if "_Complex" in c else 8)
        alone = f"{c} {name}[{count}L];"
        if nbytes <= _LITTLE:
            yield alone
            return
        yield "#ifdef KERNEL_ROOM_AT"
        yield f"{c} *restrict const {name} = ({c} *)(at[KERNEL_ROOM_AT] + {self.room}L);"
        yield from ("#else", alone, "#endif")
        self.room += -(-nbytes // 64) * 64

    def _each(self, part: Pass) -> Iterator[str]:
        """A pass over the elements: the loops over the row, and what they reduce."""
        reduces = [s for s in part.elements if isinstance(s, Reduce)]
        for s in reduces:
            yield from self.begun(f"{self.total(s)} s{s.value}", s)
        *axes, last = self.program.row or (1,)
        for k, extent in enumerate(axes):
            yield f"{'  ' * k}for (long i{k} = 0; i{k} < {extent}L; ++i{k}) {{"
        yield from (
            "  " * len(axes) + line for line in self.last_axis(part.elements, reduces, last)
        )
        yield from ("  " * k + "}" for k in reversed(range(len(axes))))
        for s in reduces:
            yield from self.ended(s, value_type(self.program.types[s.value]))

    def _pointers(self) -> Iterator[str]:
        """Multi-pass programs promise that no output is an input; others may work in place."""
        alone = "restrict " if self.reduces or self.gathers else ""
        for i, array in enumerate(self.program.arrays):
            c = f"{'const ' * (i < self.program.inputs)}{STORED[array.dtype]} *"
            yield f"  {c}{alone}a{i} = ({c})at[{i}];"
        for g, gather in enumerate(self.gathers):
            c, size = f"{value_type(self._type(gather))} *", self._gathered(gather)
            start = reducer(gather.row, self._type(gather)).identity
            yield f"  {c}restrict w{g} = ({c})at[{len(self.program.arrays) + g}] + part * {size}L;"
            yield f"  for (long i = 0; i < {size}L; ++i) w{g}[i] = {start};"

    def statement(self, s: Statement, each: bool) -> str:
        """A statement, for each element or once for a row."""
        match s:
            case Load(value, array):
                text = loaded(self.program.arrays[array].dtype, self.element(s, each))
                names, cuts = self.names(each), self.program.limits(s)
                inside = [f"{names[k]} >= {b}L && {names[k]} < {e}L" for k, b, e in cuts]
                return self.set(value, f"{' && '.join(inside)} ? {text} : 0" if inside else text)
            case Literal(value, number):
                return self.set(value, literal(number))
            case Call(value, function, args, strides):
                given = [self.name(a) for a in args]
                index = self.index(strides, each) if strides else "0"
                called = self._function(function, value not in self.unread)
                return self.set(value, f"{called}({', '.join([*given, index])})")
            case Store(array, of, _):
                element, dtype = self.element(s, each), self.program.arrays[array].dtype
                number = stored(dtype, self.name(of))
                alone = each if self.lanes == 1 else not (self.reduces or self.gathers)
                if self.again and self.rereads and alone:  # else the row is computed anew
                    number = f"{self.again} ? {element} : {number}"
                return f"{element} = {number};"
            case Gather():
                g = self.gathers.index(s)
                index = self.index(self.program.arrays[s.array].strides, each)
                c, found = value_type(self._type(s)), reducer(s.row, self._type(s))
                element = f"({c})({found.element.replace('x', self.name(s.of))})"
                element = f"{self.once(found) if each else ''}{element}"
                at = f"w{g}[{f'({index}) * {self.lanes}L + l' if s in self.by_lane else index}]"
                return f"const {c} g{g} = {element}; {at} = {found.combine(at, f'g{g}')};"
            case Reduce(value, row, of):
                element = REDUCERS[row].element.replace("x", self.name(of))
                return self.reduced(s, f"({self.lane_type(s)})({element})")
            case Keep(of):
                return f"k{of}[{self.kept_at()}] = {self.name(of)};"
            case Recall(value):
                return self.set(value, f"k{value}[{self.kept_at()}]")
        raise AssertionError(s)

    def element(self, s: Load | Store, each: bool) -> str:
        """The element of an array, of the step or of its row; the nearest one of a part."""
        names = self.names(each)
        for k, begin, end in self.program.limits(s):
            before = f"{names[k]} < {begin}L ? {begin}L"
            names[k] = f"({before} : {names[k]} < {end}L ? {names[k]} : {end - 1}L)"
        index = f"{_index(names, self.program.along(s))} + {s.offset}L"
        return f"a{s.array}[{index.removesuffix(' + 0L')}]"

    def index(self, strides: Sequence[int], each: bool) -> str:
        """The element of an array with these strides."""
        return _index(self.names(each), strides)

    def _function(self, scalar: Scalar, rounded: bool) -> str:
        """The name of a function; what only stores read is rounded to 16 bits by these alone."""
        expression, inputs, out = scalar.expression, scalar.inputs, scalar.out
        if (scalar, rounded) not in self.functions:
            made = str((expression.text, inputs, out, scalar.constants))
            name = f"miniml_{scalar.name}_{hashlib.sha256(made.encode()).hexdigest()[:8]}"
            name += "_late" * (not rounded and out in HALVES)
            constants = dict(scalar.constants)
            function = scalar_function(expression, name, inputs, out, constants, rounded)
            self.functions[scalar, rounded] = function
            self.shared |= dict.fromkeys((*function.shared, function.text))
        return self.functions[scalar, rounded].name

    def numbered(self, extents: Sequence[int], names: Sequence[str] = ()) -> Iterator[str]:
        """The indices of step r of loops over these extents; names: by default o0, o1, ..."""
        for k, n in enumerate(extents):
            step, name = prod(extents[k + 1 :]), names[k] if names else f"o{k}"
            index = f"r / {step}L" if step > 1 else "r"
            yield f"const long {name} = {index}{f' % {n}L' if k else ''};"

    def reducer(self, s: Reduce) -> Reducer:
        """The reduction of a statement."""
        return reducer(s.row, self.program.types[s.value])

    def lane_type(self, s: Reduce) -> str:
        """The type in which single elements are reduced."""
        return value_type(accumulator(s.row, self.program.types[s.value]))

    def total(self, s: Reduce) -> str:
        """The type in which the sums of blocks are added: wider, so that long sums stay exact."""
        c = self.lane_type(s)
        wider = c.replace("double", "long double").replace("float", "double")
        return wider if s.row == "Sum" else c

    def _gathered(self, gather: Gather) -> int:
        """The number of partial results of a part."""
        return self.program.size(gather) * (self.lanes if gather in self.by_lane else 1)

    def _type(self, gather: Gather) -> DType:
        """The dtype in which a gather adds: wider for a single number, which costs nothing."""
        return accumulator(gather.row, gather.dtype, self.program.size(gather) == 1)

    def _finish(self) -> Iterator[str]:
        """Combine the parts of each gathered array, in order."""
        for g, gather in enumerate(self.gathers):
            size, dtype = self.program.size(gather), self._type(gather)
            count = self._gathered(gather) // size
            c, found = value_type(dtype), reducer(gather.row, dtype)
            array = self.program.arrays[gather.array]
            total = "w[i]" if count == 1 else "total"
            divided = f"{total} / {gather.over}L" if gather.over != 1 else total
            if gather.over != 1 and is_complex(dtype):
                divided, needed = in_c(f"cdiv({total}, ({c}){gather.over})", {})
                self.shared |= dict.fromkeys(needed)
            number = f"({value_type(gather.dtype)})({divided})"
            yield "  {"
            yield f"    {c} *restrict w = ({c} *)at[{len(self.program.arrays) + g}];"
            yield f"    {STORED[array.dtype]} *out = ({STORED[array.dtype]} *)at[{gather.array}];"
            if self.parts > 1:
                yield f"    for (long p = 1; p < {self.parts}L; ++p) {{"
                yield "MINIML_APART"
                yield f"      for (long i = 0; i < {size * count}L; ++i) {{"
                yield f"        const {c} b = w[p * {size * count}L + i];"
                yield f"        w[i] = {found.combine('w[i]', 'b')};"
                yield "      }"
                yield "    }"
            yield "MINIML_APART"
            yield f"    for (long i = 0; i < {size}L; ++i) {{"
            if count > 1:
                more = found.combine("total", f"w[i * {count}L + l]")
                yield f"      {c} total = w[i * {count}L];"
                yield f"      for (long l = 1; l < {count}L; ++l) total = {more};"
            yield f"      out[i] = {stored(array.dtype, number)};"
            yield "    }"
            yield "  }"

    # The iteration over rows, which subclasses change.

    def steps(self) -> int:
        """The number of steps of the outer loop."""
        return self.rows

    def indices(self) -> Iterator[str]:
        """The outer axes' indices at the beginning of a step."""
        return self.numbered(self.program.extents[: self.program.outer])

    @abstractmethod
    def last_axis(
        self, elements: Sequence[Statement], reduces: Sequence[Reduce], n: int
    ) -> Iterator[str]:
        """The loop over the last axis of the row, which has `n` elements."""

    def begun(self, total: str, s: Reduce) -> Iterator[str]:
        """A reduction before the first element: `total` declares its partial result."""
        yield f"{total} = {self.reducer(s).identity};"

    def ended(self, s: Reduce, c: str) -> Iterator[str]:
        """A reduction after the last element, as a value of the type `c`."""
        yield f"const {c} v{s.value} = ({c})s{s.value};"

    def between(self, statements: Sequence[Statement]) -> Iterator[str]:
        """The statements that run once for a row."""
        yield from (self.statement(s, False) for s in statements)

    def name(self, value: int) -> str:
        """A value where it is read."""
        return f"v{value}"

    def set(self, value: int, text: str) -> str:
        """A value where it is computed."""
        return f"const {value_type(self.program.types[value])} v{value} = {text};"

    def reduced(self, s: Reduce, element: str) -> str:
        """One more element of a reduction: kept until its block is complete."""
        at = "p + l" if self.overlaps else "i - b"
        return f"t{s.value}[{at}] = {self.once(self.reducer(s))}{element};"

    def names(self, each: bool) -> list[str]:
        """The loops' variables, of the outer axes and perhaps of the row."""
        outer, row = self.program.outer, len(self.program.row)
        names = [f"o{k}" if self.rows > 1 else "0" for k in range(outer)]
        return names + ([*(f"i{k}" for k in range(row - 1)), "i"][:row] if each else [])

    def kept_at(self, last: str = "i") -> str:
        """The index of a kept element; last: along the last axis."""
        last = "(p + l)" if self.overlaps else last
        steps = [prod(self.kept[k + 1 :]) * self.lanes for k in range(len(self.kept))]
        return _index([*self.names(True)[self.program.outer : -1], last], steps)

    def once(self, found: Reducer) -> str:
        """The text before an element that is gathered, where some are computed twice."""
        return found.once(self.again, self.rereads) if self.again else ""


def _index(names: Sequence[str], strides: Sequence[int]) -> str:
    terms = [
        name if stride == 1 else f"{name} * {stride}L"
        for name, stride in zip(names, strides, strict=False)
        if stride and name != "0"
    ]
    return " + ".join(terms) or "0"


# --- Vectorised along the row ---------------------------------------------------------------------


class AlongRows(Loops):
    """Row after row, with vectors along each.

    Runs of float16 are converted by blocks, for which processors have instructions. Of a row that
    is no whole number of vectors, the last one begins before the first element that remains, so
    that no element is computed alone.
    """

    def __init__(self, program: RowProgram):
        self.halves: dict[Load | Store, str] = {}  # where the elements of a block are as floats
        super().__init__(program)
        *before, n = program.row or (1,)
        # Of complex numbers a strip is partly scalar code, as GCC does not read past its end.
        plain = not any(map(is_complex, program.types)) and not program.limited(-1)
        long = plain and bool(self.reduces or self.gathers or _dear(program))
        self.overlaps = long and not self.flat and _STRIP < n <= _BLOCK and n % _STRIP > 0
        if self.overlaps:
            self.kept, self.again = (*before, -(-n // _STRIP) * _STRIP), "i < p"
        # A part of the last axis, in which what is read of this lies in whole or not at all.
        self.segment = 0, n

    def last_axis(
        self, elements: Sequence[Statement], reduces: Sequence[Reduce], n: int
    ) -> Iterator[str]:
        self.halves = {s: f"h{k}" for k, s in enumerate(filter(self._is_run, elements))}
        if reduces:
            return self._blocks(elements, reduces, n)
        first, last = ("first", "last") if self.flat else ("0", f"{n}L")
        return (self._converted if self.halves else self._loop)(elements, first, last)

    def _is_run(self, s: Statement) -> TypeGuard[Load | Store]:
        """True for elements of float16 that lie side by side."""
        if not isinstance(s, (Load, Store)) or self.program.arrays[s.array].dtype != float16:
            return False
        return bool(self.program.row) and self.program.along(s)[-1] == 1

    def _converted(self, elements: Sequence[Statement], first: str, last: str) -> Iterator[str]:
        """The loop in blocks, whose float16 are converted before and after it."""
        yield f"for (long b = {first}; b < {last}; b += {_BLOCK}) {{"
        yield f"  const long m = {last} - b < {_BLOCK} ? {last} - b : {_BLOCK};"
        yield from (f"  {line}" for line in self._between(elements, _BLOCK))
        yield "}"

    def _between(self, elements: Sequence[Statement], size: int) -> Iterator[str]:
        """The loop over a block, between the conversions of its float16."""
        for name in self.halves.values():
            yield from self.array("float", name, size)
        for s, name in self.halves.items():
            if isinstance(s, Load):
                yield f"miniml_load_halves({name}, {self._first(s)}, m);"
        yield from self._loop(elements, "b", "b + m")
        for s, name in self.halves.items():
            if isinstance(s, Store):
                yield f"miniml_store_halves({self._first(s)}, {name}, m);"

    def _first(self, s: Load | Store) -> str:
        """The address of a block's first element."""
        return (
            f"a{s.array} + b + {s.offset}L + {self.index((*self.program.along(s)[:-1], 0), True)}"
        )

    def statement(self, s: Statement, each: bool) -> str:
        if each and isinstance(s, Load) and s.bounds:
            begin, end = s.bounds[-1]
            if not begin <= self.segment[0] < self.segment[1] <= end:
                return self.set(s.value, "0")
            s = s._replace(bounds=(*s.bounds[:-1], (0, self.program.row[-1])))
        if each and isinstance(s, Load) and s in self.halves:
            return self.set(s.value, f"{self.halves[s]}[i - b]")
        if each and isinstance(s, Store) and s in self.halves:
            return f"{self.halves[s]}[i - b] = {self.name(s.of)};"
        return super().statement(s, each)

    def _loop(self, elements: Sequence[Statement], first: str, last: str) -> Iterator[str]:
        """The loop, or one for each segment."""
        parts = [s.bounds[-1] for s in elements if isinstance(s, Load) and s.bounds]
        for segment in pairwise(sorted({0, (self.program.row or (1,))[-1]}.union(*parts))):
            self.segment, (begin, end) = segment, (f"{n}L" for n in segment)
            cut = f"({first} > {begin} ? {first} : {begin})", f"({last} < {end} ? {last} : {end})"
            yield from self._along(elements, *(cut if parts else (first, last)))

    def _along(self, elements: Sequence[Statement], first: str, last: str) -> Iterator[str]:
        if self.overlaps:
            n = f"{self.program.row[-1]}L"
            yield f"for (long p = 0; p < {n}; p += {_STRIP}) {{"
            yield f"  const long c = p < {n} - {_STRIP} ? p : {n} - {_STRIP};"
            yield "  MINIML_APART MINIML_ROLLED"
            yield f"  for (long l = 0; l < {_STRIP}; ++l) {{"
            yield "    const long i = c + l;"
        else:
            yield "MINIML_APART" if last in {"1L", "2L"} else "MINIML_APART MINIML_ROLLED"
            yield f"for (long i = {first}; i < {last}; ++i) {{"
        yield from (f"    {self.statement(s, True)}" for s in elements)
        yield "}" * (1 + self.overlaps)

    def _blocks(
        self, elements: Sequence[Statement], reduces: Sequence[Reduce], n: int
    ) -> Iterator[str]:
        """The elements of a block side by side in memory, then their sums. Products and extrema of
        elements that are there already need no blocks."""
        in_memory = {s: load for s in reduces if (load := self._in_memory(s, elements))}
        rest = [s for s in elements if s not in in_memory]
        moved = any(s.row == "Sum" for s in reduces) or not all(isinstance(s, Load) for s in rest)
        size = min(n, _BLOCK) if moved else n
        yield f"for (long b = 0; b < {n}L; b += {size}L) {{"
        short = f"{n}L - b < {size}L ? {n}L - b : {size}L"
        yield f"  const long m = {short if n % size else f'{size}L'};"
        made, count = (self.kept[-1], f"{self.kept[-1]}L") if self.overlaps else (size, "m")
        for s in [s for s in reduces if s not in in_memory]:
            yield from self.array(self.lane_type(s), f"t{s.value}", made)
        if not all(isinstance(s, Load) for s in rest):
            yield from (f"  {line}" for line in self._between(rest, size))
        for s in reduces:
            name, load = f"s{s.value}", in_memory.get(s)
            at = self._first(load) if load else f"t{s.value}"
            of = STORED[self.program.arrays[load.array].dtype] if load else self.lane_type(s)
            function, text = block(s.row, accumulator(s.row, self.program.types[s.value]), size, of)
            self.shared[text], number = None, "m" if load else count
            yield f"  const {self.total(s)} b{s.value} = {function}({at}, {number});"
            yield f"  {name} = {self.reducer(s).combine(name, f'b{s.value}')};"
        yield "}"

    def _in_memory(self, s: Reduce, elements: Sequence[Statement]) -> Load | None:
        """The load of elements that are reduced as they lie in memory."""
        made = next((e for e in elements if isinstance(e, Load) and e.value == s.of), None)
        if made is None or reducer(s.row, self.program.types[s.of]).element != "x":
            return None
        read = self.program.arrays[made.array].dtype not in HALVES and not made.bounds
        return made if read and self.program.along(made)[-1] == 1 else None


# --- Vectorised across rows -----------------------------------------------------------------------


class AcrossRows(Loops):
    """Many rows side by side, one in each lane, by strip-mining their last outer axis, or all.

    For rows that are short, or whose elements are far apart while those of neighbouring rows are
    not. The last strip begins before the first row that remains, so that its lanes are full. Of few
    rows, several elements lie side by side, each with partial results of its own: their lanes are
    those of the rows, again and again.
    """

    def __init__(self, program: RowProgram):
        self.first = _first(program)
        self.last = prod(program.extents[self.first : program.outer])
        self.lanes = _lanes_of(program)
        self.by_lane = _shared(program)
        found = [s for s in program.statements() if isinstance(s, Reduce)]
        rows = [s for p in program.passes for s in p.row if isinstance(s, (Load, Call, Literal))]
        self.by_row = {s.value for s in (*found, *rows)}  # the values of rows as a whole
        self.apart = _apart(program)
        self.beside = self._beside(program)
        super().__init__(program)
        self.again = f"l < strip * {self.lanes}L - c" * (self.last % self.lanes > 0)

    def _beside(self, program: RowProgram) -> int:
        """The number of elements of a long row that lie beside those of the other, few lanes."""
        apart = self.by_lane or self.first < program.outer - 1 or program.limited(-1)
        if apart or self.last % self.lanes or self.lanes > _ROLLED:
            return 1
        steps = [s.strides for s in program.statements() if isinstance(s, Call) and s.strides]
        elements = [s for p in program.passes for s in p.elements]
        steps += [program.along(s) for s in elements if isinstance(s, (Load, Store, Gather))]
        if any(s[-1] != self.lanes * s[program.outer - 1] for s in steps):
            return 1
        return max(min(_LANES[0] // self.lanes, program.row[-1] // 4), 1)

    def steps(self) -> int:
        return self.rows // self.last * -(-self.last // self.lanes)

    def _split(self) -> tuple[int, int]:
        """Two strips that share rows are of one part where these read what they have written."""
        (_, chunk), strips = super()._split(), -(-self.last // self.lanes)
        shared = self.last % self.lanes and self.rereads
        while shared and any((b + 1) % strips == 0 for b in range(chunk, self.range, chunk)):
            chunk += 1
        return -(-self.range // chunk), chunk

    def indices(self) -> Iterator[str]:
        before = self.program.extents[: self.first]
        names = [*(f"o{k}" for k in range(len(before))), "strip"]
        yield from self.numbered((*before, -(-self.last // self.lanes)), names)
        begin, rest = f"strip * {self.lanes}L", f"{self.last - self.lanes}L"
        yield f"const long c = {begin} < {rest} ? {begin} : {rest};"
        for value in sorted(self.by_row):
            yield f"{value_type(self.program.types[value])} v{value}[{self.lanes * self.beside}L];"
        for s, name in self.apart.items():
            count = prod(self.program.row) * self.lanes
            yield from self.array(STORED[self.program.arrays[s.array].dtype], name, count)
        yield from self._moved(Load)

    def body(self) -> Iterator[str]:
        yield from super().body()
        yield from self._moved(Store)

    def _moved(self, kind: type[Load | Store]) -> Iterator[str]:
        """The elements of each row that are apart from those of its neighbours are moved to where
        they lie beside them before the passes, or from there after them."""
        row, begin = self.program.row, f"strip * {self.lanes}L - c" if kind is Store else 0
        names = [*(f"i{k}" for k in range(len(row) - 1)), "i"]
        for s, name in self.apart.items():
            if isinstance(s, kind):
                yield f"for (long l = {begin}; l < {self.lanes}L; ++l)"
                for i, n in zip(names, row, strict=True):
                    yield f"  for (long {i} = 0; {i} < {n}L; ++{i})"
                beside, far = f"{name}[{self.kept_at()}]", self.element(s, True)
                yield f"    {beside} = {far};" if kind is Load else f"    {far} = {beside};"

    def statement(self, s: Statement, each: bool) -> str:
        if each and isinstance(s, (Load, Store)) and (name := self.apart.get(_place(s))):
            dtype, beside = self.program.arrays[s.array].dtype, f"{name}[{self.kept_at()}]"
            if isinstance(s, Load):
                return self.set(s.value, loaded(dtype, beside))
            return f"{beside} = {stored(dtype, self.name(s.of))};"
        return super().statement(s, each)

    def _each(self, part: Pass) -> Iterator[str]:
        read = {v for s in part.elements for v in operands(s)}
        if self.beside > 1 and (again := sorted(self.by_row & read)):
            yield f"for (long l = 0; l < {self.lanes * (self.beside - 1)}L; ++l) {{"
            yield from (f"  v{v}[l + {self.lanes}L] = v{v}[l];" for v in again)
            yield "}"
        yield from super()._each(part)

    def begun(self, total: str, s: Reduce, beside: int = 1) -> Iterator[str]:
        lanes = self.lanes * beside
        yield f"{total}[{lanes}L];"
        yield _each_lane(f"{total.split()[-1]}[l] = {self.reducer(s).identity};", lanes)

    def last_axis(
        self, elements: Sequence[Statement], reduces: Sequence[Reduce], n: int
    ) -> Iterator[str]:
        """In blocks, whose sums are added in a wider type; over the lanes inside. Beside elementary
        functions it is no faster unrolled, and takes long to compile."""
        beside, width = self.beside, self.lanes * self.beside
        size = _BLOCK // beside * beside
        yield f"for (long b = 0; b < {n}L; b += {size}) {{"
        for s in reduces:
            total = f"{self.lane_type(s)} t{s.value}"
            yield from (f"  {line}" for line in self.begun(total, s, beside))
        end = f"{n}L" if n <= size else f"{n}L - b < {size} ? {n}L : b + {size}"
        yield f"  long i = b, end = {end};" + " MINIML_ROLLED" * _dear(self.program)
        rest = f" - {beside - 1}L" * (n % beside > 0)
        yield f"  for (; i < end{rest}; i += {beside}L) {{"
        yield from self._lanes(elements, width)
        yield "  }"
        if n % beside:
            yield "  if (i < end) {"
            yield from self._lanes(elements, n % beside * self.lanes)
            yield "  }"
        for s in reduces:
            yield from (f"  {line}" for line in self._combined(s))
        yield "}"

    def _lanes(self, elements: Sequence[Statement], lanes: int) -> Iterator[str]:
        yield "MINIML_APART" + " MINIML_ROLLED" * (self.lanes * self.beside <= _ROLLED)
        yield f"    for (long l = 0; l < {lanes}L; ++l) {{"
        yield from (f"      {self.statement(s, True)}" for s in elements)
        yield "    }"

    def _combined(self, s: Reduce) -> Iterator[str]:
        """The partial results of a row are combined by halves, and added to its result."""
        count, combine, t = self.beside, self.reducer(s).combine, f"t{s.value}[l]"
        while count > 1:
            half = count // 2
            count -= half
            other = f"t{s.value}[l + {count * self.lanes}L]"
            yield "MINIML_APART"
            yield _each_lane(f"{t} = {combine(t, other)};", half * self.lanes)
        yield "MINIML_APART"
        yield _each_lane(f"s{s.value}[l] = {combine(f's{s.value}[l]', t)};", self.lanes)

    def ended(self, s: Reduce, c: str) -> Iterator[str]:
        yield _each_lane(f"v{s.value}[l] = ({c})s{s.value}[l];", self.lanes)

    def between(self, statements: Sequence[Statement]) -> Iterator[str]:
        """The statements that run once for each of the rows; those that add to what the rows share
        run for one row after another, and not for rows of the strip before."""
        apart = [s for s in statements if not isinstance(s, Gather)]
        for together, found in ((False, apart), (True, [s for s in statements if s not in apart])):
            if found:
                yield from [] if together else ["MINIML_APART"]
                begin = f"strip * {self.lanes}L - c" if together else "0"
                yield f"for (long l = {begin}; l < {self.lanes}L; ++l) {{"
                yield from (f"  {self.statement(s, False)}" for s in found)
                yield "}"

    def name(self, value: int) -> str:
        return f"v{value}[l]" if value in self.by_row else f"v{value}"

    def set(self, value: int, text: str) -> str:
        return f"v{value}[l] = {text};" if value in self.by_row else super().set(value, text)

    def reduced(self, s: Reduce, element: str) -> str:
        return f"t{s.value}[l] = {self.reducer(s).combine(f't{s.value}[l]', element)};"

    def names(self, each: bool) -> list[str]:
        names = super().names(each)
        for k in range(self.first, self.program.outer):
            step = prod(self.program.extents[k + 1 : self.program.outer])
            index = "(c + l)" + f" / {step}L" * (step > 1)
            names[k] = f"({index} % {self.program.extents[k]}L)" if k > self.first else index
        return names

    def kept_at(self, last: str = "i") -> str:
        return f"{super().kept_at(last)} + l"


def _each_lane(statement: str, lanes: int) -> str:
    return f"for (long l = 0; l < {lanes}L; ++l) {statement}"


def _apart(program: RowProgram) -> dict[Load | Store, str]:
    """Reads and writes, as if of value 0, of elements of short rows that are apart from those of
    their neighbours: arrays where they lie beside them. What is read once, compilers gather as
    fast, but by 16 elements, or 4 bytes or complex numbers for elementary functions."""
    if prod(program.row) > SHORT:
        return {}
    beside = slice(_first(program), program.outer)
    dear, elements = _dear(program), (s for p in program.passes for s in p.elements)
    moves = Counter(_place(s) for s in elements if isinstance(s, (Load, Store)))

    def moved(s: Load | Store) -> bool:
        strides, dtype = program.along(s)[beside], program.arrays[s.array].dtype
        step, extents = strides[-1], program.extents[beside]
        even = all(n == step * prod(extents[k + 1 :]) for k, n in enumerate(strides))
        few = dtype.itemsize < 8 or is_complex(dtype)
        often = moves[s] > 1 or step % _STRIP == 0 or (dear and few)
        return (not even or (often and step not in (0, 1))) and not program.limits(s)

    return {s: f"x{k}" for k, s in enumerate(filter(moved, moves))}


def _dear(program: RowProgram) -> bool:
    """True where elementary functions are computed: many operations for an element."""
    calls = (s.function for s in program.statements() if isinstance(s, Call))
    return any(elementary(f.expression.text) for f in calls)


def _place(s: Load | Store) -> Load | Store:
    return s._replace(value=0) if isinstance(s, Load) else s._replace(of=0)
