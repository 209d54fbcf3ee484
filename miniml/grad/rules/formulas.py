"""How the library's own bprops are registered: as formulas, and as functions of the primitive too.

Both make the getter that a user writes out under `@bprop_getters.register(Class)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from ...bprop import Bprop, bprop_getters
from ...primitive import Primitive

R = TypeVar("R", bound=Callable[..., Any])


def formulas(rules: Mapping[type[Primitive], Bprop]) -> None:
    """Register the bprop of each primitive, in which none of its attributes occurs."""
    for primitive, formula in rules.items():
        _register(primitive, formula, lambda _, formula=formula: formula)


def rule(primitive: type[Primitive]) -> Callable[[R], R]:
    """Decorator: register `fn(primitive, *inputs, out, dout)` as the bprop of a primitive."""

    def add(fn: R) -> R:
        _register(primitive, fn, lambda self: partial(fn, self))
        return fn

    return add


def _register(primitive: type[Primitive], written: Callable[..., Any], getter: Any) -> None:
    name, bare = written.__name__, written.__name__ == "<lambda>"
    getter.__qualname__ = f"the formula of {primitive.name}" if bare else name
    getter.__module__ = written.__module__
    getter.__wrapped__ = written  # what is shown of it
    bprop_getters.register(primitive)(getter)
