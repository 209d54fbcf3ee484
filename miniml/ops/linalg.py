"""Products of matrices and vectors, and Einstein sums.

In order: the primitives and their functions; products and the trace composed of them; the parser of
einsum equations.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from string import ascii_letters
from typing import Any, NamedTuple

from ..core.abstract import Abstract, Shape
from ..core.errors import ShapeError
from ..core.primitive import Primitive
from .checks import Tensor, broadcast, composition, normal_axis, shape_of, strong
from .composed.rearrange import diagonal
from .elementwise import mul, sub
from .reduce import sum
from .shape import concat, moveaxis, reshape, split

__all__ = [
    "Einsum", "MatMul", "cross", "dot", "einsum", "inner", "kron", "matmul", "outer", "trace",
]  # fmt: skip


class MatMul(Primitive):
    """The product of the matrices in the last two axes of x and y, by NumPy's rules of matmul.

    Leading axes are a batch and broadcast; a 1-d x is a row, a 1-d y a column, and that axis is
    absent from the output. transpose_x, transpose_y: the last two axes of x, of y, are exchanged
    first, without a copy. ShapeError where the rows of x and the columns of y have not equally many
    elements.
    """

    takes_complex = True
    linear = ("x", "y")
    rounds = True
    autocast = "low"
    transpose_x: bool = False
    transpose_y: bool = False
    promote = True

    def flops(self, inputs: Sequence[Abstract], outputs: Sequence[Abstract]) -> int:
        """2 m n k, for each matrix of a batch."""
        shape = inputs[0].shape
        return 2 * shape[-2 if self.transpose_x and len(shape) > 1 else -1] * outputs[0].size

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
    """The sum of products that `equation` describes, in NumPy's notation, as "ij,jk->ik".

    Each operand's axes are labelled by letters; equal labels share an index, and labels that the
    output does not name are summed. A label twice in one operand takes its diagonal. "..." stands
    for any further axes, which broadcast. Without "->" the output has the labels that occur once,
    in alphabetic order, behind the axes of "...".
    """

    takes_complex = True
    rounds = True
    autocast = "low"
    equation: str
    promote = True

    def flops(self, inputs: Sequence[Abstract], outputs: Sequence[Abstract]) -> int:
        """The product of the extents of all labels, for each operand."""
        shapes = tuple(x.shape for x in inputs)
        return len(shapes) * prod(parse(self.equation, shapes).extents.values())

    def infer_shape(self, *operands: Shape) -> Shape:
        return parse(self.equation, operands).shape


_matmul = MatMul()


def matmul(x: Any, y: Any, transpose_x: bool = False, transpose_y: bool = False) -> Tensor:
    """The matrix product of x and y: out[..., i, j] = sum over k of x[..., i, k] y[..., k, j].

    x: (..., m, k) or (k,); y: (..., k, n) or (k,); the batch axes in front broadcast. An operand
    with one axis is a row or a column, whose axis the result lacks. transpose_x, transpose_y: take
    that operand with its last two axes exchanged. Dtypes are promoted. ShapeError otherwise.
    """
    if transpose_x is transpose_y is False:
        return _matmul(x, y)
    return MatMul(transpose_x, transpose_y)(x, y)


@composition
def einsum(equation: str, *operands: Any) -> Tensor:
    """The Einstein sum of operands, in NumPy's notation: einsum("bij,bjk->bik", x, y).

    Labels are letters; "..." stands for axes that broadcast; a label repeated in one operand takes
    the diagonal. Dtypes are promoted. ShapeError for an equation that does not fit.
    """
    return Einsum(equation)(*operands)


def outer(x: Any, y: Any) -> Tensor:
    """All products of two 1-d tensors: out[i, j] = x[i] y[j]."""
    return einsum("i,j->ij", x, y)


# --- Products composed of others ------------------------------------------------------------------


@composition
def dot(x: Any, y: Any) -> Tensor:
    """out[..., i, ..., j] = sum over k of x[..., i, k] y[..., k, j]: for vectors the inner product.

    x (*r, k) and y (*s, k, j) give (*r, *s, j), every row with every column: no axes broadcast, as
    those of `matmul` do. y may be a vector (k,), and a number multiplies. NumPy's and JAX's dot;
    PyTorch's takes vectors alone. Dtypes are promoted; ShapeError where k differs.

    >>> dot([1.0, 2.0], [3.0, 4.0]).item()
    11.0
    """
    a, b = shape_of(x), shape_of(y)
    if not a or not b:
        return mul(x, y)
    columns = b[-2:][0]
    if a[-1] != columns:
        raise ShapeError(
            f"dot got x of shape {a} and y of shape {b}: rows of x have {a[-1]} elements, columns "
            f"of y {columns}; they must be equal"
        )
    ahead = y if len(b) == 1 else moveaxis(y, -2, -1)
    return _rows_by_rows(x, ahead, b[:-2] + b[-1:] * (len(b) > 1))


@composition
def inner(x: Any, y: Any) -> Tensor:
    """out[..., i, ..., j] = sum over k of x[..., i, k] y[..., j, k]: inner products of all rows.

    x (*r, k) and y (*s, k) give (*r, *s); a number multiplies. Dtypes are promoted; ShapeError
    where k differs.

    >>> inner([[1, 2], [3, 4]], [5, 6]).tolist()
    [17, 39]
    """
    a, b = shape_of(x), shape_of(y)
    if not a or not b:
        return mul(x, y)
    if a[-1] != b[-1]:
        raise ShapeError(
            f"inner got x of shape {a} and y of shape {b}, whose last extents differ; it sums over "
            "the last axis of both"
        )
    return _rows_by_rows(x, y, b[:-1])


def _rows_by_rows(x: Any, y: Any, rest: Shape) -> Tensor:
    """Sums over the last axis of both; `rest` are the extents of y's other axes in the result."""
    (*rows, k), b = shape_of(x), shape_of(y)
    left = reshape(x, (prod(rows), k))
    right = reshape(y, (prod(b[:-1]), k))
    return reshape(matmul(left, right, transpose_y=True), (*rows, *rest))


