"""Variants of a call that must give the same outputs: of kernels, pull-backs and programs.

In order: kernels that run again, in place, on other layouts, row by row, in a wider dtype or beside
another thread; two threads in one Python function, interleaved after every step; pull-backs of
cotangents in other layouts, scaled, or zero; calls and gradients with one array twice, compiled,
traced, and after each pass.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import combinations
from math import prod
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ...backends import kernel, registry
from ...backends.kernel import KernelEntry
from ...core.abstract import Abstract, DType, bool_, float64, int64, is_float
from ...core.errors import MinimlError
from ...core.infer import infer_value
from ...core.tensor import Tensor
from ...grad.transforms import vjp
from ...graph.passes import pipeline
from ...graph.passes.rewrite import everywhere
from ...graph.record import replay
from ...graph.tracing import trace
from ...runtime.jit import jit
from ..calls import (
    CONTIGUOUS,
    Array,
    Arrays,
    Call,
    as_tuple,
    copies,
    failure,
    go_on,
    kernels_of,
    laid_out,
    launch,
    named,
    run_entry,
    usual_layouts,
    wide_kernel,
)
from ..gradchecks.linearity import Equation, equations
from ..tolerance import at_an_end, difference, limits_of, too_large
from .gradients import Slope, has_bprop
from .rules import others
from .values import accepts

_RUNS = 4  # of each kernel, after the first
_MANY = 300  # more terms than a byte can count
_MOST = 2**14  # elements of one array


Compute = Callable[[Arrays], Arrays]


class Variant(NamedTuple):
    """Another way to compute something.

    words: the message if it differs. got: the variant's outputs. run: computes the expected ones
    from `arrays`, and may be called on others. call: one that shows this variant alone.
    """

    words: str
    got: Callable[[], Arrays]
    run: Compute
    arrays: Arrays = ()
    call: Call | None = None


def fixed(outs: Arrays) -> Compute:
    """A `run` for a variant whose expected outputs are known."""
    return lambda arrays: outs


def again(call: Call) -> Iterator[Variant]:
    """The kernel again, at once, and after it ran on other numbers and on longer inputs."""
    between = [call.on(_flipped(call)), *map(call.on, _longer(call))]
    for entry in kernels_of(call):
        first = tuple(o.copy() for o in launch(entry, call))
        for _ in range(_RUNS):
            words = f"the kernel {entry.describe()} gives other numbers when it runs again"
            yield Variant(words, partial(launch, entry, call), fixed(first))
        words = f"after calls with other inputs, the kernel {entry.describe()} gives other numbers"
        yield Variant(words, partial(_after, entry, call, between), fixed(first))


def _after(entry: KernelEntry, call: Call, between: list[Call]) -> Arrays:
    for other in between:
        failure(entry, other)
    return launch(entry, call)


def _flipped(call: Call) -> Arrays:
    return tuple(np.flip(a.reshape(-1)).reshape(a.shape) for a in call.arrays)


def _longer(call: Call) -> Iterator[Arrays]:
    """The numbers of the call, again and again along its longest extent, if the rules accept it."""
    extent = max((n for a in call.arrays for n in a.shape), default=0)
    shapes = _with_extent(call, extent, 2 * extent + 3)
    if extent and shapes:
        yield tuple(np.resize(np.flip(a.reshape(-1)), s) for a, s in zip(call.arrays, shapes))


def _with_extent(call: Call, extent: int, other: int) -> tuple[tuple[int, ...], ...]:
    """The shapes of the call with another extent; none if the rules refuse them, or too large."""
    shapes = tuple(tuple(other if n == extent else n for n in a.shape) for a in call.arrays)
    small = max(map(prod, shapes), default=0) <= _MOST
    return shapes if small and accepts(call.primitive, shapes, call.dtypes) else ()


def in_place(call: Call) -> Iterator[Variant]:
    for entry in kernels_of(call):
        for i in entry.inplace:
            out, a = call.inferred[0], call.arrays[i]
            if (a.shape, a.dtype) == (out.shape, out.dtype):
                words = (
                    f"the kernel {entry.describe()} declares inplace={i}, but gives other numbers "
                    f"when out is input {i}"
                )
                got = partial(_into_input, entry, call, i)
                yield Variant(words, got, partial(launch, entry, call), call.arrays)


def _into_input(entry: KernelEntry, call: Call, i: int) -> Arrays:
    arrays = copies(call)
    return run_entry(entry, call, arrays, (arrays[i],))


def in_other_layouts(call: Call) -> Iterator[Variant]:
    count = len(call.arrays)
    alone = [
        tuple("sliced" if i == k else CONTIGUOUS for i in range(count))
        for k in range(count if count > 1 else 0)
    ]
    for entry in kernels_of(call):
        for layouts in call.layouts or (*usual_layouts(count), *alone):
            arrays = laid_out(call.arrays, layouts)
            words = (
                f"on {named(layouts[:count], 'input')} the kernel {entry.describe()} gives "
                "something else than on contiguous ones"
            )
            got, run = partial(launch, entry, call, arrays), partial(launch, entry, call)
            yield Variant(words, got, run, dense(arrays), replace(call, layouts=(layouts,)))


def dense(arrays: Arrays) -> Arrays:
    """Contiguous copies of the arrays."""
    return tuple(np.array(a, order="C") for a in arrays)


def known_beforehand(call: Call) -> Iterator[Variant]:
    given = [Abstract(a.shape, a.dtype, a) if isinstance(a, np.ndarray) else a for a in call.args()]
    result = infer_value(call.primitive, tuple(given))
    if result is None:
        return
    known = [np.asarray(r) for r in ((result,) if call.primitive._single else tuple(result))]
    for entry in kernels_of(call):
        outs = launch(entry, call)
        got = tuple(k if k.dtype == object else k.astype(o.dtype) for k, o in zip(known, outs))
        words = f"infer_value gives something else than the kernel {entry.describe()}"
        yield Variant(words, partial(tuple, got), fixed(outs))


def row_by_row(call: Call) -> Iterator[Variant]:
    assert call.info is not None
    assert call.info.batch_axes is not None
    each = list(zip(call.info.batch_axes, call.arrays))
    axes = [None if axis is None else axis % max(a.ndim, 1) for axis, a in each]
    extents = {a.shape[x] for x, a in zip(axes, call.arrays) if x is not None and a.ndim > x}
    if len(extents) != 1 or extents == {0}:
        return
    for entry in call.entries:
        words = (
            f"row by row along batch_axes={call.info.batch_axes} the kernel {entry.describe()} "
            "gives something else than on all rows"
        )
        got = partial(_rows, entry, call, axes, *extents)
        yield Variant(words, got, partial(launch, entry, call), call.arrays)


def _rows(entry: KernelEntry, call: Call, axes: list[int | None], count: int) -> Arrays:
    parts = []
    for row in range(count):
        taken = [a if x is None else np.take(a, [row], x) for x, a in zip(axes, call.arrays)]
        parts.append(launch(entry, call.on(tuple(taken))))
    axis = next(x for x in axes if x is not None)
    return tuple(np.concatenate(outs, min(axis, outs[0].ndim - 1)) for outs in zip(*parts))


def in_a_wider_dtype(call: Call) -> Iterator[Variant]:
    """A kernel of narrow integers against that of int64 (or float64), wherever its dtype holds the
    result: on the call, on numbers from the whole range of each dtype, and on long axes."""
    for wide in (int64, float64):
        by = wide_kernel(call, _cast(call.arrays, wide))
        if by is not None:
            yield from _beside(call, by, wide)
            return


def _beside(call: Call, by: KernelEntry, wide: DType) -> Iterator[Variant]:
    for arrays in (call.arrays, _whole_range(call), *_prolonged(call)):
        other, twin = call.on(arrays), call.on(_cast(arrays, wide))
        for entry in call.entries:
            with suppress(Exception):  # these numbers are refused
                outs, rights = launch(entry, other), launch(by, twin)
                words = (
                    f"for {other} the kernel {entry.describe()} gives something else than the "
                    f"kernel in {wide.name}, whose result {outs[0].dtype.name} can hold"
                )
                yield Variant(words, partial(tuple, outs), fixed(_held(outs, rights)), (), other)


def _cast(arrays: Arrays, dtype: DType) -> Arrays:
    return tuple(a.astype(dtype) for a in arrays)


def _held(outs: Arrays, rights: Arrays) -> Arrays:
    """The right results in the dtypes of the outputs; the outputs themselves where their dtype
    cannot hold the result."""
    with np.errstate(all="ignore"):
        cast = [r.astype(o.dtype) for o, r in zip(outs, rights)]
        held = [np.isfinite(c) if is_float(c.dtype) else c == r for c, r in zip(cast, rights)]
    return tuple(
        np.where(h, c, o) if h.shape == o.shape else o for h, c, o in zip(held, cast, outs)
    )


def _whole_range(call: Call) -> Arrays:
    rng = np.random.default_rng(0)
    drawn = []
    for a in call.arrays:
        if a.dtype != bool_ and a.dtype.itemsize < int64.itemsize:
            limits = np.iinfo(a.dtype)
            a = np.asarray(rng.integers(limits.min, limits.max, a.shape, a.dtype, endpoint=True))
        drawn.append(a)
    return tuple(drawn)


def _prolonged(call: Call) -> Iterator[Arrays]:
    """The largest numbers, in the shapes of the call with each extent in turn so large that a byte
    cannot count it, if the rules still accept them."""
    for extent in sorted({n for a in call.arrays for n in a.shape if n > 1}):
        shapes = _with_extent(call, extent, _MANY)
        if shapes:
            most = (1 if d == bool_ else np.iinfo(d).max for d in call.dtypes)
            yield tuple(map(np.full, shapes, most, call.dtypes))


def beside_another_thread(call: Call) -> Iterator[Variant]:
    other = _flipped(call)
    for entry in call.entries:
        words = (
            f"while another thread runs the kernel {entry.describe()} on other numbers, it gives "
            "something else than alone"
        )
        run = partial(launch, entry, call)
        yield Variant(words, partial(interleaved, run, partial(run, other)), run, call.arrays)


# --- Two threads in one function ------------------------------------------------------------------


T = TypeVar("T")

_STOPS = 150
# By instruction, later versions lose events of functions in two threads (3.13), or crash (3.12).
_BY_INSTRUCTION = sys.version_info < (3, 12)
_PATIENCE = 0.1  # seconds after which the other thread is assumed to wait for a lock
_SKIPPED = (
    os.path.dirname(np.__file__), str(Path(__file__).parents[2]),
    *(str(m.__file__) for m in (registry, kernel)),  # which call kernels
)  # fmt: skip


def interleaved(run: Callable[[], T], other: Callable[[], Any]) -> T:
    """The result of run() if `other` runs, from start to end in another thread, after each of its
    steps.

    The steps are the instructions (from Python 3.12 on, the lines) of Python functions, the first
    hundred or so, except those of NumPy and of the code here that calls kernels: so every conflict
    between two threads at such a point happens, each time. If the other thread has to wait, as for
    a lock, no more steps are interrupted.
    """
    before = sys.gettrace()
    with ThreadPoolExecutor(1) as thread:
        stops = _Stops(lambda: thread.submit(other))
        sys.settrace(stops.called)
        try:
            return run()
        finally:
            sys.settrace(before)


class _Stops:
    """The trace functions of the interpreter in the first thread."""

    def __init__(self, start: Callable[[], Future[Any]]):
        self._start, self._left = start, _STOPS

    def called(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Trace a function that is called, unless it belongs to a library."""
        if self._left <= 0 or frame.f_code.co_filename.startswith(_SKIPPED):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = _BY_INSTRUCTION, not _BY_INSTRUCTION
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, arg: Any) -> Any:
        if self._left > 0:
            self._left -= 1
            started = self._start()
            if not wait([started], _PATIENCE).done:
                self._left = 0
        return self._stepped


