"""C of sums of products: Einstein sums, two operands at a time; products of 16 bits or of bools;
for inference convolution, pooling and attention of 16 bits, which are summed in float32. With the
images stand their memory formats."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from ...backends.cc.scalars import in_c, loaded, stored, value_type
from ...backends.cc.units import header
from ...backends.cpu.linalg import order
from ...core.abstract import FORMATS, PLAIN, Abstract
from ...core.dtype import DType, bfloat16, bool_, float16
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
    """A product of matrices as an Einstein sum, of 16 bits or of bools."""
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


# --- Images ---------------------------------------------------------------------------------------


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


@loop("Conv2D")
def _conv2d(node: Node) -> Loop | None:
    (x, w), out, attrs = (v.abstract for v in node.inputs), node.outputs[0].abstract, node.attrs
    if not _narrow(x, w, out):
        return None
    count, inner, rows, columns = w.shape
    first = f"(i1 / {count // attrs['groups']}L * {inner}L + c)"
    tap = strides(w.shape, w.shape)
    pixel = loaded(x.dtype, f"x[{_place(x, ('i0', first, 'h', 'v'))}]")
    text = f"""\
void KERNEL(char *const *at) {{
{pointers(node, "x", "w", "out")}
{_cleared(out)}{nest(out.shape)}
  {{
    float sum = 0;
    for (long c = 0; c < {inner}L; ++c)
    for (long r = 0; r < {rows}L; ++r)
    for (long q = 0; q < {columns}L; ++q) {{
{_pixel(node, attrs["dilation"])}
      const float pixel = inside ? {pixel} : 0;
      sum += pixel * {loaded(w.dtype, f"w[i1 * {tap[0]}L + c * {tap[1]}L + r * {tap[2]}L + q]")};
    }}
    out[{_place(out, ("i0", "i1", "i2", "i3"))}] = {stored(out.dtype, "sum")};
  }}
}}
"""
    return Loop(text, header("convert"))


@loop("MaxPool2D")
def _max_pool2d(node: Node) -> Loop | None:
    x, (out, indices) = node.inputs[0].abstract, (v.abstract for v in node.outputs)
    if not _narrow(x, out):
        return None
    here = "i0", "i1", "i2", "i3"
    text = f"""\
void KERNEL(char *const *at) {{
{pointers(node, "x", "out", "indices")}
{_cleared(out)}{_cleared(indices, "indices")}{nest(out.shape)}
  {{
    float best = 0;
    int64_t found = -1;
{_window(node)}
      if (!inside) continue;
      const float pixel = {loaded(x.dtype, f"x[{_place(x, ('i0', 'i1', 'h', 'v'))}]")};
      if (found < 0 || pixel > best || (pixel != pixel && best == best)) {{
        best = pixel;
        found = h * {x.shape[3]}L + v;
      }}
    }}
    out[{_place(out, here)}] = {stored(out.dtype, "best")};
    indices[{_place(indices, here)}] = found;
  }}
}}
"""
    return Loop(text, header("convert"))


@loop("AvgPool2D")
def _avg_pool2d(node: Node) -> Loop | None:
    x, out, attrs = node.inputs[0].abstract, node.outputs[0].abstract, node.attrs
    if not _narrow(x, out):
        return None
    number = f"{prod(attrs['kernel_size'])}" if attrs["count_include_pad"] else "count"
    text = f"""\
