"""Variants of programs: kernels in C, alone and fused to others, against NumPy's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ....backends import edits, registry
from ....backends.cc import services
from ....backends.cc.compiler import available
from ....backends.cc.source import Source
from ....backends.devices import get_device
from ....backends.expressions.table import Expression, table
from ....backends.registry import BUILTIN, NATIVE
from ....backends.selection import Target
from ....dtype import bool_, is_float, type_code
from ....errors import CompileError, DeviceError
from ....graph.function import trace
from ....graph.ir import Graph
from ....runtime.fusion.build import DEAR
from ....runtime.fusion.members import REDUCTIONS, VIEWS
from ....runtime.launch import prepare, program_target
from ....runtime.lowering import lower
from ....runtime.lowering.decompose import COMPOSITIONS
from ....runtime.program import Program
from ....scope import Block
from ....settings import context
from ....tensor import Tensor
from ...calls import Array, Arrays, Call, as_tuple
from ...layouts import USUAL, laid_out, named
from ...tolerance import limits_of, mismatch
from ..draws.shapes import accepts
from .accuracy import moved_by_rounding
from .comparison import Variant, any_order, changed
from .programs import compilable
from .special import specials
from .variants import dense

_LONG = 150_001  # elements: several parts for threads, and no whole number of vectors
_NUMPY = Target(get_device("cpu"), (BUILTIN,))
Function = Callable[..., Any]


def in_c(call: Call) -> bool:
    """True for calls that programs may compute in C, where there is a compiler."""
    name, most = call.primitive.name, max([a.size for a in call.arrays], default=2)
    entries = registry.table.get((name, "cpu"), ())
    native = any(e.provider == NATIVE and e.signature.accepts(call.dtypes) for e in entries)
    loops = name in {*REDUCTIONS, *VIEWS, *COMPOSITIONS, "Slice"} or _expression(call) is not None
    return 1 < most < _LONG and (native or loops) and compilable(call) and available()


def _expression(call: Call) -> Expression | None:
    """The scalar expression of an elementwise call, None for others."""
    takes, gives = call.dtypes, [o.dtype for o in call.inferred]
    codes = "->".join("".join(map(type_code, dtypes)) for dtypes in (takes, gives))
    return table.get((call.primitive.name, codes))


class Twin:
    """A function of the inputs of a call as two programs: in C, and NumPy's."""

    def __init__(self, fn: Function, arrays: Arrays):
        self.graph: Graph = trace(fn, *map(Tensor, arrays))
        self._in_c: dict[int, Program] = {}  # by the number of threads

    def sources(self) -> list[Source]:
        """Its kernels in C."""
        with context(providers=(NATIVE,)), _as_registered():
            target = program_target("cpu")
            bound = (
                prepare(n.primitive, *n.abstracts, n.attrs, target)
                for n in lower(self.graph, target).nodes
            )
            natives = [b.native for b in bound if b.native is not None]
            return [n.source for n in natives if n.source is not None]

    def compiles(self) -> bool:
        """False without a compiler, and for a text that it refuses."""
        with suppress(CompileError, DeviceError):
            services.load(self.sources())
            return True
        return False

    def native(self, arrays: Arrays, threads: int = 0) -> Arrays:
        """CompileError, which a program would make a warning of: a text does not compile."""
        if threads not in self._in_c:
            services.load(self.sources())
            with context(providers=(NATIVE,), threads=threads), _as_registered():
                self._in_c[threads] = Program(self.graph, program_target("cpu"))
        return tuple(self._in_c[threads](*arrays))

    @cached_property
    def _plain(self) -> Program:
        return Program(self.graph, _NUMPY)

    def numpy(self, arrays: Arrays) -> Arrays:
        return tuple(self._plain(*arrays))


def _as_registered() -> Block[bool]:
    """Inside the block, expressions are compiled that may be out of date: this check says so."""
    return edits.believed.use(lambda: True)


def _alone(call: Call, *xs: Any) -> Any:
    return call.primitive(*call.args(xs))


def _chained(call: Call, *xs: Any) -> tuple[Any, ...]:
    """The call between others, which leave its inputs as they are and double its outputs."""
    outs = as_tuple(_alone(call, *[x * 1 if is_float(x.dtype) else x for x in xs]))
    return (*outs, *[y + y for y in outs if y.dtype != bool_])


