"""The same elements in another shape or order."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ... import ops
from ...errors import OnnxError
from ..known import ints
from ..operators import Constant, Ints, register_operator


@register_operator("", "Identity", (1, None))
def identity(x: Any) -> Any:
    return x


@register_operator("", "Shape", (1, None))
def shape(x: Any, *, start: int = 0, end: int | None = None) -> Any:
    return np.array(tuple(x.shape)[start:end], np.int64)


@register_operator("", "Size", (1, None))
def size(x: Any) -> Any:
    return np.array(prod(x.shape), np.int64)


@register_operator("", "Reshape", (5, None))
def reshape(x: Any, shape: Constant, *, allowzero: int = 0) -> Any:
    target = ints(shape)
    if not allowzero:
        if 0 in target[len(x.shape) :]:
            raise OnnxError(f"shape {target} copies an extent that {tuple(x.shape)} lacks")
        target = tuple(n or x.shape[i] for i, n in enumerate(target))
    return ops.reshape(x, target)


@register_operator("", "Flatten", (1, None))
def flatten(x: Any, *, axis: int = 1) -> Any:
    split = axis if axis >= 0 else axis + len(x.shape)
    return ops.reshape(x, (prod(x.shape[:split]), prod(x.shape[split:])))


@register_operator("", "Transpose", (1, None))
def transpose(x: Any, *, perm: Ints | None = None) -> Any:
    return ops.transpose(x, perm)


@register_operator("", "Squeeze", (1, 12))
def squeeze_axes(x: Any, *, axes: Ints | None = None) -> Any:
    return ops.squeeze(x, axes)


@register_operator("", "Squeeze", (13, None))
def squeeze(x: Any, axes: Constant | None = None) -> Any:
    return ops.squeeze(x, None if axes is None else ints(axes))


@register_operator("", "Unsqueeze", (1, 12))
def unsqueeze_axes(x: Any, *, axes: Ints) -> Any:
    return ops.expand_dims(x, axes)


@register_operator("", "Unsqueeze", (13, None))
def unsqueeze(x: Any, axes: Constant) -> Any:
    return ops.expand_dims(x, ints(axes))


@register_operator("", "Expand", (8, None))
def expand(x: Any, shape: Constant) -> Any:
    return ops.broadcast_to(x, np.broadcast_shapes(tuple(x.shape), ints(shape)))


@register_operator("", "Tile", (6, None))
def tile(x: Any, repeats: Constant) -> Any:
    return ops.tile(x, ints(repeats))


def _blocks(x: Any, size: int) -> tuple[int, int, int, int]:
    """(N, C, H, W) of an image; OnnxError unless it is one, and blocks have a size."""
    if len(x.shape) != 4 or size < 1:
        raise OnnxError(f"got shape {tuple(x.shape)} and blocksize {size}; expected (N, C, H, W)")
    n, c, h, w = x.shape
    return n, c, h, w


@register_operator("", "DepthToSpace", (1, None))
def depth_to_space(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    n, c, h, w = _blocks(x, blocksize)
    b, depth = blocksize, c // blocksize**2
    if mode == "DCR":
        apart = ops.transpose(ops.reshape(x, (n, b, b, depth, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        apart = ops.transpose(ops.reshape(x, (n, depth, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return ops.reshape(apart, (n, depth, h * b, w * b))


@register_operator("", "SpaceToDepth", (1, None))
def space_to_depth(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    n, c, h, w = _blocks(x, blocksize)
    b = blocksize
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    apart = ops.transpose(ops.reshape(x, (n, c, h // b, b, w // b, b)), order)
    return ops.reshape(apart, (n, c * b * b, h // b, w // b))
