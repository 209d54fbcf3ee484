"""Inference that families of primitives share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ...dtype import bool_
from ...primitive import Primitive, Promote
from .. import rules

if TYPE_CHECKING:
    from ...tensor import Tensor


class Unary(Primitive, abstract=True):
    """One tensor in, one of the same shape and dtype out."""

    infer_shape = rules.same
    if TYPE_CHECKING:

        def __call__(self, x: Any) -> Tensor: ...


class NumberUnary(Unary, abstract=True):
    """A function of integers or floats, element by element; bools are refused."""

    infer_dtype = rules.numbers


class FloatUnary(Unary, abstract=True):
    """A function of floats, element by element; integers are cast to float32 first."""

    promote = "float"


class Binary(Primitive, abstract=True):
    """Two tensors, broadcast to one shape and promoted to one dtype, which is the output's."""

    promote: ClassVar[Promote] = True
    infer_shape = rules.broadcast
    if TYPE_CHECKING:

        def __call__(self, x: Any, y: Any) -> Tensor: ...


class NumberBinary(Binary, abstract=True):
    """Two tensors of integers or floats, broadcast and promoted; two bools are refused."""

    infer_dtype = rules.numbers


class FloatBinary(Binary, abstract=True):
    """A function of two floats, element by element; integers are cast to float32 first."""

    promote = "float"


class Comparison(Binary, abstract=True):
    """Two tensors, broadcast and promoted, compared element by element: bool."""

    differentiable = False
    infer_dtype = rules.always(bool_)