def _longer(call: Call) -> Call | None:
    """The call with one extent so large that its inputs are long; None if the rules take none."""
    size = max((a.size for a in call.arrays), default=0)
    return _resized(call, lambda n: -(-_LONG * n // size)) if size else None


def _shorter(call: Call, extent: int) -> Call | None:
    """The call with one extent that small."""
    return _resized(call, lambda n: extent)


def _resized(call: Call, extent: Callable[[int], int]) -> Call | None:
    for n in sorted({n for a in call.arrays for n in a.shape if n > 1}, reverse=True):
        shapes = tuple(tuple(extent(n) if m == n else m for m in a.shape) for a in call.arrays)
        if max(map(prod, shapes)) <= 4 * _LONG and accepts(call.primitive, shapes, call.dtypes):
            rng = np.random.default_rng(0)  # sums of numbers that repeat round in one direction
            arrays = tuple(rng.choice(a.reshape(-1), s) for a, s in zip(call.arrays, shapes))
            return replace(call.on(arrays), smooth=False)
    return None


def _strange(call: Call) -> Call:
    """Every combination of NaN, infinities, zeros of both signs, denormals, the largest number and
    ordinary ones, in turn."""
    floats = [i for i, a in enumerate(call.arrays) if is_float(a.dtype)]
    each = list(product(range(12), repeat=len(floats)))
    arrays = list(call.arrays)
    for k, i in enumerate(floats):
        a = arrays[i]
        numbers = np.array(_numbers(a))[[row[k] for row in each]].astype(a.dtype)
        arrays[i] = np.resize(numbers, a.shape)
    return replace(call.on(tuple(arrays)), smooth=False)


def _numbers(a: Array) -> list[float]:
    limits = limits_of(a.dtype)
    small, tiny = float(limits.smallest_subnormal), float(limits.tiny)
    return [
        np.nan, np.inf, -np.inf, 0.0, -0.0, small, -5 * small, tiny, float(limits.max), 1.0, -2.5,
        0.3,
    ]  # fmt: skip


def _cases(call: Call) -> Iterator[tuple[str, Function, Call]]:
    yield "alone", _alone, call
    yield "in a chain", _chained, call
    indexed = _expression(call) is None and not all(map(is_float, call.dtypes))
    fewer = () if indexed else (0, 1)  # an index may be beyond the last of few
    for other in (_longer(call), *(_shorter(call, n) for n in fewer)):
        if other is not None:
            yield "alone", _alone, other


def compile_all(calls: Sequence[Call]) -> None:
    """Compile the kernels of all these calls together. What fails is left to their variants, but
    for a compiler that does not work, without which there are no kernels in C."""
    sources = []
    for call in calls:
        with suppress(Exception):
            for _, fn, other in _cases(call):
                sources += Twin(partial(fn, other), other.arrays).sources()
    with suppress(CompileError, DeviceError):
        services.load(sources)


def beside_numpy(call: Call) -> Iterator[Variant]:
    for how, fn, other in _cases(call) if available() else ():
        words = f"{how}, its kernel in C gives other numbers than NumPy's"
        twin = Twin(partial(fn, other), other.arrays)
        yield Variant(words, partial(twin.native, other.arrays), twin.numpy, other.arrays, other)
        words = f"on NaN, infinities, zeros of both signs and denormals, {words}"
        for strange in _near(other):
            got = partial(twin.native, strange.arrays)
            yield Variant(words, got, twin.numpy, strange.arrays, other)


def _near(call: Call) -> Iterator[Call]:
    """The call on NaN, infinities and the like."""
    if any(is_float(o.dtype) for o in call.inferred):  # integers from NaN are up to the machine
        if _expression(call) is not None:
            yield _strange(call)
        elif max((a.size for a in call.arrays), default=0) < _LONG:
            # Filters may be multiplied with zeros between elements that are apart, or not.
            dilated = "dilation" in call.attrs
            near = specials(call, 1)
            yield from (c for c, what in near if what.endswith(" 0") or not dilated)


def in_other_memory(call: Call) -> Iterator[Variant]:
    twin = Twin(partial(_alone, call), call.arrays)
    for layout in (*USUAL, "") if twin.compiles() else ():
        arrays = laid_out(call.arrays, (layout,) * len(call.arrays)) if layout else _odd(call)
        words = f"on {named((layout or 'unaligned',), 'input')} its kernel in C gives other numbers"
        yield Variant(words, partial(twin.native, arrays), twin.native, dense(arrays))


def _odd(call: Call) -> Arrays:
    """The arrays at odd addresses."""
    moved = []
    for a in call.arrays:
        memory = np.empty(a.nbytes + 1, np.uint8)
        moved.append(memory[1:].view(a.dtype).reshape(a.shape))
        moved[-1][...] = a
    return tuple(moved)


def on_one_thread(call: Call) -> Iterator[Variant]:
    longer = _longer(call)
    twin = longer and Twin(partial(_alone, longer), longer.arrays)
    if longer and twin and twin.compiles():
        words = "on one thread its kernel in C gives other numbers than on several"
        one = partial(twin.native, longer.arrays, 1)
        yield Variant(words, one, twin.native, longer.arrays, longer)


def as_numpy(call: Call, variant: Variant, got: Arrays, expected: Arrays) -> str | None:
    """Arithmetic of the library bit for bit, other expressions to some roundings of each element,
    anything else to what the order of sums explains."""
    expression = _expression(call)
    with np.errstate(all="ignore"):
        if expression is None:
            return any_order(call, variant, got, expected)
        for i, (one, two) in enumerate(zip(expected, got)):
            wrong = _apart(expression, variant, i, one, two)
            if wrong is not None:
                return f"output {i} {wrong}"
    return None


def _apart(
    expression: Expression, variant: Variant, i: int, expected: Array, got: Array
) -> str | None:
    library, words = bool(expression.unit), expression.words
    if library and is_float(got.dtype) and not words & {"nan_max", "nan_min"}:
        zeros = (got == 0) & (expected == 0)
        if (zeros & (np.signbit(got) != np.signbit(expected))).any():
            return f"has zeros of the other sign: {changed(expected, got)}"
    if library and not words & DEAR:
        return None if _alike(expected, got).all() else changed(expected, got)
    wrong = mismatch(got, expected)
    if wrong is None or not is_float(expected.dtype):
        return wrong
    moved = moved_by_rounding(variant.run, variant.arrays, variant.run(variant.arrays))
    return mismatch(got, expected, 1, moved[i])


def _alike(one: Array, two: Array) -> Array:
    """Where the numbers are equal; NaN is NaN."""
    return np.asarray((one == two) | ((one != one) & (two != two)))
