"""Descriptions of matrix products: extents, strides in elements, and the batch.

They are made for nodes of MatMul and for Einstein sums, whose equations are parsed here, too. At
the end, the OpenBLAS that NumPy has loaded: its products, and how many threads they take.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import zip_longest
from math import prod
from string import ascii_letters
from typing import Any, NamedTuple

import numpy as np
import threadpoolctl

from .kernel import KernelNode

Shape = tuple[int, ...]
Axis = tuple[int, Shape]
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
    def transposed(self) -> Product:
        """The product in its transposed form, out^T = y^T x^T."""
        axes: list[Axis] = [(extent, (y, x, out)) for extent, (x, y, out) in self.axes]
        x, y, out = self.y[::-1], self.x[::-1], self.out[::-1]
        return Product(self.n, self.m, self.k, x, y, out, axes)

    @property
    def folded(self) -> Product:
        """The product with the innermost axis of the batch folded into the rows, if y lacks it and
        the rows of x and out run on through it; else itself."""
        *outer, (extent, (x, y, out)) = self.axes
        if y or (x, out) != (self.m * self.x[0], self.m * self.out[0]):
            return self
        return self._replace(m=extent * self.m, axes=outer or [(1, (0, 0, 0))])


def product_of(node: KernelNode) -> Product:
    """The product of a MatMul node, or of a TurnedMatMul node, which transposes its result."""
    x, y = (i.shape for i in node.inputs)
    x_steps, y_steps = steps_of(node)
    if len(x) == 1:
        x, x_steps = (1, *x), (x[0], *x_steps)
    if len(y) == 1:
        y, y_steps = (*y, 1), (*y_steps, 1)
    *_, m, k = x if not node.attrs["transpose_x"] else (x[-1], x[-2])
    n = y[-2] if node.attrs["transpose_y"] else y[-1]
    shape = np.broadcast_shapes(x[:-2], y[:-2])
    out_steps = dense_strides((*shape, m, n), 1)
    if "axes" in node.attrs:
        stored = dense_strides(node.outputs[0].shape, 1)
        out_steps = tuple([stored[node.attrs["axes"].index(a)] for a in range(len(stored))])
    *_, row, column = out_steps
    steps = ((x[:-2], x_steps[:-2]), (y[:-2], y_steps[:-2]), (shape, out_steps[:-2]))
    axes = merged(shape, [broadcast_steps(s, shape, own) for s, own in steps])
    x_plane = x_steps[-2:] if not node.attrs["transpose_x"] else x_steps[:-3:-1]
    y_plane = y_steps[-2:] if not node.attrs["transpose_y"] else y_steps[:-3:-1]
    return Product(m, n, k, (x_plane[0], x_plane[1]), (y_plane[0], y_plane[1]), (row, column), axes)


def steps_of(node: KernelNode) -> list[Shape]:
    """The strides of each input, in elements."""
    given = zip_longest(node.inputs, node.strides)
    return [dense_strides(x.shape, 1) if steps is None else steps for x, steps in given]


def broadcast_steps(shape: Shape, target: Shape, steps: Shape | None = None) -> Shape:
    """The steps of an array, contiguous unless they are given, along the axes it broadcasts to."""
    steps = dense_strides(shape, 1) if steps is None else steps
    own = (0 if n == 1 else step for n, step in zip(shape, steps, strict=True))
    return (*(0,) * (len(target) - len(shape)), *own)


def dense_strides(shape: Shape, itemsize: int) -> Shape:
    """The strides of a row-major array, in bytes."""
    strides, step = [], itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def axes_of(
    labels: Sequence[Any], steps: Sequence[Mapping[Any, int]], extents: Mapping[Any, int]
) -> list[Axis]:
    """The axes along these labels, merged; an operand does not move along those that it lacks."""
    shape = tuple(extents[label] for label in labels)
    return merged(shape, [tuple(own.get(label, 0) for label in labels) for own in steps])


def merged(shape: Shape, steps: Sequence[Shape]) -> list[Axis]:
    """The axes of `shape` with their steps, in elements, in each of several arrays; neighbours are
    merged if all arrays run through both as through one."""
    axes: list[Axis] = []
    for extent, *own in zip(shape, *steps, strict=True):
        if extent == 1:
            continue
        if axes and all(p == s * extent for p, s in zip(axes[-1][1], own, strict=True)):
            axes[-1] = (axes[-1][0] * extent, tuple(own))
        else:
            axes.append((extent, tuple(own)))
    return axes or [(1, (0,) * len(steps))]


def spelt_out(equation: str, shapes: tuple[Shape, ...]) -> tuple[list[str], str, dict[str, int]]:
    """The labels of an Einstein sum that the rule of Einsum has accepted.

    Returns those of each operand and of the output, with fresh ones for the axes of "...", and
    their extents; an axis of "..." may have 1 where its label has more, since ellipses broadcast.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    unused = "".join(c for c in reversed(ascii_letters) if c not in equation)
    counts = [len(s) - len(t.replace("...", "")) for t, s in zip(terms, shapes, strict=True)]
    fresh = unused[: max(counts, default=0)]
    letters = left.replace(",", "").replace("...", "")
    if not arrow:
        right = "..." + "".join(c for c in sorted(set(letters)) if letters.count(c) == 1)
    full = [t.replace("...", fresh[len(fresh) - n :]) for t, n in zip(terms, counts, strict=True)]
    extents: dict[str, int] = {}
    for term, shape in zip(full, shapes, strict=True):
        for label, n in zip(term, shape, strict=True):
            extents[label] = n if extents.get(label, 1) == 1 else extents[label]
    return full, right.replace("...", fresh), extents


# --- The OpenBLAS that NumPy has loaded -----------------------------------------------------------


class OpenBlas(NamedTuple):
    """Functions of the library: the number of its threads, and the setter of that."""

    threads: Callable[[], int]
    set_threads: Callable[[int], object]


@cache
def openblas() -> OpenBlas | None:
    """The library, if NumPy's BLAS is one whose threads can be limited."""
    libraries = threadpoolctl.ThreadpoolController().lib_controllers
    paths = [c.filepath for c in libraries if c.internal_api == "openblas"]
    found = map(_functions, sorted(paths, key=lambda path: "numpy" not in path))
    return next(filter(None, found), None)


def _functions(path: str) -> OpenBlas | None:
    """The functions of a library, by the names that builds of OpenBLAS give them."""
    library = ctypes.PyDLL(path)  # loaded already; its setter returns at once, so it keeps the GIL
    for before in ("scipy_", ""):
        for after in ("64_", ""):
            names = [f"{before}openblas_{verb}_num_threads{after}" for verb in ("get", "set")]
            if all(hasattr(library, name) for name in names):
                return OpenBlas(*[getattr(library, name) for name in names])
    return None
