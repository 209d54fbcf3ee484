"""Relations between a call and its variants, as a table of checks.

In order: programs with kernels in C, alone and fused with others, against NumPy's; the facts that a
class states, and its rules for batches and tangents, beside what its kernels and its bprop compute;
the table of all relations: what must not matter, and the advice for where it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ...backends import registry
from ...backends.cc import units
from ...backends.cc.units import Source, available
from ...backends.expressions import Expression, table
from ...backends.registry import BUILTIN, NATIVE
from ...backends.selection import Target, get_device
from ...core.abstract import Abstract, bool_, float64, is_float, type_code, uint64
from ...core.errors import CompileError, DeviceError, MinimlError
from ...core.facts import Facts
from ...core.scope import Block
from ...core.settings import context
from ...core.tensor import Tensor
from ...grad.batching import batch_rules, vmap
from ...grad.forward import jvp_rules
from ...grad.transforms import jvp, vjp
from ...graph.ir import Graph
from ...graph.tracing import trace
from ...ops.checks import normal_axes
from ...runtime.codegen import DEAR
from ...runtime.launch import prepare, program_target
from ...runtime.lowering import COMPOSITIONS, lower
from ...runtime.nest import REDUCTIONS
from ...runtime.program import Program
from ..calls import (
    USUAL,
    Array,
    Arrays,
    Call,
    as_tuple,
    go_on,
    laid_out,
    launch,
    launched,
    named,
    wide,
    wide_kernel,
)
from ..tolerance import apart, at_an_end, changed, difference, limits_of, mismatch, spread_inside
from . import variants
from .gradients import Slope, has_bprop
from .numbers import specials
from .session import Issue, first_line
from .values import SMOOTH, accepts
from .variants import Compute, Variant, compilable, dense, fixed

_LONG = 150_001  # elements: several parts for threads, and no whole number of vectors
_NUMPY = Target(get_device("cpu"), (BUILTIN,))
Function = Callable[..., Any]


def check_in_c(call: Call) -> bool:
    """True for calls that programs may compute in C, if there is a compiler."""
    name, most = call.primitive.name, max([a.size for a in call.arrays], default=2)
    entries = registry.table.get((name, "cpu"), ())
    native = any(e.provider == NATIVE and e.signature.accepts(call.dtypes) for e in entries)
    facts = type(call.primitive)
    loops = facts.view or facts.reduces in REDUCTIONS or name in {*COMPOSITIONS, "Slice"}
    in_c = bool(native or loops or _expression(call))
    return 1 < most < _LONG and in_c and compilable(call) and available()


def _expression(call: Call) -> Expression | None:
    """The scalar expression of an elementwise call, None for others."""
    takes, gives = call.dtypes, [o.dtype for o in call.inferred]
    codes = "->".join("".join(map(type_code, dtypes)) for dtypes in (takes, gives))
    return table.get((call.primitive.name, codes))


def compile_all(calls: Sequence[Call]) -> None:
    """Compile the kernels of all these calls together. Failures are left to the variants, except
    that of a compiler that does not work, without which there are no kernels in C."""
    sources = []
    for call in calls:
        with suppress(Exception):
            for _, fn, other in _cases(call):
                sources += Twin(partial(fn, other), other.arrays).sources()
    with suppress(CompileError, DeviceError):
        units.load_with_services(sources)


def beside_numpy(call: Call) -> Iterator[Variant]:
    for how, fn, other in _cases(call) if available() else ():
        words = f"{how}, its kernel in C gives other numbers than NumPy's"
        twin = Twin(partial(fn, other), other.arrays)
        yield Variant(words, partial(twin.native, other.arrays), twin.numpy, other.arrays, other)
        words = f"on special numbers and plain ones, {words}"
        for special in _near(other):
            got = partial(twin.native, special.arrays)
            yield Variant(words, got, twin.numpy, special.arrays, other)


def as_numpy(call: Call, variant: Variant, got: Arrays, expected: Arrays) -> str | None:
    """The tolerance beside NumPy: no difference for arithmetic of the library, some roundings of
    each element for other expressions, another order of sums for anything else."""
    expression = _expression(call)
    with np.errstate(all="ignore"):
        if expression is None:
            return any_order(call, variant, got, expected)
        for i, (one, two) in enumerate(zip(expected, got)):
            wrong = _apart(expression, variant, i, one, two)
            if wrong is not None:
                return f"output {i} {wrong}{_given_there(variant, one, two)}"
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
    outs = variant.run(variant.arrays)
    return mismatch(got, expected, 1, spread_inside(variant.run, variant.arrays, outs, i))


def _alike(one: Array, two: Array) -> Array:
    """True where the numbers are equal; NaN equals NaN."""
    return np.asarray((one == two) | ((one != one) & (two != two)))


def _given_there(variant: Variant, expected: Array, got: Array) -> str:
    """The inputs of the element that is furthest off, as the end of a sentence."""
    with np.errstate(all="ignore"):
        off = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    off = np.where(_alike(expected, got), -1.0, np.nan_to_num(off, nan=np.inf))
    index = np.unravel_index(int(np.argmax(off)), off.shape)
    given = [str(np.broadcast_to(a, off.shape)[index]) for a in variant.arrays]
    at = [int(n) for n in index]
    return f"; the inputs of {at} are {', '.join(given)}: {expected[index]}, and {got[index]} in C"


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


def _cases(call: Call) -> Iterator[tuple[str, Function, Call]]:
    yield "alone", _alone, call
    yield "in a chain", _chained, call
    indexed = _expression(call) is None and not all(map(is_float, call.dtypes))
    fewer = () if indexed else (0, 1)  # an index may be beyond the last of few
    for other in (_longer(call), *(_shorter(call, n) for n in fewer)):
        if other is not None:
            yield "alone", _alone, other


def _alone(call: Call, *xs: Any) -> Any:
    return call.primitive(*call.args(xs))


def _chained(call: Call, *xs: Any) -> tuple[Any, ...]:
    """The call between others, which keep its inputs and double its outputs."""
    outs = as_tuple(_alone(call, *[x * 1 if is_float(x.dtype) else x for x in xs]))
    return (*outs, *[y + y for y in outs if y.dtype != bool_])


def _longer(call: Call) -> Call | None:
    """The call with one extent so large that its inputs are long; None if the rules refuse all."""
    size = max((a.size for a in call.arrays), default=0)
    return _resized(call, lambda n: -(-_LONG * n // size)) if size else None


def _shorter(call: Call, extent: int) -> Call | None:
    """The call with one extent replaced by a small one; None if the rules refuse all."""
    return _resized(call, lambda n: extent)


def _resized(call: Call, extent: Callable[[int], int]) -> Call | None:
    for n in sorted({n for a in call.arrays for n in a.shape if n > 1}, reverse=True):
        shapes = tuple(tuple(extent(n) if m == n else m for m in a.shape) for a in call.arrays)
        if max(map(prod, shapes)) <= 4 * _LONG and accepts(call.primitive, shapes, call.dtypes):
            rng = np.random.default_rng(0)  # sums of numbers that repeat round in one direction
            arrays = tuple(rng.choice(a.reshape(-1), s) for a, s in zip(call.arrays, shapes))
            return replace(call.on(arrays), smooth=False)
    return None


def _near(call: Call) -> Iterator[Call]:
    """The call on NaN, infinities and the like."""
    if any(is_float(o.dtype) for o in call.inferred):  # integers from NaN depend on the machine
        if _expression(call) is not None:
            yield _mixed_specials(call)
        elif max((a.size for a in call.arrays), default=0) < _LONG:
            # Zeros between the elements of dilated filters may be multiplied with inputs, or not.
            dilated = "dilation" in call.attrs
            yield from (c for c, _, i in specials(call, 1) if i == 0 or not dilated)


def _mixed_specials(call: Call) -> Call:
    """The call on every combination of NaN, infinities, zeros of both signs, subnormals, the
    largest number and ordinary ones."""
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
        """False without a compiler, or if it refuses a text."""
        with suppress(CompileError, DeviceError):
            units.load_with_services(self.sources())
            return True
        return False

    def native(self, arrays: Arrays, threads: int = 0) -> Arrays:
        """The outputs of the program in C; CompileError, which a program would turn into a warning,
        for a text that does not compile."""
        if threads not in self._in_c:
            units.load_with_services(self.sources())
            with context(providers=(NATIVE,), threads=threads), _as_registered():
                self._in_c[threads] = Program(self.graph, program_target("cpu"))
        return tuple(self._in_c[threads](*arrays))

    @cached_property
    def _plain(self) -> Program:
        return Program(self.graph, _NUMPY)

    def numpy(self, arrays: Arrays) -> Arrays:
        return tuple(self._plain(*arrays))


def _as_registered() -> Block[bool]:
    """Inside the block, expressions that may be out of date are compiled, too: this check reports
    them."""
    return registry.believed.use(lambda: True)


# --- Facts that a class states, and its rules for batches and tangents ----------------------------


Made = Callable[[Arrays], Arrays]


def stated(call: Call) -> bool:
    """True for calls of a class that states a fact about numbers."""
    cls = type(call.primitive)
    facts = cls.view or cls.reduces or cls.elementwise or cls.linear or cls.batch
    own = cls.rounds is False or cls.flops is not Facts.flops
    return launched(call) and bool(facts or own or batch_rules.find(cls) or jvp_rules.find(cls))


def counted(call: Call) -> Iterator[Issue]:
    """The number of operations is one, for whatever the rules accept."""
    given = [Abstract(a.shape, a.dtype) for a in call.arrays]
    try:
        count = call.primitive.flops(given, call.inferred)
        wrong = "" if float(count) >= 0 else f"gives {count!r}"
    except Exception as error:
        wrong = f"raises {first_line(error)}"
    if wrong:
        yield Issue(
            "flops",
            f"{call}: flops {wrong}",
            "let flops(self, inputs, outputs) give a number, of tensors without axes too",
        )


def as_view(call: Call) -> Iterator[Variant]:
    if type(call.primitive).view:
        yield from _beside_kernels(call, "view", "the input so viewed", partial(_viewed, call))


def _viewed(call: Call, arrays: Arrays) -> Arrays:
    (x,), shape, view = arrays, call.inferred[0].shape, type(call.primitive).view
    if view == "transpose":
        x = x.transpose(call.attrs["axes"])
    elif view == "broadcast":
        x = np.broadcast_to(x, shape)
    return (np.ascontiguousarray(x if view in ("transpose", "same") else x.reshape(shape)),)


def as_reduction(call: Call) -> Iterator[Variant]:
    if type(call.primitive).reduces and all(a.size for a in call.arrays):
        made = partial(_reduced, call)
        yield from _beside_kernels(call, "reduces", "NumPy's reduction of the input", made)


def _reduced(call: Call, arrays: Arrays) -> Arrays:
    (x,), (out,) = arrays, call.inferred
    if "axis" in call.attrs:
        axes = normal_axes(call.primitive.name, call.attrs["axis"], x.ndim)
    else:
        lead = x.ndim - len(out.shape)
        axes = (*range(lead), *(lead + i for i, n in enumerate(out.shape) if n == 1))
    reduce = getattr(np, str(type(call.primitive).reduces))
    found = reduce(x.astype(float64) if is_float(x.dtype) else x, axis=axes)
    return (np.asarray(found).astype(out.dtype).reshape(out.shape),)


def _beside_kernels(call: Call, fact: str, what: str, made: Made) -> Iterator[Variant]:
    """Each kernel beside what a fact of one input and one output says."""
    value = getattr(type(call.primitive), fact)
    for entry in call.entries:
        words = f"{fact} = {value!r}, but the kernel {entry.describe()} does not give {what}"
        yield Variant(words, partial(launch, entry, call), made, call.arrays)


def as_exact(call: Call) -> Iterator[Variant]:
    """A kernel of a narrow dtype that never rounds, beside that of float64."""
    arrays = tuple(map(wide, call.arrays))
    narrow = [a.dtype for a in arrays] != list(call.dtypes)
    never = type(call.primitive).rounds is False and call.kind in SMOOTH
    other = wide_kernel(call, arrays) if narrow and never else None
    if other is None:
        return
    exact = fixed(tuple(map(wide, launch(other, call.on(arrays)))))
    for entry in call.entries:
        words = f"rounds = False, but the kernel {entry.describe()} rounds what that of float64 has"
        yield Variant(words, partial(_widened, partial(launch, entry, call)), exact)


def _widened(run: Callable[[], Arrays]) -> Arrays:
    return tuple(map(wide, run()))


def as_elements(call: Call) -> Iterator[Variant]:
    """The elements of all arrays in another order."""
    shape = call.inferred[0].shape
    order = np.random.default_rng(0).permutation(call.inferred[0].size)

    def moved(a: Array) -> Array:
        return np.broadcast_to(a, shape).reshape(-1)[order].reshape(shape)

    def run(kernel: Made, arrays: Arrays) -> Arrays:
        return tuple(map(moved, kernel(arrays)))

    def got(kernel: Made) -> Arrays:
        return kernel(tuple(map(moved, call.arrays)))

    for entry in call.entries if type(call.primitive).elementwise else ():
        words = (
            f"elementwise = True, but of elements in another order the kernel {entry.describe()} "
            "does not give the same results in that order"
        )
        kernel = partial(launch, entry, call)
        yield Variant(words, partial(got, kernel), partial(run, kernel), call.arrays)


def as_linear(call: Call) -> Iterator[Variant]:
    """f(2 x + 3 y), for each group of inputs, beside 2 f(x) + 3 f(y)."""
    names = [n for n in call.primitive.input_names or () if n not in call.consts]
    plain = call.sample or call.kind in SMOOTH
    for group in type(call.primitive).linear if plain else ():
        chosen = [n in group.split() for n in names]
        exact = all(d == float64 for d, at in zip(call.dtypes, chosen) if at)
        for entry in call.entries if exact else ():
            words = (
                f"linear = {group!r}, but the kernel {entry.describe()} gives another f(2 x + 3 y) "
                "than 2 f(x) + 3 f(y)"
            )
            run = _sum(partial(launch, entry, call), chosen)
            got = partial(launch, entry, call, _summed(call.arrays, chosen))
            yield Variant(words, got, run, call.arrays)


def _sum(kernel: Made, chosen: list[bool]) -> Compute:
    """2 f(x) + 3 f(y)."""

    def run(arrays: Arrays) -> Arrays:
        return tuple(2 * a + 3 * b for a, b in zip(kernel(arrays), kernel(_others(arrays, chosen))))

    return run


def _summed(arrays: Arrays, chosen: list[bool]) -> Arrays:
    others = _others(arrays, chosen)
    return tuple(2 * a + 3 * b if at else a for a, b, at in zip(arrays, others, chosen))


def _others(arrays: Arrays, chosen: list[bool]) -> Arrays:
    """Other numbers in the chosen arrays."""
    return tuple(np.flip(a) if at else a for a, at in zip(arrays, chosen))


def as_batch(call: Call) -> Iterator[Variant]:
    """Some examples at once, beside each alone; a rule also where only one input differs."""
    cls = type(call.primitive)
    rule = "the batch rule" if batch_rules.find(cls) else ""
    said = rule or (cls.elementwise and "elementwise = True") or (cls.batch and 'batch = "leading"')
    if not said or not compilable(call) or not call.arrays:
        return
    every = range(len(call.arrays))
    # Where examples share the state of a random stream, each draws for itself.
    draws = any(d == uint64 for d in call.dtypes)
    alone = len(every) > 1 and not cls.elementwise and not draws
    for mapped in (every, *([i] for i in every if alone)):
        yield from _mapped(call, set(mapped), f"under vmap, by {said}")


def _mapped(call: Call, mapped: set[int], words: str) -> Iterator[Variant]:
    """The call for examples that differ in the inputs `mapped`."""
    axes = tuple(0 if i in mapped else None for i in range(len(call.arrays)))
    examples, each = [], []
    for change in (np.asarray, np.flip, _halved):
        arrays = tuple(change(a) if i in mapped else a for i, a in enumerate(call.arrays))
        try:
            each.append(call.run(tuple(map(Tensor, arrays))))
            examples.append(arrays)
        except Exception:  # other numbers are refused
            continue
    if len(examples) < 2:
        return
    given = [
        Tensor(np.stack(parts) if i in mapped else parts[0])
        for i, parts in enumerate(zip(*examples))
    ]

    def run() -> Arrays:
        outs = vmap(lambda *xs: call.primitive(*call.args(xs)), axes)(*given)
        return tuple(out.asnumpy() for out in as_tuple(outs))

    expected = tuple(np.stack(parts) for parts in zip(*each))
    shared = " that share an input" * (len(mapped) < len(axes))
    yield Variant(
        f"{words}, examples{shared} give something else than each alone", run, fixed(expected)
    )


def _halved(a: Array) -> Array:
    """The numbers of which the last half stands in both halves, so that sums and extrema differ."""
    flat = np.flip(a).flatten()
    half = flat.size // 2
    flat[:half] = flat[flat.size - half :].copy()
    return flat.reshape(a.shape)


def as_tangent(call: Call) -> Iterator[Variant]:
    """The tangent by a rule or a fact, beside the transpose of the bprop."""
    cls = type(call.primitive)
    facts = cls.elementwise or cls.linear or cls.view
    asked = (jvp_rules.find(cls) or facts) and all(a.size for a in call.arrays)
    if not asked or not compilable(call) or not has_bprop(call):
        return
    slope = Slope(call)
    rng = np.random.default_rng(0)
    tangents = [Tensor(np.asarray(rng.normal(size=x.shape), x.dtype)) for x in slope.xs]
    points = tuple(map(Tensor, slope.xs))

    def moved() -> Arrays:
        _, along = jvp(slope.outputs, points, tuple(tangents))
        return tuple(t.asnumpy() for t in along)

    try:
        ones = [Tensor(np.ones_like(d)) for d in slope.some_cotangents()]
        _, back = vjp(lambda *douts: slope.pulled(*points, *douts), *ones)
        expected = tuple(t.asnumpy() for t in back(tuple(tangents)))
    except Exception:  # the bprop check reports it
        return
    said = "the jvp rule" if jvp_rules.find(cls) else "what the class says of itself"
    words = f"by {said}, the tangent is not what the transpose of the bprop gives"
    yield Variant(words, moved, fixed(expected))


# --- Relations -----------------------------------------------------------------------------------


Tolerance = Callable[[Call, Variant, Arrays, Arrays], str | None]


@dataclass(frozen=True, slots=True)
class Relation:
    """A row of the table. tolerance: gives the difference in words if it is more than allowed, else
    None. advice: what to do about it."""

    name: str
    variants: Callable[[Call], Iterator[Variant]]
    tolerance: Tolerance
    advice: str


def broken(call: Call, relation: Relation) -> Iterator[Issue]:
    """The first variant that differs by more than the tolerance, if there is one."""
    for variant in relation.variants(call):
        go_on()
        wrong = _wrong(call, relation, variant)
        if wrong is not None:
            text = f"{call}: {variant.words}: {wrong}"
            yield Issue(relation.name, text, relation.advice, call=variant.call)
            return


def _wrong(call: Call, relation: Relation, variant: Variant) -> str | None:
    try:
        expected = variant.run(variant.arrays)
    except (np.linalg.LinAlgError, MinimlError):
        return None  # broadcast rows make a matrix singular, equal inputs an exponent negative
    except Exception as error:
        return f"it raises {first_line(error)}"
    try:
        got = variant.got()
    except np.linalg.LinAlgError:
        return None
    except Exception as error:
        return f"it raises {first_line(error)}"
    if len(got) != len(expected):
        return f"{len(got)} outputs instead of {len(expected)}"
    return relation.tolerance(call, variant, got, expected)


def same_bits(call: Call, variant: Variant, got: Arrays, expected: Arrays) -> str | None:
    """The tolerance that allows no difference at all."""
    for i, (one, two) in enumerate(zip(expected, got)):
        if one.tobytes() != two.tobytes():
            return f"output {i} {changed(one, two)}"
    return None


def same_numbers(call: Call, variant: Variant, got: Arrays, expected: Arrays) -> str | None:
    """The tolerance that allows some roundings of the largest number."""
    return difference(got, expected, call.terms)


def within_range(call: Call, variant: Variant, got: Arrays, expected: Arrays) -> str | None:
    """That of same_numbers; nothing is said of an end of the range, where one order of the same
    products overflows, and another does not."""
    wrong = same_numbers(call, variant, got, expected)
    return None if wrong and at_an_end((*call.arrays, *expected)) else wrong


def any_order(call: Call, variant: Variant, got: Arrays, expected: Arrays) -> str | None:
    """The tolerance that allows differences that another order of the same sums explains."""
    return apart(got, expected, variant.run, variant.arrays)


# --- The table ------------------------------------------------------------------------------------


_TWICE = "let nothing depend on whether two inputs are one array: no `x is y`, no shares_memory"
_OWN = "let kernels take attributes by keyword, and keep nothing from call to call"

RELATIONS: dict[str, tuple[Relation, ...]] = {
    "repeat": (
        Relation("again", variants.again, same_bits,
            "draw randomness from an input (a key), keep no state between launches, and leave no "
            "element unwritten"),
    ),
    "layouts": (
        Relation("strides", variants.in_other_layouts, any_order,
            "let the kernel follow strides, or begin with np.ascontiguousarray"),
    ),
    "integers": (
        Relation("wider", variants.in_a_wider_dtype, same_numbers,
            "compute in a wider dtype, and convert the result; should the width of the dtype be "
            "meant, as in a count of bits, give an OpInfo with a reference"),
    ),
    "infer_value": (
        Relation("known", variants.known_beforehand, same_numbers,
            "let infer_value give what the kernel gives, or None"),
    ),
    "batching": (
        Relation("rows", variants.row_by_row, same_numbers,
            "let no row depend on another, or take batch_axes out of the OpInfo"),
    ),
    "facts": (
        Relation("view", as_view, same_bits, "correct `view` in the class, or the kernel"),
        Relation("reduces", as_reduction, any_order,
            "correct `reduces` in the class, or the kernel"),
        Relation("elementwise", as_elements, same_numbers,
            "take elementwise = True out of the class, or let no element depend on another"),
        Relation("rounds", as_exact, same_bits,
            "take rounds = False out of the class: None is right for most"),
        Relation("linear", as_linear, any_order,
            "take the inputs out of `linear`; \"x y\" are two that it is linear in together"),
        Relation("batch", as_batch, same_numbers,
            "correct the batch rule, or take the fact out of the class"),
        Relation("tangent", as_tangent, within_range,
            "correct the jvp rule, or take the fact out of the class"),
    ),
    "graph": (
        Relation("called", variants.called, same_numbers,
            "let infer_value and the kernels agree; keep no state outside the attributes"),
        Relation("compiled", variants.compiled, same_numbers,
            "let the kernel and the bprop depend on inputs and attributes only, not on when they "
            "run or are traced"),
        Relation("traced", variants.traced, same_numbers,
            "let the bprop not branch on values: use ops.select or ops.where; where only a pass "
            "changes it, correct the pass"),
    ),
    "threads": (
        Relation("kernel", variants.beside_another_thread, same_numbers,
            "keep no buffer outside of the call: allocate it, declare a workspace, or use "
            "threading.local()"),
    ),
    "one array twice": (
        Relation("kernel", variants.one_array_in_kernels, same_numbers, _TWICE),
        Relation("call", variants.one_tensor_in_calls, same_numbers, _TWICE),
        Relation("gradient", variants.one_tensor_in_gradients, same_numbers, _TWICE),
    ),
    "memory": (
        Relation("inplace", variants.in_place, same_bits,
            "read every element before it is overwritten, or do not declare inplace"),
    ),
    "in C": (
        Relation("numbers", beside_numpy, as_numpy,
            "let the expression and the kernel in NumPy compute the same"),
        Relation("memory", in_other_memory, same_bits,
            "let the kernel follow strides, or register it without strided=True"),
        Relation("threads", on_one_thread, same_bits,
            "let the parts of a kernel and the order of its sums depend on shapes alone"),
    ),
    "attributes": (
        Relation("kernel", variants.after_another, same_numbers, _OWN),
        Relation("copy", variants.from_attributes, same_bits,
            "keep all that rules, kernels and the bprop read of `self` in annotated attributes"),
    ),
    "gradient cotangents": (
        Relation("strided", variants.cotangents_in_other_layouts, any_order,
            "let every kernel in the bprop follow strides"),
        Relation("late", partial(variants.linear, "later"), any_order,
            "let the bprop compute from its inputs, outputs and cotangents; keep nothing of the "
            "last call, on self or in the module"),
        Relation("not linear", partial(variants.linear, "scale"), any_order,
            "let every term of the bprop have one factor of dout; clip gradients outside of it"),
        Relation("zero", partial(variants.linear, "zero"), same_numbers,
            "let every term of the bprop have a factor of dout"),
    ),
}  # fmt: skip


def related(name: str) -> Callable[[Call], Iterator[Issue]]:
    """The check that runs one row of the table."""

    def check(call: Call) -> Iterator[Issue]:
        for relation in RELATIONS[name]:
            yield from broken(call, relation)

    return check
