"""What calls may share: one array for two inputs, a kernel that several threads run at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from ....backends.kernel import KernelEntry
from ....dtype import is_float
from ....grad.transforms import vjp
from ....runtime.jit import jit
from ....tensor import Tensor
from ...calls import Arrays, Call, as_tuple
from ..session import Problem
from ..vjp import Slope
from .gradients import has_bprop
from .interleaved import interleaved
from .launches import copies, launch, launched
from .programs import compilable
from .relations import Relation, Variant, related

_TWICE = "let nothing depend on whether two inputs are one array: no `x is y`, no shares_memory"


def shareable(call: Call) -> bool:
    """True where two inputs may be one array."""
    return launched(call) and next(_pairs(call), None) is not None


def one_array_twice(call: Call) -> Iterator[Problem]:
    """p(x, x) is p(x, copy of x): for kernels, called, compiled and in a gradient."""
    return related(call, TWICE)


def several_threads(call: Call) -> Iterator[Problem]:
    """A kernel gives the same while another thread runs it on other numbers."""
    return related(call, THREADS)


def threadable(call: Call) -> bool:
    """True for calls of which there is another with the same numbers in another order."""
    return launched(call) and any(1 < a.size <= 64 for a in call.arrays)


def _pairs(call: Call) -> Iterator[tuple[int, int]]:
    for i, j in combinations(range(len(call.arrays)), 2):
        a, b = call.arrays[i], call.arrays[j]
        if (a.shape, a.dtype) == (b.shape, b.dtype) and a.size:
            yield i, j


def _with_twin(call: Call, i: int, j: int) -> Call:
    """The call with input j equal to input i, in memory of its own."""
    arrays = list(call.arrays)
    arrays[j] = arrays[i].copy()
    return call.on(tuple(arrays))


def _joined(values: tuple[Any, ...], i: int, j: int) -> tuple[Any, ...]:
    """The values with value i in place j as well."""
    return (*values[:j], values[i], *values[j + 1 :])


def _in_kernels(call: Call) -> Iterator[Variant]:
    for i, j in _pairs(call):
        twin = _with_twin(call, i, j)
        for entry in call.entries():
            yield Variant(
                f"given one array as inputs {i} and {j}, the kernel {entry.describe()} gives "
                "something else than for two equal arrays",
                partial(_launched_joined, entry, twin, i, j),
                partial(launch, entry, twin),
            )


def _launched_joined(entry: KernelEntry, call: Call, i: int, j: int) -> Arrays:
    return launch(entry, call, _joined(copies(call), i, j))


def _called(call: Call) -> Iterator[Variant]:
    for i, j in _pairs(call) if compilable(call) else ():
        twin = _with_twin(call, i, j)
        for how, run in (("called", _eagerly), ("compiled", _compiled)):
            words = f"{how} with one tensor as inputs {i} and {j}, it gives something else than for"
            yield Variant(f"{words} two equal tensors", partial(run, twin, i, j), twin.run)


def _eagerly(call: Call, i: int, j: int) -> Arrays:
    return call.run(_joined(tuple(map(Tensor, call.arrays)), i, j))


def _compiled(call: Call, i: int, j: int) -> Arrays:
    def joined(*xs: Tensor) -> Any:
        return call.primitive(*call.args(_joined(xs, i, j)))

    return tuple(o.asnumpy() for o in as_tuple(jit(joined)(*map(Tensor, call.arrays))))


def _in_gradients(call: Call) -> Iterator[Variant]:
    for i, j in _pairs(call) if has_bprop(call) else ():
        if is_float(call.arrays[i].dtype):
            slope = Slope(_with_twin(call, i, j))
            places = slope.places.index(i), slope.places.index(j)
            yield Variant(
                f"with one tensor as inputs {i} and {j}, its gradient is not the sum of the two "
                "gradients that equal tensors have",
                partial(_pulled_joined, slope, *places),
                partial(_pulled_apart, slope, *places),
            )


def _pulled_joined(slope: Slope, i: int, j: int) -> Arrays:
    xs = tuple(map(Tensor, slope.xs))
    _, pull = vjp(lambda x: slope.outputs(*_joined((*xs[:i], x, *xs[i + 1 :]), i, j)), xs[i])
    return tuple(g.asnumpy() for g in pull(_douts(slope)))


def _pulled_apart(slope: Slope, i: int, j: int) -> Arrays:
    gradients = slope.pulled(*map(Tensor, slope.xs), *_douts(slope))
    return ((gradients[i] + gradients[j]).asnumpy(),)


def _douts(slope: Slope) -> tuple[Tensor, ...]:
    return tuple(map(Tensor, slope.cotangents(np.random.default_rng(0))))


def _between_threads(call: Call) -> Iterator[Variant]:
    other = call.on(tuple(np.flip(a.reshape(-1)).reshape(a.shape) for a in call.arrays))
    for entry in call.entries():
        run: Callable[[Call], Arrays] = partial(launch, entry)
        yield Variant(
            f"while another thread runs the kernel {entry.describe()} on other numbers, it gives "
            "something else than alone",
            partial(interleaved, partial(run, call), partial(run, other)),
            partial(run, call),
        )


TWICE = (
    Relation("kernel", _in_kernels, _TWICE),
    Relation("call", _called, _TWICE),
    Relation("gradient", _in_gradients, _TWICE),
)
THREADS = (
    Relation(
        "kernel",
        _between_threads,
        "keep no buffer outside of the call: allocate it, declare a workspace, or use "
        "threading.local()",
    ),
)
