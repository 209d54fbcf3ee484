"""C of ones and of elements at indices, and of products of integers; last those of int8."""

from __future__ import annotations

from math import prod

from ...backends.cc.scalars import STORED, stored
from ...backends.cc.units import header
from ...graph.ir import Node
from .linalg import product
from .registering import Loop, loop, nest, offset, strides


@loop("OneHot")
def _one_hot(node: Node) -> Loop:
    indices, out = node.inputs[0].abstract, node.outputs[0].abstract
    depth = node.attrs["depth"]
    text = f"""\
void KERNEL(char *const *at) {{
  const {STORED[indices.dtype]} *indices = (const {STORED[indices.dtype]} *)at[0];
  {STORED[out.dtype]} *out = ({STORED[out.dtype]} *)at[1];
  for (long i = 0; i < {indices.size}L; ++i)
    for (long d = 0; d < {depth}L; ++d)
      out[i * {depth}L + d] = {stored(out.dtype, "(int64_t)indices[i] == d")};
}}
"""
    return Loop(text, header("convert"))


@loop("TakeAlongAxis")
def _take_along_axis(node: Node) -> str:
    (x, indices), out = (v.abstract for v in node.inputs), node.outputs[0].abstract
    axis = node.attrs["axis"] % len(x.shape)
    extent = x.shape[axis]
    from_x = strides(x.shape, out.shape)
    step, from_x[axis] = prod(x.shape[axis + 1 :]), 0
    heads = nest(out.shape)
    return f"""\
int KERNEL(char *const *at) {{
  const {STORED[x.dtype]} *x = (const {STORED[x.dtype]} *)at[0];
  const {STORED[indices.dtype]} *indices = (const {STORED[indices.dtype]} *)at[1];
  {STORED[out.dtype]} *out = ({STORED[out.dtype]} *)at[2];
  long o = 0;
{heads}
  {{
    const int64_t given = (int64_t)indices[{offset(strides(indices.shape, out.shape))}];
    if (given < -{extent}L || given >= {extent}L) return 1;
    const int64_t index = given < 0 ? given + {extent}L : given;
    out[o++] = x[{offset(from_x)} + index * {step}L];
  }}
  return 0;
}}
"""


@loop("MatMul")
def _matmul(node: Node) -> Loop | str:
    """A product of integers, which wrap around as NumPy's do, or of what is not computed in its own
    dtype."""
    x, y = (v.abstract for v in node.inputs)
    out, attrs = node.outputs[0].abstract, node.attrs
    if out.dtype.kind not in "iu":
        return product(node)
    rows_x = x.shape if len(x.shape) > 1 else (1, *x.shape)
    rows_y = y.shape if len(y.shape) > 1 else (*y.shape, 1)
    m, k = rows_x[-2:][:: -1 if attrs["transpose_x"] and len(x.shape) > 1 else 1]
    n = rows_y[-2 if attrs["transpose_y"] and len(y.shape) > 1 else -1]
    by_row, by_term = (1, m) if attrs["transpose_x"] and len(x.shape) > 1 else (k, 1)
    term, by_column = (1, k) if attrs["transpose_y"] and len(y.shape) > 1 else (n, 1)
    batch = out.shape[: len(out.shape) - (len(x.shape) > 1) - (len(y.shape) > 1)]
    at_x = offset([s * m * k for s in strides(rows_x[:-2], batch)])
    at_y = offset([s * k * n for s in strides(rows_y[:-2], batch)])
    c, wide = STORED[out.dtype], "uint64_t" if out.dtype.itemsize == 8 else "uint32_t"
    return f"""\
void KERNEL(char *const *at) {{
  {c} *out = ({c} *)at[2];
{nest(batch)}
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


# --- Products of int8 -----------------------------------------------------------------------------


@loop("QuantizedMatMul")
def _quantized_matmul(node: Node) -> str:
    n, k = node.inputs[1].abstract.shape
    rows = node.outputs[0].abstract.size // n
    return f"""\
void KERNEL(char *const *at) {{
  const int8_t *x = (const int8_t *)at[0], *const w = (const int8_t *)at[1];
  int32_t *out = (int32_t *)at[2];
  for (long r = 0; r < {rows}L; ++r, x += {k}L)
    for (long c = 0; c < {n}L; ++c) {{
      int32_t sum = 0;
      for (long t = 0; t < {k}L; ++t) sum += x[t] * w[c * {k}L + t];
      *out++ = sum;
    }}
}}
"""


@loop("QuantizedConv2D")
def _quantized_conv2d(node: Node) -> str:
    """Each weight times the part of a row of pixels that it meets, added to a row of sums."""
    (count, channels, high, wide), (filters, depth, *kernel) = (
        v.abstract.shape for v in node.inputs
    )
    *_, out_high, out_wide = node.outputs[0].abstract.shape
    attrs = node.attrs
    (down, right), (over, along) = attrs["stride"], attrs["dilation"]
    (top, _), (left, _) = attrs["padding"]
    of_group = filters // attrs["groups"]
    return f"""\
void KERNEL(char *const *at) {{
  const int8_t *const x = (const int8_t *)at[0], *w = (const int8_t *)at[1];
  int32_t *out = (int32_t *)at[2];
  memset(out, 0, {node.outputs[0].abstract.size * 4}L);
  for (long n = 0; n < {count}L; ++n, w = (const int8_t *)at[1])
    for (long o = 0; o < {filters}L; ++o, out += {out_high * out_wide}L)
      for (long c = 0; c < {depth}L; ++c) {{
        const long channel = n * {channels}L + o / {of_group}L * {depth}L + c;
        const int8_t *const image = x + channel * {high * wide}L;
        for (long i = 0; i < {kernel[0]}L; ++i)
          for (long j = 0; j < {kernel[1]}L; ++j) {{
            const int32_t weight = *w++;
            const long at_row = i * {over}L - {top}L, at_column = j * {along}L - {left}L;
            const long begin = at_column < 0 ? (-at_column + {right - 1}L) / {right}L : 0;
            const long last = {wide - 1}L - at_column;
            const long past = last < 0 ? 0 : last / {right}L + 1;
            const long end = past < {out_wide}L ? past : {out_wide}L;
            for (long r = 0; r < {out_high}L; ++r) {{
              const long row = r * {down}L + at_row;
              if (row < 0 || row >= {high}L) continue;
              const int8_t *const from = image + row * {wide}L;
              int32_t *const sums = out + r * {out_wide}L;
              for (long q = begin; q < end; ++q) sums[q] += weight * from[q * {right}L + at_column];
            }}
          }}
      }}
}}
"""
