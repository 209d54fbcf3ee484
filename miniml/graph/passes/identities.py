"""Algebraic identities, as a table of calls and their replacements.

Results keep every bit, but for the sign of NaN, and for the order in which a product whose factors
change places is added up. So x + 0.0 is left alone, since -0.0 + 0.0 is 0.0,
and so are sums of one number, which begin with 0.0; x * 0 as well, since NaN and infinities must
propagate. Gradients stay the same, too, so StopGradient is not an identity here.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import NamedTuple, Protocol

from ...abstract import Shape
from ...dtype import FLOATS, INTEGERS, holds, is_float
from ...formats import PLAIN
from ...ops.arithmetic import Add, Cast, Div, Maximum, Minimum, Mul, Neg, Square, Sub
from ...ops.compare import Select
from ...ops.exponential import Pow
from ...ops.inference.equation import parse
from ...ops.linalg import Einsum, MatMul
from ...ops.reduce import Max, Min, Prod
from ...ops.shape import BroadcastTo, Convert, ExpandDims, Reshape, Squeeze, Transpose
from ...primitive import Primitive
from ..ir import Graph, Node, Var

Call = tuple[Primitive | Graph, *tuple[Var, ...]]
Proposal = Var | Call | None
Number = bool | int | float


class Site(Protocol):
    """The questions that a rule may ask about the operands of a call."""

    shape: Shape  # the call's output
    node: Node  # the call, or the one that the proposals so far were made for

    def is_all(self, var: Var, number: Number) -> bool:
        """True when every element of `var` is known to be `number`; 0.0 and -0.0 differ."""

    def scalar(self, var: Var) -> Var | None:
        """A constant of shape () equal to every element of `var`, which has another shape; None
        unless one number is known to fill it."""

    def used_once(self, var: Var) -> bool:
        """True if one call alone reads `var`, once."""

    def made_by(self, var: Var, *kinds: type[Primitive]) -> Node | None:
        """The node that makes `var`, if it is a call of one of these primitives."""


class Rule(NamedTuple):
    """For calls of `kinds`, `propose(site, primitive, *inputs)` gives a Var, (primitive, *inputs),
    (graph, *inputs) with a graph made for this call, or None. A proposal whose shape or dtype
    differs from the call's output is ignored."""

    says: str
    kinds: tuple[type[Primitive], ...]
    propose: Callable[..., Proposal]


def _itself(site: Site, primitive: Primitive, x: Var) -> Proposal:
    return x


def _x_if_y_is(number: Number) -> Callable[..., Proposal]:
    return lambda site, primitive, x, y: x if site.is_all(y, number) else None


def _y_if_x_is(number: Number) -> Callable[..., Proposal]:
    return lambda site, primitive, x, y: y if site.is_all(x, number) else None


def _x_if_y_adds_nothing(site: Site, primitive: Primitive, x: Var, y: Var) -> Proposal:
    return x if site.is_all(y, -0.0 if is_float(y.abstract.dtype) else 0) else None


def _y_if_x_adds_nothing(site: Site, primitive: Primitive, x: Var, y: Var) -> Proposal:
    return _x_if_y_adds_nothing(site, primitive, y, x)


def _x_if_exponent_is(number: Number) -> Callable[..., Proposal]:
    # NumPy has fast paths for a scalar exponent; an array of equal exponents rounds differently.
    rule = _x_if_y_is(number)
    return lambda site, power, x, y: rule(site, power, x, y) if y.abstract.shape == () else None


def _then(call: Primitive, rule: Callable[..., Proposal]) -> Callable[..., Proposal]:
    def propose(*args: object) -> Proposal:
        found = rule(*args)
        return (call, found) if isinstance(found, Var) else None

    return propose


def _negated_twice(site: Site, neg: Neg, x: Var) -> Proposal:
    inner = site.made_by(x, Neg)
    return None if inner is None else inner.inputs[0]


def _chosen(cond: bool) -> Callable[..., Proposal]:
    return lambda site, select, c, x, y: (x if cond else y) if site.is_all(c, cond) else None


def _cast_of_cast(site: Site, cast: Cast, x: Var) -> Proposal:
    inner = site.made_by(x, Cast)
    if inner is None or not holds(x.abstract.dtype, inner.inputs[0].abstract.dtype):
        return None
    # Float-to-integer casts out of range are up to the kernel, so keep the same kernel.
    same = cast.dtype not in INTEGERS or x.abstract.dtype not in FLOATS
    return (cast, inner.inputs[0]) if same else None


def _reshape_of_reshape(site: Site, reshape: Primitive, x: Var) -> Proposal:
    inner = site.made_by(x, *RESHAPES)
    return None if inner is None else (Reshape(site.shape), inner.inputs[0])


def _convert_of_convert(site: Site, convert: Convert, x: Var) -> Proposal:
    inner = site.made_by(x, Convert)
    if inner is not None:
        return (convert, inner.inputs[0])
    return x if convert.format == (x.abstract.format or PLAIN) else None


def _broadcast_of_broadcast(site: Site, broadcast: BroadcastTo, x: Var) -> Proposal:
    inner = site.made_by(x, BroadcastTo)
    return None if inner is None else (broadcast, inner.inputs[0])


def _in_order(site: Site, transpose: Transpose, x: Var) -> Proposal:
    axes = _axes(transpose)
    return x if axes == tuple(sorted(axes)) else None


