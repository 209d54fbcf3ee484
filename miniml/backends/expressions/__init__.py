"""The elements of primitives' outputs as C expressions: written once, for every backend that
generates C.

`table.table` has the expressions, by primitive and signature; `functions` those they may call;
`types` the C types they are computed in; `reduce` the rows of reductions. Nothing here knows of
devices.
"""

from ...families import load

load(__name__, __path__)
