"""Einstein sums planned once per shape as products of matrices, two operands at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..equation import spelt_out
from ..kernel import Array
from . import products

Shape = tuple[int, ...]
Extents = dict[str, int]
Run = Callable[[list[Array], Array], None]


@dataclass(frozen=True, slots=True)
class Step:
    """Operands at the positions `takes`, popped in that order, fill an array of `shape`."""

    takes: tuple[int, ...]
    shape: Shape
    run: Run


@dataclass(frozen=True, slots=True)
class ContractionPlan:
    """An Einstein sum for given shapes: the axes that each operand drops because they broadcast,
    and the steps."""

    drops: tuple[Shape, ...]
    steps: tuple[Step, ...]

    def run(self, inputs: tuple[Array, ...], out: Array) -> None:
        """Each step takes operands off the list and appends its result; the last fills out."""
        operands = [x.squeeze(d) if d else x for x, d in zip(inputs, self.drops, strict=True)]
        for step in self.steps:
            taken = [operands.pop(i) for i in step.takes]
            last = step is self.steps[-1]
            operands.append(out if last else np.empty(step.shape, out.dtype))
            step.run(taken, operands[-1])


def plan(equation: str, shapes: tuple[Shape, ...]) -> ContractionPlan:
    """The plan of an equation that fits the shapes, as the rule of Einsum has checked."""
    terms, output, extents = spelt_out(equation, shapes)
    drops = tuple(
        tuple(i for i, c in enumerate(term) if shape[i] != extents[c])
        for term, shape in zip(terms, shapes, strict=True)
    )
    left = [
        "".join(c for i, c in enumerate(term) if i not in drop)
        for term, drop in zip(terms, drops, strict=True)
    ]
    steps = []
    for takes in _order(left, output, extents):
        taken = [left.pop(i) for i in takes]
        result = _unique("".join(taken), (output, *left)) if left else output
        left.append(result)
        shape = tuple(extents[c] for c in result)
        steps.append(Step(takes, shape, _step(taken, result, extents)))
    return ContractionPlan(drops, tuple(steps))


def _unique(labels: str, users: tuple[str, ...]) -> str:
    """The labels that one of the users names, each once, in order."""
    return "".join(c for c in dict.fromkeys(labels) if any(c in user for user in users))


def _order(terms: list[str], output: str, extents: Extents) -> list[tuple[int, ...]]:
    """The positions of the one or two operands that each step takes, descending."""
    if len(terms) < 3:
        return [tuple(range(len(terms)))[::-1]]
    nothing = [np.broadcast_to(np.float32(0), [extents[c] for c in term]) for term in terms]
    equation = f"{','.join(terms)}->{output}"
    path, _ = np.einsum_path(equation, *nothing, optimize=("greedy", 2**62))
    steps: list[tuple[int, ...]] = []
    count = len(terms)
    for takes in path[1:]:
        first, *rest = sorted(takes, reverse=True)
        for other in rest:  # results come last, so the others keep their positions
            steps.append((first, other))
            count -= 1
            first = count - 1
    return steps


def _step(terms: list[str], result: str, extents: Extents) -> Run:
    """The function that fills `result` from one or two operands with these labels."""
    if len(terms) == 1:
        return _reduced(terms[0], result)
    x, y = (_unique(t, (result, other)) for t, other in zip(terms, terms[::-1], strict=True))
    ready = _reducer(terms[0], x), _reducer(terms[1], y)
    if all(c in result for c in x if c in y):
        return _multiplied(ready, x, y, result)
    return _contracted(ready, x, y, result, extents)


Ready = tuple[Callable[[Array], Array], Callable[[Array], Array]]


def _reducer(term: str, kept: str) -> Callable[[Array], Array]:
    """From an operand labelled `term` to one labelled `kept`: diagonals taken, the rest summed."""
    once = "".join(dict.fromkeys(term))
    axes = tuple(i for i, c in enumerate(once) if c not in kept)

    def ready(x: Array) -> Array:
        x = x if once == term else np.einsum(f"{term}->{once}", x)
        return np.add.reduce(x, axis=axes, dtype=x.dtype, keepdims=False) if axes else x

    return ready


def _reduced(term: str, result: str) -> Run:
    once = "".join(dict.fromkeys(term))
    order = [once.index(c) for c in result + "".join(c for c in once if c not in result)]
    axes = tuple(range(len(result), len(once)))

    def run(operands: list[Array], out: Array) -> None:
        x = operands[0] if once == term else np.einsum(f"{term}->{once}", operands[0])
        if axes:
            np.add.reduce(x.transpose(order), axis=axes, dtype=out.dtype, out=out)
        else:
            out[...] = x.transpose(order)

    return run


def _multiplied(ready: Ready, x: str, y: str, result: str) -> Run:
    """An elementwise product, where no label of both operands is summed."""
    orders = [[t.index(c) for c in result if c in t] for t in (x, y)]
    spread: list[Any] = [tuple(slice(None) if c in t else None for c in result) for t in (x, y)]

    def run(operands: list[Array], out: Array) -> None:
        a, b = (
            f(v).transpose(o)[s] for f, v, o, s in zip(ready, operands, orders, spread, strict=True)
        )
        np.multiply(a, b, out=out)

    return run


def _contracted(ready: Ready, x: str, y: str, result: str, extents: Extents) -> Run:
    """One matrix product for each index of the batch: labels of both operands and the result."""
    batch = "".join(c for c in result if c in x and c in y)
    rows = "".join(c for c in result if c in x and c not in y)
    columns = "".join(c for c in result if c in y and c not in x)
    inner = "".join(c for c in x if c in y and c not in result)
    if result == batch + columns + rows and rows and columns:  # the product of the transposes
        return _swapped(_contracted((ready[1], ready[0]), y, x, result, extents))
    x_order = [x.index(c) for c in batch + rows + inner]
    y_order = [y.index(c) for c in batch + inner + columns]
    extent = {part: prod(extents[c] for c in part) for part in (rows, columns, inner)}
    front = tuple(extents[c] for c in batch)
    x_shape = (*front, extent[rows], extent[inner])
    y_shape = (*front, extent[inner], extent[columns])
    flat = (*front, extent[rows], extent[columns])
    computed = batch + rows + columns
    shape = tuple(extents[c] for c in computed)
    order = [computed.index(c) for c in result]

    def run(operands: list[Array], out: Array) -> None:
        a = ready[0](operands[0]).transpose(x_order).reshape(x_shape)
        b = ready[1](operands[1]).transpose(y_order).reshape(y_shape)
        if computed == result:
            products.matmul(a, b, out.reshape(flat))
        else:
            product = np.empty(flat, out.dtype)
            products.matmul(a, b, product)
            out[...] = product.reshape(shape).transpose(order)

    return run


def _swapped(run: Run) -> Run:
    return lambda operands, out: run(operands[::-1], out)
