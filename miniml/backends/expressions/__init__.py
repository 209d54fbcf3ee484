"""Scalar C expressions of primitives' outputs, written once for every backend that generates C.

`table` has the expressions, by primitive and signature, the C types that they are computed in, and
the reductions; `functions` what they may call; `rows` row programs. Nothing here depends on a
device.
"""
