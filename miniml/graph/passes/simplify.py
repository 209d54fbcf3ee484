"""Algebraic simplification: the identities of a table, applied where their conditions hold.

Rewriting: the first rule that matches a call replaces it, until none matches. Identities: the table
of calls and their replacements. Results keep every bit, except for the sign of NaN, and for the
order in which a product whose factors are exchanged is summed. So x + 0.0 is left alone, since
-0.0 + 0.0 is 0.0, and so are sums of one number, which begin with 0.0, and x * 0, since NaN and
infinities must propagate. Gradients are preserved, too, so StopGradient is not an identity here.
Batch-norm folding: scales and shifts of channels go into the weights and bias of the convolution or
product before them, where these are smaller than its output, as for a batch norm in inference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations
from math import copysign, prod
from typing import NamedTuple, Protocol

import numpy as np

from ...core.abstract import INTEGERS, PLAIN, Abstract, Shape, float32, float64, holds, is_float
from ...core.errors import GraphError
from ...core.infer import infer
from ...core.primitive import Primitive
from ...ops.checks import normal_axes
from ...ops.create import Full
from ...ops.elementwise import (
    Add,
    Cast,
    Div,
    Maximum,
    Minimum,
    Mul,
    Neg,
    Pow,
    Reciprocal,
    Sqrt,
    Square,
    Sub,
)
from ...ops.images import Conv2D
from ...ops.linalg import Einsum, MatMul, parse
from ...ops.logic import Select
from ...ops.shape import BroadcastTo, Convert, Flip, Reshape, Slice, SliceGrad, Transpose
from ..ir import Graph, Node, Var
from .rewrite import SMALL, Place, Rewriter, replaced

Call = tuple[Primitive | Graph, *tuple[Var, ...]]
Proposal = Var | Call | None
Number = bool | int | float | complex
Kind = type[Primitive] | tuple[str, object]  # a class, or those of which a fact has this value


class Site(Protocol):
    """Facts about the operands of a call that a rule may query."""

    shape: Shape  # the call's output
    node: Node  # the call, or the one that earlier proposals replaced

    def is_all(self, var: Var, number: Number) -> bool:
        """True when every element of `var` is known to be `number`; 0.0 and -0.0 differ."""

    def scalar(self, var: Var) -> Var | None:
        """A constant of shape () equal to every element of `var`, which has another shape; None
        unless one number is known to fill it."""

    def used_once(self, var: Var) -> bool:
        """True if one call alone reads `var`, once."""

    def made_by(self, var: Var, *kinds: Kind) -> Node | None:
        """The node that makes `var`, if it is a call of one of these primitives."""


class Rule(NamedTuple):
    """For calls of `kinds`, `propose(site, primitive, *inputs)` gives a Var, (primitive, *inputs),
    (graph, *inputs) with a graph made for this call, or None. A proposal whose shape or dtype
    differs from the call's output is ignored."""

    says: str
    kinds: tuple[Kind, ...]
    propose: Callable[..., Proposal]


Table = Callable[[type[Primitive]], tuple[Rule, ...]]  # the rules for calls of a class


def by_kind(rules: Sequence[Rule]) -> Table:
    """The rules for each class of primitives."""
    found: dict[type[Primitive], tuple[Rule, ...]] = {}

    def of(cls: type[Primitive]) -> tuple[Rule, ...]:
        if cls not in found:
            fits = [r for r in rules if any(k is cls or _states(cls, k) for k in r.kinds)]
            found[cls] = tuple(fits)
        return found[cls]

    return of


def _states(cls: type[Primitive], kind: Kind) -> bool:
    """True for a class of which a fact has that value."""
    return isinstance(kind, tuple) and getattr(cls, kind[0]) == kind[1]


# --- Rewriting ------------------------------------------------------------------------------------

_MORE = 10  # replacements by graphs for each call of a graph; beyond that they never end


def simplify(graph: Graph) -> Graph:
    """The graph with the identities of RULES applied repeatedly, so that chains of casts, reshapes
    and transposes become one call or none."""
    return rewritten(graph, _BY_KIND)


