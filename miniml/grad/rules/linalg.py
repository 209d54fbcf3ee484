"""Gradient rules of matrix products and Einstein sums, which are of the same kind."""

from __future__ import annotations

from math import prod
from string import ascii_letters
from typing import Any

from ... import ops
from ...core.bprop import rule
from ...ops.linalg import Equation, parse
from ..batching import Batched, aligned, batches
from ..forward import moves_along


@rule(ops.MatMul)
def matmul_bprop(self: ops.MatMul, x: Any, y: Any, out: Any, dout: Any) -> tuple[Any, Any]:
    a = x if len(x.shape) > 1 else ops.reshape(x, (1, *x.shape))
    b = y if len(y.shape) > 1 else ops.reshape(y, (*y.shape, 1))
    if a is not x or b is not y:
        rows = a.shape[-1 if self.transpose_x else -2]
        columns = b.shape[-2 if self.transpose_y else -1]
        batch = dout.shape[: len(dout.shape) - (a is x) - (b is y)]
        dout = ops.reshape(dout, (*batch, rows, columns))
    da, db = _factors(a, b, dout, self.transpose_x, self.transpose_y)
    return _fitted(da, a, x), _fitted(db, b, y)


def _factors(x: Any, y: Any, dout: Any, turned_x: bool, turned_y: bool) -> tuple[Any, Any]:
    """dx = dout y^T and dy = x^T dout, each in the layout of its input."""
    product = ops.matmul
    if turned_x:
        dx = product(y, dout, turned_y, True)
    else:
        dx = product(dout, y, False, not turned_y)
    if len(y.shape) == 2 and len(x.shape) > 2 and not turned_x:
        # All of the batch shares y: one product over all rows instead of a sum of products.
        rows = prod(x.shape[:-1])
        x = ops.reshape(x, (rows, x.shape[-1]))
        dout = ops.reshape(dout, (rows, dout.shape[-1]))
    if turned_y:
        dy = product(dout, x, True, turned_x)
    else:
        dy = product(x, dout, not turned_x, False)
    return dx, dy


def _fitted(gradient: Any, matrix: Any, expected: Any) -> Any:
    """The gradient summed over the batch axes its input broadcast along, in the input's shape."""
    if gradient.shape != matrix.shape:
        gradient = ops.sum_to(gradient, matrix.shape)
    return gradient if matrix is expected else ops.reshape(gradient, expected.shape)


@rule(ops.Einsum)
def einsum_bprop(self: ops.Einsum, *args: Any) -> tuple[Any, ...]:
    *operands, _, dout = args
    equation = parse(self.equation, tuple(x.shape for x in operands))
    plain = [_narrowed(x, t, equation) for x, t in zip(operands, equation.operands)]
    return tuple(
        _operand_gradient(i, operands[i].shape, plain, equation, dout) for i in range(len(operands))
    )


def _narrowed(x: Any, term: str, equation: Equation) -> tuple[Any, str]:
    """An operand without the axes that broadcast, and its labels."""
    kept = "".join(c for c, n in zip(term, x.shape) if n == equation.extents[c])
    shape = tuple(equation.extents[c] for c in kept)
    return (x if kept == term else ops.reshape(x, shape)), kept


def _operand_gradient(
    i: int, shape: tuple[int, ...], plain: list[tuple[Any, str]], equation: Equation, dout: Any
) -> Any:
    """dout contracted with the other operands; labels that only operand i has are broadcast."""
    term = plain[i][1]
    once = "".join(dict.fromkeys(term))
    others = plain[:i] + plain[i + 1 :]
    terms = [equation.output, *(t for _, t in others)]
    found = "".join(c for c in once if any(c in t for t in terms))
    gradient = dout
    if terms != [found]:
        gradient = ops.einsum(f"{','.join(terms)}->{found}", dout, *(x for x, _ in others))
    if found != once:
        extents = equation.extents
        gradient = ops.reshape(gradient, tuple(extents[c] if c in found else 1 for c in once))
        gradient = ops.broadcast_to(gradient, tuple(extents[c] for c in once))
    gradient = _on_diagonals(gradient, once, term, equation.extents)
    return gradient if gradient.shape == shape else ops.reshape(gradient, shape)


def _on_diagonals(gradient: Any, once: str, term: str, extents: dict[str, int]) -> Any:
    """A gradient labelled `once`, put on the diagonals that repeated labels of `term` take: in
    row-major order element i of a label of n that occurs k times is number i (1 + n + ... +
    n^(k-1)), between zeros."""
    labels = once
    for label in once:
        n, times = extents[label], term.count(label)
        if times == 1:
            continue
        rest = [k for k, c in enumerate(labels) if c != label]
        moved = ops.transpose(gradient, (*rest, labels.index(label)))
        shape, step = moved.shape[:-1], sum(n**k for k in range(times))
        before = ((0, 0),) * (len(shape) + 1)
        apart = ops.pad(ops.expand_dims(moved, -1), (*before, (0, step - 1)))
        flat = ops.reshape(apart, (*shape, n * step))[..., : n**times]
        gradient = ops.reshape(flat, (*shape, *(n,) * times))
        labels = labels.replace(label, "") + label * times
    at = {c: [k for k, of in enumerate(labels) if of == c] for c in labels}
    return ops.transpose(gradient, tuple(at[c].pop(0) for c in term))


# --- Batching -------------------------------------------------------------------------------------


@batches(ops.MatMul)
def batch_matmul(self: ops.MatMul, batched: Batched, x: Any, y: Any) -> Any:
    """An operand of one axis gets a second one for the product, which the result loses again."""
    row, column = (len(v.shape) - flag == 1 for v, flag in zip((x, y), batched, strict=True))
    if row:
        x = ops.expand_dims(x, -2)
    if column:
        y = ops.expand_dims(y, -1)
    out = self(*aligned(batched, (x, y)))
    lost = (-2,) * row + (-1,) * column
    return ops.squeeze(out, lost) if lost else out


@batches(ops.Einsum)
def batch_einsum(self: ops.Einsum, batched: Batched, *operands: Any) -> Any:
    """One more label, in front of the operands that differ between examples and of the output."""
    terms, arrow, output = self.equation.replace(" ", "").partition("->")
    if not arrow:
        labels = terms.replace(",", "").replace(".", "")
        once = sorted(c for c in set(labels) if labels.count(c) == 1)
        output = "..." * ("..." in terms) + "".join(once)
    label = next(c for c in ascii_letters if c not in self.equation)
    named = [label * f + t for t, f in zip(terms.split(","), batched, strict=True)]
    return ops.einsum(f"{','.join(named)}->{label}{output}", *operands)


# --- Tangents -------------------------------------------------------------------------------------


@moves_along(ops.Einsum)
def jvp_einsum(self: ops.Einsum, primals: Any, tangents: Any, out: Any) -> Any:
    """It is linear in each operand."""
    total = None
    for i, tangent in enumerate(tangents):
        if tangent is not None:
            term = self(*primals[:i], tangent, *primals[i + 1 :])
            total = term if total is None else total + term
    return total
