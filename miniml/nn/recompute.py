"""recompute: a function or a cell whose inner values a gradient computes again."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

from ..grad.recompute import recomputed
from .cell import Cell

F = TypeVar("F", bound=Callable[..., Any])


def recompute(fn: F) -> F:
    """`fn`, which computes the same with less memory: a gradient keeps its inputs alone, and runs
    it a second time when it needs what is inside (activation checkpointing).

    Of a Cell it gives another one with the same parameters and the same children, for its place in
    a network: `nn.Sequential(ml.recompute(block), ...)`; names in checkpoints stay. A function may
    read parameters and, as a closure, other tensors; gradients reach these too. The second run
    reads parameters as they were in the first, draws the same random numbers and assigns nothing,
    so gradients have the same bits, up to the order in which those of a tensor that is used several
    times are added. What the function assigns is a constant to them. It must do the same both
    times.

    >>> from miniml import ops
    >>> from miniml.grad import grad
    >>> grad(recompute(lambda x: ops.sin(ops.sin(x))))(0.0)
    Tensor(1., shape=(), dtype=float32)
    """
    if not isinstance(fn, Cell):
        return recomputed(fn)
    made: Any = copy.copy(fn)
    made.__dict__["_recomputed"] = True
    return made  # type: ignore[no-any-return]
