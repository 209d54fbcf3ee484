"""Row programs in CUDA C, whichever thread computes what: arrays, numbers, statements, packs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ....dtype import DType, int64
from ...expressions.rows import (
    Call,
    Gather,
    Keep,
    Literal,
    Load,
    Recall,
    Reduce,
    RowProgram,
    Scalar,
    Statement,
    Store,
)
from ...expressions.types import accumulation, computed
from ...signature import ArraySpec
from .elementwise import value_text
from .groups import grid_for
from .reducers import structure
from .source import C_TYPES, unit

ENTRY, TOGETHER = "rows", "rows_together"
Each = tuple[Statement, bool]  # done for each element, or once for a row


class Launched(NamedTuple):
    """A launch of one of the unit's kernels; shared: bytes of dynamic shared memory."""

    entry: str
    grid: tuple[int]
    block: tuple[int]
    shared: int = 0


class Printed(NamedTuple):
    """A row program as launches of a unit's kernels: each takes the arrays (inputs, outputs and
    workspace) and the numbers. single: the numbers where an array does not begin at a multiple of
    16 bytes, so that no elements are loaded together. how: which thread computes what."""

    text: str
    numbers: Any
    single: Any
    launches: tuple[Launched, ...]
    workspace: tuple[ArraySpec, ...]
    how: str


