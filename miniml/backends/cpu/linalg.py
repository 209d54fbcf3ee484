"""NumPy kernels of matrix products and decompositions.

Products are by BLAS, Einstein sums by products. Solvers and decompositions are by LAPACK: NaN where
there is no result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np

from ...core.signature import COMPLEX, INT, LOW, WIDE, same
from ..kernel import Array, Kernel, KernelNode, scalars
from ..product import openblas, spelt_out
from ..registry import in_float32, register
from .index import along

Shape = tuple[int, ...]
Extents = dict[str, int]


def matmul_kernel(x: Array, y: Array, *, transpose_x: bool, transpose_y: bool, out: Array) -> None:
    if y.ndim == 2 and x.ndim > 2 and not transpose_x and x.flags.c_contiguous:
        # One product instead of one per batch entry.
        rows = prod(x.shape[:-1])  # not -1, which NumPy cannot infer beside an extent of 0
        x, folded = x.reshape(rows, x.shape[-1]), out.reshape(rows, out.shape[-1])
        matmul(x, y.mT if transpose_y else y, out=folded)
        return
    matmul(x.mT if transpose_x else x, y.mT if transpose_y else y, out=out)


_PRODUCTS: dict[tuple[bool, bool], Callable[..., Any]] = {
    (False, False): np.matmul,
    (True, False): lambda x, y, out: np.matmul(x.mT, y, out),
    (False, True): lambda x, y, out: np.matmul(x, y.mT, out),
    (True, True): lambda x, y, out: np.matmul(x.mT, y.mT, out),
}


class MatMulKernel(Kernel):
    """The product for given shapes: NumPy's own if it is small and not folded."""

    def prepare(self, node: KernelNode) -> None:
        x, y = (i.shape for i in node.inputs)
        transposes = node.attrs["transpose_x"], node.attrs["transpose_y"]
        folds = len(y) == 2 and len(x) > 2
        large = prod(node.outputs[0].shape) * x[-2 if transposes[0] else -1] > MATRICES
        simple = not folds and not large
        self.call = _PRODUCTS[transposes] if simple else partial(matmul_kernel, **node.attrs)
        self.reason = "one BLAS thread, unless threads= asks for more" if large else ""


class ContractionKernel(Kernel):
    """An Einstein sum as products of matrices, planned once per shape."""

    def prepare(self, node: KernelNode) -> None:
        run = plan(node.attrs["equation"], tuple(i.shape for i in node.inputs)).run
        self.call = lambda *inputs, out: run(inputs, out)


