"""Inference rules by name, which a class assigns to `infer_shape` or `infer_dtype`.

>>> from miniml import Primitive
>>> from miniml.ops import rules
>>> class RootOfSquares(Primitive):
...     inputs = ("x", "y")  # the names that `broadcast` gives anyway
...     promote = "float"
...     infer_shape = rules.broadcast

A class that defines no infer_dtype has the dtype of its first tensor, which with `promote` is that
of all; one that says `like = "x"` needs no rule at all. Then the base classes of elementwise
primitives, which have their rules, and FLOPs by formulas that several primitives share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

from ..core.abstract import Abstract, DType, Shape, as_dtype, bool_, int64, real_dtype, uint64
from ..core.abstract import promote as common
from ..core.errors import ArityError, DeclarationError, DTypeError, ShapeError
from ..core.primitive import Primitive, Promote
from ..core.signature import ANY, FLOAT, NUMBER
from . import checks

__all__ = ["Binary", "Comparison", "FloatBinary", "FloatUnary", "Unary"]  # others: ops.rules

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
    the class they would be cast to it first. DTypeError where there is none."""
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
    if x.kind in "bi":
        return int64
    return uint64 if x.kind == "u" else x


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


# --- Base classes of elementwise primitives -------------------------------------------------------

Dtypes = str | tuple[str, ...]  # type codes, or signatures
Flops = Callable[[Primitive, Sequence[Abstract], Sequence[Abstract]], int]


class Unary(Primitive, abstract=True):
    """One tensor in, one of the same shape and dtype out."""

    elementwise = True
    dtypes: ClassVar[Dtypes] = ANY
    infer_shape = same
    if TYPE_CHECKING:

        def __call__(self, x: Any) -> checks.Tensor: ...


class NumberUnary(Unary, abstract=True):
    """A function of integers or floats, element by element; bools are refused."""

    dtypes = NUMBER
    infer_dtype = numbers


class FloatUnary(Unary, abstract=True):
    """A function of floats, element by element; integers are cast to float32 first."""

    dtypes = FLOAT
    promote = "float"


class WideUnary(FloatUnary, abstract=True):
    """One for which 16 bits are too few: autocast computes it in float32."""

    autocast = "wide"


class Binary(Primitive, abstract=True):
    """Two tensors, broadcast to one shape and promoted to one dtype, which is the output's."""

    promote: ClassVar[Promote] = True
    elementwise = True
    dtypes: ClassVar[Dtypes] = ANY
    infer_shape = broadcast
    if TYPE_CHECKING:

        def __call__(self, x: Any, y: Any) -> checks.Tensor: ...


class NumberBinary(Binary, abstract=True):
    """Two tensors of integers or floats, broadcast and promoted; two bools are refused."""

    dtypes = NUMBER
    infer_dtype = numbers


class FloatBinary(Binary, abstract=True):
    """A function of two floats, element by element; integers are cast to float32 first."""

    dtypes = FLOAT
    promote = "float"


class Comparison(Binary, abstract=True):
    """Two tensors, broadcast and promoted, compared element by element: bool."""

    differentiable = False
    dtypes = tuple(f"{c}{c}->?" for c in ANY)
    infer_dtype = always(bool_)


# --- FLOPs that several primitives share ----------------------------------------------------------


def moves(primitive: Primitive, inputs: Sequence[Abstract], outputs: Sequence[Abstract]) -> int:
    """No operations: numbers are moved or made, not computed."""
    return 0


class Move(Primitive, abstract=True):
    """One that moves numbers of any kind."""

    takes_complex = True
    flops = moves


def per_input(each: int) -> Flops:
    """`each` operations for every number of the first input."""

    def flops(primitive: Primitive, inputs: Sequence[Abstract], outputs: Sequence[Abstract]) -> int:
        return each * (inputs[0].size if inputs else 0)

    return flops


def factors(count: Callable[[int, int, int], float]) -> Flops:
    """Operations on a batch of matrices; count: of one (m, n) with k columns on the right side and
    m >= n, the leading terms, as Golub and Van Loan (2013) count them."""

    def flops(primitive: Primitive, inputs: Sequence[Abstract], outputs: Sequence[Abstract]) -> int:
        *batch, m, n = inputs[0].shape
        return int(prod(batch) * count(max(m, n), min(m, n), inputs[-1].shape[-1]))

    return flops