@composition
def cross(x: Any, y: Any, axis: int = -1) -> Tensor:
    """The cross product of vectors of three elements along `axis`: out_0 = x_1 y_2 - x_2 y_1, and
    so on in turn.

    x and y broadcast and are promoted. ShapeError unless both have three elements along the axis.

    >>> cross([1, 0, 0], [0, 1, 0]).tolist()
    [0, 0, 1]
    """
    shapes = shape_of(x), shape_of(y)
    lengths = [s[normal_axis("cross", axis, len(s))] for s in shapes]
    at = normal_axis("cross", axis, max(map(len, shapes))) - max(map(len, shapes))
    if lengths != [3, 3] or any(s[at] != 3 for s in shapes if len(s) >= -at):
        raise ShapeError(
            f"cross got x of shape {shapes[0]} and y of shape {shapes[1]} with axis={axis}; both "
            "have 3 elements along that axis"
        )
    x, y = (split(v, 3, at) for v in strong(x, y))
    turns = (1, 2), (2, 0), (0, 1)
    return concat([sub(mul(x[i], y[j]), mul(x[j], y[i])) for i, j in turns], at)


@composition
def kron(x: Any, y: Any) -> Tensor:
    """The Kronecker product: y times each element of x, in blocks.

    out[i_0 * n_0 + j_0, ...] = x[i_0, ...] y[j_0, ...], where n are the extents of y; the shorter
    shape gets ones in front. Dtypes are promoted.

    >>> kron([[1, 2]], [[1], [10]]).tolist()
    [[1, 2], [10, 20]]
    """
    ndim = max(len(shape_of(x)), len(shape_of(y)))
    a, b = ((1,) * (ndim - len(s)) + s for s in (shape_of(x), shape_of(y)))
    left = reshape(x, tuple(n for extent in a for n in (extent, 1)))
    right = reshape(y, tuple(n for extent in b for n in (1, extent)))
    return reshape(mul(left, right), tuple(n * m for n, m in zip(a, b, strict=True)))