class EinsumInFloat32(ContractionKernel):
    """An Einstein sum of 16 bits: operands widened to float32, the result rounded once."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        self.call = in_float32(self.call)


register("MatMul", MatMulKernel, *same(2, "?" + INT + WIDE + COMPLEX))
register("MatMul", in_float32(matmul_kernel), *same(2, LOW))
register("Einsum", ContractionKernel, *[f"{c}*->{c}" for c in "?" + INT + WIDE + COMPLEX])
register("Einsum", EinsumInFloat32, *[f"{c}*->{c}" for c in LOW])


# --- Matrix products by NumPy's BLAS, on few threads ----------------------------------------------


# Multiplications up to which OpenBLAS takes one thread by itself: 2 ** 18 for two matrices, 10,000
# for two vectors.
MATRICES, VECTORS = 2**18, 2**13
# From here on (0.3 ms on one thread) it may take more, for users who say how many are theirs.
LARGE = 2**24
_threads: Callable[[], int] = int


def ask_threads(setting: Callable[[], int]) -> None:
    """Set `setting()`, the number of threads that the user lets a product take; 0: none given."""
    global _threads
    _threads = setting


def matmul(x: Array, y: Array, out: Array) -> None:
    """np.matmul(x, y, out), on one thread."""
    limited(out.size * x.shape[-1], np.matmul, x, y, out)


def dot(x: Array, y: Array, out: Array | None = None) -> Any:
    """x.dot(y, out), on one thread."""
    return limited(max(x.size, y.size), x.dot, y, out)


def limited(work: int, product: Callable[..., Any], *args: Any) -> Any:
    """product(*args), of about `work` multiplications, with the BLAS on few threads meanwhile.

    OpenBLAS's threads spin while they wait for each other, so that a product takes a hundred times
    as long where another process has their core. Their number is one for the whole process:
    products in other threads of Python meanwhile are limited, too.
    """
    blas = openblas() if work > VECTORS else None
    limit = 1 if work < LARGE else _threads() or 1
    if blas is None or (before := blas.threads()) <= limit:
        return product(*args)
    blas.set_threads(limit)
    try:
        return product(*args)
    finally:
        blas.set_threads(before)


# --- Einsum plans: products of matrices, two operands at a time -----------------------------------


def plan(equation: str, shapes: tuple[Shape, ...]) -> ContractionPlan:
    """The plan of an equation, which fits the shapes, as the rule of Einsum has checked."""
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
    for takes in order(left, output, extents):
        taken = [left.pop(i) for i in takes]
        result = _unique("".join(taken), (output, *left)) if left else output
        left.append(result)
        shape = tuple(extents[c] for c in result)
        steps.append(Step(takes, shape, _step(taken, result, extents)))
    return ContractionPlan(drops, tuple(steps))


@dataclass(frozen=True, slots=True)
class ContractionPlan:
    """An Einstein sum for given shapes: the broadcast axes that operands drop, and the steps."""

    drops: tuple[Shape, ...]
    steps: tuple[Step, ...]

    def run(self, inputs: tuple[Array, ...], out: Array) -> None:
        """Each step takes operands off the list and appends its result; the last fills out."""
        operands = [x.squeeze(d) if d else x for x, d in zip(inputs, self.drops, strict=True)]
        *before, last = self.steps
        for step in before:
            taken = [operands.pop(i) for i in step.takes]
            operands.append(np.empty(step.shape, out.dtype))
            step.run(taken, operands[-1])
        last.run([operands[i] for i in last.takes], out)


@dataclass(frozen=True, slots=True)
class Step:
    """Operands at the positions `takes`, popped in that order, fill an array of `shape`."""

    takes: tuple[int, ...]
    shape: Shape
    run: Run


Run = Callable[[list[Array], Array], None]


def _unique(labels: str, users: tuple[str, ...]) -> str:
    """The labels that occur in one of the users, each once, in order."""
    return "".join(c for c in dict.fromkeys(labels) if any(c in user for user in users))


def order(terms: list[str], output: str, extents: Extents) -> list[tuple[int, ...]]:
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
    o, p = ([t.index(c) for c in result if c in t] for t in (x, y))
    s, t = (tuple([slice(None) if c in t else None for c in result]) for t in (x, y))
    first, second = ready

    def run(operands: list[Array], out: Array) -> None:
        a, b = operands
        np.multiply(first(a).transpose(o)[s], second(b).transpose(p)[t], out)

    return run


def _contracted(ready: Ready, x: str, y: str, result: str, extents: Extents) -> Run:
    """One matrix product for each index of the batch: labels of both operands and the result."""
    batch = "".join(c for c in result if c in x and c in y)
    rows = "".join(c for c in result if c in x and c not in y)
    columns = "".join(c for c in result if c in y and c not in x)
    inner = "".join(c for c in x if c in y and c not in result)
    if result == batch + columns + rows and rows and columns:  # the product of the transposes
        swapped = _contracted(ready[::-1], y, x, result, extents)
        return lambda operands, out: swapped(operands[::-1], out)
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
            matmul(a, b, out.reshape(flat))
        else:
            product = np.empty(flat, out.dtype)
            matmul(a, b, product)
            out[...] = product.reshape(shape).transpose(order)

    return run


def _reducer(term: str, kept: str) -> Callable[[Array], Array]:
    """From an operand labelled `term` to one labelled `kept`: diagonals taken, the rest summed."""
    once = "".join(dict.fromkeys(term))
    axes = tuple(i for i, c in enumerate(once) if c not in kept)

    def ready(x: Array) -> Array:
        x = x if once == term else np.einsum(f"{term}->{once}", x)
        return np.add.reduce(x, axis=axes, dtype=x.dtype, keepdims=False) if axes else x

    return ready


# --- Decompositions -------------------------------------------------------------------------------

Pair = tuple[Array, Array]
NoResult = np.linalg.LinAlgError
# The ratio to the largest from which on numbers of a vector count as largest, for its sign.
LARGEST = 0.9


def finite(a: Array) -> Array:
    """a; NoResult if it is not finite, for which LAPACK may give anything, or never return."""
    if np.count_nonzero(np.isfinite(a)) < a.size:
        raise NoResult
    return a


def cholesky(a: Array) -> Array:
    return np.linalg.cholesky(symmetric(finite(a)))


def solve(a: Array, b: Array) -> Array:
    return np.linalg.solve(finite(a), b)


def triangular_solve(
    a: Array, b: Array, *, upper: bool, transpose: bool, unit_diagonal: bool
) -> Array:
    if not np.isfinite(a).all():
        t = np.triu(a) if upper else np.tril(a)  # LAPACK reads no more
        if unit_diagonal:
            np.einsum("...ii->...i", t)[...] = 1
        finite(t)
    told = {"lower": not upper, "trans": transpose, "unitdiag": unit_diagonal}
    out = np.empty(b.shape, b.dtype)
    for i in np.ndindex(b.shape[:-2]):
        out[i], info = substitution()(a[i], b[i], **told)
        if info:
            raise NoResult
    return out


@cache
def substitution() -> Any:
    """LAPACK's solution of one triangular system in float64, which NumPy lacks."""
    from scipy.linalg.lapack import dtrtrs

    return dtrtrs


