"""Loops over scalar expressions, as native kernels."""

from __future__ import annotations

from miniml.backends.cc.scalars import STORED, loaded, scalar_function, stored
from miniml.backends.cc.units import Source
from miniml.backends.expressions import Expression


def loop(expression, inputs, out, scalars=None):
    """A kernel of inputs of one size, the output, and that size as an int64.

    expression: text, or an Expression. inputs: names and dtypes.
    """
    if isinstance(expression, str):
        expression = Expression(expression)
    function = scalar_function(expression, "KERNEL_value", inputs, out, scalars or {})
    count = len(inputs)
    arrays = "".join(
        f"  const {STORED[dtype]} *restrict in{k} = (const void *)at[{k}];\n"
        for k, (_, dtype) in enumerate(inputs)
    )
    values = [loaded(dtype, f"in{k}[i]") for k, (_, dtype) in enumerate(inputs)]
    call = stored(out, f"KERNEL_value({', '.join([*values, 'i'])})")
    text = f"""{function.text}
void KERNEL(char *const *at) {{
{arrays}  {STORED[out]} *restrict out = (void *)at[{count}];
  const int64_t n = *(const int64_t *)at[{count + 1}];
  for (int64_t i = 0; i < n; ++i) out[i] = {call};
}}
"""
    return Source(text, function.shared)