def _transpose_of_transpose(site: Site, outer: Transpose, x: Var) -> Proposal:
    inner = site.made_by(x, Transpose)
    if inner is None:
        return None
    axes = _axes(inner.primitive)
    return Transpose(tuple(axes[a] for a in _axes(outer))), inner.inputs[0]


def _product_of_transpose(site: Site, product: MatMul, x: Var, y: Var) -> Proposal:
    x_, y_ = _turned(site, x), _turned(site, y)
    if x_ is None and y_ is None:
        return None
    turns = product.transpose_x != (x_ is not None), product.transpose_y != (y_ is not None)
    return MatMul(*turns), x_ or x, y_ or y


def _turned(site: Site, x: Var) -> Var | None:
    """What x is the transpose of, its last two axes exchanged."""
    node = site.made_by(x, Transpose)
    return node.inputs[0] if node is not None and _turns(node.primitive) else None


def _turns(transpose: Primitive) -> bool:
    axes = _axes(transpose)
    rest = len(axes) - 2
    return rest >= 0 and axes == (*range(rest), rest + 1, rest)


def _transpose_of_product(site: Site, transpose: Transpose, x: Var) -> Proposal:
    node = site.made_by(x, MatMul)
    if node is None or not _turns(transpose) or not site.used_once(x):
        return None
    if any(len(v.abstract.shape) < 2 for v in node.inputs):
        return None
    turned_x, turned_y = node.primitive.transpose_x, node.primitive.transpose_y
    return MatMul(not turned_y, not turned_x), *reversed(node.inputs)


def _matrix_product(site: Site, einsum: Einsum, *operands: Var) -> Proposal:
    shapes = tuple([v.abstract.shape for v in operands])
    equation = parse(einsum.equation, shapes)
    extents = [tuple([equation.extents[c] for c in term]) for term in equation.operands]
    if len(operands) != 2 or shapes != tuple(extents) or len(equation.output) < 2:
        return None
    batch, i, j = equation.output[:-2], equation.output[-2], equation.output[-1]
    for (x, a), (y, b) in permutations(zip(operands, equation.operands, strict=True)):
        inner = "".join(set(a) - set(equation.output))
        rows, columns = (batch + i + inner, batch + inner + i), (inner + j, j + inner)
        if len(inner) == 1 and a in rows and b.removeprefix(batch) in columns:
            return MatMul(a == rows[1], b.removeprefix(batch) == columns[1]), x, y
    return None


def _scalar_operand(site: Site, primitive: Primitive, x: Var, y: Var) -> Proposal:
    if x.abstract.shape == site.shape and (number := site.scalar(y)) is not None:
        return primitive, x, number
    if y.abstract.shape == site.shape and (number := site.scalar(x)) is not None:
        return primitive, number, y
    return None


def _axes(transpose: Primitive) -> tuple[int, ...]:
    axes: tuple[int, ...] = transpose.attributes["axes"]
    return tuple(a % len(axes) for a in axes)


RESHAPES = (Reshape, ExpandDims, Squeeze)
_ARITHMETIC = (Add, Sub, Mul, Div, Maximum, Minimum)
_REDUCTIONS = (Prod, Max, Min)

RULES = (
    Rule("x + -0.0 is x, for integers x + 0", (Add,), _x_if_y_adds_nothing),
    Rule("-0.0 + x is x, for integers 0 + x", (Add,), _y_if_x_adds_nothing),
    Rule("x - 0 is x", (Sub,), _x_if_y_is(0)),
    Rule("x * 1 is x", (Mul,), _x_if_y_is(1)),
    Rule("1 * x is x", (Mul,), _y_if_x_is(1)),
    Rule("x * -1 is -x", (Mul,), _then(Neg(), _x_if_y_is(-1))),
    Rule("-1 * x is -x", (Mul,), _then(Neg(), _y_if_x_is(-1))),
    Rule("x / 1 is x", (Div,), _x_if_y_is(1)),
    Rule("x ** 1 is x", (Pow,), _x_if_exponent_is(1)),
    Rule("x ** 2 is the square of x", (Pow,), _then(Square(), _x_if_exponent_is(2))),
    Rule("-(-x) is x", (Neg,), _negated_twice),
    Rule("a cast to its own dtype", (Cast,), _itself),
    Rule("a cast of a lossless cast", (Cast,), _cast_of_cast),
    Rule("a reshape or broadcast to the same shape", (*RESHAPES, BroadcastTo), _itself),
    Rule("a reshape of a reshape", RESHAPES, _reshape_of_reshape),
    Rule("a conversion of a conversion, or to its own format", (Convert,), _convert_of_convert),
    Rule("a broadcast of a broadcast", (BroadcastTo,), _broadcast_of_broadcast),
    Rule("a transpose that keeps the order of axes", (Transpose,), _in_order),
    Rule("a transpose of a transpose", (Transpose,), _transpose_of_transpose),
    Rule("a product of a transpose", (MatMul,), _product_of_transpose),
    Rule("an Einstein sum that is a product of matrices", (Einsum,), _matrix_product),
    Rule("a transpose of a product", (Transpose,), _transpose_of_product),
    Rule("a reduction over axes of extent 1 with keepdims", _REDUCTIONS, _itself),
    Rule("a choice that is always the first", (Select,), _chosen(True)),
    Rule("a choice that is always the second", (Select,), _chosen(False)),
    Rule("an array filled with one number is a scalar", _ARITHMETIC, _scalar_operand),
)
