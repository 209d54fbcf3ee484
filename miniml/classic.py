"""The classic spelling of primitives: an `__init__` that is recorded, and bases by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from .abstract import Abstract
from .attributes import EMPTY, Field
from .backends.registry import register_spec
from .primitive import Primitive, spec_of

F = TypeVar("F", bound=Callable[..., None])
_SEVERAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class PrimitiveWithInfer(Primitive, abstract=True):
    """The classic base for primitives that infer; the same as Primitive."""


class PrimitiveWithCheck(Primitive, abstract=True):
    """A primitive that only validates: `check_shape(*shapes)` and `check_dtype(*dtypes)`, or
    `__check__(*dictionaries)` of "shape", "dtype" and "value".

    Its outputs are those of input 0, unless `@infer_rule("Name")` registers another inference.
    """

    _checks = True
    _types: ClassVar[tuple[Abstract, ...] | None] = None


def prim_attr_register(init: F) -> F:
    """Decorator of a classic `__init__`: every argument, defaults included, is an attribute.

    The body may call init_prim_io_names and add_prim_attr and set further plain values; the
    primitive is frozen when it ends.
    """
    signature = inspect.signature(init)
    scope = getattr(init, "__globals__", {})
    fields = {
        p.name: Field(p.name, EMPTY if p.kind in _SEVERAL else p.annotation, p.default, scope)
        for p in signature.parameters.values()
    }

    def register(self: Primitive, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        values = dict(list(bound.arguments.items())[1:])
        self.__dict__["_extra"] = extra = {}
        for name, value in values.items():
            extra[name] = self.__dict__[name] = fields[name].convert(value, type(self).__name__)
        init(self, *args, **kwargs)
        self._finish(self.__dict__.pop("_extra"))
        register_spec(spec_of(type(self), tuple(extra)))

    register.__wrapped__ = init  # type: ignore[attr-defined]
    register._miniml_classic = True  # type: ignore[attr-defined]
    return register  # type: ignore[return-value]
