"""Rows of matrix products and Einstein sums."""

import numpy as np

from miniml import ops
from miniml.errors import ShapeError
from miniml.testing import OpInfo, Refusal, Sample

from .draws import numbers

X, Y = np.ones((2, 3)), np.ones((3, 4))

PRODUCTS = (
    ((3, 4), (4, 5)), ((1, 4), (4, 1)), ((3, 0), (0, 5)), ((0, 3), (3, 2)),
    ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((0, 3, 4), (4, 2)),
)  # fmt: skip
VECTORS = (((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (2, 4, 3)), ((2, 3, 4), (4,)))


def turned(shape, yes):
    return (*shape[:-2], shape[-1], shape[-2]) if yes else shape


def products(rng, dtype):
    for x, y in VECTORS:
        yield Sample((numbers(rng, x, dtype), numbers(rng, y, dtype)))
    for x, y in PRODUCTS:
        for tx, ty in ((False, False), (True, False), (False, True), (True, True)):
            inputs = numbers(rng, turned(x, tx), dtype), numbers(rng, turned(y, ty), dtype)
            yield Sample(inputs, {"transpose_x": tx, "transpose_y": ty})


def matmul(x, y, transpose_x=False, transpose_y=False):
    x = np.swapaxes(x, -1, -2) if transpose_x else x
    return np.matmul(x, np.swapaxes(y, -1, -2) if transpose_y else y)


EQUATIONS = (
    ("i->", (4,)), ("i->i", (4,)), ("->", ()), ("ij->ji", (2, 3)), ("ijk->j", (2, 3, 4)),
    ("ii", (3, 3)), ("ii->i", (3, 3)), ("iji->ji", (3, 2, 3)), ("iijj->ij", (2, 2, 3, 3)),
    ("iii->i", (2, 2, 2)), ("ij->", (0, 3)), ("ii->i", (0, 0)),
    ("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk->ki", (2, 3), (3, 4)), ("ij,jk", (2, 3), (3, 4)),
    ("ij,jk->ik", (2, 0), (0, 4)), ("i,j->ij", (2,), (3,)), ("i,i->", (3,), (3,)),
    ("i,i->i", (3,), (3,)), (",i->i", (), (3,)),
    ("bqhd,bkhd->bhqk", (2, 3, 4, 5), (2, 6, 4, 5)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("ijk,jkl->li", (2, 3, 4), (3, 4, 5)), ("abc,cd->dba", (2, 3, 4), (4, 5)),
    ("iij,jk->ik", (2, 2, 3), (3, 4)),
    ("...ij,...jk->...ik", (5, 2, 3), (3, 4)), ("...ij,...jk", (5, 2, 3), (1, 3, 4)),
    ("...i->i...", (2, 3, 4)), ("i...,i...->...", (4, 2, 1), (4, 3)), ("...,...", (2, 1), (3,)),
)  # fmt: skip
# Summed in another order than the equation says: equal for numbers of one sign, infinities too.
REORDERED = (
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)), ("i,i,i->", (3,), (3,), (3,)),
    ("ab,bc,cd,da->bd", (2, 3), (3, 4), (4, 5), (5, 2)), ("i,j,k->kji", (2,), (3,), (4,)),
    ("...a,...b,ab->...", (2, 3), (1, 4), (3, 4)),
    ("ij,kl->il", (2, 3), (4, 5)), ("ijj,k->ik", (2, 3, 3), (4,)),
)  # fmt: skip


def sums(rng, dtype):
    for equation, *shapes in EQUATIONS:
        yield Sample(tuple(numbers(rng, s, dtype) for s in shapes), {"equation": equation})
    for equation, *shapes in REORDERED:
        operands = tuple(numbers(rng, s, dtype, 0.25, 2.0) for s in shapes)
        yield Sample(operands, {"equation": equation})


def refused(equation, *operands, match):
    return Refusal(operands, match, {"equation": equation}, ShapeError)


ROWS = (
    OpInfo(ops.MatMul, products, reference=matmul,
           refused=(
               Refusal((X, X), r"\(2, 3\) by \(2, 3\): rows.*3 elements.*have 2|second 2",
                       {}, ShapeError),
               Refusal((X, Y), "transposed", {"transpose_x": True}, ShapeError),
               Refusal((X, np.ones(())), "needs tensors with axes", {}, ShapeError),
               Refusal((np.ones(3), Y), "cannot transpose x of shape", {"transpose_x": True},
                       ShapeError),
               Refusal((np.ones((2, 2, 3)), np.ones((4, 3, 2))), "batch axes cannot broadcast",
                       {}, ShapeError),
           )),
    OpInfo(ops.Einsum, sums, reference=lambda *xs, equation: np.einsum(equation, *xs),
           refused=(
               refused("ij,jk->ik", X, match="'ij,jk->ik' has 2 terms; got 1 operands"),
               refused("ij,jk->ik", X, X, match="label 'j' the extents 3 and 2"),
               refused("ij->ijk", X, match="'k' in its output, which no operand has"),
               refused("ij->ii", X, match="'i' twice in its output"),
               refused("i1->i", X, match="has the term 'i1'"),
               refused("i->i", X, match="labels 1 axes in 'i'; the operand has shape"),
               refused("ijk->i", X, match="labels 3 axes in 'ijk'"),
               refused("...i->i", X, match="none in its output"),
               refused("...,...", X, np.ones(2), match="axis of '...' the extents 3 and 2"),
               refused("ii->i", X, match="extents 2 and 3"),
           )),
)  # fmt: skip