# --- Pull-backs -----------------------------------------------------------------------------------


def cotangents_in_other_layouts(call: Call) -> Iterator[Variant]:
    """Gradients for cotangents in other layouts, alone and with the inputs, against contiguous
    ones."""
    slope = Slope(call)
    base = _base(slope)
    if base is None:
        return
    run, plain = base
    count, n = len(call.arrays), len(slope.xs)
    for layouts in call.layouts or usual_layouts(count + len(call.inferred), 2):
        inputs = laid_out(call.arrays, layouts[:count])
        own = tuple(word for word, o in zip(layouts[count:], call.inferred) if is_float(o.dtype))
        for beside in (False, True):
            xs = tuple(inputs[i] for i in slope.positions) if beside else slope.xs
            given = (*xs, *laid_out(plain[n:], own))
            words = f"with {named(own, 'cotangent')}"
            words += f" and {named(layouts[:count], 'input')}" if beside else ""
            words += " the gradient is not what it is with contiguous ones"
            repeated = any(0 in a.strides for a in given)  # broadcasting changes the numbers
            shown = replace(call, layouts=(layouts,))
            got, contiguous = partial(pulled, slope, given), dense(given) if repeated else plain
            yield Variant(words, got, run, contiguous, shown)


def linear(kind: str, call: Call) -> Iterator[Variant]:
    """The `equations` of one kind for a pull-back that is made once."""
    slope = Slope(call)
    base = _base(slope)
    if base is None or not slope.xs or (kind == "scale" and at_an_end(call.arrays)):
        return
    run, plain = base
    n, right = len(slope.xs), run(plain)
    narrow = any(a.dtype.itemsize <= 2 for a in (*plain[n:], *right))  # scaled ones may leave it
    _, pull = vjp(slope.outputs, *map(_tensor, plain[:n]))
    for equation in equations(plain[n:], plain[n:], slope.elsewhere):
        if equation.kind == kind and not (narrow and abs(equation.scale) != 1):
            expected = run if equation.terms else fixed(tuple(map(np.zeros_like, right)))
            got = partial(_pulled_as, equation, pull, right)
            yield Variant(equation.message, got, expected, plain)


