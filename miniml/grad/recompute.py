"""Activation checkpointing: a function whose inner values its gradient recomputes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

from .. import ops
from ..core.dtype import is_float
from ..core.errors import DeclarationError
from ..core.partition import holes
from ..core.tensor import Tensor
from ..core.trace import computes_at_once, current_trace
from ..graph.ir import is_result
from ..graph.tracing import as_tensor
from .reverse import name_of
from .transforms import vjp

F = TypeVar("F", bound=Callable[..., Any])


def recomputed(fn: F) -> F:
    """`fn`, of which a gradient keeps the inputs alone (activation checkpointing)."""
    if not callable(fn):
        raise DeclarationError(f"recompute got {fn!r}; give a function of tensors, or a Cell")
    name = f"recompute of {name_of(fn)}"

    @wraps(fn)
    def called(*args: Any, **named: Any) -> Any:
        given = holes((args, named), is_result)

        def of_tensors(*tensors: Any) -> Any:
            by_position, by_keyword = given.filled(tensors)
            return fn(*by_position, **by_keyword)

        tensors = list(map(as_tensor, given.taken()))
        return current_trace().call_recomputed(name, of_tensors, _pull, tensors)

    return called  # type: ignore[return-value]


def _pull(again: Callable[..., Any], values: Sequence[Any], dout: Any) -> tuple[Any, ...]:
    """The gradients of the values, None for those that are not floats."""
    if not computes_at_once():
        values = _fenced(values, dout)
    floats = [i for i, x in enumerate(values) if is_float(x.dtype)]

    def of_floats(*xs: Any) -> Any:
        known = dict(zip(floats, xs, strict=True))
        return again([known.get(i, x) for i, x in enumerate(values)])

    _, back = vjp(of_floats, *[values[i] for i in floats])
    found = dict(zip(floats, back(dout), strict=True))
    return tuple(found.get(i) for i in range(len(values)))


def _fenced(values: Sequence[Any], dout: Any) -> list[Any]:
    """The values behind barriers that wait for the cotangent, so that in a graph their
    recomputation is neither merged with the forward computation nor scheduled early."""
    after = next(d for d in holes(dout, _is_float).taken())
    return [ops.barrier(x, after) if is_float(x.dtype) else x for x in values]


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and is_float(leaf.dtype)
