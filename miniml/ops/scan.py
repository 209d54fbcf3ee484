"""Loops of a known number of steps: scan, whose body is traced once and which has a gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import index
from typing import Any

import numpy as np
import optree

from ..abstract import Abstract, Shape
from ..dtype import DType, canonical
from ..errors import ShapeError
from ..location import note_step
from ..primitive import Primitive
from ..trace import computes_at_once, current_trace
from .arithmetic import add
from .inference.bodies import (
    Traced,
    Tree,
    agree,
    feeds,
    keeps,
    kept,
    tensor_leaves,
    tensors,
    traced,
    types,
)
from .join import split, stack
from .shape import reshape

__all__ = ["Scan", "scan"]

Step = Callable[[Tree, Tree], Tree]


class Scan(Primitive):
    """The graph `body`, run `length` times: what it carries at the end, and its rows stacked.

    Inputs: `carried` values to begin with; `scanned` arrays of which step t gets row t, or, with
    `reverse`, row length - 1 - t; then values that every step gets as they are. The body takes
    these in this order, and gives the next carried values, then rows of the outputs.
    """

    outputs = "*parts"
    body: Any
    length: int
    carried: int
    scanned: int
    reverse: bool = False

    def infer_shape(self, *values: Shape) -> tuple[Shape, ...]:
        first, last = self.carried, self.carried + self.scanned
        for i, shape in enumerate(values[first:last], first):
            if shape[:1] != (self.length,):
                raise ShapeError(
                    f"Scan of length {self.length} got input {i} of shape {shape} to scan over; "
                    f"its first extent is {self.length}"
                )
        rows = [shape[1:] for shape in values[first:last]]
        self._fed((*values[:first], *rows, *values[last:]))
        stacked = [(self.length, *v.abstract.shape) for v in self.body.outputs[first:]]
        return (*values[:first], *stacked)

    def infer_dtype(self, *values: DType) -> tuple[DType, ...]:
        self._fed(values)
        return tuple(v.abstract.dtype for v in self.body.outputs)

    def _fed(self, values: tuple[Any, ...]) -> None:
        """Refuse what the body does not take, and a body that does not give back what it takes."""
        feeds(self.name, "body", self.body, tuple(range(len(self.body.inputs))), values)
        carried = slice(self.carried)
        before, after = types(self.body.inputs[carried]), types(self.body.outputs[carried])
        agree(self.name, "the loop", before, "body", after)


def scan(
    f: Step, init: Tree, xs: Tree = None, length: int | None = None, reverse: bool = False
) -> tuple[Tree, Tree]:
    """(ys, carry): f(carry, x) -> (carry, y) for each row x of xs, beginning with carry = init.

    ys stacks the y of all steps along a new first axis; the carry returned is the last. init, xs
    and y are trees of tensors (Python numbers in init and y become tensors) or None; f keeps
    structure, shapes and dtypes of the carry. length: of the first axis of xs, and needed where
    xs has no leaf. reverse: begin with the last row; ys has the order of xs.

    Eagerly this is a Python loop. In a graph f is traced and compiled once, whatever the length,
    with a gradient, which is a scan of its own; f may use values from outside and draw random
    numbers, but not assign parameters. ShapeError or DTypeError, naming the leaf, where the carry
    changes its type or rows do not fit.

    >>> ys, total = scan(lambda carry, x: (carry + x, carry), 0.0, np.arange(4, dtype=np.float32))
    >>> ys.tolist(), total.item()
    ([0.0, 0.0, 1.0, 3.0], 6.0)
    """
    first = tensors("Scan", init)
    count = _length(xs, length)
    loop = _stepped if computes_at_once() and count else _traced
    carry, ys = loop(f, first, xs, count, reverse)
    return ys, carry


def _length(xs: Tree, length: int | None) -> int:
    """The number of steps; ShapeError unless all leaves of xs agree with it."""
    named = {} if length is None else {"length": index(length)}
    for accessor, leaf in zip(optree.tree_accessors(xs), optree.tree_leaves(xs), strict=True):
        if not hasattr(leaf, "dtype") or not np.shape(leaf):
            raise ShapeError(
                f"Scan got {accessor.codify('xs')} = {leaf!r}, which has no axis to scan over; give"
                " an array with one row for each step, and let f use all else from outside"
            )
        named[accessor.codify("xs")] = np.shape(leaf)[0]
    if not named:
        raise ShapeError("Scan got neither xs nor a length; give one of them")
    if len(set(named.values())) > 1:
        got = ", ".join(f"{name} of {n}" for name, n in named.items())
        raise ShapeError(f"Scan got different lengths: {got}; all first extents are equal")
    count = next(iter(named.values()))
    if count < 0:
        raise ShapeError(f"Scan got length={count}; a number of steps is not below 0")
    return count


def _step(f: Step, carry: Tree, x: Tree) -> tuple[Tree, Tree]:
    """f(carry, x), checked."""
    result = f(carry, x)
    if not isinstance(result, tuple) or len(result) != 2:
        raise ShapeError(
            f"Scan f returned {type(result).__name__}; it returns a pair (carry, y), with None for "
            "a y that nobody needs"
        )
    after, y = tensors("Scan", result)
    return kept("Scan", "carry", carry, after), y


def _stepped(f: Step, carry: Tree, xs: Tree, count: int, reverse: bool) -> tuple[Tree, Tree]:
    """The loop in Python, op by op."""
    leaves, structure = optree.tree_flatten(xs)
    rows = [_rows(leaf, count) for leaf in leaves]
    ys: list[Tree] = []
    for t in reversed(range(count)) if reverse else range(count):
        try:
            carry, y = _step(f, carry, structure.unflatten([row[t] for row in rows]))
        except Exception as error:
            note_step(error, "scan", t)
            raise
        if ys:
            keeps("Scan", "y", ys[0], y)
        ys.append(y)
    if reverse:
        ys.reverse()
    return carry, optree.tree_map(lambda *parts: stack(parts), *ys)


def _rows(x: Any, count: int) -> list[Any]:
    """All rows by one call, whose gradient is one call too."""
    return [reshape(row, np.shape(x)[1:]) for row in split(x, count)]


def _traced(f: Step, carry: Tree, xs: Tree, count: int, reverse: bool) -> tuple[Tree, Tree]:
    """The loop as one primitive."""
    before, rows = tensor_leaves(carry), tensor_leaves(xs)
    first, scanned = before.taken(), rows.taken()
    given = [*first, *(Abstract(np.shape(x)[1:], canonical(x.dtype)) for x in scanned)]

    def step(*leaves: Any) -> Tree:
        return _step(f, before.filled(leaves[: len(first)]), rows.filled(leaves[len(first) :]))

    body = traced(step, given, "body")
    graph, per_step, captures = _drawing(body, len(given), count, reverse)
    scanned = [*scanned, *per_step]
    primitive = Scan(graph, count, len(first), len(scanned), reverse)
    return body.structure.unflatten(primitive(*first, *scanned, *captures))  # type: ignore[no-any-return]


def _drawing(
    body: Traced, place: int, count: int, reverse: bool
) -> tuple[Any, list[Any], list[Any]]:
    """The body's graph; what it scans besides: of each random stream that it draws from, the state
    at each step; and its other captures. place: of the captures among the graph's inputs."""
    inputs, captures, trace = list(body.graph.inputs), list(body.captures), current_trace()
    states = []
    for generator, blocks in body.blocks.items():
        steps = np.arange(count)[::-1] if reverse else np.arange(count)
        state, _ = trace.reserve(0, generator)
        at = next(i for i, value in enumerate(captures) if value is state)
        inputs.insert(place, inputs.pop(place + at))
        skipped = np.stack([np.zeros_like(steps), steps * blocks], 1).astype(np.uint64)
        states.append(add(captures.pop(at), skipped))
        trace.reserve(blocks * count, generator)
        place += 1
    return replace(body.graph, inputs=tuple(inputs)), states, captures
