"""Inference rules by name, which a class assigns to `infer_shape` or `infer_dtype`.

>>> from miniml import Primitive
>>> from miniml.ops import rules
>>> class RootOfSquares(Primitive):
...     inputs = ("x", "y")  # the names that `broadcast` gives anyway
...     promote = "float"
...     infer_shape = rules.broadcast

A class that defines no infer_dtype has the dtype of its first tensor, which with `promote` is that
of all; one that says `like = "x"` needs no rule at all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ..core.abstract import Shape
from ..core.dtype import SIGNED, UNSIGNED, DType, as_dtype, bool_, int64, real_dtype, uint64
from ..core.dtype import promote as common
from ..core.errors import ArityError, DeclarationError, DTypeError, ShapeError
from ..core.primitive import Primitive
from . import checks

Rule = Callable[..., Any]


def _shape_of(*inputs: str) -> Callable[[Rule], Rule]:
    """Decorator: a rule of the shape that every output has. inputs: the names of the inputs of a
    class with this rule, unless it lists them."""

    def decorate(rule: Rule) -> Rule:
        @wraps(rule)
        def infer_shape(self: Primitive, /, *shapes: Any) -> Any:
            if not shapes:
                raise ArityError(f"{self.name} got no input; give at least one")
            shape = rule(self, *shapes)
            return shape if self._single else (shape,) * len(self.outputs)

        infer_shape.inputs = inputs  # type: ignore[attr-defined]
        return infer_shape

    return decorate


# Rules of shapes.


@_shape_of("x")
def same(self: Primitive, x: Shape, /, *others: Shape) -> Shape:
    """The shape of x, which all other tensors have too; ShapeError otherwise."""
    shapes = _tensors(self, (x, *others))
    if len(set(shapes)) != 1:
        got = " and ".join(map(str, shapes))
        raise ShapeError(f"{self.name} got shapes {got}; they must be equal")
    return x


@_shape_of("x", "y")
def broadcast(self: Primitive, x: Shape, /, *others: Shape) -> Shape:
    """The shape that all tensors broadcast to, by NumPy's rule; ShapeError where there is none."""
    return checks.broadcast(self.name, *_tensors(self, (x, *others)))


def reduce(axis: str, keepdims: str = "keepdims") -> Rule:
    """The shape of x without the axes that the attribute named `axis` gives: an int, a tuple of
    ints, or None for all. They stay as extents 1 where the attribute named `keepdims` is there and
    true. ShapeError for an axis that x does not have."""

    @_shape_of("x")
    def infer_shape(self: Primitive, x: Shape, /) -> Shape:
        kept = bool(self.attributes.get(keepdims, False))
        return checks.reduced_shape(self.name, x, _of(self, axis), kept)

    return infer_shape


def along(axis: str) -> Rule:
    """The shape of x, which has the axis or axes that the attribute named `axis` gives, None being
    all; ShapeError otherwise."""

    @_shape_of("x")
    def infer_shape(self: Primitive, x: Shape, /) -> Shape:
        checks.normal_axes(self.name, _of(self, axis), len(x))
        return x

    return infer_shape


# Rules of dtypes.


def promote(self: Primitive, /, *dtypes: DType) -> DType:
    """The common dtype of the tensors, which reach the kernel as they are; with `promote = True` in
    the class they would be cast to it first."""
    try:
        return common(*_tensors(self, dtypes))
    except DTypeError as error:
        raise DTypeError(f"{self.name}: {error}") from None


def numbers(self: Primitive, /, *dtypes: DType) -> DType:
    """The dtype of the input that the outputs are like, integer or float; DTypeError for bool."""
    return checks.needs_number(self.name, dtypes[self._like or 0])


def floats(self: Primitive, /, *dtypes: DType) -> DType:
    """The dtype of the input that the outputs are like, a float; DTypeError otherwise."""
    return checks.needs_float(self.name, dtypes[self._like or 0])


def integers(self: Primitive, /, *dtypes: DType) -> DType:
    """The dtype of the input that the outputs are like, an integer; DTypeError otherwise."""
    return checks.needs_integer(self.name, dtypes[self._like or 0])


def bools(self: Primitive, /, *dtypes: DType) -> DType:
    """bool, which all tensors are; DTypeError otherwise."""
    found = _tensors(self, dtypes)
    if set(found) != {bool_}:
        got = " and ".join(d.name for d in found)
        raise DTypeError(f"{self.name} needs bool tensors; got {got}; compare first, as in x != 0")
    return bool_


def sums(self: Primitive, /, *dtypes: DType) -> DType:
    """The dtype in which sums and products of x are given: 64 bits for integers and bools, a
    float's own."""
    x = dtypes[self._like or 0]
    if x in SIGNED or x == bool_:
        return int64
    return uint64 if x in UNSIGNED else x


def part(self: Primitive, /, *dtypes: DType) -> DType:
    """The dtype of the real and imaginary parts of x, which is complex; DTypeError otherwise."""
    return real_dtype(checks.needs_complex(self.name, dtypes[0]))


def one_of(*dtypes: DType) -> Rule:
    """The dtype that all tensors have, one of these; DTypeError otherwise."""
    allowed = tuple(map(as_dtype, dtypes))

    def infer_dtype(self: Primitive, /, *given: DType) -> DType:
        found: tuple[DType, ...] = _tensors(self, given)
        if len(set(found)) != 1 or found[0] not in allowed:
            got = " and ".join(d.name for d in found)
            expected = " or all ".join(d.name for d in allowed)
            raise DTypeError(f"{self.name} got {got}; they must be all {expected}; cast them")
        return found[0]

    return infer_dtype


# Rules of both.


def attribute(name: str) -> Rule:
    """The shape or dtype that the attribute of this name gives."""
    return lambda self, /, *given: _of(self, name)


def always(value: Shape | DType) -> Rule:
    """This shape or dtype."""
    return lambda self, /, *given: value


def _tensors(self: Primitive, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs without the const ones."""
    const = {i for i, _ in self._const}
    return tuple([x for i, x in enumerate(given) if i not in const]) if const else given


def _of(self: Primitive, name: str) -> Any:
    """The value of an attribute; DeclarationError if the class has none of that name."""
    if name not in self.attributes:
        raise DeclarationError(
            f"{self.name} has a rule that reads its attribute {name!r}; it has "
            f"{', '.join(self.attributes) or 'none'}; declare it, as in {name}: int = -1"
        )
    return self.attributes[name]
