"""Linear algebra: matrix products and Einstein sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..abstract import Shape
from ..errors import ShapeError
from ..primitive import Primitive
from .inference.equation import parse
from .inference.shapes import broadcast

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["Einsum", "MatMul", "einsum", "matmul", "outer"]  # fmt: skip


class MatMul(Primitive):
    """The product of the matrices in the last two axes of x and y, by NumPy's rules of matmul.

    Leading axes are a batch and broadcast; a 1-d x is a row, a 1-d y a column, and that axis is
    absent from the output. transpose_x, transpose_y: the last two axes of x, of y, are exchanged
    first; nothing is copied for it.
    """

    transpose_x: bool = False
    transpose_y: bool = False
    promote = True

    def infer_shape(self, x: Shape, y: Shape) -> Shape:
        self._check_ranks(x, y)
        rows, inner = _matrix(x if len(x) > 1 else (1, *x), self.transpose_x)
        inner_y, columns = _matrix(y if len(y) > 1 else (*y, 1), self.transpose_y)
        if inner != inner_y:
            raise ShapeError(
                f"MatMul cannot multiply {_shown(x, self.transpose_x)} by "
                f"{_shown(y, self.transpose_y)}: rows of the first have {inner} elements, columns "
                f"of the second {inner_y}; they must be equal"
            )
        batch = broadcast("MatMul batch axes", x[:-2], y[:-2]) if x[:-2] != y[:-2] else x[:-2]
        return (*batch, *(rows,) * (len(x) > 1), *(columns,) * (len(y) > 1))

    def _check_ranks(self, x: Shape, y: Shape) -> None:
        if not x or not y:
            raise ShapeError(
                f"MatMul needs tensors with axes; got shapes {x} and {y}; multiply by a number "
                "with *"
            )
        for name, shape, turned in (("x", x, self.transpose_x), ("y", y, self.transpose_y)):
            if turned and len(shape) == 1:
                raise ShapeError(
                    f"MatMul cannot transpose {name} of shape {shape}, which has one axis; leave "
                    f"out transpose_{name}"
                )


def _matrix(shape: Shape, transposed: bool) -> Shape:
    return (shape[-1], shape[-2]) if transposed else shape[-2:]


def _shown(shape: Shape, transposed: bool) -> str:
    return f"{shape} transposed" if transposed else str(shape)


class Einsum(Primitive):
    """The sum of products that `equation` says, in NumPy's notation, as "ij,jk->ik".

    Each operand's axes are labelled by letters; equal labels run together, and labels that the
    output does not name are summed. A label twice in one operand takes its diagonal. "..." stands
    for any further axes, which broadcast. Without "->" the output has the labels that occur once,
    in alphabetic order, behind the axes of "...".
    """

    equation: str
    promote = True

    def infer_shape(self, *operands: Shape) -> Shape:
        return parse(self.equation, operands).shape


_matmul = MatMul()


def matmul(x: Any, y: Any, transpose_x: bool = False, transpose_y: bool = False) -> Tensor:
    """The matrix product of x and y: out[..., i, j] = sum over k of x[..., i, k] y[..., k, j].

    x: (..., m, k) or (k,); y: (..., k, n) or (k,); the batch axes in front broadcast. An operand
    with one axis is a row or a column, whose axis the result lacks. transpose_x, transpose_y: take
    that operand with its last two axes exchanged. Dtypes are promoted. ShapeError otherwise.
    """
    if transpose_x or transpose_y:
        return MatMul(transpose_x, transpose_y)(x, y)
    return _matmul(x, y)


def einsum(equation: str, *operands: Any) -> Tensor:
    """The Einstein sum of operands, in NumPy's notation: einsum("bij,bjk->bik", x, y).

    Labels are letters; "..." stands for axes that broadcast; a label repeated in one operand takes
    the diagonal. Dtypes are promoted. ShapeError for an equation that does not fit.
    """
    return Einsum(equation)(*operands)


def outer(x: Any, y: Any) -> Tensor:
    """All products of two 1-d tensors: out[i, j] = x[i] y[j]."""
    return einsum("i,j->ij", x, y)