def _pulled_as(equation: Equation, pull: Any, right: Arrays) -> Arrays:
    equation.before()
    go_on()
    with np.errstate(all="ignore"):
        gradients = pull(tuple(map(_tensor, equation.given)))
        return tuple(_sided(equation, g.asnumpy(), r) for g, r in zip(gradients, right))


def _sided(equation: Equation, gradient: Array, right: Array) -> Array:
    """The gradient on its side of an equation; what is right where that cannot be told: zeros for
    dout = 0 where it is not finite otherwise, `right` where the dtype has no number so scaled."""
    if not equation.terms:
        whole = np.isfinite(right.astype(float64)).all()
        return gradient if whole else np.zeros_like(gradient)
    size, scale = np.abs(right.astype(float64) * equation.scale), equation.scale
    kept = ~too_large(size, right.dtype) & (size > float(limits_of(right.dtype).tiny))
    there = kept | (right == 0) | (scale == 1.0)
    return np.where(there, gradient / gradient.dtype.type(scale), right)


def _base(slope: Slope) -> tuple[Compute, Arrays] | None:
    """The pull-back, which caches its last result, with inputs and cotangents of ordinary size;
    None if there is nothing to pull back, or it is refused."""
    douts = slope.some_cotangents()
    given = (*slope.xs, *douts)
    last: list[Arrays] = []

    def run(arrays: Arrays) -> Arrays:
        if not last or last[0] is not arrays:
            last[:] = arrays, pulled(slope, arrays)
        return last[1]

    try:
        return (run, given) if all(d.size for d in douts) and run(given) else None
    except MinimlError:
        return None  # the bprop check reports it


