"""ONNX's products of matrices, those of quantized ones included; linear models; determinants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import ops
from ...core.abstract import float32, int32
from ...core.errors import OnnxError
from ..operators import (
    Constant,
    Floats,
    Ints,
    Setting,
    Strings,
    register_all,
    register_operator,
    register_writer,
)
from ..reader import Node
from ..tensors import counted, extent, ints
from .elementwise import quantized
from .images import along, centred


@register_operator("", "MatMul", (1, None))
def matmul(x: Any, y: Any) -> Any:
    return ops.matmul(x, y)


def _gemm(a: Any, b: Any, alpha: float, trans_a: int, trans_b: int) -> Any:
    out = ops.matmul(a, b, bool(trans_a), bool(trans_b))
    return out if alpha == 1.0 else ops.cast(ops.mul(out, alpha), out.dtype)


@register_operator("", "Gemm", (1, 6))
def gemm_broadcast(
    a: Any, b: Any, c: Any, *, alpha: float = 1.0, beta: float = 1.0, broadcast: int = 0,
    transA: int = 0, transB: int = 0,
) -> Any:  # fmt: skip
    return gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)


@register_operator("", "Gemm", (7, None))
def gemm(
    a: Any, b: Any, c: Any = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0,
    transB: int = 0,
) -> Any:  # fmt: skip
    out = _gemm(a, b, alpha, transA, transB)
    if c is None or beta == 0.0:
        return out
    return ops.add(out, c if beta == 1.0 else ops.cast(ops.mul(c, beta), out.dtype))


@register_operator("", "Einsum", (12, None))
def einsum(*xs: Any, equation: str) -> Any:
    return ops.einsum(equation.replace(" ", ""), *xs)


@register_operator("", "MatMulInteger", (10, None))
def matmul_integer(
    a: Any, b: Any, a_zero_point: Setting | None = None, b_zero_point: Setting | None = None
) -> Any:
    second = ops.cast(b, int32)
    if b_zero_point is not None:  # one number per column
        second = ops.sub(second, ops.cast(b_zero_point, int32))
    return ops.matmul(centred(a, a_zero_point, int32, -2), second)  # one for each row


@register_operator("", "QLinearMatMul", (10, None))
def qlinear_matmul(
    a: Any,
    a_scale: Setting,
    a_zero_point: Setting,
    b: Any,
    b_scale: Setting,
    b_zero_point: Setting,
    y_scale: Setting,
    y_zero_point: Setting,
) -> Any:
    product = ops.cast(matmul_integer(a, b, a_zero_point, b_zero_point), float32)
    scales = [ops.cast(s, float32) for s in (a_scale, b_scale, y_scale)]
    scaled = ops.mul(product, ops.div(ops.mul(scales[0], scales[1]), scales[2]))
    return quantized(scaled, np.float32(1), y_zero_point, y_zero_point.dtype)


def _scored(x: Any, count: int, intercepts: Floats | None, node: Node) -> Any:
    """x times the coefficients of `count` linear models, and their intercepts."""
    weights = node.learned("coefficients", (count, extent(x, -1)))
    scores = ops.matmul(ops.cast(x, float32), weights, transpose_y=True)
    return scores if not intercepts else ops.add(scores, node.learned("intercepts", (count,)))


_TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "NONE": lambda scores: scores, "LOGISTIC": ops.sigmoid, "SOFTMAX": ops.softmax
}  # fmt: skip


def _transformed(scores: Any, name: str) -> Any:
    if name not in _TRANSFORMS:
        raise OnnxError(f"post_transform {name!r:.50} is not there; {', '.join(_TRANSFORMS)} are")
    return _TRANSFORMS[name](scores)


@register_operator("ai.onnx.ml", "LinearRegressor", (1, None))
def linear_regressor(
    x: Any, *, coefficients: Floats, intercepts: Floats | None = None, targets: int = 1,
    post_transform: str = "NONE", node: Node,
) -> Any:  # fmt: skip
    return _transformed(_scored(x, targets, intercepts, node), post_transform)


@register_operator("ai.onnx.ml", "LinearClassifier", (1, None))
def linear_classifier(
    x: Any, *, coefficients: Floats, intercepts: Floats | None = None, multi_class: int = 0,
    classlabels_ints: Ints | None = None, classlabels_strings: Strings | None = None,
    post_transform: str = "NONE", node: Node,
) -> Any:  # fmt: skip
    """The labels of the largest scores, and the scores; of one score for two classes the first
    class has what is left to 1, as onnxruntime has it."""
    if classlabels_strings or not classlabels_ints:
        raise OnnxError("has labels that are text, which miniml lacks; number the classes")
    count = len(intercepts or classlabels_ints)
    scores = _scored(x, count, intercepts, node)
    out = _transformed(scores, post_transform)
    if count == 1 and len(classlabels_ints) == 2:
        best = ops.cast(ops.greater(scores, np.float32(0)), np.int64)[:, 0]
        out = ops.concat([1.0 - out, out], 1)
    else:
        best = ops.argmax(scores, 1)
    return ops.gather(np.array(classlabels_ints, np.int64), best), out


@register_operator("", "AffineGrid", (20, None))
def affine_grid(theta: Any, size: Constant, *, align_corners: int = 0) -> Any:
    """theta (N, d, d + 1) times the homogeneous points of an image, whose axes run from -1 to 1."""
    extents = ints(size)[2:]
    axes = [_ends(n, align_corners).astype(theta.dtype) for n in extents]
    points = [
        ops.broadcast_to(a.reshape(along(i, len(extents))), extents) for i, a in enumerate(axes)
    ]
    whole = ops.stack([*points[::-1], ops.ones(extents, theta.dtype)], -1)
    flat = ops.reshape(whole, (-1, len(extents) + 1))
    out = ops.matmul(flat, theta, transpose_y=True)
    return ops.reshape(out, (theta.shape[0], *extents, len(extents)))


def _ends(n: int, align_corners: int) -> Any:
    """n equidistant points, the first and last at -1 and 1, or half a step further inside."""
    if align_corners:
        return counted(n) * (2 / max(n - 1, 1)) - 1
    return (2 * counted(n) + 1) / n - 1


register_all((11, None), {"Det": ops.det})


# --- The way back ---------------------------------------------------------------------------------


@register_writer(ops.MatMul)
def write_matmul(emit: Any, node: Any, x: Any, y: Any) -> Any:
    """As Gemm where a matrix is transposed, whose attributes say so, else as MatMul."""
    turned = node.primitive.transpose_x, node.primitive.transpose_y
    ranks = [len(v.abstract.shape) for v in node.inputs]
    if any(turned) and ranks == [2, 2]:
        return emit("Gemm", x, y, transA=int(turned[0]), transB=int(turned[1]))
    sides = [
        emit("Transpose", v, perm=(*range(rank - 2), rank - 1, rank - 2)) if turn else v
        for v, turn, rank in zip((x, y), turned, ranks, strict=True)
    ]
    return emit("MatMul", *sides)


@register_writer(ops.Einsum)
def write_einsum(emit: Any, node: Any, *xs: Any) -> Any:
    return emit("Einsum", *xs, equation=node.primitive.equation)


@register_writer(ops.Det)
def write_det(emit: Any, node: Any, x: Any) -> Any:
    return emit("Det", x)
