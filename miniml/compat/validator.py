"""Checks for rules and constructors, under the names of MindSpore's validator.

Each returns the checked value, or refuses it in a sentence with the primitive, the argument, the
value and what was expected. Wrong types are AttributeRefusedError (a TypeError), wrong values
ValueRefusedError (a ValueError); dtypes, shapes and axes have DTypeError and ShapeError.

`check_integer` and `check_tensor_type_same` are the older spelling: the name comes first. In the
newer one, `check_int` and those below it, the value does.

>>> check_integer("rank of x", 2, 2, Rel.EQ, "TensorAddV2")
2
>>> check_int(3, 0, Rel.GE, "axis", "Gather")  # for -1: Gather got axis=-1 ...; expected ...
3
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from ..core.abstract import DType, Shape, as_dtype
from ..core.errors import (
    AttributeRefusedError,
    ConstInputError,
    DeclarationError,
    DTypeError,
    ShapeError,
    ValueRefusedError,
)
from ..core.options import brief
from ..ops import checks
from ..ops.shape import permutation

_T = TypeVar("_T")


class Rel(Enum):
    """A relation between a value and its bounds: its words in messages, and its test."""

    EQ = "equal to {}", operator.eq
    NE = "other than {}", operator.ne
    LT = "less than {}", operator.lt
    LE = "at most {}", operator.le
    GT = "greater than {}", operator.gt
    GE = "at least {}", operator.ge
    INC_NEITHER = "in ({}, {})", lambda v, low, high: low < v < high
    INC_LEFT = "in [{}, {})", lambda v, low, high: low <= v < high
    INC_RIGHT = "in ({}, {}]", lambda v, low, high: low < v <= high
    INC_BOTH = "in [{}, {}]", lambda v, low, high: low <= v <= high
    IN = "that is one of {}", lambda v, allowed: v in allowed
    NOT_IN = "that is none of {}", lambda v, refused: v not in refused


_KINDS: dict[type, tuple[str, tuple[type, ...]]] = {
    int: ("an int", (int, np.integer)),
    float: ("a float", (float, np.floating)),
    bool: ("a bool", (bool, np.bool_)),
    str: ("a string", (str,)),
}


def _checked(
    value: _T, kind: type, rel: Rel | None, bounds: Sequence[Any], name: str | None, who: str | None
) -> _T:
    """The value, if it is of the kind and in the relation to the bounds."""
    words, kinds = _KINDS[kind]
    if rel is not None:
        words = f"{words} {_relation(rel, who).value[0].format(*bounds)}"
    if not isinstance(value, kinds) or (kind is int and isinstance(value, bool)):
        raise AttributeRefusedError(f"{_got(value, name, who)}; expected {words}")
    if rel is not None and not rel.value[1](value, *bounds):
        raise ValueRefusedError(f"{_got(value, name, who)}; expected {words}")
    return value


def _got(value: Any, name: str | None, who: str | None) -> str:
    argument = f"{name}=" if name else ""
    return f"{_who(who)} got {argument}{brief(value)} of type {type(value).__name__}"


def _who(name: str | None) -> str:
    return name or "the call"


def _relation(rel: Any, who: str | None) -> Rel:
    if isinstance(rel, Rel):
        return rel
    raise DeclarationError(
        f"{_who(who)} got the relation {rel!r}; expected a member of validator.Rel; "
        "check_int takes (value, bound, rel, name, primitive), the older check_integer (name, "
        "value, bound, rel, primitive)"
    )


# Numbers.


def check_int(
    arg_value: _T, value: int, rel: Rel, arg_name: str | None = None, prim_name: str | None = None
) -> _T:
    """`arg_value`, an int (not a bool) in the relation `rel` to `value`."""
    return _checked(arg_value, int, rel, (value,), arg_name, prim_name)


def check_integer(
    arg_name: str, arg_value: _T, value: int, rel: Rel, prim_name: str | None = None
) -> _T:
    """The older spelling of `check_int`."""
    return _checked(arg_value, int, rel, (value,), arg_name, prim_name)


def check_int_range(
    arg_value: _T,
    lower_limit: int,
    upper_limit: int,
    rel: Rel,
    arg_name: str | None = None,
    prim_name: str | None = None,
) -> _T:
    """`arg_value`, an int in the range that `rel`, an INC_ relation, makes of the limits."""
    return _checked(arg_value, int, rel, (lower_limit, upper_limit), arg_name, prim_name)


def check_float_range(
    arg_value: _T,
    lower_limit: float,
    upper_limit: float,
    rel: Rel,
    arg_name: str | None = None,
    prim_name: str | None = None,
) -> _T:
    """`arg_value`, a float in the range that `rel`, an INC_ relation, makes of the limits."""
    return _checked(arg_value, float, rel, (lower_limit, upper_limit), arg_name, prim_name)


def _signed(kind: type, rel: Rel) -> Callable[..., Any]:
    def check(arg_value: _T, arg_name: str | None = None, prim_name: str | None = None) -> _T:
        return _checked(arg_value, kind, rel, (0,), arg_name, prim_name)

    check.__doc__ = f"`arg_value`, {_KINDS[kind][0]} {rel.value[0].format(0)}."
    return check


check_positive_int, check_negative_int = _signed(int, Rel.GT), _signed(int, Rel.LT)
check_non_negative_int, check_non_positive_int = _signed(int, Rel.GE), _signed(int, Rel.LE)
check_positive_float, check_negative_float = _signed(float, Rel.GT), _signed(float, Rel.LT)
check_non_negative_float = _signed(float, Rel.GE)


# Other values.


def check_bool(arg_value: _T, arg_name: str | None = None, prim_name: str | None = None) -> _T:
    """`arg_value`, a bool."""
    return _checked(arg_value, bool, None, (), arg_name, prim_name)


def check_string(
    arg_value: _T,
    valid_values: Collection[str],
    arg_name: str | None = None,
    prim_name: str | None = None,
) -> _T:
    """`arg_value`, one of these strings."""
    return _checked(arg_value, str, Rel.IN, (list(valid_values),), arg_name, prim_name)


def check_value_type(
    arg_name: str, arg_value: _T, valid_types: type | Sequence[type], prim_name: str | None = None
) -> _T:
    """`arg_value`, an instance of one of the types, else AttributeRefusedError; a bool is an
    instance of bool only."""
    types = _several(valid_types)
    if not isinstance(arg_value, types) or (isinstance(arg_value, bool) and bool not in types):
        raise AttributeRefusedError(
            f"{_got(arg_value, arg_name, prim_name)}; expected {_or(t.__name__ for t in types)}"
        )
    return arg_value


def check_subclass(
    arg_name: str, type_: Any, template_types: Any, prim_name: str | None = None
) -> Any:
    """`type_`, a class or a dtype, that is one of the classes and dtypes or derived from one, as
    float32 is from np.floating, else AttributeRefusedError."""
    types = tuple(map(_class, _several(template_types)))
    found = _class(type_)
    if not isinstance(found, type) or not issubclass(found, types):
        shown = getattr(type_, "name", getattr(type_, "__name__", repr(type_)))
        raise AttributeRefusedError(
            f"{_who(prim_name)} got {arg_name}={shown}; expected a subclass of "
            f"{_or(t.__name__ for t in types)}"
        )
    return type_


def check_const_input(arg_name: str, arg_value: _T, prim_name: str | None = None) -> _T:
    """The value of an input that must be known when the call is made, or ConstInputError for
    None."""
    if arg_value is None:
        raise ConstInputError(
            f"{_who(prim_name)} got {arg_name}=None; expected a constant; name it in the class, as "
            f"const_inputs = ({arg_name!r},)"
        )
    return arg_value


# Dtypes.


def check_tensor_dtype_valid(
    arg_name: str, arg_type: DType, valid_dtypes: Any, prim_name: str | None = None
) -> DType:
    """The dtype of a tensor, one of these."""
    check_tensors_dtypes_same_and_valid({arg_name: arg_type}, valid_dtypes, prim_name)
    return arg_type


def check_tensors_dtypes_same_and_valid(
    args: Mapping[str, DType], valid_dtypes: Any, prim_name: str | None = None
) -> None:
    """Dtypes of tensors, by name: all the same, and one of these, else DTypeError."""
    valid = [as_dtype(d) for d in _several(valid_dtypes)]
    if len(set(args.values())) != 1 or not set(args.values()) <= set(valid):
        got = " and ".join(f"{name}: {dtype}" for name, dtype in args.items())
        same = "the same dtype for all, " if len(args) > 1 else ""
        raise DTypeError(
            f"{_who(prim_name)} got {got}; expected {same}{_or(sorted(d.name for d in valid))}"
        )


check_tensor_type_same = check_tensors_dtypes_same_and_valid


def check_scalar_or_tensor_types_same(
    args: Mapping[str, Any], valid_values: Any, prim_name: str | None = None
) -> None:
    """Check dtypes and Python types of scalars, each of which counts as its dtype as a tensor: all
    the same, and one of these."""
    known = {name: as_dtype(kind) for name, kind in args.items()}
    check_tensors_dtypes_same_and_valid(known, valid_values, prim_name)


# Shapes and axes.


def check_axis_in_range(axis: int, ndim: int, prim_name: str | None = None) -> int:
    """The axis of a tensor of this rank, as a number from 0."""
    return checks.normal_axis(_who(prim_name), axis, ndim)


def check_transpose_axis(
    axes: Sequence[int], ndim: int, prim_name: str | None = None
) -> tuple[int, ...]:
    """The order of all axes of a tensor of this rank, as numbers from 0; none given reverses it."""
    return permutation(_who(prim_name), tuple(axes) or tuple(range(ndim))[::-1], ndim)


def check_reduce_shape(
    ori_shape: Shape, shape: Shape, axis: checks.Axes, prim_name: str | None = None
) -> Shape:
    """`shape`, if it is that of `ori_shape` reduced along `axis`, else ShapeError."""
    expected = checks.reduced_shape(_who(prim_name), tuple(ori_shape), axis, keepdims=False)
    if tuple(shape) != expected:
        raise ShapeError(
            f"{_who(prim_name)} got shape {tuple(shape)}; expected {expected}, which is "
            f"{tuple(ori_shape)} reduced along {axis}"
        )
    return tuple(shape)


def infer_out_shape(*shapes_: Shape, prim_name: str | None = None) -> Shape:
    """The shape to which these broadcast."""
    return checks.broadcast(_who(prim_name), *map(tuple, shapes_))


def _class(given: Any) -> Any:
    """A class as it is; that of the numbers of a dtype."""
    return given.type if isinstance(given, np.dtype) else given


def _several(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, (list, tuple, set, frozenset)) else (given,)


def _or(names: Any) -> str:
    return " or ".join(names)
