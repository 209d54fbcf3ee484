"""Gradients beside differences that know nothing of gradcheck: a witness for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from miniml import float64
from miniml.grad import vjp
from miniml.testing import OpInfo
from miniml.testing.calls import Arrays, calls
from miniml.testing.opchecks.gradients import Slope, weights

from .numeric import disagreement


def check_gradients(row: OpInfo, rng: np.random.Generator) -> None:
    """The gradient is the derivative of what the kernels compute, and the gradient of that
    gradient, by inputs and by dout, is its derivative: for every sample in float64."""
    slopes = [Slope(call) for call in calls(row, float64, rng)]
    for slope in slopes:
        if slope.xs and slope.dtypes() == {float64}:
            _compare(f"{slope.call}", slope.outputs, slope.xs, rng)
            xs = slope.xs + slope.cotangents(rng)
            _compare(f"{slope.call}, order 2", slope.pulled, xs, rng)


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
