"""C of sums of products: Einstein sums, two operands at a time, and products of bools; and of the
memory formats of images."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from ...backends.cc.scalars import loaded, stored, value_type
from ...backends.cc.units import header
from ...backends.cpu.linalg import order
from ...core.abstract import FORMATS, PLAIN, Abstract
from ...core.dtype import DType, bool_
from ...graph.ir import Node
from ...ops.linalg import parse
from .registering import Loop, loop, nest, offset, pointers, strides, sum_type


class _Operand(NamedTuple):
    """An array: its labels, the step of each, and its element in C, in which {} is the offset."""

    labels: str
    steps: Sequence[int]
    element: str

    def at(self, counters: str) -> str:
        """The element at the counters of these labels; of one that it has twice on the diagonal."""
        every = [0] * len(counters)
        for label, step in zip(self.labels, self.steps, strict=True):
            every[counters.index(label)] += step
        return self.element.format(offset(every))


@loop("Einsum")
def _einsum(node: Node) -> Loop:
    """The operands are taken in the order in which NumPy's kernel does; what is made of two lies in
    scratch memory."""
    shapes = tuple(v.abstract.shape for v in node.inputs)
    dtype = node.inputs[0].abstract.dtype
    equation = parse(node.attrs["equation"], shapes)
    names = [f"x{i}" for i in range(len(shapes))]
    left = [
        _Operand(labels, strides(shape, shape), loaded(dtype, f"{name}[{{}}]"))
        for labels, shape, name in zip(equation.operands, shapes, names, strict=True)
    ]
    c, lines, scratch = value_type(dtype), [pointers(node, *names, "out")], 0
    for takes in order(list(equation.operands), equation.output, equation.extents):
        taken = [left.pop(i) for i in takes]
        if not left:
            lines.append(_contracted(taken, equation.output, equation.extents, dtype, "out"))
            break
        read = "".join((equation.output, *(x.labels for x in left)))
        labels = "".join(dict.fromkeys(c for x in taken for c in x.labels if c in read))
        shape = tuple(equation.extents[label] for label in labels)
        name = f"part{len(lines)}"
        lines.append(f"  {c} *const {name} = ({c} *)at[{len(shapes) + 1}] + {scratch}L;")
        lines.append(_contracted(taken, labels, equation.extents, dtype, name))
        left.append(_Operand(labels, strides(shape, shape), f"{name}[{{}}]"))
        scratch += prod(shape)
    text = "\n".join(lines)
    size = 8 if c == "double" or dtype.itemsize == 8 else 4
    return Loop(f"void KERNEL(char *const *at) {{\n{text}\n}}\n", header("convert"), scratch * size)


def product(node: Node) -> Loop:
    """A product of matrices of bools as an Einstein sum."""
    x, y = (v.abstract for v in node.inputs)
    out, attrs = node.outputs[0].abstract, node.attrs
    batch = "abcdefghijklmnopqrstuvw"[: max(len(x.shape), len(y.shape), 2) - 2]
    rows, columns = ("x" if len(x.shape) > 1 else ""), ("y" if len(y.shape) > 1 else "")
    left, right = f"{rows}z", f"z{columns}"
    if attrs["transpose_x"]:
        left = left[::-1]
    if attrs["transpose_y"]:
        right = right[::-1]
    labels = [
        batch[len(batch) + len(own) - len(a.shape) :] + own
        for own, a in ((left, x), (right, y))
    ]  # fmt: skip
    extents: dict[str, int] = {}
    for term, a in zip(labels, (x, y), strict=True):
        for label, n in zip(term, a.shape, strict=True):
            extents[label] = max(n, extents.get(label, 1))
    operands = [
        _Operand(term, strides(a.shape, a.shape), loaded(a.dtype, f"{name}[{{}}]"))
        for name, term, a in zip("xy", labels, (x, y), strict=True)
    ]
    body = _contracted(operands, batch + rows + columns, extents, out.dtype, "out")
    arrays = pointers(node, "x", "y", "out")
    return Loop(f"void KERNEL(char *const *at) {{\n{arrays}\n{body}\n}}\n", header("convert"))


def _contracted(
    operands: Sequence[_Operand], labels: str, extents: dict[str, int], dtype: DType, out: str
) -> str:
    """The loops that fill `out`, of these labels, with sums of products of the operands."""
    summed = "".join(dict.fromkeys(c for x in operands for c in x.labels if c not in labels))
    counters, c = labels + summed, sum_type(dtype)
    terms = [x.at(counters) for x in operands]
    if dtype == bool_:
        term = f"sum |= {' & '.join(terms)};"
    else:
        term = f"sum += {' * '.join(f'({c}){t}' for t in terms)};"
    value = f"({value_type(dtype)})sum"
    heads = nest([extents[label] for label in counters]).splitlines()
    outer, inner = heads[: len(labels)], [f"  {head}" for head in heads[len(labels) :]]
    return "\n".join(
        [
            "  {",
            "  long o = 0;",
            *outer,
            "  {",
            f"    {c} sum = 0;",
            *inner,
            f"    {term}",
            f"    {out}[o++] = {stored(dtype, value) if out == 'out' else value};",
            "  }",
            "  }",
        ]
    )


# --- Memory formats -------------------------------------------------------------------------------


@loop("Convert")
def _convert(node: Node) -> str:
    x, out = node.inputs[0].abstract, node.outputs[0].abstract
    here = "i0", "i1", "i2", "i3"
    return f"""\
void KERNEL(char *const *at) {{
{pointers(node, "x", "out")}
  memset(out, 0, {prod(out.stored) * out.dtype.itemsize}L);
{nest(x.shape)}
    out[{_place(out, here)}] = x[{_place(x, here)}];
}}
"""


def _place(images: Abstract, at: Sequence[str]) -> str:
    """The offset of the pixel (n, c, h, w) in the memory format of images."""
    axes, block = FORMATS[images.format or PLAIN]
    n, c, h, w = at
    if block:
        _, blocks, height, width, _ = images.stored
        row = f"(({n} * {blocks}L + {c} / {block}) * {height}L + {h}) * {width}L + {w}"
        return f"({row}) * {block}L + {c} % {block}"
    steps = strides(images.stored, images.stored)
    return " + ".join(f"{name} * {steps[axes.index(k)]}L" for k, name in enumerate(at))
