"""Matrix decompositions: linear systems, determinants, factorizations, eigenvalues and inverses.

All functions take stacks of matrices, of shape (..., m, n), in float32 or float64; integers are
cast to float32, and dtypes of 16 bits are refused: cast them, so that the rounding is visible.

Nothing is raised for the numbers in a matrix. One that has no result gets NaN in all elements of
it, on every device, eagerly and in graphs, and the others of its stack are not affected: a matrix
with NaN or infinity in it; for `solve`, `inv` and `triangular_solve` one that is singular, in which
a pivot is exactly 0; for `cholesky` one that is not positive definite. A matrix that is singular
only up to rounding gives very large numbers instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.abstract import Shape
from ..core.dtype import float32, float64, is_float
from ..core.options import flag, number
from ..core.primitive import Primitive
from . import rules
from .bases import factors
from .checks import broadcast, dtype_of, matrices, on_one_device, right_side, shape_of, square
from .create import eye
from .linalg import matmul
from .shape import broadcast_to, expand_dims, squeeze, swapaxes

if TYPE_CHECKING:
    from ..core.tensor import Tensor

__all__ = [
    "QR", "SVD", "Cholesky", "Det", "Eigh", "Pinv", "SlogDet", "Solve", "TriangularSolve",
    "cholesky", "det", "eigh", "inv", "lstsq", "pinv", "qr", "slogdet", "solve", "svd",
    "triangular_solve",
]  # fmt: skip


class OfMatrices(Primitive, abstract=True):
    """A function of stacks of matrices, in float32 or float64."""

    autocast = "wide"
    batch = "leading"
    promote = "float"
    infer_dtype = rules.one_of(float32, float64)


class Cholesky(OfMatrices):
    """The lower triangular L with a positive diagonal for which L L^T = (a + a^T) / 2.

    a (..., n, n). NaN where (a + a^T) / 2 is not positive definite.
    """

    flops = factors(lambda _m, n, _k: n**3 / 3)

    def infer_shape(self, a: Shape) -> Shape:
        return square(self.name, a)


class Solve(OfMatrices):
    """The x for which a x = b, by elimination with partial pivoting.

    a (..., n, n), b (..., n, k) with the same batch axes. NaN where a is singular.
    """

    flops = factors(lambda _m, n, k: 2 * n**3 / 3 + 2 * n**2 * k)

    def infer_shape(self, a: Shape, b: Shape) -> Shape:
        return right_side(self.name, a, b)


class TriangularSolve(OfMatrices):
    """The x for which t x = b, or t^T x = b, where t is a triangle of a, by substitution.

    a (..., n, n), b (..., n, k) with the same batch axes; the attributes are those of
    `triangular_solve`.
    """

    flops = factors(lambda _m, n, k: n**2 * k)
    upper: bool = False
    transpose: bool = False
    unit_diagonal: bool = False

    def infer_shape(self, a: Shape, b: Shape) -> Shape:
        return right_side(self.name, a, b)


class Det(OfMatrices):
    """The determinant of each matrix of a (..., n, n), of shape (...); 1 for n = 0."""

    flops = factors(lambda _m, n, _k: 2 * n**3 / 3)

    def infer_shape(self, a: Shape) -> Shape:
        return square(self.name, a)[:-2]


class SlogDet(OfMatrices):
    """The sign of the determinant, and the logarithm of its absolute value, each of shape (...).

    a (..., n, n). 0 and -inf where a is singular.
    """

    flops = factors(lambda _m, n, _k: 2 * n**3 / 3)
    outputs = ("sign", "logabsdet")

    def infer_shape(self, a: Shape) -> tuple[Shape, Shape]:
        return (square(self.name, a)[:-2],) * 2


class QR(OfMatrices):
    """a = q r: q has orthonormal columns; r is upper triangular, with no negative number on its
    diagonal.

    a (..., m, n), q (..., m, k), r (..., k, n) with k = min(m, n). Where the first k columns of a
    are independent, q and r are unique.
    """

    flops = factors(lambda m, n, _k: 4 * m * n**2 - 4 * n**3 / 3)
    outputs = ("q", "r")

    def infer_shape(self, a: Shape) -> tuple[Shape, Shape]:
        *batch, m, n = matrices(self.name, a)
        k = min(m, n)
        return (*batch, m, k), (*batch, k, n)


class SVD(OfMatrices):
    """a = u diag(s) vh, as `svd` says: u and vh are unique where no two numbers in s are equal and
    none is 0. The tenth in the rule of signs keeps rounding from choosing between equal numbers.
    """

    flops = factors(lambda m, n, _k: 6 * m * n**2 + 20 * n**3)
    outputs = ("u", "s", "vh")

    def infer_shape(self, a: Shape) -> tuple[Shape, Shape, Shape]:
        *batch, m, n = matrices(self.name, a)
        k = min(m, n)
        return (*batch, m, k), (*batch, k), (*batch, k, n)


class Eigh(OfMatrices):
    """(a + a^T) / 2 = v diag(w) v^T, as `eigh` says: v is unique where no two numbers in w are
    equal.
    """

    flops = factors(lambda _m, n, _k: 9 * n**3)
    outputs = ("w", "v")

    def infer_shape(self, a: Shape) -> tuple[Shape, Shape]:
        return square(self.name, a)[:-1], a


class Pinv(OfMatrices):
    """The pseudo-inverse of a by its singular values, of which those up to rtol times the largest
    count as 0.

    a (..., m, n); the output has shape (..., n, m).
    """

    flops = factors(lambda m, n, _k: 8 * m * n**2 + 20 * n**3)
    rtol: float

    def infer_shape(self, a: Shape) -> Shape:
        number("Pinv", "rtol", self.rtol, 0)
        *batch, m, n = matrices(self.name, a)
        return (*batch, n, m)


def cholesky(a: Any, upper: bool = False) -> Tensor:
    """The lower triangular L with a positive diagonal for which L L^T = a; with `upper` the upper
    triangular R = L^T, for which R^T R = a.

    a (..., n, n), of which the symmetric part (a + a^T) / 2 is taken, so its gradient is symmetric.
    NaN where that is not positive definite.

    >>> cholesky([[4.0, 2.0], [2.0, 5.0]]).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    upper, factor = flag("cholesky", "upper", upper), Cholesky()(a)
    return swapaxes(factor, -1, -2) if upper else factor


