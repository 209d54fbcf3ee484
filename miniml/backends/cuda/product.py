"""What is multiplied in a product of matrices: extents, steps in memory, and the batch."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..kernel import KernelNode
from ..signature import ArraySpec
from .array import DeviceArray, dense_strides
from .expression import Axis, collapsed, layout

_FIELDS = ("batches", "m", "n", "k", "x_row", "x_column", "y_row", "y_column")
_RECORD = np.dtype([(name, np.int64) for name in _FIELDS])
PRODUCT = f"struct Product {{ long long {', '.join(_FIELDS)}; }};\n"


class Product(NamedTuple):
    """out[b, i, j] = sum over l < k of x[b, i, l] y[b, l, j], for i < m and j < n.

    x, y: elements from a row to the next and from a column to the next, transposed as asked for.
    axes: the axes of the batch, neighbours merged, with the elements from one matrix to the next
    of x and of y; 0 along axes that one of them lacks. batch: the same as a Layout<2>.
    """

    m: int
    n: int
    k: int
    x: tuple[int, int]
    y: tuple[int, int]
    axes: list[Axis]
    batch: Any

    @property
    def batches(self) -> int:
        """The number of products."""
        return prod(extent for extent, _ in self.axes)

    @property
    def record(self) -> Any:
        """The struct Product of the kernels."""
        sizes = (self.batches, self.m, self.n, self.k, *self.x, *self.y)
        return np.array([sizes], _RECORD)


def product_of(node: KernelNode) -> Product:
    """The product that a MatMul node asks for, of contiguous inputs."""
    x, y = (i.shape for i in node.inputs)
    x, y = (x if len(x) > 1 else (1, *x)), (y if len(y) > 1 else (*y, 1))
    m, k = x[-2:] if not node.attrs["transpose_x"] else (x[-1], x[-2])
    n = y[-2] if node.attrs["transpose_y"] else y[-1]
    x_steps = (1, m) if node.attrs["transpose_x"] else (k, 1)
    y_steps = (1, k) if node.attrs["transpose_y"] else (n, 1)
    dtype = node.inputs[0].dtype
    corners = first_elements(ArraySpec(x, dtype)), first_elements(ArraySpec(y, dtype))
    axes = collapsed(corners, np.broadcast_shapes(x[:-2], y[:-2]), node.name)
    return Product(m, n, k, x_steps, y_steps, axes, layout(axes, corners))


def first_elements(spec: ArraySpec) -> DeviceArray:
    """The first elements of the matrices of a contiguous array, as a view of no memory."""
    strides = dense_strides(spec.shape, spec.dtype.itemsize)[:-2]
    return DeviceArray(None, None, 0, spec.shape[:-2], spec.dtype, strides)