def rewritten(graph: Graph, rules: Table) -> Graph:
    """The graph with the first matching rule applied to each call, and to its replacement,
    until none matches. GraphError for rules that never end."""
    rewriter = Rewriter(graph)
    sight = Sight(rewriter, rules)
    pending: list[Node | _Link] = list(reversed(graph.nodes))
    left = _MORE * (len(graph.nodes) + 100)
    while pending:
        item = pending.pop()
        if isinstance(item, _Link):
            rewriter.replace(item.old, item.new)
            continue
        if not rules(type(item.primitive)):
            rewriter.keep(item)
        else:
            new = _simplify(rewriter, sight, item)
            pending += new
            left -= bool(new)
            if left < 0:
                raise GraphError(
                    f"rewriting does not end: what {sight.rule!r} puts in place of a call matches "
                    "it again; leave such calls out, for a rule of yours with where="
                )
        sight.note(item.outputs)
    return rewriter.finish()


class _Link(NamedTuple):
    """A marker from which on the values `new` replace `old`."""

    old: tuple[Var, ...]
    new: tuple[Var, ...]


def _simplify(rewriter: Rewriter, sight: Sight, node: Node) -> list[Node | _Link]:
    """Keep or replace a node; if a graph replaces it, returns the items left to do, last first."""
    primitive, inputs = node.primitive, rewriter.inputs(node)
    found = step = sight.first(node, primitive, inputs)
    while isinstance(step, tuple):
        if isinstance(step[0], Graph):
            rewriter.inline(step[0], step[1:])
            nodes = [replace(n, where=node.where) for n in step[0].nodes]
            return [_Link(node.outputs, step[0].outputs), *reversed(nodes)]
        primitive, inputs = step[0], step[1:]
        found, step = step, sight.first(node, primitive, inputs)
    if isinstance(step, Var):
        rewriter.replace(node.outputs, (step,))
    elif found is None:
        rewriter.keep(node)
    else:
        rewriter.call(node, primitive, inputs)
    return []


class Sight:
    """The Site of the calls in a graph that is being rewritten."""

    node: Node

    def __init__(self, rewriter: Rewriter, rules: Table):
        self._rewriter, self._rules = rewriter, rules
        self.rule = ""  # the last one that matched
        self._numbers: dict[Var, Number] = {}
        self.shape: Shape = ()
        graph = rewriter.graph
        self._uses = graph.uses()
        for var in graph.constants:
            value = var.abstract.value
            if value is not None and 0 < value.nbytes <= SMALL:
                first = value.flat[0]
                if value.tobytes() == first.tobytes() * value.size:
                    self._numbers[var] = first.item()

    def is_all(self, var: Var, number: float) -> bool:
        known = self._numbers.get(var)
        if known is None or isinstance(known, complex):  # there even x * 1 may make inf a NaN
            return False
        return known == number and copysign(1.0, known) == copysign(1.0, number)

    def scalar(self, var: Var) -> Var | None:
        if var not in self._numbers or var.abstract.shape == ():
            return None
        return self._rewriter.constant(np.full((), self._numbers[var], var.abstract.dtype))

    def used_once(self, var: Var) -> bool:
        return self._uses[var] == 1

    def made_by(self, var: Var, *kinds: Kind) -> Node | None:
        maker = self._rewriter.maker.get(var)
        if maker is None:
            return None
        cls = type(maker.primitive)
        made = any(issubclass(cls, k) if isinstance(k, type) else _states(cls, k) for k in kinds)
        return maker if made else None

    def first(self, node: Node, primitive: Primitive, inputs: tuple[Var, ...]) -> Proposal:
        """The value that the first matching rule gives for a call in place of `node`, or None."""
        out = node.outputs[0].abstract
        self.node, self.shape = node, out.shape
        for rule in self._rules(type(primitive)):
            found = rule.propose(self, primitive, *inputs)
            if found is None:
                continue
            made = found.abstract if isinstance(found, Var) else _inferred(*found)
            if (made.shape, made.dtype) == (out.shape, out.dtype):
                self.rule = rule.says
                return found
        return None

    def note(self, outputs: tuple[Var, ...]) -> None:
        """Note the number that fills the output of a new node, if there is one."""
        for var in outputs:
            maker = self._rewriter.maker.get(var)
            if maker is None:
                continue
            if isinstance(maker.primitive, Full):
                self._numbers[var] = maker.primitive.value
            elif type(maker.primitive).view not in (None, "same"):
                if maker.inputs[0] in self._numbers:
                    self._numbers[var] = self._numbers[maker.inputs[0]]


