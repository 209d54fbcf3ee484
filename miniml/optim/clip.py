"""Clipping of gradients, by their global norm or by value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce

import numpy as np

from .. import ops
from ..errors import GradientArgumentError
from ..location import Layer, layers
from ..tensor import Tensor
from .optimizer import in_dtype, wide

Clip = float | Callable[[Sequence[Tensor]], Sequence[Tensor]]


def clip_by_global_norm(grads: Sequence[Tensor], clip: float) -> tuple[Tensor, ...]:
    """The gradients times min(1, clip / norm), where norm is the 2-norm of all of them together.

    Those of 16 bits are summed and scaled in float32. Gradients within the limit keep their bits;
    with a NaN or an infinity among them all become NaN or 0. A norm beyond the range of its dtype,
    1.8e19 for float32, counts as infinite. GradientArgumentError unless clip is finite and > 0.

    >>> clip_by_global_norm([Tensor([3.0]), Tensor([4.0])], 1.0)[0]
    Tensor([0.6], shape=(1,), dtype=float32)
    """
    limit = checked_clip("clip_by_global_norm", clip)
    _check_several("clip_by_global_norm", grads)
    if not grads:
        return ()
    with layers.use(lambda: Layer("clip_by_global_norm")):
        norm = ops.sqrt(reduce(ops.add, map(_sum_of_squares, grads)))
        factor = ops.div(limit, ops.maximum(norm, limit))
        return tuple(_scaled(g, factor) for g in grads)


def clip_by_value(grads: Sequence[Tensor], clip: float) -> tuple[Tensor, ...]:
    """Each number of the gradients between -clip and clip; NaN stays NaN.

    GradientArgumentError unless clip is finite and > 0.

    >>> clip_by_value([Tensor([3.0, -0.5])], 1.0)[0]
    Tensor([ 1. , -0.5], shape=(2,), dtype=float32)
    """
    limit = checked_clip("clip_by_value", clip)
    _check_several("clip_by_value", grads)
    return tuple(ops.clip(g, -limit, limit) for g in grads)


def clipping(owner: str, clip: Clip | None) -> Callable[[Sequence[Tensor]], Sequence[Tensor]]:
    """What clips gradients: `clip` itself, or by that global norm, or nothing at all for None."""
    if clip is None:
        return tuple
    return clip if callable(clip) else partial(clip_by_global_norm, clip=checked_clip(owner, clip))


def _check_several(owner: str, grads: object) -> None:
    """GradientArgumentError for a Tensor, which would be clipped row by row."""
    if isinstance(grads, Tensor):
        raise GradientArgumentError(f"{owner} got one Tensor; give a sequence of gradients, as [g]")


def _sum_of_squares(grad: Tensor) -> Tensor:
    g = in_dtype(grad, wide(grad.dtype))
    return ops.sum(ops.mul(g, g))


def _scaled(grad: Tensor, factor: Tensor) -> Tensor:
    dtype = wide(grad.dtype)
    scaled = ops.mul(in_dtype(grad, dtype), in_dtype(factor, dtype))
    return in_dtype(scaled, grad.dtype)


_NORM = "norm that all gradients together may have"


def checked_clip(owner: str, clip: object) -> float:
    """`clip` as a float; GradientArgumentError unless it is a finite number above 0."""
    if isinstance(clip, (int, float, np.integer, np.floating)) and not isinstance(clip, bool):
        limit = float(clip)
        if math.isfinite(limit) and limit > 0.0:
            return limit
    raise GradientArgumentError(
        f"{owner} got clip={clip!r}; give a finite number > 0, the largest "
        + ("number there may be" if owner == "clip_by_value" else _NORM)
    )
