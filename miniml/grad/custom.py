"""custom_bprop: a Python function that carries its own gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from ..errors import DeclarationError
from ..graph.calls import by_position
from ..trace import current_trace

F = TypeVar("F", bound=Callable[..., Any])


def custom_bprop(bprop: Callable[..., tuple[Any, ...]]) -> Callable[[F], F]:
    """Decorator: give a function of trees the gradient `bprop(*args, out, dout)`.

    `out` is what the function returned and `dout` its cotangent, of the same structure, with None
    for what is no tensor. The bprop returns a tuple with one gradient per argument, in order: a
    tree of the argument's structure, or None where there is none. Keywords of a call reach the
    bprop in their positions, after the defaults of what was left out before them. The bprop is
    made of `ops`, and is differentiated where a gradient of the gradient is asked for. A gradient
    reaches the arguments only: parameters and other values that the function uses are constants.

    Eagerly the function is called with values, so it may compute them in any way, with NumPy too.

    >>> from miniml.grad import grad
    >>> @custom_bprop(lambda x, out, dout: (dout * 2.0 * x,))
    ... def square(x):
    ...     return x * x
    >>> grad(square)(3.0)
    Tensor(6., shape=(), dtype=float32)
    """
    _check(bprop, "a bprop", "as in @custom_bprop(lambda x, out, dout: (dx,))")

    def give(fn: F) -> F:
        _check(fn, "a function", "written under @custom_bprop(bprop)")
        name = getattr(fn, "__name__", type(fn).__name__)

        @wraps(fn)
        def called(*args: Any, **named: Any) -> Any:
            given = by_position(name, fn, args, named)
            return current_trace().call_with_bprop(name, fn, bprop, given)

        return called  # type: ignore[return-value]

    return give


def _check(value: object, expected: str, how: str) -> None:
    if not callable(value):
        raise DeclarationError(f"custom_bprop takes {expected}, {how}; got {value!r}")
