"""ONNX's products of matrices, those of quantized ones included; determinants."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...core.dtype import float32, int32
from ..operators import Constant, Setting, register_all, register_operator, register_writer
from ..tensors import counted, ints
from .elementwise import quantized
from .images import along


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


def centred(x: Any, zero: Any) -> Any:
    """x - zero in int32; zero is one number, or one for each row."""
    wide = ops.cast(x, int32)
    if zero is None:
        return wide
    shift = ops.cast(zero, int32)
    by_row = len(shift.shape) == 1 < len(x.shape) and shift.shape[0] > 1
    return ops.sub(wide, ops.expand_dims(shift, -1) if by_row else shift)


@register_operator("", "MatMulInteger", (10, None))
def matmul_integer(
    a: Any, b: Any, a_zero_point: Setting | None = None, b_zero_point: Setting | None = None
) -> Any:
    second = ops.cast(b, int32)
    if b_zero_point is not None:  # one number per column
        second = ops.sub(second, ops.cast(b_zero_point, int32))
    return ops.matmul(centred(a, a_zero_point), second)


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
