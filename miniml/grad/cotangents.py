"""Cotangents and tangents as users give them, checked against the values they belong to."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..abstract import typed
from ..errors import ShapeError
from ..parameter import Parameter
from ..tensor import Tensor
from ..trace import current_trace


def cotangents(spec: Any, out: Any, dout: Any) -> list[Any]:
    """The leaves of dout, checked against those of `out`, whose structure is `spec`."""
    outs = spec.flatten_up_to(out)
    given = flattened(spec, dout, "pull got a dout")
    return [None if d is None else tensor_like(o, d) for o, d in zip(outs, given, strict=True)]


def flattened(spec: Any, tree: Any, what: str) -> list[Any]:
    """The leaves of a tree that has the structure `spec`; ShapeError where it has another."""
    try:
        return list(spec.flatten_up_to(tree))
    except ValueError as error:
        raise ShapeError(f"{what} of another structure than it belongs to: {error}") from None


def tensor_like(like: Any, value: Any) -> Any:
    """The value as a tensor of like's shape and dtype; ShapeError where it has another."""
    like = like if isinstance(like, Tensor) else Tensor(like)
    if isinstance(value, Parameter):
        value = current_trace().stand_in(value)
    if not isinstance(value, Tensor):
        value = Tensor(np.asarray(value, like.dtype))
    if value.shape != like.shape or value.dtype != like.dtype:
        raise ShapeError(
            f"got {typed(value)} where {typed(like)} "
            "is expected: a cotangent or tangent has the shape and dtype of its value"
        )
    return value
