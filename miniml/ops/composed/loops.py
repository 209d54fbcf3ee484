"""Control flow made of `cond`, `while_loop` and `scan`, with their gradients and batch rules.

In order: `fori_loop`, a loop that counts; `map`, a function of each row; `switch`, one of several
branches; `associative_scan`, all running totals in logarithmic depth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index as as_int
from typing import Any

import numpy as np
import optree

from ...core.abstract import INTEGERS, int64
from ...core.errors import (
    AttributeRefusedError,
    DTypeError,
    OutOfRangeError,
    ShapeError,
    TracedValueError,
)
from ...core.options import flag
from ..checks import Tensor, composition, dtype_of, function, normal_axis, shape_of
from ..control import Tree, agree, cond, keeps, kept, outcome, scan, tensors, typed, while_loop
from ..create import arange
from ..elementwise import add, cast
from ..index import getitem
from ..logic import less
from ..norm import CheckedLabels
from ..shape import concat, flip, moveaxis, reshape, stack

__all__ = ["associative_scan", "fori_loop", "map", "switch"]


@composition
def fori_loop(lower: Any, upper: Any, body: Callable[[Any, Tree], Tree], init: Tree) -> Tree:
    """The last value of: value = init; for i in range(lower, upper): value = body(i, value).

    lower, upper: ints, or integer tensors of shape (). init: a tree of tensors (Python numbers
    become tensors), whose structure, shapes and dtypes body keeps; i is an int64 tensor of shape
    (). Bounds that are known make it a `scan`, which has a gradient and may draw random numbers;
    bounds that a graph computes, or that differ between the examples of a vmap, a `while_loop`,
    whose tangents pass forward alone. DTypeError for bounds that are not integers, ShapeError or
    DTypeError, naming the leaf, where the value changes its type.

    >>> fori_loop(1, 5, lambda i, x: x * i, 1)
    Tensor(24, shape=(), dtype=int64)
    """
    function("ForiLoop", "body", body)
    value = tensors("ForiLoop", init)

    def step(i: Any, before: Tree) -> Tree:
        return kept("ForiLoop", "value", before, tensors("ForiLoop", body(i, before)))

    first, end = _bound("lower", lower), _bound("upper", upper)
    if isinstance(first, int) and isinstance(end, int):
        steps = arange(first, max(end, first), dtype=int64)
        return scan(lambda carry, i: (step(i, carry), None), value, steps)[1]
    start, end = (cast(bound, int64) for bound in (first, end))
    return while_loop(
        lambda carry: less(carry[0], end),
        lambda carry: (add(carry[0], 1), step(*carry)),
        (start, value),
    )[1]


def _bound(name: str, value: Any) -> Any:
    """A bound as an int where it is known, else the integer of shape () that it is."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        if not hasattr(value, "dtype") or dtype_of(value) not in INTEGERS:
            raise DTypeError(
                f"ForiLoop got {name}={value!r}; a bound is an int, or an integer of shape ()"
            )
        if shape_of(value):
            raise ShapeError(
                f"ForiLoop got {name} of shape {shape_of(value)}; a bound has shape (); for a loop "
                "over each, use ml.vmap"
            )
    try:
        return as_int(value)
    except TracedValueError:
        return value


@composition
def map(f: Callable[[Tree], Tree], xs: Tree) -> Tree:
    """f(x) of each row x of xs, stacked along a new first axis.

    xs: a tree of arrays with equal first extents; f takes a tree of their rows and gives one of
    tensors or numbers. It is a `scan` without a carry, one row after the other; `ml.vmap(f)(xs)`
    computes the same at once, with the memory that takes. ShapeError where rows do not fit.

    >>> map(lambda row: row[0] * row[1], np.array([[1, 2], [3, 4]])).tolist()
    [2, 12]
    """
    function("Map", "f", f)
    if not optree.tree_leaves(xs):
        raise ShapeError("Map got xs without an array; give arrays with one row for each call of f")
    return scan(lambda _, x: (None, f(x)), None, xs)[0]


