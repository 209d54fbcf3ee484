"""Matrix decompositions: linear systems, determinants, factorizations, eigenvalues and inverses;
and the functions of matrices made of these: norms, condition numbers, powers and the exponential.

All functions take stacks of matrices, of shape (..., m, n), in float32 or float64; integers are
cast to float32, and dtypes of 16 bits are refused: cast them, so that the rounding is visible.

Nothing is raised for the numbers in a matrix. One that has no result gets NaN in all elements of
it, on every device, eagerly and in graphs, and the others of its stack are not affected: a matrix
with NaN or infinity in it; for `solve`, `inv` and `triangular_solve` one that is singular, in which
a pivot is exactly 0; for `cholesky` one that is not positive definite. A matrix that is singular
only up to rounding gives very large numbers instead.
"""

from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np

from ..core.abstract import Shape, float32, float64, is_float
from ..core.errors import DTypeError, ValueRefusedError
from ..core.options import flag, integer, number
from ..core.primitive import Primitive
from . import reduce, rules
from .checks import Tensor, broadcast, composition, dtype_of, matrices, right_side, shape_of, square
from .composed.elementwise import as_float
from .control import while_loop
from .create import eye, zeros
from .elementwise import abs, add, cast, ceil, div, exp2, log2, maximum, mul, stop_gradient, sub
from .linalg import matmul
from .logic import greater, isfinite, isnan, less_equal, logical_and, select
from .reduce import norm
from .rules import factors
from .shape import broadcast_to, expand_dims, reshape, squeeze, swapaxes

