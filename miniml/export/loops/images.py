"""C of operations on images: memory formats, and convolution and pooling of floats of 16 bits,
which are summed in float32."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...backends.cc.scalars import loaded, stored
from ...backends.cc.units import header
from ...core.abstract import FORMATS, PLAIN, Abstract
from ...core.dtype import bfloat16, float16
from ...graph.ir import Node
from .registering import Loop, loop, nest, pointers, strides


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
    order, block = FORMATS[images.format or PLAIN]
    n, c, h, w = at
    if block:
        _, blocks, height, width, _ = images.stored
        row = f"(({n} * {blocks}L + {c} / {block}) * {height}L + {h}) * {width}L + {w}"
        return f"({row}) * {block}L + {c} % {block}"
    steps = strides(images.stored, images.stored)
    return " + ".join(f"{name} * {steps[order.index(k)]}L" for k, name in enumerate(at))


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
