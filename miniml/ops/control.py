"""State and the flow of gradients: assign, stop_gradient."""

from __future__ import annotations

from ..abstract import Shape
from ..dtype import DType
from ..errors import DTypeError, ShapeError
from ..primitive import Primitive

__all__ = ["Assign", "StopGradient", "assign", "stop_gradient"]  # fmt: skip


class Assign(Primitive):
    """Make `value` the parameter's data, for everything that reads it later; gives the value.

    Shapes and dtypes must be equal: a parameter keeps both.
    """

    effect = "state"

    def infer_shape(self, parameter: Shape, value: Shape) -> Shape:
        if parameter != value:
            raise ShapeError(
                f"Assign got a value of shape {value} for a parameter of shape {parameter}; "
                "a parameter keeps its shape"
            )
        return value

    def infer_dtype(self, parameter: DType, value: DType) -> DType:
        if parameter != value:
            raise DTypeError(
                f"Assign got a value of {value.name} for a parameter of {parameter.name}; cast it"
            )
        return value


class StopGradient(Primitive):
    """x itself, through which no gradient passes."""

    differentiable = False

    def infer_shape(self, x: Shape) -> Shape:
        return x

    def infer_dtype(self, x: DType) -> DType:
        return x


assign = Assign()
stop_gradient = StopGradient()