# --- Branches -------------------------------------------------------------------------------------


@composition
def switch(index: Any, branches: Sequence[Callable[..., Tree]], *operands: Tree) -> Tree:
    """`branches[index](*operands)`; only that one is computed.

    index: an int, or an integer tensor of shape (), from 0 to len(branches) - 1. branches: a
    sequence of functions, which return trees of tensors. Where the index is known, eagerly that
    is, the branch is called as it is. In a graph all are traced into a tree of `cond`s of
    logarithmic depth, and return equal structures, shapes and dtypes; under a vmap that maps the
    index all are computed, and selected from. OutOfRangeError for any other index; but a compiled
    function on a GPU computes the nearest branch instead.

    >>> switch(1, [lambda x: x + 1.0, lambda x: x * 10.0], 2.0)
    Tensor(20., shape=(), dtype=float32)
    """
    chosen = _chosen(index, branches)
    if isinstance(chosen, int):
        return outcome("Switch", branches[chosen](*operands))
    known: list[tuple[int, Tree]] = []

    def branch(i: int) -> Callable[..., Tree]:
        def call(*given: Tree) -> Tree:
            result = outcome("Switch", branches[i](*given))
            _alike(known, i, result)
            return result

        return call

    def among(first: int, end: int) -> Callable[..., Tree]:
        """The branches from `first` to before `end`, as one."""
        if end - first == 1:
            return branch(first)
        middle = (first + end) // 2
        low, high = among(first, middle), among(middle, end)
        return lambda *given: cond(less(chosen, middle), low, high, *given)

    return among(0, len(branches))(*operands)


def _chosen(index: Any, branches: Any) -> Any:
    """The index as an int where it is known, else as an integer that a compiled function checks."""
    if not isinstance(branches, (list, tuple)) or not branches:
        raise AttributeRefusedError(
            f"Switch got branches={branches!r}; give a list of one function or more"
        )
    for i, branch in enumerate(branches):
        function("Switch", f"branches[{i}]", branch)
    whole = isinstance(index, (int, np.integer)) and not isinstance(index, bool)
    if not whole and (not hasattr(index, "dtype") or dtype_of(index) not in INTEGERS):
        raise DTypeError(
            f"Switch got index={index!r}; it is an int, or an integer tensor of shape (); for a "
            "bool use ops.cond"
        )
    if shape_of(index):
        raise ShapeError(
            f"Switch got an index of shape {shape_of(index)}; it has shape (); for a choice for "
            "each element, use ops.where, for each example ml.vmap"
        )
    count = len(branches)
    try:
        known = as_int(index)
    except TracedValueError:
        return CheckedLabels(count, "Switch", None, "branch number")(index)
    if not 0 <= known < count:
        raise OutOfRangeError(
            f"Switch got index {known} for {count} branches; it is from 0 to {count - 1}"
        )
    return known


def _alike(known: list[tuple[int, Tree]], i: int, result: Tree) -> None:
    """ShapeError or DTypeError unless branch i gives the types of the one that was traced first."""
    if not known:
        known.append((i, result))
        return
    first, expected = known[0]
    leaves, structure = optree.tree_flatten(expected)
    others, other = optree.tree_flatten(result)
    if structure != other:
        raise ShapeError(
            f"Switch got branch {first}, which returns {structure}, and branch {i}, which returns "
            f"{other}; branches return equal structures"
        )
    ours, theirs = ([typed(x) for x in part] for part in (leaves, others))
    agree("Switch", f"branch {first}", ours, f"branch {i}", theirs)


# --- Running totals -------------------------------------------------------------------------------


