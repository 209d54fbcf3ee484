"""Signatures of primitives: what a class says of its inputs and what it leaves out, what `help`
shows of them, and how calls by name are bound."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import FunctionType
from typing import Any

from .attributes import EMPTY, Field
from .errors import ArityError, DeclarationError
from .location import point_at, user_location

Parameter = inspect.Parameter
SELF = Parameter("self", Parameter.POSITIONAL_ONLY)
# What names the inputs of a class that does not list them itself, in this order.
_NAMING = ("__infer__", "infer_shape", "__check__", "check_shape")
_NO_SHAPE = (
    "{} defines no infer_shape; say what shape comes out: def infer_shape(self, x): return x, a "
    "rule as in infer_shape = rules.broadcast, or like = 'x' for the shape and dtype of x"
)


def input_parameters(cls: type[Any]) -> list[Parameter]:
    """The inputs of a class: those it lists in `inputs`, else the parameters without default of its
    rule, else the one of `like`.

    DeclarationError where there is no rule, or where the rule and `inputs` do not agree.
    """
    name = next((n for n in _NAMING if hasattr(cls, n)), "")
    if not name and not cls.like:
        raise DeclarationError(_NO_SHAPE.format(cls.name))
    rule = getattr(cls, name, None)
    taken = _taken(rule) if rule else []
    listed = cls.inputs or (getattr(rule, "inputs", ()) if rule else cls.like)
    if not listed:
        return taken
    inputs = _parameters(cls.name, (listed,) if isinstance(listed, str) else tuple(listed))
    if rule and not _agree(inputs, taken):
        raise DeclarationError(
            f"{cls.name} lists the inputs {', '.join(map(str, inputs))}; {name} takes "
            f"{', '.join(map(str, taken)) or 'none'}; make them agree"
        )
    return inputs


def _taken(rule: Callable[..., Any]) -> list[Parameter]:
    """The parameters of a rule that are inputs: those without a default."""
    return [
        p.replace(name=p.name.removesuffix("_shape"), annotation=EMPTY)
        for p in list(inspect.signature(rule).parameters.values())[1:]
        if p.default is EMPTY
    ]


def _parameters(name: str, inputs: tuple[str, ...]) -> list[Parameter]:
    several, one = Parameter.VAR_POSITIONAL, Parameter.POSITIONAL_OR_KEYWORD
    try:
        found = [Parameter(n.removeprefix("*"), several if n[0] == "*" else one) for n in inputs]
        inspect.Signature(found)
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise DeclarationError(
            f"{name} lists inputs = {inputs!r}: {error}; list different names, as in ('x', 'y'), "
            "the last perhaps with a star"
        ) from None
    return found


def _agree(inputs: list[Parameter], taken: list[Parameter]) -> bool:
    """True if the rule takes these inputs. Parameters that are positional only, or `*shapes`, stand
    for inputs of any name."""
    named = [p for p in taken if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
    free = any(p.kind is Parameter.VAR_POSITIONAL for p in taken)
    if named:
        return [p.name for p in inputs] == [p.name for p in taken]
    least = sum(p.kind is Parameter.POSITIONAL_ONLY for p in taken)
    return len(inputs) >= least if free else len(inputs) == least


def const_positions(cls: type[Any]) -> tuple[tuple[int, str], ...]:
    """(position among the inputs, name) of each const input; DeclarationError for an unknown
    name."""
    names = cls._inputs or ()
    unknown = [n for n in cls.const_inputs if n not in names]
    if unknown:
        raise DeclarationError(
            f"{cls.name} declares const_inputs {', '.join(unknown)}; infer_shape has inputs "
            f"{', '.join(names) or 'of a variable number'}"
        )
    return tuple((names.index(n), n) for n in cls.const_inputs)


def promoted_positions(cls: type[Any]) -> tuple[int, ...] | None:
    """Which tensor inputs are promoted, by position among them; None where `promote` says all."""
    if not isinstance(cls.promote, tuple):
        return None
    tensors = [n for n in cls._inputs or () if n not in cls.const_inputs]
    unknown = [n for n in cls.promote if n not in tensors]
    if unknown:
        raise DeclarationError(
            f"{cls.name} promotes {', '.join(unknown)}; its tensor inputs are "
            f"{', '.join(tensors) or 'of a variable number'}"
        )
    return tuple(tensors.index(n) for n in cls.promote)


def like_position(cls: type[Any], inputs: list[Parameter]) -> int | None:
    """Which input's shape and dtype the outputs have where no rule says: that of `like`, else the
    first tensor that is promoted, else the first tensor; None where there is no tensor."""
    tensors = [p.name for p in inputs if p.name not in cls.const_inputs]
    if cls.like and cls.like not in tensors:
        raise DeclarationError(
            f"{cls.name} says like = {cls.like!r}; its tensor inputs are "
            f"{', '.join(tensors) or 'none'}"
        )
    promoted = cls.promote if isinstance(cls.promote, tuple) else ()
    first = next(iter([cls.like] if cls.like else [*promoted, *tensors]), None)
    return None if first is None else [p.name for p in inputs].index(first)


def fill_in(cls: type[Any]) -> None:
    """Give a class the rules that it leaves out: those of the input that its outputs are like."""
    if cls._checks or hasattr(cls, "__infer__"):
        return
    if not hasattr(cls, "infer_shape"):
        if isinstance(cls.outputs, str):
            raise DeclarationError(
                f"{cls.name} defines no infer_shape, and its number of outputs depends on the "
                "instance; define infer_shape, which says how many there are"
            )
        cls.infer_shape = _shapes_like(cls.like)
    if not hasattr(cls, "infer_dtype"):
        if cls._like is None:
            raise DeclarationError(
                f"{cls.name} defines no infer_dtype and has no tensor input, whose dtype its "
                "outputs would have; say what dtype comes out: def infer_dtype(self): "
                "return ml.float32"
            )
        cls.infer_dtype = _like


def _like(self: Any, /, *given: Any) -> Any:
    """The shape or dtype of the input that the outputs are like."""
    if not given:
        raise ArityError(f"{self.name} got no input; give at least one")
    return given[self._like or 0]


def _shapes_like(name: str) -> Callable[..., Any]:
    def infer_shape(self: Any, *shapes: Any) -> Any:
        shape = _like(self, *shapes)
        return shape if self._single else (shape,) * len(self.outputs)

    infer_shape.inputs = (name,)  # type: ignore[attr-defined]  # where the class lists none
    return infer_shape


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
    point_at(refusal, user_location(name))
    raise refusal