__all__ = [
    "QR", "SVD", "Cholesky", "Det", "Eigh", "Pinv", "SlogDet", "Solve", "TriangularSolve",
    "cholesky", "det", "eigh", "inv", "lstsq", "pinv", "qr", "slogdet", "solve", "svd",
    "triangular_solve",
    "cond_number", "expm", "matrix_norm", "matrix_power",
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


@composition
def solve(a: Any, b: Any) -> Tensor:
    """The x for which a x = b, by elimination with partial pivoting.

    a (..., n, n); b (n,), or (..., n, k) for k right sides. The batch axes broadcast. NaN where a
    is singular.

    >>> solve([[2.0, 0.0], [0.0, 4.0]], [1.0, 1.0]).tolist()
    [0.5, 0.25]
    """
    return _solved(Solve(), a, b)


@composition
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


@composition
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


@composition
def lstsq(a: Any, b: Any, rtol: float | None = None) -> Tensor:
    """The x of least norm among those that minimise |a x - b|: pinv(a) b.

    NumPy's and PyTorch's lstsq return more; this is their first result.
    a (..., m, n); b (m,) or (..., m, k). The batch axes broadcast. rtol: as for `pinv`.

    >>> lstsq([[2.0], [0.0]], [4.0, 1.0]).tolist()
    [2.0]
    """
    return matmul(pinv(a, rtol), b)


# --- Functions of matrices ------------------------------------------------------------------------


@composition
def matrix_norm(a: Any, ord: str | float = "fro", keepdims: bool = False) -> Tensor:
    """The norm of each matrix of a (..., m, n): of shape (...), or (..., 1, 1) with keepdims.

    ord: "fro", the root of the sum of squares, as `norm` of all elements; "nuc", the sum of the
    singular values; 2 and -2, the largest and the smallest of these; 1 and -1, the largest and the
    smallest sum of |a| in a column; inf and -inf, in a row. Integers are cast to float32, and what
    needs singular values takes no 16 bits. ValueRefusedError for another ord.

    >>> matrix_norm([[3.0, 0.0], [4.0, 0.0]]).item(), matrix_norm([[3.0, -4.0]], inf).item()
    (5.0, 7.0)
    """
    matrices("matrix_norm", shape_of(a))
    keepdims = flag("matrix_norm", "keepdims", keepdims)
    if _known("matrix_norm", ord) == "fro":
        return norm(a, 2, (-2, -1), keepdims)
    if ord in ("nuc", 2, -2):
        values = svd(a)[1]
        found = {"nuc": reduce.sum, 2: reduce.max, -2: reduce.min}[ord](values, -1)
        return expand_dims(found, (-2, -1)) if keepdims else found
    along, across = (-2, -1) if ord in (1, -1) else (-1, -2)
    lines = reduce.sum(abs(as_float(a)), along, True)
    found = (reduce.max if ord > 0 else reduce.min)(lines, across, True)  # type: ignore[operator]
    return found if keepdims else squeeze(found, (-2, -1))


def _known(who: str, ord: Any) -> Any:
    """The norm of matrices that has this name or number; ValueRefusedError where there is none."""
    plain = isinstance(ord, (str, int, float, np.number)) and not isinstance(ord, bool)
    if not plain or ord not in ("fro", "nuc", 1, -1, 2, -2, inf, -inf):
        raise ValueRefusedError(
            f"{who} got ord={ord!r}; expected one of 'fro', 'nuc', 1, -1, 2, -2, inf, -inf"
        )
    return ord


@composition
def cond_number(a: Any, ord: str | float = 2) -> Tensor:
    """The condition number, by which a linear system may magnify relative errors: |a| |inv(a)| in
    the norm `ord` of `matrix_norm`; for 2, the ratio of the largest to the smallest singular value.

    a (..., n, n), for 2 and -2 also (..., m, n); shape (...). Infinite where a is singular; NaN
    where it has NaN or infinity. NumPy's and PyTorch's linalg.cond.

    >>> cond_number([[2.0, 0.0], [0.0, 0.5]]).item()
    4.0
    """
    if _known("cond_number", ord) in (2, -2) and matrices("cond_number", shape_of(a)):
        values = svd(a)[1]
        ends = reduce.max(values, -1), reduce.min(values, -1)
        found = div(*(ends if ord == 2 else ends[::-1]))
    else:
        square("cond_number", shape_of(a))
        found = mul(matrix_norm(a, ord), matrix_norm(inv(a), ord))
    singular = logical_and(isnan(found), reduce.all(isfinite(as_float(a)), (-2, -1)))
    return select(singular, inf, found)


@composition
def matrix_power(a: Any, n: int) -> Tensor:
    """The product of n factors a, by repeated squaring: about 2 log2(n) products.

    a (..., k, k), integers too. n = 0 gives the identity; below 0 the power is that of inv(a).
    AttributeRefusedError for an n that is no int.

    >>> matrix_power([[1, 1], [1, 0]], 10).tolist()
    [[89, 55], [55, 34]]
    """
    shape, n = square("matrix_power", shape_of(a)), integer("matrix_power", "n", n)
    if n < 0:
        a, n = inv(a), -n
    if n == 0:
        return broadcast_to(eye(shape[-1], dtype=dtype_of(a)), shape)
    factor, power = a, None
    while n:
        n, odd = divmod(n, 2)
        if odd:
            power = factor if power is None else matmul(power, factor)
        factor = matmul(factor, factor) if n else factor
    return reshape(power, shape)  # a tensor, also where a is an array and n is 1


# Of the Pade approximant [m/m] of exp, by dtype: the 1-norm up to which its backward error is below
# the rounding of the dtype (Higham 2005, table 2.3; float32: Al-Mohy and Higham 2009), and the
# coefficients of its numerator, those of even and odd powers by turns.
_PADE = {
    float32: (3.925724783138660, (17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1)),
    float64: (
        5.371920351148152,
        (
            64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800,
            129060195264000, 10559470521600, 670442572800, 33522128640, 1323241920, 40840800,
            960960, 16380, 182, 1,
        ),
    ),
}  # fmt: skip
_SQUARINGS = 40  # of matrices with a norm to 4e12; a graph has as many rounds, most of them empty


@composition
def expm(a: Any) -> Tensor:
    """The matrix exponential: the sum over k of a^k / k!.

    a (..., n, n) in float32 or float64, integers are cast to float32. By scaling and squaring: the
    Pade approximant of a / 2^s, squared s times, with s for each matrix so that the approximant is
    exact to rounding (Higham 2005, "The scaling and squaring method for the matrix exponential
    revisited"). Gradients of any order pass. NaN for a matrix with NaN or infinity, or with a
    1-norm above 4e12. DTypeError for floats of 16 bits.

    >>> expm([[0.0, 1.0], [0.0, 0.0]]).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    shape, a = square("expm", shape_of(a)), as_float(a)
    dtype = dtype_of(a)
    if dtype not in _PADE:
        raise DTypeError(f"expm needs float32 or float64; got {dtype.name}; cast it first")
    if 0 in shape:
        return reshape(a, shape)
    limit, coefficients = _PADE[dtype]
    norms = stop_gradient(matrix_norm(a, 1, keepdims=True))
    squarings = maximum(ceil(log2(div(norms, limit))), 0.0)
    possible = select(less_equal(squarings, float(_SQUARINGS)), 1.0, nan)
    scaled = mul(a, mul(exp2(-squarings), cast(possible, dtype)))

    def squared(state: tuple[Any, Any]) -> tuple[Any, Any]:
        done, power = state
        again = greater(squarings, done)
        # Only what is squared enters the product, which may overflow otherwise.
        base = select(again, power, cast(0.0, dtype))
        return add(done, 1.0), select(again, matmul(base, base), power)

    start = zeros((), dtype), _pade(scaled, coefficients)
    return while_loop(  # type: ignore[no-any-return]
        lambda state: reduce.any(greater(squarings, state[0])), squared, start, _SQUARINGS
    )[1]


def _pade(a: Any, coefficients: tuple[int, ...]) -> Tensor:
    """p(-a)^-1 p(a), for the polynomial p with these coefficients."""
    *_, n = shape = shape_of(a)
    step = matmul(a, a)
    power: Any = broadcast_to(eye(n, dtype=dtype_of(a)), shape)
    even, odd = mul(power, float(coefficients[0])), mul(power, float(coefficients[1]))
    for k in range(2, len(coefficients), 2):
        power = matmul(power, step) if k > 2 else step
        even = add(even, mul(power, float(coefficients[k])))
        odd = add(odd, mul(power, float(coefficients[k + 1])))
    odd = matmul(a, odd)
    return solve(sub(even, odd), add(even, odd))