@composition
def associative_scan(
    f: Callable[[Tree, Tree], Tree], xs: Tree, reverse: bool = False, axis: int = 0
) -> Tree:
    """All running totals of xs along `axis` under f: y[0] = x[0], y[i] = f(y[i - 1], x[i]).

    f(a, b): an associative function of two trees like xs, which combines many pairs at once: its
    arguments have any number of elements along `axis`, and so does its result; it keeps structure,
    dtypes and all other extents. reverse: y[n - 1] = x[n - 1], y[i] = f(y[i + 1], x[i]). Calls of
    f: some 2 log2(n) for n elements, n / 2, n / 4, ... pairs at a time; gradients pass through
    them. An axis of extent 0 or 1 is returned as it is. ShapeError or DTypeError where extents
    along the axis differ, or f does not keep its types.
    Source: Blelloch, "Prefix sums and their applications" (1990).

    >>> associative_scan(add, np.arange(1, 6)).tolist()
    [1, 3, 6, 10, 15]
    """
    function("AssociativeScan", "f", f)
    backwards = flag("AssociativeScan", "reverse", reverse)
    leaves, structure = optree.tree_flatten(tensors("AssociativeScan", xs))
    if not leaves:
        raise ShapeError("AssociativeScan got xs without an array; give one or more")
    axes = [normal_axis("AssociativeScan", axis, len(shape_of(x))) for x in leaves]
    extents = {accessor.codify("xs"): np.shape(x)[a] for accessor, x, a in zip(
        optree.tree_accessors(xs), leaves, axes, strict=True)}  # fmt: skip
    if len(set(extents.values())) > 1:
        got = ", ".join(f"{name} has {n}" for name, n in extents.items())
        raise ShapeError(
            f"AssociativeScan got different extents along axis {axis}: {got}; make them equal"
        )

    def combine(a: list[Any], b: list[Any]) -> list[Any]:
        before, with_ = (structure.unflatten(_back(part, axes)) for part in (a, b))
        after = tensors("AssociativeScan", f(before, with_))
        keeps("AssociativeScan", "value", before, after)
        return _in_front(optree.tree_leaves(after), axes)

    rows = _in_front(leaves, axes)
    if backwards:
        return structure.unflatten(
            _back([flip(x, 0) for x in _totals(combine, [flip(x, 0) for x in rows])], axes)
        )
    return structure.unflatten(_back(_totals(combine, rows), axes))


def _in_front(leaves: list[Any], axes: list[int]) -> list[Any]:
    """The leaves, each with its axis moved to the front."""
    return [moveaxis(x, at, 0) if at else x for x, at in zip(leaves, axes, strict=True)]


def _back(rows: list[Any], axes: list[int]) -> list[Any]:
    """The leaves, each with its first axis moved back to its place."""
    return [moveaxis(x, 0, at) if at else x for x, at in zip(rows, axes, strict=True)]


def _totals(combine: Callable[..., list[Any]], rows: list[Any]) -> list[Any]:
    """The running totals of rows: those at odd indices from half as many pairs, then the rest."""
    n = rows[0].shape[0]
    if n < 2:
        return rows
    odd = _totals(combine, combine(_every_second(rows, 0, n - 1), _every_second(rows, 1, n)))
    first = [getitem(x, slice(0, 1)) for x in rows]
    if n == 2:
        return [concat([x, y]) for x, y in zip(first, odd, strict=True)]
    before = [getitem(x, slice(0, (n - 1) // 2)) for x in odd]
    rest = combine(before, _every_second(rows, 2, n))
    even = [concat([x, y]) for x, y in zip(first, rest, strict=True)]
    return [_alternating(x, y) for x, y in zip(even, odd, strict=True)]


def _every_second(rows: list[Any], first: int, end: int) -> list[Any]:
    return [getitem(x, slice(first, end, 2)) for x in rows]


def _alternating(even: Any, odd: Any) -> Tensor:
    """even[0], odd[0], even[1], odd[1], ...; even may have one row more."""
    count, *shape = odd.shape
    both = reshape(stack([getitem(even, slice(0, count)), odd], 1), (2 * count, *shape))
    return both if even.shape[0] == count else concat([both, getitem(even, slice(count, None))])
