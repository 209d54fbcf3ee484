"""What one element of a primitive's output is, in C: written once, for every backend that makes C.

`table.table` has the expressions, by primitive and signature; `functions` what they may call;
`types` the C types they are computed in; `reduce` the rows of reductions. No device is known here.
"""

from ...families import load

load(__name__, __path__)
