"""C of operations whose kernel is NumPy's: plain loops, which serve an exported program alone.

Each reads inputs in row-major order. A loop that meets an index out of range returns 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from ..backends.cc.scalars import STORED
from ..backends.cc.units import Source
from ..backends.expressions.table import computed
from ..graph.ir import Node

_LOOPS: dict[str, Callable[[Node], str | None]] = {}


def loop_of(node: Node) -> Source | None:
    """The C of a node, `void KERNEL(char *const *at)`, or int where it refuses; None where there is
    none for these dtypes."""
    made = _LOOPS.get(node.primitive.name)
    abstracts = [v.abstract for v in (*node.inputs, *node.outputs)]
    if made is None or any(computed(a.dtype) != a.dtype for a in abstracts):  # 16 bits: integers
        return None
    text = made(node)
    return None if text is None else Source(text)


def _loop(name: str) -> Callable[[Callable[[Node], str | None]], Callable[[Node], str | None]]:
    """Register the function that writes an operation."""

    def register(made: Callable[[Node], str | None]) -> Callable[[Node], str | None]:
        _LOOPS[name] = made
        return made

    return register


@_loop("OneHot")
def _one_hot(node: Node) -> str:
    indices, out = node.inputs[0].abstract, node.outputs[0].abstract
    depth = node.attrs["depth"]
    return f"""\
void KERNEL(char *const *at) {{
  const {STORED[indices.dtype]} *indices = (const {STORED[indices.dtype]} *)at[0];
  {STORED[out.dtype]} *out = ({STORED[out.dtype]} *)at[1];
  for (long i = 0; i < {indices.size}L; ++i)
    for (long d = 0; d < {depth}L; ++d)
      out[i * {depth}L + d] = (int64_t)indices[i] == d;
}}
"""


@_loop("TakeAlongAxis")
def _take_along_axis(node: Node) -> str:
    (x, indices), out = (v.abstract for v in node.inputs), node.outputs[0].abstract
    axis = node.attrs["axis"] % len(x.shape)
    extent = x.shape[axis]
    from_x = _strides(x.shape, out.shape)
    step, from_x[axis] = prod(x.shape[axis + 1 :]), 0
    heads = _nest(out.shape)
    return f"""\
int KERNEL(char *const *at) {{
  const {STORED[x.dtype]} *x = (const {STORED[x.dtype]} *)at[0];
  const {STORED[indices.dtype]} *indices = (const {STORED[indices.dtype]} *)at[1];
  {STORED[out.dtype]} *out = ({STORED[out.dtype]} *)at[2];
  long o = 0;
{heads}
  {{
    const int64_t given = (int64_t)indices[{_offset(_strides(indices.shape, out.shape))}];
    if (given < -{extent}L || given >= {extent}L) return 1;
    const int64_t index = given < 0 ? given + {extent}L : given;
    out[o++] = x[{_offset(from_x)} + index * {step}L];
  }}
  return 0;
}}
"""


@_loop("MatMul")
def _matmul(node: Node) -> str | None:
    """A product of integers, which wrap around as NumPy's do."""
    x, y = (v.abstract for v in node.inputs)
    out, attrs = node.outputs[0].abstract, node.attrs
    if out.dtype.kind not in "iu":
        return None
    rows_x = x.shape if len(x.shape) > 1 else (1, *x.shape)
    rows_y = y.shape if len(y.shape) > 1 else (*y.shape, 1)
    m, k = rows_x[-2:][:: -1 if attrs["transpose_x"] and len(x.shape) > 1 else 1]
    n = rows_y[-2 if attrs["transpose_y"] and len(y.shape) > 1 else -1]
    by_row, by_term = (1, m) if attrs["transpose_x"] and len(x.shape) > 1 else (k, 1)
    term, by_column = (1, k) if attrs["transpose_y"] and len(y.shape) > 1 else (n, 1)
    batch = out.shape[: len(out.shape) - (len(x.shape) > 1) - (len(y.shape) > 1)]
    at_x = _offset([s * m * k for s in _strides(rows_x[:-2], batch)])
    at_y = _offset([s * k * n for s in _strides(rows_y[:-2], batch)])
    c, wide = STORED[out.dtype], "uint64_t" if out.dtype.itemsize == 8 else "uint32_t"
    return f"""\
void KERNEL(char *const *at) {{
  {c} *out = ({c} *)at[2];
{_nest(batch)}
  {{
    const {c} *x = (const {c} *)at[0] + {at_x}, *y = (const {c} *)at[1] + {at_y};
    for (long r = 0; r < {m}L; ++r)
      for (long c = 0; c < {n}L; ++c) {{
        {wide} sum = 0;
        for (long t = 0; t < {k}L; ++t)
          sum += ({wide})x[r * {by_row}L + t * {by_term}L] *
                 ({wide})y[t * {term}L + c * {by_column}L];
        *out++ = ({c})sum;
      }}
  }}
}}
"""


# --- Loops over all elements of an array ----------------------------------------------------------


def _nest(shape: Sequence[int]) -> str:
    """The heads of loops with the counters i0, i1 and so on."""
    return "\n".join(
        f"  for (long i{axis} = 0; i{axis} < {extent}L; ++i{axis})"
        for axis, extent in enumerate(shape)
    )


def _strides(shape: Sequence[int], to: Sequence[int]) -> list[int]:
    """The elements from one index to the next of each axis of `to`, to which shape broadcasts."""
    strides = [0] * (len(to) - len(shape))
    return strides + [prod(shape[i + 1 :]) if n > 1 else 0 for i, n in enumerate(shape)]


def _offset(strides: Sequence[int]) -> str:
    """The offset of the element of the counters."""
    return " + ".join(f"i{i} * {s}L" for i, s in enumerate(strides) if s) or "0"