class Text:
    """The text around the loops, and the statements in them. Final classes say which thread
    computes what."""

    one = ""  # the condition under which a thread does what is done once for row r

    def __init__(self, program: RowProgram):
        self.program = program
        self.outer = list(range(program.outer))
        self.row = list(range(program.outer, len(program.extents)))
        self.rows, self.length = prod(program.extents[: program.outer]), prod(program.row)
        self.gathers = program.gathers
        self.values: list[tuple[DType, Any]] = []
        self.named: dict[object, str] = {}
        self.before: dict[str, None] = {}
        self.functions: dict[Scalar, str] = {}
        self.kept = [s.of for s in program.statements() if isinstance(s, Keep)]

    def printed(self) -> Printed:
        """The kernels; the second puts the parts together of what the first gathered."""
        lines = [f'extern "C" __global__ void {ENTRY}({self._parameters()}) {{']
        lines += [*self.body(), "}", *self._together()]
        fields = [(f"n{i}", dtype) for i, (dtype, _) in enumerate(self.values)]
        record = np.dtype(fields, align=True)
        numbers = np.array([tuple(value for _, value in self.values)], record)
        single = numbers.copy()
        if "packs" in self.named:
            single[self.named["packs"].removeprefix("s.")] = 0
        types = {f"T{i}": a.dtype for i, a in enumerate(self.program.arrays)}
        types |= {f"V_{d.name}": d for d in self.program.types if computed(d) != d}
        text = "using namespace miniml;\n" + "".join(self.before) + "\n".join(lines) + "\n"
        launches: list[Launched] = [self.launched()]
        if self.gathers:
            size = max(map(self.program.size, self.gathers))
            launches.append(Launched(TOGETHER, *grid_for(size, 32)))
        specs = tuple(
            ArraySpec((self.parts * self.program.size(g),), self._stored(g)) for g in self.gathers
        )
        code = unit(text, Numbers=record, **types)
        return Printed(code, numbers, single, tuple(launches), specs, self.how())

    def _parameters(self) -> str:
        arrays = [
            f"{'const ' * (i < self.program.inputs)}T{i}* a{i}"
            for i in range(len(self.program.arrays))
        ]
        scratch = [f"{C_TYPES[self._stored(g)]}* w{k}" for k, g in enumerate(self.gathers)]
        return ", ".join([*arrays, *scratch, "Numbers s"])

    def _stored(self, gather: Gather) -> DType:
        """The dtype of partial results."""
        return accumulation(gather.dtype) if gather.row == "Sum" else computed(gather.dtype)

    def number(self, key: object, value: Any, dtype: DType = int64) -> str:
        """A number that the kernel is given, by its name there."""
        if key not in self.named:
            self.named[key] = f"s.n{len(self.values)}"
            self.values.append((computed(dtype), value))
        return self.named[key]

    def extent(self, axis: int) -> str:
        return self.number(("extent", axis), self.program.extents[axis])

    def located(self, axes: Sequence[int], source: str, lines: Sequence[str]) -> list[str]:
        """These lines after the indices that they name of the element with a number."""
        found: dict[str, str] = {}
        for axis in reversed(axes[1:]):
            found[f"x{axis}"] = f"{source} % {self.extent(axis)}"
            found[f"above{axis}"] = f"{source} / {self.extent(axis)}"
            source = f"above{axis}"
        if axes:
            found[f"x{axes[0]}"] = source
        return used(found, lines)

    def index(self, key: object, strides: Sequence[int], each: bool = True) -> str:
        """The element of an array with these strides."""
        axes = [*self.outer, *(self.row if each else ())]
        terms = [
            f"x{axis}" + ("" if stride == 1 else f" * {self.number((key, axis), stride)}")
            for axis, stride in enumerate(strides)
            if stride and axis in axes
        ]
        return " + ".join(terms) or "0"

    def op(self, row: str, dtype: DType) -> str:
        """The structure of a reduction of elements of a dtype."""
        name, text = structure(row, dtype)
        self.before[text] = None
        return name

    def set(self, value: int, text: str) -> str:
        return f"const {C_TYPES[computed(self.program.types[value])]} v{value} = {text};"

    def statement(self, s: Statement, each: bool) -> str:
        """A statement, for each element or once for a row."""
        program = self.program
        match s:
            case Load(value, array):
                return self.set(value, f"load(a{array}[{self.loaded_from(s, each)}])")
            case Literal(value, number):
                return self.set(value, self.number(("value", value), number, program.types[value]))
            case Call(value, function, args, strides):
                return self.set(value, self._called(s, function, args, strides, each))
            case Store(array, of):
                index = self.index(("array", array), program.arrays[array].strides, each)
                text = f"a{array}[{index}] = store<T{array}>(v{of});"
                return text if each else f"if ({self.one}{' && r == 0' * (index == '0')}) {text}"
            case Gather():
                text = self.gathered(self.gathers.index(s), s, each)
                return text if each else f"if ({self.one}) {text}"
            case Reduce(value, row, of):
                op = self.op(row, program.types[of])
                return f"t{value} = {op}::combine(t{value}, {op}::element(v{of}));"
            case Keep(of):
                return f"k{of}[i] = v{of};"
            case Recall(value):
                return self.set(value, f"k{value}[i]")
        raise AssertionError(s)

    def loaded_from(self, s: Load, each: bool) -> str:
        """The element that is loaded."""
        if s.strides is None:
            return self.index(("array", s.array), self.program.along(s), each)
        index = self.index(("part", s.value), s.strides, each)
        return f"{index} + {self.number(('offset', s.value), s.offset)}"

    def _called(
        self, s: Call, function: Scalar, args: Sequence[int], strides: Sequence[int], each: bool
    ) -> str:
        if function not in self.functions:
            name = self.functions[function] = f"{function.name.lower()}_{len(self.functions)}"
            constants = [(n, x.dtype) for n, x in function.constants]
            self.before[
                value_text(
                    name, function.name, function.expression, function.inputs, constants,
                    function.out,
                )
            ] = None  # fmt: skip
        name = self.functions[function]
        given = [f"v{a}" for a in args]
        given += [self.number((name, n), x, x.dtype) for n, x in function.constants]
        index = self.index(("number", s.value), strides, each) if strides else "0"
        return f"load(store<{C_TYPES[function.out]}>({name}({', '.join([*given, index])})))"

    def _together(self) -> Iterator[str]:
        """The second kernel: a warp for each result."""
        if not self.gathers:
            return
        yield f'extern "C" __global__ void {TOGETHER}({self._parameters()}) {{'
        yield "  const int lane = threadIdx.x % 32;"
        count = self.number("parts", self.parts)
        for k, gather in enumerate(self.gathers):
            op = self.op(gather.row, gather.dtype)
            size = self.number(("size", k), self.program.size(gather))
            yield f"  for (long long g = group_index(32); g < {size}; g += group_count(32)) {{"
            yield f"    {op}::A a = {op}::identity();"
            yield f"    for (long long p = lane; p < {count}; p += 32) {{"
            yield f"      const {op}::A b = {{w{k}[p * {size} + g]}};"
            yield f"      a = {op}::combine(a, b);"
            yield "    }"
            yield f"    a = combined<{op}>(a, 32);"
            number = f"({C_TYPES[computed(gather.dtype)]})a.value"
            if gather.over != 1:
                number += f" / {self.number(('over', k), gather.over, gather.dtype)}"
            yield f"    if (lane == 0) a{gather.array}[g] = store<T{gather.array}>({number});"
            yield "  }"
        yield "}"

    # What the final classes say.

    parts = 1  # of what is gathered

    def body(self) -> Iterator[str]:
        """The lines of the kernel."""
        raise NotImplementedError

    def launched(self) -> Launched:
        """How it is launched."""
        raise NotImplementedError

    def how(self) -> str:
        """Which thread computes what."""
        raise NotImplementedError

    def gathered(self, k: int, gather: Gather, each: bool) -> str:
        """One more element of a gather."""
        raise NotImplementedError

    @property
    def every(self) -> list[Each]:
        """The statements of all passes."""
        found: list[Each] = []
        for part in self.program.passes:
            found += [*((s, True) for s in part.elements), *((s, False) for s in part.row)]
        return found


def used(found: dict[str, str], lines: Sequence[str]) -> list[str]:
    """These lines after the definitions of the indices that they name."""
    named = [*lines]
    for name, text in reversed(found.items()):
        if any(re.search(rf"\b{name}\b", line) for line in named):
            named.insert(0, f"const long long {name} = {text};")
    return named
