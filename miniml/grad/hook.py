"""hook_gradient: a function of the gradient that passes through a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optree

from ..abstract import typed
from ..errors import BpropError, DeclarationError, MinimlError
from ..tensor import Tensor
from ..trace import current_trace

Change = Callable[[Tensor], Tensor | None]


def hook_gradient(x: Any, fn: Change) -> Any:
    """x itself; where a gradient passes through it, `fn(gradient)` is called.

    What fn returns, if not None, takes the gradient's place, and has its shape and dtype. fn is
    made of `ops` and is differentiated with the gradient; in a compiled function it is traced.
    Nothing happens where no gradient is asked for.

    >>> from miniml.grad import grad
    >>> grad(lambda x: hook_gradient(x * x, lambda g: 10.0 * g))(3.0)
    Tensor(60., shape=(), dtype=float32)
    """
    if not callable(fn):
        raise DeclarationError(f"hook_gradient got {fn!r}; give a function of the gradient")
    who = f"the gradient hook {named(fn)}"

    def bprop(x: Any, out: Any, dout: Any) -> tuple[Any]:
        found = called(who, fn, dout)
        return (dout if found is None else checked(who, BpropError, found, dout),)

    return current_trace().call_with_bprop(who, _itself, bprop, (x,))


def _itself(x: Any) -> Any:
    return x


def named(fn: Any) -> str:
    """What errors call a hook."""
    return str(getattr(fn, "__name__", None) or type(fn).__name__)


def called(who: str, fn: Callable[..., Any], *args: Any) -> Any:
    """What a hook returns; a note names it in errors that it raises."""
    try:
        return fn(*args)
    except Exception as error:
        error.add_note(f"in {who}")
        raise


def checked(who: str, kind: type[MinimlError], got: Any, expected: Any) -> Any:
    """What a hook gives in place of a value; an error of this kind unless all tensors in it have
    the same places, shapes and dtypes."""
    given, structure = optree.tree_flatten(got, none_is_leaf=True)
    leaves, same = optree.tree_flatten(expected, none_is_leaf=True)
    if structure != same:
        raise kind(f"{who} returned {_what(got)} in place of {_what(expected)}")
    for new, old in zip(given, leaves, strict=True):
        if isinstance(old, Tensor) and (
            not isinstance(new, Tensor) or new.shape != old.shape or new.dtype != old.dtype
        ):
            raise kind(
                f"{who} returned {_what(new)} in place of {typed(old)}; return a tensor of the "
                "same shape and dtype, or None to leave it as it is"
            )
        if old is None and new is not None:
            raise kind(f"{who} returned {_what(new)} where no gradient passes; return None there")
    return got


def _what(value: Any) -> str:
    if isinstance(value, Tensor):
        return typed(value)
    count = f" of {len(value)}" if isinstance(value, (tuple, list, dict)) else ""
    return f"{type(value).__name__}{count}"
