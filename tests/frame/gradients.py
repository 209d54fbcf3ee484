"""Checks of gradients, of order one and two and in narrow dtypes, and of compiled calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import miniml as ml
from miniml.dtype import DType, float64
from miniml.errors import DTypeError
from miniml.grad import vjp
from miniml.testing import OpInfo
from miniml.testing.calls import Arrays, Call, as_tuple, calls
from miniml.testing.opchecks.vjp import Slope, weights
from miniml.testing.tolerance import mismatch, spread_of

from .numeric import disagreement


def _slopes(row: OpInfo, dtype: DType, rng: np.random.Generator) -> list[Slope]:
    if not row.primitive.differentiable:
        return []
    slopes = [Slope(call) for call in calls(row, dtype, rng) if not call.primitive.dynamic_outputs]
    return [s for s in slopes if s.xs and s.dtypes() == {dtype}]


def _compare(
    what: str, fn: Callable[..., tuple[Any, ...]], xs: Arrays, rng: np.random.Generator
) -> None:
    """The vjp of `fn` against differences of `fn`, in one random direction per argument."""
    outs, pull = vjp(fn, *xs)
    douts = tuple(weights(rng, o.shape, float64) for o in outs)
    gradients = tuple(g.asnumpy() for g in pull(douts))
    for i, (x, gradient) in enumerate(zip(xs, gradients)):
        assert (gradient.shape, gradient.dtype) == (x.shape, x.dtype), (
            f"{what}: gradient {i} is {gradient.dtype}{list(gradient.shape)}"
        )
        if not x.size:
            continue
        along = weights(rng, x.shape, float64)

        def phi(t: float, i: int = i, along: np.ndarray = along) -> float:
            moved = (*xs[:i], xs[i] + t * along, *xs[i + 1 :])
            return float(sum(np.sum(d * o.asnumpy()) for d, o in zip(douts, fn(*moved))))

        wrong = disagreement(phi, float(np.sum(gradient * along)), float(np.abs(gradient).sum()))
        assert wrong is None, f"{what}: the derivative by argument {i} {wrong}"


def check_gradient(row: OpInfo, dtype: DType, rng: np.random.Generator) -> None:
    """The gradient is the derivative of what the kernels compute."""
    for slope in _slopes(row, dtype, rng):
        _compare(f"{slope.call}", slope.outputs, slope.xs, rng)


def check_second_gradient(row: OpInfo, dtype: DType, rng: np.random.Generator) -> None:
    """The gradient of the gradient, by inputs and by dout, is its derivative."""
    for slope in _slopes(row, dtype, rng):
        xs = slope.xs + slope.cotangents(rng)
        _compare(f"{slope.call}, order 2", slope.pulled, xs, rng)


def check_narrow_gradient(row: OpInfo, dtype: DType, rng: np.random.Generator) -> None:
    """The gradient in `dtype` is the one in float64 at the same numbers, up to rounding."""
    for slope in _slopes(row, dtype, rng):
        given = slope.xs + slope.cotangents(rng)
        wide_given = tuple(g.astype(float64) for g in given)

        def exact(*xs: Any, slope: Slope = slope) -> Arrays:
            return tuple(g.asnumpy() for g in slope.pulled(*xs))

        try:
            outs = slope.outputs(*wide_given[: len(slope.xs)])
        except DTypeError:
            continue  # an attribute, such as a Graph, fixes the dtypes of inputs
        if any(o.dtype != float64 for o in outs):
            continue  # or that of the output
        spreads = spread_of(exact, wide_given, dtype, rng)
        u = float(ml_eps(dtype)) / 2
        for i, (came, right) in enumerate(zip(slope.pulled(*given), exact(*wide_given))):
            x, gradient = given[i], came.asnumpy()
            assert (gradient.shape, gradient.dtype) == (x.shape, x.dtype), (
                f"{slope.call}: gradient {i} is {gradient.dtype}{list(gradient.shape)}"
            )
            # A rule made of primitives rounds between them: errors are relative to the largest.
            size = max([np.abs(a).max(initial=0.0) for a in (right, *wide_given[len(slope.xs) :])])
            wrong = mismatch(gradient, right, slope.call.terms, spreads[i] + u * size)
            assert wrong is None, f"{slope.call}: gradient {i} {wrong}"


def ml_eps(dtype: DType) -> Any:
    return ml.dtype.ml_dtypes.finfo(dtype).eps


def check_graph(row: OpInfo, dtype: DType, rng: np.random.Generator) -> None:
    """Compiled, the call and its gradient give what they give eagerly."""
    for call in calls(row, dtype, rng):
        if call.primitive.dynamic_outputs:
            continue
        compiled = ml.jit(lambda *xs, call=call: call.primitive(*call.args(xs)))
        came = tuple(o.asnumpy() for o in as_tuple(compiled(*map(ml.Tensor, call.arrays))))
        _same(f"{call}, compiled", came, call.run(), call)
    if dtype != float64:
        return
    for slope in _slopes(row, dtype, rng):
        given = tuple(map(ml.Tensor, slope.xs + slope.cotangents(rng)))
        came, right = (
            tuple(g.asnumpy() for g in f(*given)) for f in (ml.jit(slope.pulled), slope.pulled)
        )
        _same(f"{slope.call}, gradient compiled", came, right, slope.call)


def _same(what: str, came: Arrays, right: Arrays, call: Call) -> None:
    for i, (a, b) in enumerate(zip(came, right, strict=True)):
        assert a.dtype == b.dtype, f"{what}: output {i} has dtype {a.dtype}, eagerly {b.dtype}"
        scale = 1e-16 * np.abs(np.nan_to_num(b.astype(float64), posinf=0.0, neginf=0.0)).max(
            initial=0
        )
        wrong = mismatch(a, b, call.terms, scale)
        assert wrong is None, f"{what}: output {i} {wrong}"