def pulled(slope: Slope, xs_and_douts: Arrays) -> Arrays:
    """The gradients, as arrays; the arguments keep their strides."""
    return tuple(g.asnumpy() for g in slope.pulled(*map(_tensor, xs_and_douts)))


def _tensor(a: Array) -> Tensor:
    return Tensor.wrap(a.view(), "cpu")


# --- Programs -------------------------------------------------------------------------------------


Function = Callable[..., Any]


def one_array_in_kernels(call: Call) -> Iterator[Variant]:
    for i, j, twin in _twins(call):
        for entry in call.entries:
            words = (
                f"given one array as inputs {i} and {j}, the kernel {entry.describe()} gives "
                "something else than for two equal arrays"
            )
            got = partial(launch, entry, twin, _joined(copies(twin), i, j))
            yield Variant(words, got, partial(launch, entry, twin), twin.arrays)


def one_tensor_in_calls(call: Call) -> Iterator[Variant]:
    for i, j, twin in _twins(call) if compilable(call) else ():
        function = partial(_call_joined, call, i, j)
        for how, run in (("called", function), ("compiled", jit(function))):
            words = (
                f"{how} with one tensor as inputs {i} and {j}, it gives something else than for "
                "two equal tensors"
            )
            got = partial(_outputs, run, tuple(map(Tensor, twin.arrays)))
            yield Variant(words, got, twin.run, twin.arrays)


def _call_joined(call: Call, i: int, j: int, *xs: Any) -> Any:
    return call.primitive(*call.args(_joined(xs, i, j)))


def one_tensor_in_gradients(call: Call) -> Iterator[Variant]:
    for i, j, twin in _twins(call) if has_bprop(call) else ():
        if is_float(call.arrays[i].dtype):
            slope = Slope(twin)
            both = slope.positions.index(i), slope.positions.index(j)
            words = (
                f"with one tensor as inputs {i} and {j}, its gradient is not the sum of the two "
                "gradients that equal tensors have"
            )
            each = slope.pulled(*map(Tensor, (*slope.xs, *slope.some_cotangents())))
            apart = ((each[both[0]] + each[both[1]]).asnumpy(),)
            yield Variant(words, partial(_pulled_joined, slope, *both), fixed(apart))


def _pulled_joined(slope: Slope, i: int, j: int) -> Arrays:
    xs = tuple(map(Tensor, slope.xs))
    _, pull = vjp(lambda x: slope.outputs(*_joined((*xs[:i], x, *xs[i + 1 :]), i, j)), xs[i])
    return tuple(g.asnumpy() for g in pull(tuple(map(Tensor, slope.some_cotangents()))))


