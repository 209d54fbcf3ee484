"""Base classes of elementwise primitives, unary and binary ones, with their inference; and the
formulas of `flops` that several primitives share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

from ..core.abstract import Abstract
from ..core.dtype import COMPLEX as _COMPLEX
from ..core.dtype import FLOATS, bfloat16, bool_, float16, type_code
from ..core.dtype import SIGNED as _SIGNED
from ..core.dtype import UNSIGNED as _UNSIGNED
from ..core.primitive import Primitive, Promote
from . import rules

if TYPE_CHECKING:
    from ..core.tensor import Tensor

# Type codes, as classes name dtypes in `dtypes` and by them kernels.
FLOAT, SIGNED, UNSIGNED = ("".join(map(type_code, d)) for d in (FLOATS, _SIGNED, _UNSIGNED))
INT = SIGNED + UNSIGNED
LOW = "".join(map(type_code, (float16, bfloat16)))
NUMBER = INT + FLOAT
ANY = "?" + NUMBER
COMPLEX = "".join(map(type_code, _COMPLEX))

Dtypes = str | tuple[str, ...]  # type codes, or signatures
Flops = Callable[[Primitive, Sequence[Abstract], Sequence[Abstract]], int]


class Unary(Primitive, abstract=True):
    """One tensor in, one of the same shape and dtype out."""

    elementwise = True
    dtypes: ClassVar[Dtypes] = ANY
    infer_shape = rules.same
    if TYPE_CHECKING:

        def __call__(self, x: Any) -> Tensor: ...


class NumberUnary(Unary, abstract=True):
    """A function of integers or floats, element by element; bools are refused."""

    dtypes = NUMBER
    infer_dtype = rules.numbers


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
    infer_shape = rules.broadcast
    if TYPE_CHECKING:

        def __call__(self, x: Any, y: Any) -> Tensor: ...


class NumberBinary(Binary, abstract=True):
    """Two tensors of integers or floats, broadcast and promoted; two bools are refused."""

    dtypes = NUMBER
    infer_dtype = rules.numbers


class FloatBinary(Binary, abstract=True):
    """A function of two floats, element by element; integers are cast to float32 first."""

    dtypes = FLOAT
    promote = "float"


class Comparison(Binary, abstract=True):
    """Two tensors, broadcast and promoted, compared element by element: bool."""

    differentiable = False
    dtypes = tuple(f"{c}{c}->?" for c in ANY)
    infer_dtype = rules.always(bool_)


def moves(primitive: Primitive, inputs: Sequence[Abstract], outputs: Sequence[Abstract]) -> int:
    """No operations: numbers are moved or made, not computed."""
    return 0


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
