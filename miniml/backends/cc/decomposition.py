"""Linear systems, Cholesky's factor and determinants of small matrices in C, computed in float64: a
vector has an element of each of several matrices. One without a result gets NaN, as by LAPACK.

Source: Golub, Van Loan, "Matrix Computations" (2013), sections 3.1, 3.4 and 4.2.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

from ...core.dtype import float64
from ..expressions.table import C_TYPES
from ..kernel import Arrays, KernelNode
from ..product import dense_strides, merged
from ..registry import kernel
from ..signature import ArraySpec
from .native import NativeKernel
from .product import VECTORS, offset
from .units import defined, header

_FOLDER = Path(__file__).with_name("text")
_FORM, _STACKS = (_FOLDER.joinpath(f"{n}.c").read_text("utf-8") for n in ("factors", "stacks"))
LARGEST = 128  # rows; LAPACK takes the matrices that have more
_COLUMNS, _FEWER = 32, 8  # of right sides that are solved at a time; of several matrices
_LANES = 8  # matrices in the widest vector
_MOST = 8  # parts of a kernel, each with room of its own
_SPLIT = 200_000  # multiplications, some 50 us, from which on matrices are divided


class OfMatrices(NativeKernel):
    """A function of small matrices; of larger ones the kernel that ranks next, called in Python."""

    strided = True

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        n = node.inputs[0].shape[-1]
        if n > LARGEST:
            self._delegate(node)
            return
        count, k = prod(node.inputs[0].shape[:-2]), self.columns(node)
        self.parts = max(1, min(_MOST, count // _LANES, count * n * n * (n + 3 * k) // 3 // _SPLIT))
        fewest = 2 + min(n + k, 64) // 16
        wide = count >= fewest
        self.room = (_LANES if wide else 1) * max(1, n * (n + min(k, _COLUMNS)))
        constants = self.constants(node) | {
            node.name: 1,
            "T": C_TYPES[node.inputs[0].dtype],
            "N": f"{n}L",
            "COUNT": f"{count}L",
            "PARTS": f"{self.parts}L",
            "ROOM": f"{self.room}L",
            "WORK": len(node.inputs) + len(node.outputs),
            "FEWEST": fewest,
            "SIDE": "MINIML_LANES_double" if wide else 1,
            "wide_LANES": "KERNEL_SIDE",
            "one_LANES": 1,
        }
        forms = [_FORM.replace("NAME", f"KERNEL_{name}") for name in ("wide", "one")[not wide :]]
        shared = *(VECTORS,) * wide, *header("types"), *header("apart")
        self.source = defined(constants, "".join([*forms, _STACKS]), shared)

    def columns(self, node: KernelNode) -> int:
        """The number of right sides."""
        return 0

    def constants(self, node: KernelNode) -> dict[str, Any]:
        """Numbers in the text: where the matrices of each input lie."""
        shape = node.inputs[0].shape[:-2]
        strides = [self._strides(node, i) for i in range(len(node.inputs))]
        axes = merged(shape, [own[:-2] for own in strides])
        found: dict[str, Any] = {}
        for i, own in enumerate(strides):
            found |= {f"ROW{i}": f"{own[-2]}L", f"COLUMN{i}": f"{own[-1]}L"}
            found[f"START{i}"] = offset(axes, i)
        return found

    def _strides(self, node: KernelNode, index: int) -> tuple[int, ...]:
        own = node.strides[index] if node.strides else None
        return own or dense_strides(node.inputs[index].shape, 1)

    def workspace(self) -> tuple[ArraySpec, ...]:
        return (ArraySpec((self.parts * self.room,), float64),) if self.native else ()

    def _delegate(self, node: KernelNode) -> None:
        entry = node.target.without("cc").select(node.name, node.inputs, node.outputs).entry
        self.native, self.reason = False, f"large: by the kernel of provider {entry.provider!r}"
        self.other, self.body_of_other = entry.made(), entry.body
        if self.other is not None:
            self.other.prepare(node)

    def launch(self, inputs: Arrays, workspace: Arrays, outputs: Arrays, stream: Any) -> None:
        if self.native:
            super().launch(inputs, workspace, outputs, stream)
        elif self.other is not None:
            self.other.launch(inputs, workspace, outputs, stream)
        else:
            out = outputs if len(outputs) > 1 else outputs[0]
            self.body_of_other(*inputs, out=out, **self.node.attrs)


class Solved(OfMatrices):
    """Solutions for right sides."""

    def columns(self, node: KernelNode) -> int:
        return node.inputs[1].shape[-1]

    def constants(self, node: KernelNode) -> dict[str, Any]:
        k = self.columns(node)
        blocks = {"wide_BLOCK": f"{min(k, _FEWER)}L", "one_BLOCK": f"{min(k, _COLUMNS)}L"}
        return super().constants(node) | {"K": f"{k}L"} | blocks


class SolvedTriangle(Solved):
    """Solutions by the triangle of a matrix."""

    def constants(self, node: KernelNode) -> dict[str, Any]:
        found, attrs = super().constants(node), node.attrs
        if attrs["transpose"]:
            found |= {"ROW0": found["COLUMN0"], "COLUMN0": found["ROW0"]}
        upwards, unit = attrs["upper"] != attrs["transpose"], attrs["unit_diagonal"]
        return found | {"UPWARDS": int(upwards), "UNIT": int(unit)}


for _name, _body, _signatures in (
    ("Cholesky", OfMatrices, ("f->f", "d->d")),
    ("Det", OfMatrices, ("f->f", "d->d")),
    ("SlogDet", OfMatrices, ("f->ff", "d->dd")),
    ("Solve", Solved, ("ff->f", "dd->d")),
    ("TriangularSolve", SolvedTriangle, ("ff->f", "dd->d")),
):
    kernel(_name, "cpu", *_signatures, provider="cc")(_body)