def _twins(call: Call) -> Iterator[tuple[int, int, Call]]:
    """The call with input j equal to input i, in memory of its own."""
    for i, j in pairs(call):
        yield i, j, call.on((*call.arrays[:j], call.arrays[i].copy(), *call.arrays[j + 1 :]))


def pairs(call: Call) -> Iterator[tuple[int, int]]:
    """Pairs of inputs that may be one array."""
    for i, j in combinations(range(len(call.arrays)), 2):
        a, b = call.arrays[i], call.arrays[j]
        if (a.shape, a.dtype) == (b.shape, b.dtype) and a.size:
            yield i, j


def _joined(values: tuple[Any, ...], i: int, j: int) -> tuple[Any, ...]:
    """The values, with value j replaced by value i."""
    return (*values[:j], values[i], *values[j + 1 :])


def compilable(call: Call) -> bool:
    """True for calls that a graph can hold."""
    return not call.primitive.dynamic_outputs and call.primitive.effect != "state"


def called(call: Call) -> Iterator[Variant]:
    """The call against its kernels, at least one of which it must match."""
    known = [launch(entry, call) for entry in kernels_of(call)]
    if known:
        got = call.run(tuple(map(Tensor, call.arrays)))
        same = (outs for outs in known if difference(got, outs, call.terms) is None)
        words = f"called, it gives other numbers than its kernel {call.entries[0].describe()}"
        yield Variant(words, partial(tuple, got), fixed(next(same, known[0])))


def after_another(call: Call) -> Iterator[Variant]:
    """The primitive with another attribute, called after the primitive itself, against its own
    kernels."""
    for other in others(call.primitive) if compilable(call) else ():
        twin = Call(other, call.arrays, call.consts)
        with suppress(Exception):  # the rules refuse that attribute
            if any(failure(entry, twin) for entry in kernels_of(twin)):
                continue
            call.run()
            for variant in called(twin):
                words = f"{twin}, called after it, gives other numbers than its own kernel"
                yield variant._replace(words=words)


def from_attributes(call: Call) -> Iterator[Variant]:
    """The call and its gradient, of a primitive that is made of the attributes alone."""
    with suppress(Exception):  # `attributes` reports it
        twin = call.primitive.with_attributes(call.primitive.attributes)
        for what, _, tensors, outs in _functions(call) if compilable(call) else ():
            words = f"{what} of a primitive made of the attributes alone is not that of this one"
            fn = _callables(replace(call, primitive=twin))[what]
            yield Variant(words, partial(_outputs, fn, tensors), fixed(outs))


def compiled(call: Call) -> Iterator[Variant]:
    for what, fn, tensors, outs in _functions(call):
        words = f"{what}, compiled, is not what it is eagerly"
        yield Variant(words, partial(_outputs, jit(fn), tensors), fixed(outs))


def traced(call: Call) -> Iterator[Variant]:
    """The call and its gradient traced, run op by op, and again after each pass."""
    for what, fn, tensors, outs in _functions(call):
        graph = trace(fn, *tensors)
        got = partial(_outputs, partial(replay, graph), (tensors,))
        yield Variant(f"{what}, traced, is not what it is eagerly", got, fixed(outs))
        for name, pass_ in pipeline():
            graph = everywhere(pass_, graph)
            got = partial(_outputs, partial(replay, graph), (tensors,))
            yield Variant(f"{what} changes in the pass {name!r}", got, fixed(outs))


def _callables(call: Call) -> dict[str, Function]:
    """The call and its gradient, as functions."""

    def function(*xs: Any) -> Any:
        return call.primitive(*call.args(xs))

    return {"the call": function, "the gradient": Slope(call).pulled}


def _functions(call: Call) -> Iterator[tuple[str, Function, tuple[Tensor, ...], Arrays]]:
    """The call and its gradient as functions, with arguments and eager results."""
    function, pulled = _callables(call).values()
    tensors = tuple(map(Tensor, call.arrays))
    yield "the call", function, tensors, _outputs(function, tensors)
    if has_bprop(call):
        slope = Slope(call)
        given = tuple(map(Tensor, (*slope.xs, *slope.some_cotangents())))
        with suppress(Exception):  # the bprop check reports it
            yield "the gradient", pulled, given, _outputs(pulled, given)


def _outputs(fn: Function, args: tuple[Any, ...]) -> Arrays:
    return tuple(o.asnumpy() for o in as_tuple(fn(*args)) if o is not None)