def _inferred(primitive: Primitive | Graph, *inputs: Var) -> Abstract:
    if isinstance(primitive, Graph):
        return primitive.outputs[0].abstract
    return infer(primitive, tuple(v.abstract for v in inputs))[0]


# --- Identities -----------------------------------------------------------------------------------


def _itself(site: Site, primitive: Primitive, x: Var) -> Proposal:
    return x


def _x_if_y_is(number: Number) -> Callable[..., Proposal]:
    return lambda site, primitive, x, y: x if site.is_all(y, number) else None


def _x_if_y_adds_nothing(site: Site, primitive: Primitive, x: Var, y: Var) -> Proposal:
    return x if site.is_all(y, -0.0 if is_float(y.abstract.dtype) else 0) else None


def _swapped(rule: Callable[..., Proposal]) -> Callable[..., Proposal]:
    return lambda site, primitive, x, y: rule(site, primitive, y, x)


def _x_if_exponent_is(number: Number) -> Callable[..., Proposal]:
    # NumPy has fast paths for a scalar exponent; an array of equal exponents rounds differently.
    rule = _x_if_y_is(number)
    return lambda site, power, x, y: rule(site, power, x, y) if y.abstract.shape == () else None


def _wide(rule: Callable[..., Proposal]) -> Callable[..., Proposal]:
    """The rule, for what NumPy has fast paths for: integers refuse some, and float16 has none."""
    return lambda site, call, x, y: (
        rule(site, call, x, y) if x.abstract.dtype in (float32, float64) else None
    )


def _then(call: Primitive, rule: Callable[..., Proposal]) -> Callable[..., Proposal]:
    def propose(*args: object) -> Proposal:
        found = rule(*args)
        return (call, found) if isinstance(found, Var) else None

    return propose


def _reshaped(site: Site, reshape: Primitive, x: Var) -> Proposal:
    return Reshape(site.shape), x


def _twice(
    kind: Kind, rule: Callable[..., Proposal] = lambda site, outer, x: (outer, x)
) -> Callable[..., Proposal]:
    """The rule for a call of what another one of that kind gives: x is the input of the inner."""

    def propose(site: Site, outer: Primitive, x: Var) -> Proposal:
        inner = site.made_by(x, kind)
        return None if inner is None else rule(site, outer, inner.inputs[0])

    return propose


def _chosen(cond: bool) -> Callable[..., Proposal]:
    return lambda site, select, c, x, y: (x if cond else y) if site.is_all(c, cond) else None


def _cast_of_cast(site: Site, cast: Cast, x: Var) -> Proposal:
    inner = site.made_by(x, Cast)
    if inner is None or not holds(x.abstract.dtype, inner.inputs[0].abstract.dtype):
        return None
    # Float-to-integer casts out of range are up to the kernel, so keep the same kernel.
    same = cast.dtype not in INTEGERS or not is_float(x.abstract.dtype)
    return (cast, inner.inputs[0]) if same else None


def _convert_of_convert(site: Site, convert: Convert, x: Var) -> Proposal:
    inner = site.made_by(x, Convert)
    if inner is not None:
        return (convert, inner.inputs[0])
    return x if convert.format == (x.abstract.format or PLAIN) else None


def _repeated_twice(site: Site, reshape: Primitive, x: Var) -> Proposal:
    """A reshaped broadcast of a reshape of a broadcast: one broadcast, and the last reshape."""
    outer = site.made_by(x, BroadcastTo)
    middle = outer and site.made_by(outer.inputs[0], _RESHAPES)
    inner = middle and site.made_by(middle.inputs[0], BroadcastTo)
    if not middle or not inner:
        return None
    (source,), (wide,) = inner.inputs, inner.outputs
    target, shape = x.abstract.shape, middle.outputs[0].abstract.shape
    merged = _merged_axes(wide.abstract.shape, (1,) * (len(target) - len(shape)) + shape)
    if merged is None:
        return None
    ones = len(wide.abstract.shape) - len(source.abstract.shape)
    given = (1,) * ones + source.abstract.shape
    before, after = list[int](), list[int]()
    for n, axes in zip(target, merged, strict=True):
        before += [given[a] for a in axes] or [1]
        after += [wide.abstract.shape[a] for a in axes] or [n]
    dtype = x.abstract.dtype
    apart, spread, out = (Var(Abstract(tuple(s), dtype)) for s in (before, after, site.shape))
    nodes = (
        Node(Reshape(tuple(before)), (source,), (apart,)),
        Node(BroadcastTo(tuple(after)), (apart,), (spread,)),
        Node(Reshape(site.shape), (spread,), (out,)),
    )
    return Graph((source,), nodes, (out,)), source


