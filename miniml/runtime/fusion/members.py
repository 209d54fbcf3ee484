"""Nodes that loops can compute: by an expression, as a view, or as a reduction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

from ... import epoch
from ...backends import edits, registry
from ...backends.expressions.rows import Scalar
from ...backends.expressions.table import table
from ...backends.kernel import KernelNode
from ...backends.product import dense_strides
from ...backends.signature import ArraySpec, parse
from ...dtype import DType, type_code
from ...errors import PerformanceWarning, warn_user
from ...formats import FORMATS, moves
from ...graph.ir import Node, Var
from ...ops.inference.shapes import normal_axes

Kind = Literal["elements", "created", "view", "window", "reduction", ""]

VIEWS = frozenset("Reshape Transpose ExpandDims Squeeze BroadcastTo StopGradient".split())
# Each reduction, and that of row programs which it comes from.
REDUCTIONS = {
    "Sum": "Sum", "SumTo": "Sum", "Mean": "Sum", "Max": "Max", "Min": "Min", "Any": "Any",
    "All": "All",
}  # fmt: skip
CREATED = frozenset("Full Arange Eye Linspace".split())


def kind_of(node: Node) -> Kind:
    """What loops make of a node; "" where they cannot compute it."""
    name = node.primitive.name
    if not all(map(_whole_blocks, (*node.inputs, *node.outputs))):
        return ""
    if name in VIEWS or (name == "Convert" and not _moves(node)):
        return "view"
    if len(node.outputs) != 1 or any(0 in v.abstract.shape for v in (*node.inputs, *node.outputs)):
        return ""
    if name in REDUCTIONS:
        return "reduction"
    if name == "Slice":
        return "" if _whole(node) else "window"
    codes = _codes(node)
    if not _has_expression(name, codes, epoch.now.kernels) or _doubted(name, codes):
        return ""
    return "created" if name in CREATED else "elements"


def _whole_blocks(var: Var) -> bool:
    """False for images whose last block of channels is not full."""
    format, shape = var.abstract.format, var.abstract.shape
    return format is None or shape[1] % (FORMATS[format].block or 1) == 0


def _moves(node: Node) -> bool:
    (x,), (out,) = node.inputs, node.outputs
    return moves(x.abstract.shape, x.abstract.format, out.abstract.format)


def _whole(node: Node) -> bool:
    """True for a Slice whose elements lie one after another, such as `x[t]`: it is a view by
    itself, and the kernels that read it do not depend on where it begins."""
    attrs = node.attrs
    taken = [*zip(attrs["begin"], attrs["end"], attrs["strides"], strict=True)]
    whole = [(0, n, 1) for n in node.inputs[0].abstract.shape]
    return taken[1:] == whole[1:] and taken[:1] != whole[:1] and attrs["strides"][:1] == (1,)


def scalar_of(node: Node) -> Scalar:
    """The scalar function that computes one element of a node's output."""
    name, codes = node.primitive.name, _codes(node)
    expression, spec = table[name, codes], registry.specs[name]
    types = expression.scalar_types(parse(codes), spec.attributes or ())
    values = expression.scalar_values(typed(node), types)
    named = zip(spec.inputs or (), [v.abstract.dtype for v in node.inputs], strict=True)
    return Scalar(
        name,
        expression,
        tuple(named),
        node.outputs[0].abstract.dtype,
        tuple(zip(types, values, strict=True)),
    )


def reduced_axes(node: Node) -> tuple[int, ...]:
    """The axes of its input that a reduction takes together."""
    shape = node.inputs[0].abstract.shape
    if node.primitive.name == "SumTo":
        target = node.outputs[0].abstract.shape
        lead = len(shape) - len(target)
        return (*range(lead), *(lead + i for i, n in enumerate(target) if n == 1))
    return normal_axes(node.primitive.name, node.attrs["axis"], len(shape))


def window(node: Node, strides: Sequence[int] | None = None) -> tuple[tuple[int, ...], int]:
    """How far apart elements along each axis of a Slice lie in what it slices, which has these
    strides or is in row-major order, and its first."""
    shape, attrs = node.inputs[0].abstract.shape, node.attrs
    apart = dense_strides(shape, 1) if strides is None else strides
    first = sum(begin * step for begin, step in zip(attrs["begin"], apart, strict=True))
    steps = [n * step for n, step in zip(attrs["strides"], apart, strict=True)]
    return tuple(s for i, s in enumerate(steps) if i not in attrs["dropped"]), first


def of_two(name: str, dtype: DType, *names: str) -> Scalar:
    """The scalar function of a primitive of the library whose inputs and output have one dtype."""
    c = type_code(dtype)
    return Scalar(
        name, table[name, f"{c * len(names)}->{c}"], tuple((n, dtype) for n in names), dtype
    )


def cast(source: DType, target: DType) -> Scalar:
    """The scalar function that Cast is."""
    expression = table["Cast", f"{type_code(source)}->{type_code(target)}"]
    return Scalar("Cast", expression, (("x", source),), target)


def literal(var: Var) -> bool:
    """True for constants of one element, which are written into the text."""
    value = var.abstract.value
    return value is not None and value.size == 1


def _codes(node: Node) -> str:
    takes, gives = [v.abstract.dtype for v in node.inputs], node.outputs[0].abstract.dtype
    return f"{''.join(map(type_code, takes))}->{type_code(gives)}"


@lru_cache(maxsize=4096)
def _has_expression(name: str, codes: str, version: int) -> bool:
    spec = registry.specs.get(name)
    return (name, codes) in table and spec is not None and spec.inputs is not None


def _doubted(name: str, codes: str) -> bool:
    """True, with a warning, where the expression may not be what the NumPy kernel computes."""
    doubt = edits.doubt(name, codes)
    if doubt:
        _warn(doubt, epoch.now.kernels)
    return bool(doubt)


@lru_cache(maxsize=64)
def _warn(text: str, version: int) -> None:
    warn_user(PerformanceWarning(text))


def typed(node: Node, layout: Mapping[Var, tuple[int, ...]] = MappingProxyType({})) -> KernelNode:
    """A node as kernels see it. layout: the strides of inputs that are not in row-major order."""

    def specs(variables: tuple[Var, ...]) -> tuple[ArraySpec, ...]:
        found = (v.abstract for v in variables)
        return tuple(ArraySpec(a.shape, a.dtype, a.format) for a in found)

    strides = tuple(map(layout.get, node.inputs))
    name, attrs = node.primitive.name, node.attrs
    return KernelNode(name, specs(node.inputs), specs(node.outputs), attrs, None, strides)
