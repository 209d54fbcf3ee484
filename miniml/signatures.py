"""Signatures of primitives, as `help` and `inspect` show them and as calls by name bind them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from .attributes import EMPTY, Field
from .errors import ArityError
from .location import point_at, user_location

SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)


def input_parameters(rule: Callable[..., Any]) -> list[inspect.Parameter]:
    """The inputs of an instance: the parameters of its shape rule that have no default."""
    takes = list(inspect.signature(rule).parameters.values())[1:]
    return [
        p.replace(name=p.name.removesuffix("_shape"), annotation=EMPTY)
        for p in takes
        if p.default is EMPTY
    ]


def attribute_parameters(fields: Sequence[Field]) -> list[inspect.Parameter]:
    """The attributes of a class; keyword-only where one without default follows one with a
    default."""
    optional = [f.default is not EMPTY for f in fields]
    ordered = optional == sorted(optional)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if ordered else inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(f.name, kind, default=f.default, annotation=f.annotation) for f in fields
    ]


def with_parameters(call: Any, parameters: list[inspect.Parameter]) -> Any:
    """The same method, at no cost in speed, under a signature that names these parameters."""
    named: Any = FunctionType(call.__code__, call.__globals__, call.__name__)
    named.__qualname__, named.__module__ = call.__qualname__, call.__module__
    named.__signature__ = inspect.Signature([SELF, *parameters])
    return named


def in_order(
    name: str, primitive: Callable[..., Any], args: tuple[Any, ...], inputs: dict[str, Any]
) -> tuple[Any, ...]:
    """The inputs of a call in order, where some were passed by name; ArityError for unknown or
    missing ones."""
    takes = inspect.signature(primitive)
    try:
        return takes.bind(*args, **inputs).args
    except TypeError as error:
        refusal = ArityError(f"{name} takes the inputs {takes}; {error}")
    point_at(refusal, user_location(name))
    raise refusal
