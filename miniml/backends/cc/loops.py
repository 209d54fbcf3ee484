"""Row programs in C, whichever way rows are run over: arrays, statements, parts for threads."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import NamedTuple

from ...dtype import DType, float32, float64
from ..expressions.rows import (
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
)
from ..expressions.types import computed
from ..signature import ArraySpec
from .player import Packing
from .reducers import REDUCERS, Reducer, block, reducer, wrapping
from .scalars import STORED, ScalarFunction, literal, loaded, scalar_function, stored, value_type
from .source import Source
from .text import header

BLOCK = 512  # elements whose sum is taken in lanes; block sums are added in a wider type
_PART = 200_000  # statements of elements in a part: some 50 us, below which threads do not pay
_PARTS = 64
_GATHERED = 1024  # rows added one after another in float32, so that their sum stays accurate
_LOOP = """\
/* No iteration of the loop that follows reads what another one writes. */
#if defined(__clang__)
#define MINIML_APART _Pragma("clang loop vectorize(assume_safety)")
#else
#define MINIML_APART _Pragma("GCC ivdep")
#endif
/* GCC would compute beforehand what follows from a choice of constants, in branches, for which a
   loop is not vectorised. Before version 12 the attribute resets other options. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define MINIML_STRAIGHT __attribute__((optimize("no-tree-pre")))
#else
#define MINIML_STRAIGHT
#endif
"""


class Printed(NamedTuple):
    """A row program as a native kernel, and the scratch arrays that it needs. packing: as of a
    Call."""

    source: Source
    workspace: tuple[ArraySpec, ...]
    packing: Callable[[], Packing | None] | None = None


class Loops(ABC):
    """The text around the loops, and the statements in them. Final classes say how the rows are run
    over: here, one after another."""

    lanes = 1  # rows that are computed side by side

    def __init__(self, program: RowProgram):
        self.program = program
        self.rows = prod(program.extents[: program.outer])
        self.gathers = program.gathers
        self.reduces = program.reduces
        alike = not self.reduces and not self.gathers
        self.flat = alike and self.rows == 1 and len(program.row) == 1
        self.range = program.row[0] if self.flat else self.steps()
        self.parts, self.chunk = self._split()
        self.shared: dict[str, None] = dict.fromkeys((*header("convert"), _LOOP))
        self.functions: dict[Scalar, ScalarFunction] = {}

    def _split(self) -> tuple[int, int]:
        """How many parts of how many rows (or elements): the same for any number of threads."""
        work = prod(self.program.extents) * sum(1 for _ in self.program.statements())
        parts = max(min(work // _PART, _PARTS), 1)
        if self.gathers:
            parts = max(parts, -(-self.rows // _GATHERED))
        chunk = -(-self.range // min(parts, self.range))
        return -(-self.range // chunk), chunk

    def printed(self) -> Printed:
        """The kernel: the parts, then what they gathered put together."""
        sizes = [self.parts * self.program.size(g) for g in self.gathers]
        dtypes = [computed(self._type(g)) for g in self.gathers]
        specs = tuple(ArraySpec((n,), d) for n, d in zip(sizes, dtypes, strict=True))
        call = "  KERNEL_part((void *)at, 0);"
        if self.parts > 1:
            call = f"  miniml.parallel(KERNEL_part, (void *)at, {self.parts});"
        whole = [
            *self._part(),
            "",
            "void KERNEL(char *const *at) {",
            call,
            *self._finish(),
            "}",
            "",
        ]
        text = "\n".join(whole)  # which names the shared functions that it needs
        return Printed(Source(text, tuple(self.shared)), specs)

    def _part(self) -> Iterator[str]:
        yield "MINIML_STRAIGHT static void KERNEL_part(void *data, long part) {"
        yield "  char *const *at = (char *const *)data;"
        yield f"  const long first = part * {self.chunk}L;"
        last = f"first + {self.chunk}L"
        if self.range % self.chunk:
            last = f"{last} < {self.range}L ? {last} : {self.range}L"
        yield f"  const long last = {last};"
        yield from self._pointers()
        for g, gather in enumerate(self.gathers):
            start = reducer(gather.row, self._type(gather)).identity
            yield f"  for (long i = 0; i < {self.program.size(gather)}; ++i) w{g}[i] = {start};"
        yield "  {" if self.flat else "  for (long r = first; r < last; ++r) {"
        yield from (f"    {line}" for line in self.body())
        yield "  }"
        yield "}"

    def body(self) -> Iterator[str]:
        """What is done in a step of the outer loop."""
        if not self.flat:
            yield from self.indices()
        for s in self.program.statements():
            if isinstance(s, Keep):
                c = value_type(self.program.types[s.of])
                yield f"{c} k{s.of}[{prod(self.program.row) * self.lanes}];"
        for part in self.program.passes:
            yield from self._each(part) if part.elements else ()
            yield from self.between(part.row)

    def _each(self, part: Pass) -> Iterator[str]:
        """A pass over the elements: the loops over the row, and what they reduce."""
        reduces = [s for s in part.elements if isinstance(s, Reduce)]
        for s in reduces:
            yield from self.begun(f"{self.total(s)} s{s.value}", s)
        *axes, last = self.program.row or (1,)
        for k, extent in enumerate(axes):
            yield f"{'  ' * k}for (long i{k} = 0; i{k} < {extent}; ++i{k}) {{"
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
            const = "const " * (i < self.program.inputs)
            c = f"{const}{STORED[array.dtype]} *"
            yield f"  {c}{alone}a{i} = ({c})at[{i}];"
        for g, gather in enumerate(self.gathers):
            c = f"{value_type(self._type(gather))} *"
            place = len(self.program.arrays) + g
            yield f"  {c}restrict w{g} = ({c})at[{place}] + part * {self.program.size(gather)}L;"

    def statement(self, s: Statement, each: bool) -> str:
        """A statement, for each element or once for a row."""
        match s:
            case Load(value, array):
                index = f"{self.index(self.program.along(s), each)} + {s.offset}L"
                element = f"a{array}[{index.removesuffix(' + 0L')}]"
                return self.set(value, loaded(self.program.arrays[array].dtype, element))
            case Literal(value, number):
                return self.set(value, literal(number))
            case Call(value, function, args, strides):
                given = [self.name(a) for a in args]
                index = self.index(strides, each) if strides else "0"
                return self.set(value, f"{self._function(function)}({', '.join([*given, index])})")
            case Store(array, of):
                known = self.program.arrays[array]
                number = stored(known.dtype, self.name(of))
                return f"a{array}[{self.index(known.strides, each)}] = {number};"
            case Gather():
                g = self.gathers.index(s)
                index = self.index(self.program.arrays[s.array].strides, each)
                c, found = value_type(self._type(s)), reducer(s.row, self._type(s))
                element = f"({c})({found.element.replace('x', self.name(s.of))})"
                combined = found.combine(f"w{g}[{index}]", f"g{g}")
                return f"const {c} g{g} = {element}; w{g}[{index}] = {combined};"
            case Reduce(value, row, of):
                element = REDUCERS[row].element.replace("x", self.name(of))
                return self.reduced(s, f"({self.lane_type(s)})({element})")
            case Keep(of):
                return f"k{of}[{self.kept_at()}] = {self.name(of)};"
            case Recall(value):
                return self.set(value, f"k{value}[{self.kept_at()}]")
        raise AssertionError(s)

    def index(self, strides: Sequence[int], each: bool) -> str:
        """The element of an array with these strides."""
        names = self.names(each)
        terms = [
            name if stride == 1 else f"{name} * {stride}L"
            for name, stride in zip(names, strides, strict=False)
            if stride and name != "0"
        ]
        return " + ".join(terms) or "0"

    def _function(self, scalar: Scalar) -> str:
        if scalar not in self.functions:
            made = str((scalar.expression.text, scalar.inputs, scalar.out, scalar.constants))
            name = f"miniml_{scalar.name}_{hashlib.sha256(made.encode()).hexdigest()[:8]}"
            function = scalar_function(
                scalar.expression, name, scalar.inputs, scalar.out, dict(scalar.constants)
            )
            self.functions[scalar] = function
            self.shared |= dict.fromkeys((*function.shared, function.text))
        return self.functions[scalar].name

    def numbered(self, extents: Sequence[int], names: Sequence[str] = ()) -> Iterator[str]:
        """The indices of step r of loops over these extents; names: by default o0, o1, ..."""
        for k, n in enumerate(extents):
            step, name = prod(extents[k + 1 :]), names[k] if names else f"o{k}"
            index = f"r / {step}L" if step > 1 else "r"
            yield f"const long {name} = {index}{f' % {n}L' if k else ''};"

    def reducer(self, s: Reduce) -> Reducer:
        """How elements are reduced."""
        return reducer(s.row, self.program.types[s.value])

    def lane_type(self, s: Reduce) -> str:
        """The type in which single elements are reduced."""
        return value_type(wrapping(s.row, self.program.types[s.value]))

    def block(self, s: Reduce) -> str:
        """The function that reduces a block of elements."""
        name, text = block(s.row, wrapping(s.row, self.program.types[s.value]))
        self.shared[text] = None
        return name

    def total(self, s: Reduce) -> str:
        """The type in which the sums of blocks are added: wider, so that long sums stay exact."""
        wider = {"float": "double", "double": "long double"} if s.row == "Sum" else {}
        return wider.get(self.lane_type(s), self.lane_type(s))

    def _type(self, gather: Gather) -> DType:
        """The dtype in which a gather adds: wider for a single number, which costs nothing."""
        wide = wrapping(gather.row, gather.dtype)
        return float64 if wide == float32 and self.program.size(gather) == 1 else wide

    def _finish(self) -> Iterator[str]:
        """The parts of each gathered array together, in order."""
        for g, gather in enumerate(self.gathers):
            size, dtype = self.program.size(gather), self._type(gather)
            c, found = value_type(dtype), reducer(gather.row, dtype)
            array = self.program.arrays[gather.array]
            place = len(self.program.arrays) + g
            divided = f"a / {gather.over}" if gather.over != 1 else "a"
            number = f"({value_type(gather.dtype)})({divided})"
            yield "  {"
            yield f"    const {c} *w = (const {c} *)at[{place}];"
            yield f"    {STORED[array.dtype]} *out = ({STORED[array.dtype]} *)at[{gather.array}];"
            yield f"    for (long i = 0; i < {size}; ++i) {{"
            yield f"      {c} a = w[i];"
            if self.parts > 1:
                yield f"      for (long p = 1; p < {self.parts}; ++p) {{"
                yield f"        const {c} b = w[p * {size}L + i];"
                yield f"        a = {found.combine('a', 'b')};"
                yield "      }"
            yield f"      out[i] = {stored(array.dtype, number)};"
            yield "    }"
            yield "  }"

    # How rows are run over: what the final classes say.

    @abstractmethod
    def steps(self) -> int:
        """How often the outer loop runs."""

    @abstractmethod
    def indices(self) -> Iterator[str]:
        """The outer axes' indices at the beginning of a step."""

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
        """What is done once for a row."""
        yield from (self.statement(s, False) for s in statements)

    def name(self, value: int) -> str:
        """A value where it is read."""
        return f"v{value}"

    def set(self, value: int, text: str) -> str:
        """A value where it is computed."""
        return f"const {value_type(self.program.types[value])} v{value} = {text};"

    def reduced(self, s: Reduce, element: str) -> str:
        """One more element of a reduction: kept until its block is complete."""
        return f"t{s.value}[i - b] = {element};"

    def names(self, each: bool) -> list[str]:
        """The loops' variables, of the outer axes and perhaps of the row."""
        outer, row = self.program.outer, len(self.program.row)
        names = [f"o{k}" if self.rows > 1 else "0" for k in range(outer)]
        return names + ([*(f"i{k}" for k in range(row - 1)), "i"][:row] if each else [])

    def kept_at(self) -> str:
        """The index of a kept element."""
        row, lanes = self.program.row, self.lanes
        steps = [prod(row[k + 1 :]) * lanes for k in range(len(row))]
        return self.index([0] * self.program.outer + steps, True)