def solve(a: Any, b: Any) -> Tensor:
    """The x for which a x = b, by elimination with partial pivoting.

    a (..., n, n); b (n,), or (..., n, k) for k right sides. The batch axes broadcast. NaN where a
    is singular.

    >>> solve([[2.0, 0.0], [0.0, 4.0]], [1.0, 1.0]).tolist()
    [0.5, 0.25]
    """
    return _solved(Solve(), a, b)


def triangular_solve(
    a: Any, b: Any, upper: bool = False, transpose: bool = False, unit_diagonal: bool = False
) -> Tensor:
    """The x for which t x = b, where t is the lower triangle of a, by substitution.

    upper: t is the upper triangle. transpose: t^T x = b. unit_diagonal: t has a diagonal of ones,
    whatever a has there. Elements of a outside t are not read. a (..., n, n); b (n,) or
    (..., n, k). The batch axes broadcast. NaN where t is singular.

    >>> triangular_solve([[2.0, 9.0], [1.0, 4.0]], [2.0, 5.0]).tolist()
    [1.0, 1.0]
    """
    return _solved(TriangularSolve(upper, transpose, unit_diagonal), a, b)


def _solved(solver: Solve | TriangularSolve, a: Any, b: Any) -> Tensor:
    """The solver on systems whose batch axes broadcast, and on one right side without its axis."""
    vector = len(shape_of(b)) == 1
    columns = expand_dims(b, -1) if vector else b
    first, second = square(solver.name, shape_of(a)), shape_of(columns)
    batch = broadcast(f"{solver.name} batch axes", first[:-2], second[:-2])
    if first[:-2] != batch:
        a = broadcast_to(a, (*batch, *first[-2:]))
    if second[:-2] != batch:
        columns = broadcast_to(columns, (*batch, *second[-2:]))
    x = solver(a, columns)
    return squeeze(x, -1) if vector else x


