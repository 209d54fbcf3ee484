"""Rows of circular and hyperbolic functions and their inverses."""

import numpy as np

from miniml import ops
from miniml.testing import OpInfo

from .arithmetic import binary_off_zero, unary

ROWS = (
    OpInfo(ops.Atan2, binary_off_zero, reference=np.arctan2, domain="(x, y) != (0, 0)"),
    OpInfo(ops.Sin, unary(), reference=np.sin),
    OpInfo(ops.Cos, unary(), reference=np.cos),
    OpInfo(ops.Tan, unary(-1.2, 1.2), reference=np.tan, domain=(-np.pi / 2, np.pi / 2)),
    OpInfo(ops.Asin, unary(-0.9, 0.9), reference=np.arcsin, domain=(-1.0, 1.0)),
    OpInfo(ops.Acos, unary(-0.9, 0.9), reference=np.arccos, domain=(-1.0, 1.0)),
    OpInfo(ops.Atan, unary(), reference=np.arctan),
    OpInfo(ops.Sinh, unary(), reference=np.sinh),
    OpInfo(ops.Cosh, unary(), reference=np.cosh),
    OpInfo(ops.Tanh, unary(), reference=np.tanh),
    OpInfo(ops.Asinh, unary(), reference=np.arcsinh),
    OpInfo(ops.Acosh, unary(1.2, 4.0), reference=np.arccosh, domain=(1.0, np.inf)),
    OpInfo(ops.Atanh, unary(-0.9, 0.9), reference=np.arctanh, domain=(-1.0, 1.0)),
)  # fmt: skip
