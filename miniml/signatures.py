"""Signatures of primitives, as `help` and `inspect` show them and as calls by name bind them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
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


@lru_cache(512)
def _keywords(rule: Any) -> tuple[bool, frozenset[str]]:
    """Whether a function takes any keyword, and those that it names."""
    taken = inspect.signature(rule).parameters.values()
    named = frozenset(p.name for p in taken if p.kind is p.KEYWORD_ONLY)
    return any(p.kind is p.VAR_KEYWORD for p in taken), named


def named_by(rule: Callable[..., Any], attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Those of the attributes that a rule takes by keyword."""
    takes_all, named = _keywords(rule)
    return attributes if takes_all else {k: v for k, v in attributes.items() if k in named}


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
    point_at(refusal, user_location(), f"{name} was called")
    raise refusal
