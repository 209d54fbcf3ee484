"""The description of a matrix product: extents, steps in memory, and the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...kernel import KernelNode
from ..array import Shape, dense_strides
from ..text.layout import Axis, broadcast_steps, layout, merged

_FIELDS = (
    "batches", "m", "n", "k", "x_row", "x_column", "y_row", "y_column", "out_row", "out_column"
)  # fmt: skip
PRODUCT = np.dtype([(name, np.int64) for name in _FIELDS])

Steps = tuple[int, int]


class Product(NamedTuple):
    """out[b, i, j] = sum over l < k of x[b, i, l] y[b, l, j], for i < m and j < n.

    x, y, out: elements from a row to the next and from a column to the next. axes: the axes of the
    batch, neighbours merged, with the elements from one matrix to the next of x, y and out; 0
    along axes that an operand lacks.
    """

    m: int
    n: int
    k: int
    x: Steps
    y: Steps
    out: Steps
    axes: list[Axis]

    @property
    def batches(self) -> int:
        """The number of products."""
        return prod(extent for extent, _ in self.axes)

    @property
    def args(self) -> tuple[Any, Any]:
        """The Layout<3> of the batch and the struct Product, as kernels take them."""
        sizes = (self.batches, self.m, self.n, self.k, *self.x, *self.y, *self.out)
        return layout(self.axes), np.array([sizes], PRODUCT)

    @property
    def transposed(self) -> Product:
        """The same product as out^T = y^T x^T."""
        axes: list[Axis] = [(extent, (y, x, out)) for extent, (x, y, out) in self.axes]
        x, y, out = self.y[::-1], self.x[::-1], self.out[::-1]
        return Product(self.n, self.m, self.k, x, y, out, axes)


def product_of(node: KernelNode) -> Product:
    """The product of a MatMul node with contiguous inputs."""
    x, y = (i.shape for i in node.inputs)
    x, y = (x if len(x) > 1 else (1, *x)), (y if len(y) > 1 else (*y, 1))
    m, k = x[-2:] if not node.attrs["transpose_x"] else (x[-1], x[-2])
    n = y[-2] if node.attrs["transpose_y"] else y[-1]
    x_steps = (1, m) if node.attrs["transpose_x"] else (k, 1)
    y_steps = (1, k) if node.attrs["transpose_y"] else (n, 1)
    shape = np.broadcast_shapes(x[:-2], y[:-2])
    dense = [dense_strides(s, 1)[:-2] for s in (x, y, (*shape, m, n))]
    operands = zip((x[:-2], y[:-2], shape), dense, strict=True)
    axes = merged(shape, [broadcast_steps(s, shape, own) for s, own in operands], node.name)
    return Product(m, n, k, x_steps, y_steps, (n, 1), axes)


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


def product_of_labels(
    x: Mapping[Any, int], y: Mapping[Any, int], output: Sequence[Any], extents: Mapping[Any, int]
) -> Product | None:
    """The Einstein sum of two operands as a product of matrices, where it is one.

    x, y: the steps of each along its labels. Labels of both that the output keeps are the batch,
    labels that are summed run along k, labels of one alone along m or n. None where a label is
    summed in one operand alone, or where the axes of one kind do not lie as one axis.
    """
    labels = [label for label in extents if extents[label] != 1]
    out = dict(zip(output, dense_strides(tuple(extents[o] for o in output), 1), strict=True))
    kinds: dict[tuple[int, int, int], list[Any]] = {}
    for label in [*(o for o in output if extents[o] != 1), *(s for s in labels if s not in out)]:
        kinds.setdefault((label in x, label in y, label in out), []).append(label)
    found = []
    of_m, of_n, of_k, of_batch = (1, 0, 1), (0, 1, 1), (1, 1, 0), (1, 1, 1)
    for kind, operands in ((of_m, (x, out)), (of_n, (y, out)), (of_k, (x, y))):
        axes = axes_of(kinds.pop(kind, []), operands, extents)
        found.append(axes[0])
        if len(axes) > 1:
            return None
    batch = axes_of(kinds.pop(of_batch, []), (x, y, out), extents)
    if kinds:
        return None
    (m, m_steps), (n, n_steps), (k, k_steps) = found
    return Product(
        m, n, k, (m_steps[0], k_steps[0]), (k_steps[1], n_steps[0]), (m_steps[1], n_steps[1]), batch
    )  # fmt: skip


def axes_of(
    labels: Sequence[Any], steps: Sequence[Mapping[Any, int]], extents: Mapping[Any, int]
) -> list[Axis]:
    """The axes along these labels, merged; an operand does not move along those that it lacks."""
    shape = tuple(extents[label] for label in labels)
    return merged(shape, [tuple(own.get(label, 0) for label in labels) for own in steps], "Einsum")
