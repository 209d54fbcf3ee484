"""C of what index tensors name together: elements, reductions by positions, and assignment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...backends.cc.scalars import literal, loaded, stored, value_type
from ...backends.cc.units import header
from ...backends.device import start_of
from ...backends.expressions.table import computed, identity
from ...core.abstract import Shape
from ...graph.ir import Node
from ...ops.checks import broadcast
from ...ops.index import TENSOR, analyse
from .registering import Loop, loop, nest, offset, pointers, strides, sum_type


@loop("Index")
def _index(node: Node) -> str:
    shape, attrs = node.inputs[0].abstract.shape, node.attrs
    named = _named(node, shape, strides(shape, shape), attrs["axes"], attrs["at"], 1)
    return f"""\
int KERNEL(char *const *at) {{
{_arrays(node, 1, "x")}
  long o = 0;
{named}
    out[o++] = x[place];
  }}
  return 0;
}}
"""


@loop("IndexReduce")
def _index_reduce(node: Node) -> Loop:
    out, attrs = node.outputs[0].abstract, node.attrs
    c, mode = value_type(out.dtype), attrs["mode"]
    first = literal(np.asarray(identity(mode, out.dtype), computed(out.dtype))[()])
    sign = "<" if mode == "min" else ">"
    joined = f"old != old || !(new {sign} old || new != new) ? old : new"
    if mode == "mul":
        joined = f"({c})(({sum_type(out.dtype)})old * ({sum_type(out.dtype)})new)"
    shape = attrs["shape"]
    named = _named(node, shape, strides(shape, shape), attrs["axes"], attrs["at"], 1)
    text = f"""\
int KERNEL(char *const *at) {{
{_arrays(node, 1, "updates")}
  for (long i = 0; i < {out.size}L; ++i) out[i] = {stored(out.dtype, f"({c}){first}")};
  long o = 0;
{named}
    const {c} old = {loaded(out.dtype, "out[place]")}, new = {loaded(out.dtype, "updates[o++]")};
    out[place] = {stored(out.dtype, joined)};
  }}
  return 0;
}}
"""
    return Loop(text, header("convert"))


@loop("Scatter")
def _scatter(node: Node) -> str:
    """Values are assigned in row-major order, so that the last one for a position stays."""
    x, value = (v.abstract for v in node.inputs[:2])
    items = node.attrs["index"]
    parts = analyse("Scatter", items, x.shape)
    bytes_of = np.empty(x.shape, np.uint8)
    basic = bytes_of[tuple(slice(None) if item == TENSOR else item for item in items)]
    base = start_of(basic) - start_of(bytes_of)
    region = parts.region(tuple(v.abstract.shape for v in node.inputs[2:]))
    return f"""\
int KERNEL(char *const *at) {{
{_arrays(node, 2, "x", "value")}
  memcpy(out, x, {x.size * x.dtype.itemsize}L);
{_named(node, basic.shape, basic.strides, parts.axes, parts.at, 2, base)}
    out[place] = value[{offset(strides(value.shape, region))}];
  }}
  return 0;
}}
"""


def _arrays(node: Node, count: int, *names: str) -> str:
    """Pointers to inputs by these names, to indices n0, n1 and so on, and to out."""
    return pointers(node, *names, *(f"n{i}" for i in range(len(node.inputs) - count)), "out")


def _named(
    node: Node,
    shape: Shape,
    steps: Sequence[int],
    axes: Sequence[int],
    at: int,
    first: int,
    base: int = 0,
) -> str:
    """The heads of the loops over what the inputs from `first` on name, and the beginning of their
    body, which finds the `place` of an element or returns 1.

    shape, steps: of the array that is indexed along `axes`. at: the number of the other axes ahead
    of those of the indices."""
    indices = [v.abstract.shape for v in node.inputs[first:]]
    named = broadcast(node.primitive.name, *indices)
    rest = [i for i in range(len(shape)) if i not in axes]
    region = (*(shape[i] for i in rest[:at]), *named, *(shape[i] for i in rest[at:]))
    places = [*(steps[i] for i in rest[:at]), *[0] * len(named), *(steps[i] for i in rest[at:])]
    lines = [nest(region), "  {", f"    long place = {base}L + {offset(places)};"]
    for k, (own, axis) in enumerate(zip(indices, axes, strict=True)):
        index = offset([*[0] * at, *strides(own, named)])
        lines += [
            f"    const int64_t i_{k} = (int64_t)n{k}[{index}];",
            f"    if (i_{k} < -{shape[axis]}L || i_{k} >= {shape[axis]}L) return 1;",
            f"    place += (i_{k} < 0 ? i_{k} + {shape[axis]}L : i_{k}) * {steps[axis]}L;",
        ]
    return "\n".join(lines)
