"""A matrix product as the kernels of CUDA take it, and as operands of a MatMul."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...product import Product, Shape
from ..text.layout import bounded, layout

_FIELDS = (
    "batches", "m", "n", "k", "x_row", "x_column", "y_row", "y_column", "out_row", "out_column"
)  # fmt: skip
PRODUCT = np.dtype([(name, np.int64) for name in _FIELDS])


def arguments(product: Product) -> tuple[Any, Any]:
    """The Layout<3> of the batch and the struct Product, as kernels take them."""
    p = product
    sizes = (p.batches, p.m, p.n, p.k, *p.x, *p.y, *p.out)
    return layout(bounded(p.axes, "MatMul")), np.array([sizes], PRODUCT)


class Stored(NamedTuple):
    """An operand as MatMul takes it: matrices one after the other, perhaps transposed."""

    shape: Shape
    transposed: bool


def stored(product: Product, operand: int) -> Stored | None:
    """How x, y or out (0, 1 or 2) of a product lies in memory; None if MatMul cannot take it."""
    p = product
    rows, columns = ((p.m, p.k), (p.k, p.n), (p.m, p.n))[operand]
    row, column = (p.x, p.y, p.out)[operand]
    turned = not (column == 1 and row == columns)
    if turned and not (row == 1 and column == rows):
        return None
    shape: Shape = (columns, rows) if turned else (rows, columns)
    step = rows * columns
    for extent, steps in reversed(p.axes):
        if steps[operand] not in (0, step):
            return None
        shape = (extent if steps[operand] else 1, *shape)
        step *= shape[0]
    return Stored(shape, turned)