@composition
def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The sum of the elements of `diagonal(x, offset, axis1, axis2)`, for each of the other axes.

    Integers are summed in 64 bits, as by `sum`.

    >>> trace([[1, 2], [3, 4]]).item()
    5
    """
    return sum(diagonal(x, offset, axis1, axis2), -1)


# --- Einsum equations -----------------------------------------------------------------------------


class Equation(NamedTuple):
    """An equation without "...": one string of labels per operand, and their extents."""

    operands: tuple[str, ...]
    output: str
    extents: dict[str, int]

    @property
    def shape(self) -> Shape:
        """The output's shape."""
        return tuple(self.extents[label] for label in self.output)


@lru_cache(maxsize=1024)
def parse(equation: str, shapes: tuple[Shape, ...]) -> Equation:
    """The equation with "..." replaced by fresh labels, right-aligned, and an explicit output.

    An operand's extent of a fresh label may be 1 where `extents` has more: it broadcasts.
    ShapeError, which quotes the equation, for one that is malformed or does not fit the shapes.
    """
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    for term in (*terms, right):
        if not _WELL_FORMED.fullmatch(term):
            raise _refusal(equation, f"has the term {term!r}; a term is letters and one '...'")
    if len(terms) != len(shapes):
        raise _refusal(
            equation, f"has {len(terms)} terms; got {len(shapes)} operands; give one for each"
        )
    unused = [c for c in reversed(ascii_letters) if c not in text]
    ranks = [len(s) - len(t.replace("...", "")) for t, s in zip(terms, shapes, strict=True)]
    dots = max([r for t, r in zip(terms, ranks, strict=True) if "..." in t], default=0)
    if dots > len(unused):
        raise _refusal(equation, f"needs {dots} more labels for '...' than there are letters")
    fresh = "".join(unused[:dots])
    explicit = tuple(
        _explicit(equation, t, s, r, fresh) for t, s, r in zip(terms, shapes, ranks, strict=True)
    )
    output = _output(equation, terms, arrow, right, fresh)
    return Equation(explicit, output, _extents(equation, explicit, shapes, fresh))


_WELL_FORMED = re.compile(r"[a-zA-Z]*(\.\.\.)?[a-zA-Z]*")


def _explicit(equation: str, term: str, shape: Shape, rank: int, fresh: str) -> str:
    """A term with "..." expanded for an operand that has `rank` axes more than letters."""
    if rank < 0 or (rank and "..." not in term):
        raise _refusal(
            equation,
            f"labels {len(shape) - rank} axes in {term!r}; the operand has shape {shape}; label "
            "each axis, or write '...' for the rest",
        )
    return term.replace("...", fresh[len(fresh) - rank :])


def _output(equation: str, terms: list[str], arrow: str, right: str, fresh: str) -> str:
    letters = "".join(terms).replace("...", "")
    if not arrow:
        return fresh + "".join(c for c in sorted(set(letters)) if letters.count(c) == 1)
    named = right.replace("...", "")
    for label in named:
        if named.count(label) > 1:
            raise _refusal(equation, f"names {label!r} twice in its output; name it once")
        if label not in letters:
            raise _refusal(equation, f"names {label!r} in its output, which no operand has")
    if fresh and "..." not in right:
        raise _refusal(equation, "has '...' in an operand and none in its output; sum named axes")
    return right.replace("...", fresh)


def _extents(
    equation: str, terms: tuple[str, ...], shapes: tuple[Shape, ...], fresh: str
) -> dict[str, int]:
    found: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, extent in zip(term, shape, strict=True):
            known = found.setdefault(label, extent)
            if known == 1 and label in fresh:
                found[label] = extent
            elif known != extent and not (extent == 1 and label in fresh):
                what = "an axis of '...'" if label in fresh else f"label {label!r}"
                raise _refusal(
                    equation, f"gives {what} the extents {known} and {extent}; make them equal"
                )
    return found


def _refusal(equation: str, what: str) -> ShapeError:
    return ShapeError(f"Einsum equation {equation!r} {what}")