def det(a: Array) -> Array:
    return np.asarray(np.linalg.det(finite(a)))


def slogdet(a: Array) -> Pair:
    sign, logabsdet = np.linalg.slogdet(finite(a))
    return sign, logabsdet


def qr(a: Array) -> Pair:
    q, r = np.linalg.qr(finite(a))
    zero, one = scalars(r.dtype, 0, 1)
    signs = np.copysign(one, np.add(r.diagonal(0, -2, -1), zero))  # that of -0.0 is 1
    r *= signs[..., None]
    r += zero  # no zero is negative
    return q * signs[..., None, :], r


def svd(a: Array) -> tuple[Array, Array, Array]:
    u, s, vh = np.linalg.svd(finite(a), full_matrices=False)
    signs = signs_of(u)
    return u * signs, s, vh * signs.mT


def eigh(a: Array) -> Pair:
    w, v = np.linalg.eigh(symmetric(finite(a)))
    return w, v * signs_of(v)


def pinv(a: Array, *, rtol: float) -> Array:
    return np.linalg.pinv(finite(a), rtol=rtol)


def symmetric(a: Array) -> Array:
    half = a / 2
    return half + half.mT


def signs_of(vectors: Array) -> Array:
    """1 or -1 for each column: the sign of the first of its largest numbers."""
    sizes = np.abs(vectors)
    most = np.maximum.reduce(sizes, axis=-2, keepdims=True)
    first = (sizes >= LARGEST * most).argmax(-2, keepdims=True)
    (one,) = scalars(vectors.dtype, 1)
    signs: Array = np.copysign(one, along(vectors, first, vectors.ndim - 2))
    return signs


def of_stacks(fn: Callable[..., Any]) -> Callable[..., None]:
    """The kernel of `fn`, which returns its results for a stack of matrices, or raises if one of
    them has none: that one gets NaN."""

    def kernel(*inputs: Array, out: Array | tuple[Array, ...], **attrs: Any) -> None:
        a, outs = inputs[0], out if isinstance(out, tuple) else (out,)
        try:
            found = limited(a.size * max(a.shape[-2:]), partial(fn, **attrs), *inputs)
        except NoResult:
            if a.ndim == 2:
                found = (np.nan,) * len(outs)
            else:
                for i in range(len(a)):
                    kernel(*[x[i] for x in inputs], out=tuple([o[i, ...] for o in outs]), **attrs)
                return
        for target, result in zip(outs, found if isinstance(found, tuple) else (found,)):
            target[...] = result

    return kernel


for name, fn, signature in (
    ("Cholesky", cholesky, "{}->{}"),
    ("Solve", solve, "{}{}->{}"),
    ("TriangularSolve", triangular_solve, "{}{}->{}"),
    ("Det", det, "{}->{}"),
    ("SlogDet", slogdet, "{}->{}{}"),
    ("QR", qr, "{}->{}{}"),
    ("SVD", svd, "{}->{}{}{}"),
    ("Eigh", eigh, "{}->{}{}"),
    ("Pinv", pinv, "{}->{}"),
):
    register(name, of_stacks(fn), *[signature.replace("{}", c) for c in WIDE])
