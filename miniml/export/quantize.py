"""Products of int8 in the place of a graph's products by weights, for inference.

`quantized` replays a traced graph: MatMul and Conv2D by a parameter become products of int8 numbers
that are summed as int32. Weights have a scale for each output channel; an activation has one, from
the largest value that it takes on calibration data. Both are symmetric, so that zero is zero. What
lies between products stays in floating point. The graph says products of integers, exactly; that
they are computed of bytes is the compiler's doing (`runtime/formats.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..core.abstract import float32, float64, int8, int32
from ..core.errors import ExportError
from ..core.parameter import Parameter
from ..core.tensor import Array, Tensor
from ..graph.ir import Graph, Node
from ..graph.record import replay

LARGEST = 127


class Report(NamedTuple):
    """The accuracy beside float on the calibration data. error: root of the mean square of the
    difference of outputs, over that of the float ones. worst: the largest difference. agree: how
    many rows of outputs have their largest element in the same place. weights: bytes of those that
    were quantized, as int8 with scales and as float32. products, left: how many there are, and how
    many stay in floating point, since they are not by a parameter."""

    calls: int
    error: float
    worst: float
    agree: float
    weights: tuple[int, int]
    products: int
    left: int

    def __str__(self) -> str:
        return (
            f"int8: {self.products} products by weights, {self.left} others in floating point; "
            f"weights {self.weights[0]:,} bytes in the place of {self.weights[1]:,}; beside float "
            f"on {self.calls} calls: relative error {self.error:.2g}, largest difference "
            f"{self.worst:.2g}, the same largest output in {100 * self.agree:.1f} %"
        )


class Quantized(NamedTuple):
    """A function of the graph's inputs, and its report."""

    fn: Callable[..., Any]
    report: Report


def quantized(graph: Graph, calls: Sequence[Sequence[Any]]) -> Quantized:
    """The graph with products of int8, for activations as large as those of these calls, each a
    tuple of the graph's inputs. ExportError without any, and where nothing can be quantized."""
    weights = _weights(graph)
    if not weights:
        raise ExportError(
            f"export_c got quantize='int8' for {graph.name}, which has no MatMul or Conv2D of "
            "float32 by a parameter; leave it out"
        )
    if not calls:
        raise ExportError(
            "export_c got quantize='int8' without calibration=; give a list of inputs as those of "
            "use, each as the example: their largest activations set the scales"
        )
    seen = dict.fromkeys(weights, 0.0)

    def watched(node: Node) -> Callable[[Any, Any], Any]:
        def product(x: Any, w: Any) -> Any:
            seen[node] = max(seen[node], float(np.abs(x.asnumpy()).max()))
            return node.primitive(x, w)

        return product

    watching = {node: watched(node) for node in weights}
    expected = [_run(graph, call, watching) for call in calls]
    instead = {
        node: _Product(node, _scaled(seen[node]), *_rounded(w, node)) for node, w in weights.items()
    }

    def fn(*args: Any) -> Any:
        outs = replay(graph, args, instead)
        return outs if len(outs) > 1 else outs[0]

    got = [_run(graph, call, instead) for call in calls]
    return Quantized(fn, _report(expected, got, [*instead.values()], graph))


def _run(graph: Graph, call: Sequence[Any], instead: Any) -> list[Array]:
    outs = replay(graph, [Tensor(np.asarray(a)) for a in call], instead)
    return [out.asnumpy().astype(np.float64) for out in outs]


def _weights(graph: Graph) -> dict[Node, Array]:
    """The products by a parameter, and its values."""
    state: dict[Any, Parameter] = {v: p for p, v in graph.state}
    return {
        node: state[node.inputs[1]].asnumpy()
        for node in graph.nodes
        if isinstance(node.primitive, (ops.MatMul, ops.Conv2D))
        and node.inputs[1] in state
        and all(v.abstract.dtype == float32 for v in node.inputs)
        and not node.attrs.get("transpose_x")
        and len(node.inputs[1].abstract.shape) in (2, 4)
    }


def _scaled(largest: float) -> np.float32:
    return np.float32(largest / LARGEST if largest else 1.0)


def _rounded(w: Array, node: Node) -> tuple[Array, Array]:
    """Weights with output channels first, in int8, and the scale of each channel."""
    rows = w
    if isinstance(node.primitive, ops.MatMul) and not node.attrs["transpose_y"]:
        rows = w.T
    largest = np.abs(rows).reshape(len(rows), -1).max(1)
    scales = np.where(largest > 0, largest / LARGEST, 1).astype(np.float32)
    by_row = scales.reshape(-1, *(1,) * (rows.ndim - 1))
    return np.ascontiguousarray(np.rint(rows / by_row).astype(np.int8)), scales


@dataclass(frozen=True)
class _Product:
    """A product of int8, in the place of one of float32. scale: of the activation."""

    node: Node
    scale: np.float32
    weights: Array
    scales: Array

    def __call__(self, x: Any, w: Any) -> Any:
        whole = ops.clip(ops.round(x * np.float32(1 / self.scale)), -LARGEST, LARGEST)
        levels = ops.cast(whole, int8)
        if isinstance(self.node.primitive, ops.MatMul):
            wide = self.weights.astype(np.int32)
            sums = ops.matmul(ops.cast(levels, int32), wide, transpose_y=True)
            return ops.cast(sums, float32) * (self.scale * self.scales)
        # In float64, which holds these sums exactly, as convolutions are of floats.
        made = self.node.primitive(ops.cast(levels, float64), self.weights.astype(np.float64))
        sums = ops.cast(made, int32)
        return ops.cast(sums, float32) * (self.scale * self.scales).reshape(-1, 1, 1)


def _report(
    expected: list[list[Array]], got: list[list[Array]], made: list[_Product], graph: Graph
) -> Report:
    pairs = [
        (a, b)
        for one, other in zip(expected, got, strict=True)
        for a, b in zip(one, other, strict=True)
    ]
    apart, whole = (np.concatenate([v.ravel() for v in vs]) for vs in (
        [b - a for a, b in pairs], [a for a, _ in pairs],
    ))  # fmt: skip
    same = [np.ravel(a.argmax(-1) == b.argmax(-1)) for a, b in pairs if a.ndim]
    products = sum(isinstance(n.primitive, (ops.MatMul, ops.Conv2D)) for n in graph.nodes)
    sizes = sum(p.weights.size + p.scales.nbytes for p in made), sum(p.weights.size for p in made)
    return Report(
        len(expected),
        float(np.sqrt(np.mean(apart**2) / max(np.mean(whole**2), 1e-300))),
        float(np.abs(apart).max()),
        float(np.mean(np.concatenate(same))) if same else 1.0,
        (sizes[0], 4 * sizes[1]),
        len(made),
        products - len(made),
    )
