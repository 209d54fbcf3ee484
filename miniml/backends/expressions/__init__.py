"""Scalar C expressions of primitives' outputs, written once for every backend that generates C.

`table` has the expressions, by primitive and signature, and the C types that they are computed in;
`functions` those that they may call; `reduce` the reductions and `rows` row programs. Nothing here
depends on a device.
"""

from ...core.families import load

load(__name__, __path__)