def _merged_axes(shape: Shape, into: Shape) -> list[list[int]] | None:
    """The axes of `shape` that each axis of a reshape has, none of one of extent 1; None where an
    axis goes into several, or has no elements."""
    if 0 in shape:
        return None
    axes = iter([i for i, n in enumerate(shape) if n != 1])
    found: list[list[int]] = [[] for _ in into]
    for n, of in zip(into, found, strict=True):
        while prod([shape[i] for i in of]) < n:
            of.append(next(axes))
        if prod([shape[i] for i in of]) != n:
            return None
    return found


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
    """The value of which x is the matrix transpose, with its last two axes exchanged."""
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


def _backwards(site: Site, flip: Flip, x: Var) -> Proposal:
    axes = normal_axes("Flip", flip.axis, len(site.shape))
    taken = [(n - 1, -1, -1) if a in axes else (0, n, 1) for a, n in enumerate(site.shape)]
    return (Slice(*zip(*taken, strict=True)), x) if prod(site.shape) and taken else None


def _of_all_elements(site: Site, grad: SliceGrad, x: Var) -> Proposal:
    taken = Slice(grad.begin, grad.end, grad.strides)
    return (taken, x) if x.abstract.shape == site.shape else None


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


_RESHAPES: Kind = ("view", "reshape")
_BROADCASTS: Kind = ("view", "broadcast")
_ARITHMETIC = (Add, Sub, Mul, Div, Maximum, Minimum)
# Sums of one number begin with 0.0, which changes -0.0.
_REDUCTIONS: tuple[Kind, ...] = (("reduces", "prod"), ("reduces", "max"), ("reduces", "min"))
RULES = (
    Rule("x + -0.0 is x, for integers x + 0", (Add,), _x_if_y_adds_nothing),
    Rule("-0.0 + x is x, for integers 0 + x", (Add,), _swapped(_x_if_y_adds_nothing)),
    Rule("x - 0 is x", (Sub,), _x_if_y_is(0)),
    Rule("x * 1 is x", (Mul,), _x_if_y_is(1)),
    Rule("1 * x is x", (Mul,), _swapped(_x_if_y_is(1))),
    Rule("x * -1 is -x", (Mul,), _then(Neg(), _x_if_y_is(-1))),
    Rule("-1 * x is -x", (Mul,), _then(Neg(), _swapped(_x_if_y_is(-1)))),
    Rule("x / 1 is x", (Div,), _x_if_y_is(1)),
    Rule("x ** 1 is x", (Pow,), _x_if_exponent_is(1)),
    Rule("x ** 2 is the square of x", (Pow,), _then(Square(), _x_if_exponent_is(2))),
    Rule("x ** 0.5 is the root of x", (Pow,), _wide(_then(Sqrt(), _x_if_exponent_is(0.5)))),
    Rule("x ** -1 is 1 / x", (Pow,), _wide(_then(Reciprocal(), _x_if_exponent_is(-1)))),
    Rule("-(-x) is x", (Neg,), _twice(Neg, _itself)),
    Rule("a cast to its own dtype", (Cast,), _itself),
    Rule("a cast of a lossless cast", (Cast,), _cast_of_cast),
    Rule("a reshape or broadcast to the same shape", (_RESHAPES, _BROADCASTS), _itself),
    Rule("a reshape of a reshape", (_RESHAPES,), _twice(_RESHAPES, _reshaped)),
    Rule("a conversion of a conversion, or to its own format", (Convert,), _convert_of_convert),
    Rule("a broadcast of a broadcast", (BroadcastTo,), _twice(BroadcastTo)),
    Rule("a repetition of a repetition", (_RESHAPES,), _repeated_twice),
    Rule("a transpose that keeps the order of axes", (Transpose,), _in_order),
    Rule("a transpose of a transpose", (Transpose,), _transpose_of_transpose),
    Rule("a flip is a slice that runs backwards, which loops read in place", (Flip,), _backwards),
    Rule("a slice of all elements is its own transpose", (SliceGrad,), _of_all_elements),
    Rule("a product of a transpose", (MatMul,), _product_of_transpose),
    Rule("an Einstein sum that is a product of matrices", (Einsum,), _matrix_product),
    Rule("a transpose of a product", (Transpose,), _transpose_of_product),
    Rule("a reduction over axes of extent 1 with keepdims", _REDUCTIONS, _itself),
    Rule("a choice that is always the first", (Select,), _chosen(True)),
    Rule("a choice that is always the second", (Select,), _chosen(False)),
    Rule("an array filled with one number is a scalar", _ARITHMETIC, _scalar_operand),
)


