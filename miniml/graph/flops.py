"""FLOPs: how many floating-point operations the nodes of a graph stand for, by formula."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from ..dtype import is_float
from ..ops.inference.equation import parse
from .ir import Graph, Node

_Formula = Callable[[Node], int]


def flops(graph: Graph) -> Iterator[tuple[Node, int]]:
    """Each node that computes, those of branches and loops too, and its operations in one run.

    A multiply-add counts as 2, any function of one number as 1, and what only moves or makes
    numbers, or has integers alone, as 0. The formulas, where n is the size of the inputs or, if
    nothing is said, of the outputs:

        product of matrices     2 m n k, for each matrix of a batch
        einsum of p operands    p times the product of the extents of all labels
        convolution             2 x size of the output x numbers in one filter, and so its gradients
        pooling                 size of the output x numbers in a window
        reduction               n inputs; log-sum-exp 4 n
        softmax, log-softmax    5 n: maximum, difference, exponential, sum, quotient; and losses of
        layer and batch norm    7 n: mean, difference, square, mean, three for scale and shift
        attention               2 s (E + F) + 5 s for s scores of queries of size E and values of
                                size F; 2.5 times as many for its gradients
        factors of a matrix     the leading terms, as Golub and Van Loan (2013) count them
        everything else         n, primitives of your own as well

    A scan counts as often as it has steps; of a branch the larger side counts, of a loop whose
    number of rounds is not known, one round.
    """
    for node in graph.nodes:
        yield from _of_node(node)


def _of_node(node: Node) -> Iterator[tuple[Node, int]]:
    inner = [list(flops(graph)) for _, graph in node.subgraphs()]
    if not inner:
        floats = any(is_float(v.abstract.dtype) for v in (*node.inputs, *node.outputs))
        yield node, floats and _FORMULAS.get(node.primitive.name, _per_output)(node)
    elif node.primitive.name == "Cond":
        yield from max(inner, key=lambda found: sum(count for _, count in found))
    else:
        times = node.attrs.get("length", 1)
        yield from ((n, times * count) for found in inner for n, count in found)


def _per_output(node: Node, each: int = 1) -> int:
    return each * sum(v.abstract.size for v in node.outputs)


def _per_input(each: int) -> _Formula:
    return lambda node: each * (node.inputs[0].abstract.size if node.inputs else 0)


def _product(node: Node) -> int:
    shape: Any = node.inputs[0].abstract.shape
    rows = node.attrs["transpose_x"] and len(shape) > 1
    return _per_output(node, 2 * shape[-2 if rows else -1])


def _einsum(node: Node) -> int:
    shapes = tuple(v.abstract.shape for v in node.inputs)
    return len(shapes) * prod(parse(node.attrs["equation"], shapes).extents.values())


def _convolution(of: Callable[[Node], tuple[Any, Any]]) -> _Formula:
    """of: gives the images that the convolution gives, and its filters."""

    def formula(node: Node) -> int:
        images, filters = of(node)
        return int(2 * images.abstract.size * prod(filters.abstract.shape[1:]))

    return formula


def _pooling(node: Node) -> int:
    return node.outputs[0].abstract.size * int(prod(node.attrs["kernel_size"]))


def _attention(times: float) -> _Formula:
    def formula(node: Node) -> int:
        q, k, v = (var.abstract.shape for var in node.inputs[:3])
        scores = prod(q[:-1]) * k[-2]
        return int(times * scores * (2 * (q[-1] + v[-1]) + 5))

    return formula


def _factors(count: Callable[[int, int, int], float]) -> _Formula:
    """count: of a matrix (m, n) and k columns on the right side, m >= n."""

    def formula(node: Node) -> int:
        *batch, m, n = node.inputs[0].abstract.shape
        columns = node.inputs[-1].abstract.shape[-1]
        return int(prod(batch) * count(max(m, n), min(m, n), columns))

    return formula


def _singular(m: int, n: int, _: int) -> float:
    return 6 * m * n**2 + 20 * n**3


_MOVES = """Reshape Transpose ExpandDims Squeeze BroadcastTo Flip Concat Split Slice SliceGrad Pad
    Gather Index TakeAlongAxis Scatter MaxPool2DGather Convert Cast StopGradient Barrier Assign Full
    Arange Eye Linspace OneHot CheckedLabels"""
_REDUCES = "Sum SumTo Mean Max Min Prod All Any ArgMax ArgMin"

_FORMULAS: dict[str, _Formula] = {
    **dict.fromkeys(_MOVES.split(), _per_input(0)),
    **dict.fromkeys(_REDUCES.split(), _per_input(1)),
    "LogSumExp": _per_input(4),
    **dict.fromkeys(("Softmax", "LogSoftmax", "CrossEntropy"), _per_input(5)),
    **dict.fromkeys(("LayerNorm", "BatchNorm"), _per_input(7)),
    "MatMul": _product,
    "Einsum": _einsum,
    "Conv2D": _convolution(lambda node: (node.outputs[0], node.inputs[1])),
    "Conv2DInputGrad": _convolution(lambda node: (node.inputs[0], node.inputs[1])),
    "Conv2DWeightGrad": _convolution(lambda node: (node.inputs[1], node.outputs[0])),
    "ScaledDotProductAttention": _attention(1.0),
    "ScaledDotProductAttentionGrad": _attention(2.5),
    "ScaledDotProductAttentionMaskGrad": _attention(1.0),
    "Cholesky": _factors(lambda m, n, k: n**3 / 3),
    "Solve": _factors(lambda m, n, k: 2 * n**3 / 3 + 2 * n**2 * k),
    "TriangularSolve": _factors(lambda m, n, k: n**2 * k),
    **dict.fromkeys(("Det", "SlogDet"), _factors(lambda m, n, k: 2 * n**3 / 3)),
    "QR": _factors(lambda m, n, k: 4 * m * n**2 - 4 * n**3 / 3),
    "SVD": _factors(_singular),
    "Pinv": _factors(lambda m, n, k: _singular(m, n, k) + 2 * m * n**2),
    "Eigh": _factors(lambda m, n, k: 9 * n**3),
    "MaxPool2D": _pooling,
    "AvgPool2D": _pooling,
}
