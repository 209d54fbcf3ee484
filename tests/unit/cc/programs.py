"""Random functions of arrays, for tests that compile them in two ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import miniml as ml
from miniml import ops
from miniml.backends.cc import units
from miniml.runtime.program import Program

UNARY: tuple[Callable[[Any], Any], ...] = (
    ops.neg, ops.exp, ops.tanh, ops.sigmoid, ops.relu, ops.square, ops.abs, ops.softplus,
    lambda x: ops.log(ops.square(x) + 0.5), lambda x: ops.clip(x, -1.5, 2.0),
    lambda x: ops.sqrt(ops.abs(x) + 0.25), lambda x: ops.cast(ops.cast(x, ml.float64), x.dtype),
    lambda x: x * 0.5 + 1.0, ops.stop_gradient, ops.gelu,
    lambda x: ops.cast(ops.cast(ops.clip(x * 8.0, -99.0, 99.0), ml.int32) // 3, x.dtype),
    lambda x: ops.cast(ops.any(x > 1.0, -1, True), x.dtype) if x.shape else x,
    lambda x: ops.select(ops.logical_and(x > 0.0, ops.isfinite(x)), x, ops.floor(x)),
)  # fmt: skip
BINARY: tuple[Callable[[Any, Any], Any], ...] = (
    ops.add, ops.sub, ops.mul, ops.maximum, ops.minimum,
    lambda x, y: x / (ops.square(y) + 1.0), lambda x, y: ops.select(x > y, x, y * 0.5),
)  # fmt: skip
REDUCTIONS = (ops.sum, ops.mean, ops.max, ops.min, ops.logsumexp)
SHAPES = ((5,), (1, 7), (4, 6), (2, 3, 4), (3, 1, 5), (2, 2, 3, 2), (40, 17), (3, 600), (33, 1))


def inputs_for(seed: int, dtype: Any) -> list[Any]:
    """A full array, one along the last axis, one along the first, and a number."""
    rng = np.random.default_rng(seed)
    shape = SHAPES[seed % len(SHAPES)]
    shapes = (shape, shape, shape[-1:], (shape[0], *(1,) * (len(shape) - 1)), ())
    return [rng.normal(size=s).astype(dtype) for s in shapes]


def function(seed: int, length: int = 12) -> Callable[..., Any]:
    """A function of such arrays: the same calls each time, drawn from a seed."""

    def drawn(*given: Any) -> Any:
        rng = np.random.default_rng((seed, 1))
        values = list(given)
        for _ in range(length):
            values.append(ops.tanh(step(rng, values)) if rng.random() < 0.3 else step(rng, values))
        return tuple(values[len(given) :][-4:])

    return drawn


def step(rng: np.random.Generator, values: Sequence[Any]) -> Any:
    """One more value from those there are."""
    x = values[rng.integers(len(values))] if rng.random() < 0.5 else values[-1]
    draw = rng.random()
    if draw < 0.3:
        return UNARY[rng.integers(len(UNARY))](x)
    if draw < 0.7:
        fitting = [v for v in values if fits(v.shape, x.shape)]
        return BINARY[rng.integers(len(BINARY))](x, fitting[rng.integers(len(fitting))])
    if draw < 0.85 and x.shape:
        axes = [i for i in range(len(x.shape)) if rng.random() < 0.5]
        kept = bool(rng.random() < 0.6)
        return REDUCTIONS[rng.integers(len(REDUCTIONS))](x, tuple(axes), kept)
    if draw < 0.89 and x.shape and x.shape[-1] > 2:
        return x[..., 1:] if rng.random() < 0.5 else x[..., ::2]
    if draw < 0.95 and len(x.shape) > 1:
        return ops.transpose(x, tuple(int(i) for i in rng.permutation(len(x.shape))))
    return ops.reshape(x, (-1, *x.shape[1:][-1:]))


def fits(one: Sequence[int], other: Sequence[int]) -> bool:
    """True where the shapes broadcast."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def with_gradient(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The outputs and the gradient of the sum of their squares."""

    def both(*given: Any) -> Any:
        def loss(*xs: Any) -> Any:
            return sum((ops.sum(ops.tanh(y)) for y in fn(*xs)), start=ops.zeros((), given[0].dtype))

        return fn(*given), ml.grad.grad(loss, argnums=tuple(range(len(given))))(*given)

    return both


def load_all(programs: Sequence[Program]) -> None:
    """Compile the native kernels of all programs as one unit."""
    natives = [b.native for p in programs for b in p.prepared.values() if b.native is not None]
    units.load([native.source for native in natives if native.source is not None])