_BY_KIND = by_kind(RULES)


# --- Batch-norm folding ---------------------------------------------------------------------------


def scale(graph: Graph) -> Graph:
    """The graph with (conv(x, w) + b) s + t as conv(x, w s) + (b s + t), and products alike, if
    b, s and t have an element for each channel and nothing else reads the values in between.

    Rounding may differ. This pays where w has less than half as many elements as the output.
    """
    if not any(isinstance(n.primitive, Conv2D | MatMul) for n in graph.nodes):
        return graph
    return replaced(graph, (Add, Mul), partial(_folded, graph.uses()))


def _folded(uses: Counter[Var], at: Place) -> Var | None:
    """A product with a scale, or a sum with a shift, that is folded. uses: of each Var."""
    (x, y), (out,) = at.inputs, at.node.outputs
    if x.abstract.shape != out.abstract.shape:
        x, y = y, x
    change = _scaled if isinstance(at.node.primitive, Mul) else _shifted
    found = change(at, uses, x, y) if x.abstract.shape == out.abstract.shape else None
    if found is not None:
        uses[found] = uses[out]
    return found


def _scaled(at: Place, uses: Counter[Var], x: Var, s: Var) -> Var | None:
    """x s with the scale folded into x, if that is less work."""
    maker = at.made_by(x, Primitive)
    if maker is None or uses[x] != 1:
        return None
    if isinstance(maker.primitive, Add):
        inner, b = maker.inputs
        found = _scaled(at, uses, inner, s) if b.abstract.shape == s.abstract.shape else None
        return None if found is None else at.new(Add(), found, at.new(Mul(), b, s))
    shape = _scale_of_weights(maker, s.abstract.shape)
    if shape is None:
        return None
    inputs, weights = maker.inputs
    if 2 * prod(weights.abstract.shape) > prod(x.abstract.shape):
        return None
    return at.new(maker.primitive, inputs, at.new(Mul(), weights, at.reshaped(s, *shape)))


def _shifted(at: Place, uses: Counter[Var], x: Var, t: Var) -> Var | None:
    """(y + b) + t as y + (b + t), if b has an element for each channel."""
    maker = at.made_by(x, Add)
    if maker is None or uses[x] != 1:
        return None
    y, b = maker.inputs
    channels = b.abstract.shape == t.abstract.shape != x.abstract.shape
    return at.new(Add(), y, at.new(Add(), b, t)) if channels else None


def _scale_of_weights(node: Node, shape: Shape) -> Shape | None:
    """The shape in which a scale of the channels of the node's output scales its weights."""
    out = node.outputs[0].abstract.shape
    if isinstance(node.primitive, Conv2D):
        of_channels = shape in ((*out[1:2], 1, 1), (1, *out[1:2], 1, 1))
        return (*out[1:2], 1, 1, 1) if of_channels else None
    if isinstance(node.primitive, MatMul) and shape == out[-1:]:
        by_matrix = len(node.inputs[1].abstract.shape) == 2
        turned = (*shape, 1) if node.primitive.transpose_y else shape
        return turned if by_matrix else None
    return None
