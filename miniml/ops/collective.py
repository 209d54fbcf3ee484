"""Collectives: what all ranks of a group compute together, each from an x of its own.

Every rank calls them in the same order with the same shapes, so their effect is "ordered": programs
keep them in the order of the function, and keep those too whose result nobody reads. The attribute
`group` is the name of the group and `size` its number of ranks: plain values, equal on all ranks,
so that a graph that holds them can be saved; a kernel finds the group that its thread or process
has joined under that name. The functions that users call are in `miniml.distributed`.

A gradient is that of the sum of the ranks' results, so each collective passes to its x what its
transpose, a collective too, makes of all the ranks' cotangents.
"""

from __future__ import annotations

from itertools import chain
from typing import Literal

from ..core.abstract import DType, Shape, bool_, is_complex, is_inexact
from ..core.errors import AttributeRefusedError, DTypeError, ShapeError
from ..core.options import choice, count
from ..core.primitive import Primitive
from .rules import moves

__all__ = [
    "AllGather", "AllReduce", "AllToAll", "Broadcast", "Reduce", "ReduceScatter", "SendRecv",
]  # fmt: skip

ALONE = "self"  # the group of one rank
Reduction = Literal["sum", "mean", "max"]
_REDUCTIONS = ("sum", "mean", "max")


class _Collective(Primitive, abstract=True):
    effect = "ordered"
    takes_complex = True

    def _ranks(self, name: str, rank: int, size: int) -> None:
        """AttributeRefusedError for a rank that the group does not have."""
        if type(rank) is not int or not 0 <= rank < size:
            raise AttributeRefusedError(
                f"{self.name} got {name}={rank!r} in a group of {size}; ranks are 0 to {size - 1}"
            )

    def _rows(self, x: Shape, size: int) -> int:
        """The extent of a block for each rank; ShapeError where x does not divide into them."""
        count(self.name, "size", size, 1)
        if not x or x[0] % size:
            raise ShapeError(
                f"{self.name} divides x along its first axis into a block for each of {size} "
                f"ranks; got shape {x}; pad it, as with ops.pad"
            )
        return x[0] // size


def _reduced(name: str, op: Reduction, x: DType) -> DType:
    """The dtype of a reduction over ranks, that of x; DTypeError for one that it does not take."""
    choice(name, "op", op, _REDUCTIONS)
    if x == bool_ or (op == "max" and is_complex(x)) or (op == "mean" and not is_inexact(x)):
        takes = {"sum": "numbers", "mean": "floats", "max": "real numbers"}[op]
        raise DTypeError(f"{name} with op={op!r} takes {takes}; got {x.name}; cast it first")
    return x


class AllReduce(_Collective):
    """The sum of x over the ranks, r = 0 first; their mean or maximum for another `op`. The same on
    every rank, to the bit."""

    batch = "leading"
    op: Reduction = "sum"
    group: str = ALONE
    size: int = 1

    def infer_shape(self, x: Shape) -> Shape:
        count(self.name, "size", self.size, 1)
        return x

    def infer_dtype(self, x: DType) -> DType:
        return _reduced(self.name, self.op, x)


class _Rooted(_Collective, abstract=True):
    batch = "leading"
    linear = ("x",)
    root: int = 0
    group: str = ALONE
    size: int = 1

    def infer_shape(self, x: Shape) -> Shape:
        self._ranks("root", self.root, self.size)
        return x


class Reduce(_Rooted):
    """The sum of x over the ranks on rank `root`, zeros on the others: the transpose of
    Broadcast."""

    def infer_dtype(self, x: DType) -> DType:
        return _reduced(self.name, "sum", x)


class Broadcast(_Rooted):
    """The x of rank `root`, on every rank."""

    rounds = False
    flops = moves


class AllGather(_Collective):
    """The x of all ranks, joined along the first axis in the order of the ranks.

    ShapeError for an x of shape (), which has no first axis.
    """

    linear = ("x",)
    rounds = False
    flops = moves
    group: str = ALONE
    size: int = 1

    def infer_shape(self, x: Shape) -> Shape:
        count(self.name, "size", self.size, 1)
        if not x:
            raise ShapeError(
                f"{self.name} joins along the first axis, which x of shape () lacks; reshape it to "
                "(1,)"
            )
        return (x[0] * self.size, *x[1:])


class ReduceScatter(_Collective):
    """The sum of x over the ranks, of which each keeps its block of the first axis: the transpose
    of AllGather."""

    linear = ("x",)
    group: str = ALONE
    size: int = 1

    def infer_shape(self, x: Shape) -> Shape:
        return (self._rows(x, self.size), *x[1:])

    def infer_dtype(self, x: DType) -> DType:
        return _reduced(self.name, "sum", x)


class AllToAll(_Collective):
    """Block r of x along the first axis goes to rank r; the result is the blocks received, in the
    order of the ranks. Its own transpose."""

    linear = ("x",)
    rounds = False
    flops = moves
    group: str = ALONE
    size: int = 1

    def infer_shape(self, x: Shape) -> Shape:
        self._rows(x, self.size)
        return x


class SendRecv(_Collective):
    """The x of the rank that sends to this one, zeros where none does. `pairs` has (from, to) for
    all that send; each rank sends at most once and receives at most once.

    AttributeRefusedError for a rank that does so twice.
    """

    batch = "leading"
    linear = ("x",)
    rounds = False
    flops = moves
    pairs: tuple[tuple[int, int], ...]
    group: str = ALONE
    size: int = 1

    def infer_shape(self, x: Shape) -> Shape:
        for rank in chain.from_iterable(self.pairs):
            self._ranks("pairs", rank, self.size)
        for what, ranks in zip(("sends", "receives"), zip(*self.pairs)):
            twice = [rank for rank in ranks if ranks.count(rank) > 1]
            if twice:
                raise AttributeRefusedError(
                    f"{self.name} got pairs={self.pairs} in which rank {twice[0]} {what} twice; "
                    "each rank sends at most once and receives at most once"
                )
        return x
