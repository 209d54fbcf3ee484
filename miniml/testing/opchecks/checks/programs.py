"""Variants of calls and gradients: with one array twice, compiled, traced, after each pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import combinations
from typing import Any

from ....dtype import is_float
from ....grad.transforms import vjp
from ....graph.function import trace
from ....graph.passes import pipeline
from ....graph.passes.rewrite import everywhere
from ....graph.replay import replay
from ....runtime.jit import jit
from ....tensor import Tensor
from ...calls import Arrays, Call, as_tuple
from ..vjp import Slope
from .attributes import others
from .comparison import Variant, difference, fixed
from .gradients import has_bprop
from .launches import copies, failure, kernels_of, launch

Function = Callable[..., Any]


def pairs(call: Call) -> Iterator[tuple[int, int]]:
    """Inputs that may be one array."""
    for i, j in combinations(range(len(call.arrays)), 2):
        a, b = call.arrays[i], call.arrays[j]
        if (a.shape, a.dtype) == (b.shape, b.dtype) and a.size:
            yield i, j


def _joined(values: tuple[Any, ...], i: int, j: int) -> tuple[Any, ...]:
    """The values, with value i in place of value j."""
    return (*values[:j], values[i], *values[j + 1 :])


def _twins(call: Call) -> Iterator[tuple[int, int, Call]]:
    """The call with input j equal to input i, in memory of its own."""
    for i, j in pairs(call):
        yield i, j, call.on((*call.arrays[:j], call.arrays[i].copy(), *call.arrays[j + 1 :]))


def one_array_in_kernels(call: Call) -> Iterator[Variant]:
    for i, j, twin in _twins(call):
        for entry in call.entries():
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
            got, apart = partial(_pulled_joined, slope, *both), _pulled_apart(slope, *both)
            yield Variant(words, got, fixed(apart))


def _pulled_joined(slope: Slope, i: int, j: int) -> Arrays:
    xs = tuple(map(Tensor, slope.xs))
    _, pull = vjp(lambda x: slope.outputs(*_joined((*xs[:i], x, *xs[i + 1 :]), i, j)), xs[i])
    return tuple(g.asnumpy() for g in pull(tuple(map(Tensor, slope.some_cotangents()))))


def _pulled_apart(slope: Slope, i: int, j: int) -> Arrays:
    gradients = slope.pulled(*map(Tensor, (*slope.xs, *slope.some_cotangents())))
    return ((gradients[i] + gradients[j]).asnumpy(),)


def compilable(call: Call) -> bool:
    """True for calls that a graph can hold."""
    return not call.primitive.dynamic_outputs and call.primitive.effect == "pure"


def called(call: Call) -> Iterator[Variant]:
    """The call against its kernels, one of which it must match."""
    known = [launch(entry, call) for entry in kernels_of(call)]
    if known:
        got = call.run(tuple(map(Tensor, call.arrays)))
        same = (outs for outs in known if difference(call, got, outs) is None)
        words = f"called, it gives other numbers than its kernel {call.entries()[0].describe()}"
        yield Variant(words, partial(tuple, got), fixed(next(same, known[0])))


def after_another(call: Call) -> Iterator[Variant]:
    """With another attribute, called after the primitive itself, against its own kernels."""
    for other in others(call.primitive) if compilable(call) else ():
        twin = Call(other, call.arrays, call.consts)
        with suppress(Exception):  # the rules refuse that attribute
            if any(failure(entry, twin) for entry in kernels_of(twin)):
                continue
            call.run()
            for variant in called(twin):
                words = f"{twin}, called after it, gives other numbers than its own kernel"
                yield variant._replace(words=words)


def compiled(call: Call) -> Iterator[Variant]:
    for what, fn, tensors, outs in _functions(call):
        words = f"{what}, compiled, is not what it is eagerly"
        yield Variant(words, partial(_outputs, jit(fn), tensors), fixed(outs))


def traced(call: Call) -> Iterator[Variant]:
    """Traced and run op by op, and again after each pass."""
    for what, fn, tensors, outs in _functions(call):
        graph = trace(fn, *tensors)
        got = partial(_outputs, partial(replay, graph), (tensors,))
        yield Variant(f"{what}, traced, is not what it is eagerly", got, fixed(outs))
        for name, pass_ in pipeline():
            graph = everywhere(pass_, graph)
            got = partial(_outputs, partial(replay, graph), (tensors,))
            yield Variant(f"{what} changes in the pass {name!r}", got, fixed(outs))


def _functions(call: Call) -> Iterator[tuple[str, Function, tuple[Tensor, ...], Arrays]]:
    """The call and its gradient as functions, with arguments and eager results."""

    def function(*xs: Any) -> Any:
        return call.primitive(*call.args(xs))

    tensors = tuple(map(Tensor, call.arrays))
    yield "the call", function, tensors, _outputs(function, tensors)
    if has_bprop(call):
        slope = Slope(call)
        given = tuple(map(Tensor, (*slope.xs, *slope.some_cotangents())))
        with suppress(Exception):  # the bprop check reports it
            yield "the gradient", slope.pulled, given, _outputs(slope.pulled, given)


def _outputs(fn: Function, args: tuple[Any, ...]) -> Arrays:
    return tuple(o.asnumpy() for o in as_tuple(fn(*args)) if o is not None)
