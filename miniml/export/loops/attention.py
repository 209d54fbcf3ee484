"""C of attention of floats of 16 bits, which computes in float32, a query after the other."""

from __future__ import annotations

from ...backends.cc.scalars import in_c, loaded, stored
from ...backends.cc.units import header
from ...core.dtype import bfloat16, bool_, float16
from ...graph.ir import Node
from .registering import Loop, loop, nest, offset, pointers, strides


@loop("ScaledDotProductAttention")
def _attention(node: Node) -> Loop | None:
    q, k, v, mask, _ = (v.abstract for v in node.inputs)
    if q.dtype not in (float16, bfloat16) or node.attrs["dropout"]:
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