@on_one_device
def inv(a: Any) -> Tensor:
    """The inverse: inv(a) a = 1. a (..., n, n); NaN where a is singular.

    `solve(a, b)` is faster and more accurate than `inv(a) @ b`.
    """
    shape, dtype = square("inv", shape_of(a)), dtype_of(a)
    return solve(a, eye(shape[-1], dtype=dtype if is_float(dtype) else float32))


def det(a: Any) -> Tensor:
    """The determinant: the product of the eigenvalues. a (..., n, n); shape (...).

    The gradient is the matrix of cofactors, where a is singular, too; do not rely on the second
    derivative there. `slogdet` is for determinants that overflow.

    >>> det([[1.0, 2.0], [2.0, 4.0]]).item()
    0.0
    """
    return Det()(a)


def slogdet(a: Any) -> tuple[Tensor, Tensor]:
    """(sign, log|det(a)|), so that det(a) = sign exp(log|det(a)|). a (..., n, n); shapes (...).

    Where a is singular it is (0, -inf), and its gradient NaN.
    """
    sign, logabsdet = SlogDet()(a)
    return sign, logabsdet


def qr(a: Any) -> tuple[Tensor, Tensor]:
    """(q, r) with a = q r: orthonormal columns in q, and r upper triangular with a diagonal >= 0.

    a (..., m, n), q (..., m, k), r (..., k, n) with k = min(m, n). The gradient exists where the
    first k columns of a are independent; where they are not it is NaN, or any numbers if rounding
    makes them independent.
    """
    q, r = QR()(a)
    return q, r


def svd(a: Any) -> tuple[Tensor, Tensor, Tensor]:
    """(u, s, vh) with a = u diag(s) vh: orthonormal columns in u and rows in vh, s >= 0 descending.

    a (..., m, n), u (..., m, k), s (..., k), vh (..., k, n) with k = min(m, n). In each column of u
    the first of its largest numbers (those within a tenth of the largest magnitude) is positive.
    The gradient of a function of s alone is always right. Where two numbers in s are equal, or one
    is 0 and m is not n, their columns of u and vh have no gradient, nor has a function of s a
    second one: it is infinite or NaN, unless the dout of these columns is 0. sum(s) is the nuclear
    norm, max(s) the spectral norm.
    """
    u, s, vh = SVD()(a)
    return u, s, vh


def eigh(a: Any) -> tuple[Tensor, Tensor]:
    """(w, v) with a = v diag(w) v^T: the eigenvalues in ascending order, their eigenvectors in
    orthonormal columns.

    a (..., n, n), of which the symmetric part (a + a^T) / 2 is taken; w (..., n), v (..., n, n). In
    each column of v the first of its largest numbers (those within a tenth of the largest
    magnitude) is positive. The gradient of a function of w alone is always right. Where two
    eigenvalues are equal, their columns of v have no gradient, nor has a function of w a second
    one: it is infinite or NaN, unless the dout of both columns is 0.

    >>> w, v = eigh([[2.0, 0.0], [0.0, 1.0]])
    >>> w.tolist(), v.tolist()
    ([1.0, 2.0], [[0.0, 1.0], [1.0, 0.0]])
    """
    w, v = Eigh()(a)
    return w, v


def pinv(a: Any, rtol: float | None = None) -> Tensor:
    """The pseudo-inverse p: a p a = a, p a p = p, and both a p and p a symmetric.

    a (..., m, n); p (..., n, m). Singular values up to rtol times the largest count as 0; None
    stands for max(m, n) times the eps of the dtype. The gradient is that among matrices of equal
    rank.
    """
    if rtol is None:
        dtype = float64 if dtype_of(a) == float64 else float32
        rtol = max(matrices("pinv", shape_of(a))[-2:]) * float(np.finfo(dtype).eps)
    return Pinv(rtol)(a)


@on_one_device
def lstsq(a: Any, b: Any, rtol: float | None = None) -> Tensor:
    """The x of least norm among those that minimise |a x - b|: pinv(a) b.

    NumPy's and PyTorch's lstsq return more; this is their first result.
    a (..., m, n); b (m,) or (..., m, k). The batch axes broadcast. rtol: as for `pinv`.

    >>> lstsq([[2.0], [0.0]], [4.0, 1.0]).tolist()
    [2.0]
    """
    return matmul(pinv(a, rtol), b)
