"""Compiled, op by op, batched or known beforehand: a call gives the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from ....bprop import bprop_getters
from ....dtype import is_float
from ....errors import BpropNotFoundError
from ....graph.function import trace
from ....graph.passes import pipeline
from ....graph.passes.rewrite import everywhere
from ....graph.replay import replay
from ....runtime.jit import jit
from ....tensor import Tensor
from ...calls import Arrays, Call, as_tuple
from ...tolerance import mismatch, unit_roundoff
from ..session import Problem
from ..vjp import Slope
from .accuracy import alike_where_not_finite
from .launches import launch, launched

Function = Callable[..., Any]


def compilable(call: Call) -> bool:
    """True for calls that a graph can hold."""
    return not call.primitive.dynamic_outputs and call.primitive.effect == "pure"


def graph(call: Call) -> Iterator[Problem]:
    """Eager, a kernel alone, the compiled program and the graph after each pass agree."""
    tensors = [Tensor(a) for a in call.arrays]
    came = call.run(tuple(tensors))
    entries = call.entries()
    if entries and launched(call):
        known = [launch(e, call) for e in entries]
        if not any(_same(call, came, outs) for outs in known):
            wrong = difference(call, came, known[0])
            yield Problem(
                "eager",
                f"{call}: called, it gives other numbers than its kernel "
                f"{entries[0].describe()}: {wrong}",
                "let infer_value and the kernels agree; keep no state outside the attributes",
            )
    yield from _compiled(call, "the call", lambda *xs: call.primitive(*call.args(xs)), tensors)
    slope = Slope(call)
    if slope.xs and _differentiable(call):
        douts = slope.cotangents(np.random.default_rng(0))
        given = [Tensor(a) for a in (*slope.xs, *douts)]
        with suppress(BpropNotFoundError):  # a bprop that refuses, and says what to do instead
            yield from _compiled(call, "the gradient", slope.pulled, given)


def _differentiable(call: Call) -> bool:
    primitive = type(call.primitive)
    return primitive.differentiable and bprop_getters.find(primitive) is not None


def _compiled(call: Call, what: str, fn: Function, tensors: list[Tensor]) -> Iterator[Problem]:
    right = _arrays(fn(*tensors))
    wrong = difference(call, _arrays(jit(fn)(*tensors)), right)
    if wrong is not None:
        yield Problem(
            f"{what} compiled",
            f"{call}: {what}, compiled, is not what it is eagerly: {wrong}",
            "let the kernel and the bprop depend on inputs and attributes only, not on when they "
            "run or are traced",
        )
    traced = trace(fn, *tensors)
    wrong = difference(call, _arrays(replay(traced, tensors)), right)
    if wrong is not None:
        yield Problem(
            f"{what} traced",
            f"{call}: {what}, traced and run op by op, is not what it is eagerly: {wrong}",
            "let the bprop not branch on values: use ops.select or ops.where",
        )
        return
    for name, pass_ in pipeline():
        traced = everywhere(pass_, traced)
        wrong = difference(call, _arrays(replay(traced, tensors)), right)
        if wrong is not None:
            yield Problem(
                f"{what} after {name}",
                f"{call}: {what} changes in the pass {name!r}: {wrong}",
                f"correct the pass {name!r}",
            )
            return


def _arrays(outs: Any) -> Arrays:
    return tuple(o.asnumpy() for o in as_tuple(outs) if o is not None)


def _same(call: Call, came: Arrays, right: Arrays) -> bool:
    return difference(call, came, right) is None


def difference(call: Call, came: Arrays, right: Arrays) -> str | None:
    """What differs beyond rounding, in a sentence."""
    if len(came) != len(right):
        return f"{len(came)} outputs instead of {len(right)}"
    for i, (a, b) in enumerate(zip(came, right)):
        if a.dtype != b.dtype:
            return f"output {i} has dtype {a.dtype}, not {b.dtype}"
        scale = 0.0
        if is_float(b.dtype):
            numbers = np.abs(b.astype(np.float64))
            largest = float(np.max(numbers, where=np.isfinite(numbers), initial=0.0))
            scale = unit_roundoff(b.dtype) * largest
        wrong = mismatch(a, alike_where_not_finite(a, b), call.terms, scale)
        if wrong is not None:
            return f"output {i} {wrong}"
    return None


def infer_value(call: Call) -> Iterator[Problem]:
    """What infer_value knows is what the kernel computes."""
    result = call.primitive.infer_value(*call.args())
    if result is None:
        return
    results = (result,) if call.primitive._single else tuple(result)
    known = tuple(np.asarray(r) for r in results)
    for entry in call.entries() if launched(call) else ():
        outs = launch(entry, call)
        for i, (k, out) in enumerate(zip(known, outs)):
            same_kind = k.shape == out.shape and (k.dtype == out.dtype or k.dtype != object)
            wrong = (
                mismatch(k.astype(out.dtype), out, call.terms)
                if same_kind
                else f"is {k.dtype}{list(k.shape)}, should be {out.dtype}{list(out.shape)}"
            )
            if wrong is not None:
                yield Problem(
                    f"output {i}",
                    f"{call}: output {i} of infer_value {wrong} (the kernel {entry.describe()})",
                    "let infer_value give what the kernel gives, or None",
                )


def batched(call: Call) -> bool:
    """True where the OpInfo claims that the call works row by row."""
    return call.info is not None and call.info.batch_axes is not None and launched(call)


def batching(call: Call) -> Iterator[Problem]:
    """Row by row gives what all rows together give."""
    assert call.info is not None
    assert call.info.batch_axes is not None
    axes = [
        None if axis is None else axis % max(a.ndim, 1)
        for axis, a in zip(call.info.batch_axes, call.arrays)
    ]
    extents = {a.shape[x] for x, a in zip(axes, call.arrays) if x is not None and a.ndim > x}
    if len(extents) != 1 or extents == {0}:
        return
    (rows,) = extents
    axis = next(x for x in axes if x is not None)
    for entry in call.entries():
        whole = launch(entry, call)
        parts = []
        for row in range(rows):
            one = call.on(
                tuple(
                    a if x is None else np.take(a, [row], axis=x) for x, a in zip(axes, call.arrays)
                )
            )
            parts.append(launch(entry, one))
        for i, out in enumerate(whole):
            joined = np.concatenate([p[i] for p in parts], axis=min(axis, out.ndim - 1))
            wrong = difference(call, (joined,), (out,))
            if wrong is not None:
                yield Problem(
                    f"output {i}",
                    f"{call}: row by row along batch_axes={call.info.batch_axes} the kernel "
                    f"{entry.describe()} gives something else than on all rows: {wrong}",
                    "let no row depend on another, or take batch_axes out of the OpInfo",
                )