void KERNEL(char *const *at) {{
{pointers(node, "x", "out")}
{_cleared(out)}{nest(out.shape)}
  {{
    float sum = 0;
    long count = 0;
{_window(node)}
      if (!inside) continue;
      sum += {loaded(x.dtype, f"x[{_place(x, ('i0', 'i1', 'h', 'v'))}]")};
      ++count;
    }}
    out[{_place(out, ("i0", "i1", "i2", "i3"))}] = {stored(out.dtype, f"sum / (float){number}")};
  }}
}}
"""
    return Loop(text, header("convert"))


def _narrow(*arrays: Abstract) -> bool:
    """True where all are floats of 16 bits; wider ones have kernels of provider "cc"."""
    return all(a.dtype in (float16, bfloat16) for a in arrays)


def _cleared(images: Abstract, name: str = "out") -> str:
    """Zeros beside the last channels, if the memory format has them."""
    if prod(images.stored) == images.size:
        return ""
    return f"  memset({name}, 0, {prod(images.stored) * images.dtype.itemsize}L);\n"


def _window(node: Node) -> str:
    """The heads of loops over a window, which end with `inside`."""
    rows, columns = node.attrs["kernel_size"]
    return f"""\
    for (long r = 0; r < {rows}L; ++r)
    for (long q = 0; q < {columns}L; ++q) {{
{_pixel(node, (1, 1))}"""


def _pixel(node: Node, dilation: Sequence[int]) -> str:
    """Where tap (r, q) of window (i2, i3) lies in the image, and whether inside."""
    (top, _), (left, _) = node.attrs["padding"]
    (down, right), (_, _, height, width) = node.attrs["stride"], node.inputs[0].abstract.shape
    return f"""\
      const long h = i2 * {down}L + r * {dilation[0]}L - {top}L;
      const long v = i3 * {right}L + q * {dilation[1]}L - {left}L;
      const int inside = h >= 0 && h < {height}L && v >= 0 && v < {width}L;"""


# --- Attention ------------------------------------------------------------------------------------


@loop("ScaledDotProductAttention")
def _attention(node: Node) -> Loop | None:
    q, k, v, mask, _ = (v.abstract for v in node.inputs)
    if not _narrow(q, k, v) or node.attrs["dropout"]:
        return None
    (*heads, rows, size), keys, values = q.shape, k.shape[-2], v.shape[-1]
    key = f"i{len(heads) + 1}"  # as the counter after those of heads and queries
    of_mask = f"mask[{offset(strides(mask.shape, (*heads, rows, keys)))}]"
    hidden, added = (f"!{of_mask}", "") if mask.dtype == bool_ else ("0", loaded(q.dtype, of_mask))
    if node.attrs["causal"]:
        hidden += f" || {key} > i{len(heads)}"
    weight, shared = in_c("exp(scores[s] - peak)", {})
    logarithm, more = in_c("log(total)", {})
    text = f"""\
void KERNEL(char *const *at) {{
{pointers(node, "q", "k", "v", "mask", "state", "out", "lse")}
  float *const scores = (float *)at[7];
  long query = 0;
{nest((*heads, rows))}
  {{
    const long first = query / {rows}L * {keys}L;
    float peak = -INFINITY, total = 0;
    for (long {key} = 0; {key} < {keys}L; ++{key}) {{
      float sum = 0;
      for (long e = 0; e < {size}L; ++e)
        sum += {loaded(q.dtype, f"q[query * {size}L + e]")} * {float(node.attrs["scale"]).hex()}f *
               {loaded(k.dtype, f"k[(first + {key}) * {size}L + e]")};
      scores[{key}] = {hidden} ? -INFINITY : sum{f" + {added}" * bool(added)};
      if (scores[{key}] > peak) peak = scores[{key}];
    }}
    if (peak == -INFINITY) peak = 0;
    for (long s = 0; s < {keys}L; ++s) {{
      scores[s] = {weight};
      total += scores[s];
    }}
    lse[query] = total == 0 ? INFINITY : {logarithm} + peak;
    for (long f = 0; f < {values}L; ++f) {{
      float sum = 0;
      for (long s = 0; s < {keys}L; ++s)
        sum += scores[s] * {loaded(v.dtype, f"v[(first + s) * {values}L + f]")};
      sum /= total == 0 ? 1 : total;
      out[query * {values}L + f] = {stored(q.dtype, "sum")};
    }}
    ++query;
  }}
}}
"""
    needed = (*header("convert"), *shared, *more)
    return Loop(text, tuple(dict.fromkeys(needed)), 4 * keys)
