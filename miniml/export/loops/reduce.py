"""C of running results, indices of extrema, sorting and searching, along one axis."""

from __future__ import annotations

from math import prod

from ...backends.cc.scalars import STORED, in_c, loaded, stored, value_type
from ...backends.cc.units import header
from ...core.dtype import DType, int64
from ...graph.ir import Node
from .registering import Loop, loop, pointers, sum_type


def _axis(node: Node) -> tuple[int, int, int]:
    """Rows outside of the axis, its extent, and elements inside of it, which are its step."""
    shape, axis = node.inputs[0].abstract.shape, node.attrs["axis"]
    if axis is None:
        return 1, prod(shape), 1
    at = axis % max(len(shape), 1)
    return prod(shape[:at]), prod(shape[at : at + 1]), prod(shape[at + 1 :])


@loop("CumSum", "CumProd", "CumMax", "CumMin", "LogCumSumExp")
def _running(node: Node) -> Loop:
    """Sums of integers wrap around; those of 16 bits are rounded where they are stored."""
    x, out, name = (
        node.inputs[0].abstract.dtype,
        node.outputs[0].abstract.dtype,
        node.primitive.name,
    )
    kind = sum_type(out) if name in ("CumSum", "CumProd") else value_type(out)
    joined, shared = {
        "CumSum": ("sum + x", ()),
        "CumProd": ("sum * x", ()),
        "CumMax": ("sum < x || x != x ? (sum != sum ? sum : x) : sum", ()),
        "CumMin": ("x < sum || x != x ? (sum != sum ? sum : x) : sum", ()),
        "LogCumSumExp": in_c("log_add(sum, x)", {}),
    }[name]
    outer, n, step = _axis(node)
    reverse, exclusive = node.attrs.get("reverse", False), node.attrs.get("exclusive", False)
    store = f"out[p] = {stored(out, f'({value_type(out)})sum')};"
    join = f"sum = i ? {joined} : x;"
    if exclusive:
        store, join, joined = "", f"{store} sum = {joined};", ""
    text = f"""\
void KERNEL(char *const *at) {{
{pointers(node, "given", "out")}
  for (long o = 0; o < {outer}L; ++o)
    for (long s = 0; s < {step}L; ++s) {{
      {kind} sum = {int(name == "CumProd")};
      for (long i = 0; i < {n}L; ++i) {{
        const long p = (o * {n}L + {f"{n - 1}L - i" if reverse else "i"}) * {step}L + s;
        const {kind} x = ({kind}){loaded(x, "given[p]")};
        {join} {store}
      }}
    }}
}}
"""
    return Loop(text, (*header("convert"), *shared))


@loop("ArgMax", "ArgMin")
def _arg_extremum(node: Node) -> Loop:
    x = node.inputs[0].abstract.dtype
    outer, n, step = _axis(node)
    sign = ">" if node.primitive.name == "ArgMax" else "<"
    text = f"""\
void KERNEL(char *const *at) {{
{pointers(node, "x", "out")}
  for (long o = 0; o < {outer}L; ++o)
    for (long s = 0; s < {step}L; ++s) {{
      long best = 0;
      {value_type(x)} most = {loaded(x, f"x[o * {n * step}L + s]")};
      for (long i = 1; i < {n}L && most == most; ++i) {{
        const {value_type(x)} own = {loaded(x, f"x[(o * {n}L + i) * {step}L + s]")};
        if (own {sign} most || own != own) best = i, most = own;
      }}
      out[o * {step}L + s] = best;
    }}
}}
"""
    return Loop(text, header("convert"))


@loop("Sort", "TopK")
def _sorted(node: Node) -> Loop:
    """By insertion of one index after the other among those that are kept."""
    x, attrs = node.inputs[0].abstract.dtype, node.attrs
    outer, n, step = _axis(node)
    kept = attrs.get("k", n)
    descending = attrs.get("descending", attrs.get("largest"))
    precedes = "other, own" if descending else "own, other"
    kind = value_type(x)
    text = f"""\
{_less(x)}
void KERNEL(char *const *at) {{
{pointers(node, "x", "values", "indices")}
  for (long o = 0; o < {outer}L; ++o)
    for (long s = 0; s < {step}L; ++s) {{
      {STORED[int64]} *const row = indices + o * {kept * step}L + s;
      long count = 0;
      for (long i = 0; i < {n}L; ++i) {{
        const {kind} own = {loaded(x, f"x[(o * {n}L + i) * {step}L + s]")};
        long j = count < {kept}L ? count++ : {kept}L;
        for (; j > 0; --j) {{
          const {kind} other = {loaded(x, f"x[(o * {n}L + row[(j - 1) * {step}L]) * {step}L + s]")};
          if (!KERNEL_less({precedes})) break;
          if (j < {kept}L) row[j * {step}L] = row[(j - 1) * {step}L];
        }}
        if (j < {kept}L) row[j * {step}L] = i;
      }}
      for (long j = 0; j < {kept}L; ++j)
        values[(o * {kept}L + j) * {step}L + s] =
            x[(o * {n}L + row[j * {step}L]) * {step}L + s];
    }}
}}
"""
    return Loop(text, header("convert"))


@loop("SearchSorted")
def _search_sorted(node: Node) -> Loop:
    x, values = (v.abstract for v in node.inputs)
    n = x.shape[-1]
    rows = prod(x.shape[:-1])
    m = values.size // max(rows, 1)
    here, kind = loaded(x.dtype, f"x[r * {n}L + middle]"), value_type(x.dtype)
    before = "KERNEL_less(here, own)" if node.attrs["side"] == "left" else "!KERNEL_less(own, here)"
    text = f"""\
{_less(x.dtype)}
void KERNEL(char *const *at) {{
{pointers(node, "x", "values", "out")}
  for (long r = 0; r < {rows}L; ++r)
    for (long i = 0; i < {m}L; ++i) {{
      const {kind} own = {loaded(x.dtype, f"values[r * {m}L + i]")};
      long begin = 0, end = {n}L;
      while (begin < end) {{
        const long middle = begin + (end - begin) / 2;
        const {kind} here = {here};
        if ({before}) begin = middle + 1; else end = middle;
      }}
      out[r * {m}L + i] = begin;
    }}
}}
"""
    return Loop(text, header("convert"))


def _less(dtype: DType) -> str:
    """The order of elements, with NaN as the largest."""
    c = value_type(dtype)
    return f"""\
static int KERNEL_less({c} x, {c} y) {{ return x < y || (y != y && x == x); }}"""
