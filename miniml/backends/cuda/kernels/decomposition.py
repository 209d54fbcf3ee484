"""Decompositions: a block of threads for each matrix, which it keeps in the memory of the device.

Elimination with partial pivoting; Cholesky's factors column by column; reflections (Householder)
for QR; rotations of pairs of columns (one-sided Jacobi) for singular values, and, of a matrix with
so much added to its diagonal that it is positive definite, for eigenvalues.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from typing import Any, NamedTuple

import numpy as np

from ....dtype import int64
from ...kernel import Kernel, KernelNode, Launch
from ...registry import kernel
from ...signature import ArraySpec
from ...typecodes import WIDE
from ..text.groups import BLOCK
from ..text.source import unit
from .factors import FACTORS
from .systems import COMMON, SYSTEMS

# Rotations end when columns are orthogonal to rounding, after 6 to 10 sweeps for matrices of up to
# a thousand columns; the limit is for what rounding keeps from ending.
SWEEPS = 30
# As on the CPU: numbers this close to the largest of a vector count as equal to it.
LARGEST = 0.9
MANY = 1 << 20  # blocks of a grid; each block loops over its share of more matrices


def per_matrix(node: KernelNode, sizes: Any, scratch: Any = (), args: Any = ()) -> Launch:
    """A block for each matrix. sizes: integers that the kernel gets, of which the first is the
    number of matrices; scratch: the numbers of elements of workspaces, with their dtype where it is
    not that of the matrices."""
    dtype = node.inputs[0].dtype
    pairs = [s if isinstance(s, tuple) else (s, dtype) for s in scratch]
    return Launch(
        grid=(min(max(sizes[0], 1), MANY),),
        block=(32 if max(node.inputs[0].shape[-2:]) <= 32 else BLOCK,),
        args=(*map(np.int64, sizes), *args),
        workspace=tuple(ArraySpec((max(size, 1),), d) for size, d in pairs),
    )


def extents(node: KernelNode) -> tuple[int, int, int]:
    """How many matrices there are, their rows and their columns."""
    *batch, m, n = node.inputs[0].shape
    return prod(batch), m, n


def cholesky(node: KernelNode) -> Launch:
    return per_matrix(node, extents(node)[:2])


def solve(node: KernelNode) -> Launch:
    count, n, _ = extents(node)
    return per_matrix(node, (count, n, node.inputs[1].shape[-1]), (count * n * n,))


def triangular_solve(node: KernelNode) -> Launch:
    sizes = (*extents(node)[:2], node.inputs[1].shape[-1])
    flags = [np.int32(node.attrs[f]) for f in ("upper", "transpose", "unit_diagonal")]
    return per_matrix(node, sizes, args=flags)


def det(node: KernelNode) -> Launch:
    count, n, _ = extents(node)
    return per_matrix(node, (count, n), (count * n * n,))


def qr(node: KernelNode) -> Launch:
    count, m, n = extents(node)
    return per_matrix(node, (count, m, n), (count * m * n, count * min(m, n)))


def svd(node: KernelNode) -> Launch:
    count, m, n = extents(node)
    k, whole = min(m, n), count * m * n
    scratch = (whole, whole, count * k * k, 2 * count * k, (count * k, int64))
    return per_matrix(node, (count, m, n), scratch, (tolerance(node),))


def pinv(node: KernelNode) -> Launch:
    count, m, n = extents(node)
    k = min(m, n)
    args = tolerance(node), np.float64(node.attrs["rtol"])
    return per_matrix(node, (count, m, n), (count * m * n, count * k * k, count * k), args)


def eigh(node: KernelNode) -> Launch:
    count, n, _ = extents(node)
    whole = count * n * n
    scratch = (whole, whole, count * n, (count * n, int64))
    return per_matrix(node, (count, n), scratch, (tolerance(node),))


def tolerance(node: KernelNode) -> np.float64:
    """The cosine of two columns that counts as 0: what rounding makes of it for this length."""
    rows = max(node.inputs[0].shape[-2:])
    return np.float64(sqrt(rows) * np.finfo(node.inputs[0].dtype).eps)


class Plan(NamedTuple):
    """The text that has a primitive's kernel, the function in it, and how it is launched."""

    text: str
    entry: str
    launch: Callable[[KernelNode], Launch]
    signature: str


PLANS = {
    "Cholesky": Plan(SYSTEMS, "cholesky", cholesky, "{}->{}"),
    "Solve": Plan(SYSTEMS, "solve", solve, "{}{}->{}"),
    "TriangularSolve": Plan(SYSTEMS, "triangular_solve", triangular_solve, "{}{}->{}"),
    "Det": Plan(SYSTEMS, "det", det, "{}->{}"),
    "SlogDet": Plan(SYSTEMS, "slogdet", det, "{}->{}{}"),
    "QR": Plan(FACTORS, "qr", qr, "{}->{}{}"),
    "SVD": Plan(FACTORS, "svd", svd, "{}->{}{}{}"),
    "Eigh": Plan(FACTORS, "eigh", eigh, "{}->{}{}"),
    "Pinv": Plan(FACTORS, "pinv", pinv, "{}->{}"),
}


class PerMatrix(Kernel):
    """A kernel of PLANS; those of one text and dtype are compiled together."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        plan = PLANS[node.name]
        self.rule = plan.launch(node)
        code = unit(COMMON + plan.text, T=node.inputs[0].dtype, SWEEPS=SWEEPS, LARGEST=str(LARGEST))
        self.function = node.device.compiler.function(code, plan.entry)

    def workspace(self) -> tuple[ArraySpec, ...]:
        return self.rule.workspace

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        arrays = [a.flat for a in (*inputs, *outputs, *workspace)]
        self.function(self.rule.grid, self.rule.block, (*arrays, *self.rule.args))


for _name, _plan in PLANS.items():
    kernel(_name, "cuda", *[_plan.signature.replace("{}", c) for c in WIDE])(PerMatrix)
