"""Products of bytes in C: those of floats with four bytes in the place of each number.

A quad is an int32 that holds four bytes, the first in the lowest. In products and convolutions of
quads the tiles, blocks and threads are those of float32; a step of a tile adds four products, by
one instruction where the processor has it (text/quads.c). Convolutions make quads of bytes on the
way into their workspace, four channels in each. NumPy's kernels are the definition; they run where
the members of a fused node are looked at one by one.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ...core.abstract import ArraySpec, DType, int8
from ..kernel import Array, KernelNode
from ..registry import kernel
from .convolution import NOTHING, convolution
from .native import NativeKernel
from .product import QUADS, VECTORS, ProductKernel
from .scalars import Vectors, register_bytes
from .units import Source, defined, template

_SPREAD, _ALONG = template("quads.c"), template("text/bytes.c")
FLIP = 0x80808080  # exchanges signed bytes and unsigned ones that are 128 larger


def flipped(dtype: DType, signed: bool) -> int:
    """The bits that change where bytes of this dtype become signed or unsigned ones."""
    return FLIP * ((dtype == int8) != signed)


def quads_of(x: Array, axis: int, signed: bool) -> Array:
    """An array of bytes as quads of four neighbours along an axis, filled up with zeros."""
    rows = np.moveaxis(x, axis, -1)
    flip = np.uint8(flipped(x.dtype, signed) & 255)
    pad = [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[axis] % 4)]
    words = np.ascontiguousarray(np.pad(rows.view(np.uint8) ^ flip, pad)).view("<u4")
    return np.ascontiguousarray(np.moveaxis(words.astype(np.uint32).view(np.int32), -1, axis))


def bytes_of(quads: Array, axis: int, signed: bool) -> Array:
    """The bytes of quads along an axis, with the zeros that fill the last one, as int64."""
    words = np.ascontiguousarray(np.moveaxis(quads, axis, -1)).astype("<i4")
    return np.moveaxis(words.view(np.int8 if signed else np.uint8).astype(np.int64), -1, axis)


# --- Definitions ----------------------------------------------------------------------------------


@kernel("ByteQuads", "cpu", "b->i", "B->i")
def byte_quads(x: Array, *, axis: int, signed: bool, out: Array) -> None:
    """Quads by NumPy."""
    out[...] = quads_of(x, axis % x.ndim, signed)


@kernel("ByteMatMul", "cpu", "ii->i")
def byte_product(x: Array, y: Array, *, transpose_x: bool, transpose_y: bool, out: Array) -> None:
    """Products of matrices of quads by NumPy, modulo 2^32."""
    left = bytes_of(x, -2 if transpose_x else -1, signed=False)
    right = bytes_of(y, -1 if transpose_y else -2, signed=True)
    left = left.swapaxes(-1, -2) if transpose_x else left
    out[...] = left @ (right.swapaxes(-1, -2) if transpose_y else right)


Pair = tuple[int, int]


@kernel("ByteConv2D", "cpu", "bi->i", "Bi->i")
def byte_convolution(
    x: Array, w: Array, *, stride: Pair, padding: tuple[Pair, Pair], dilation: Pair,
    groups: int, zero: int, out: Array,
) -> None:  # fmt: skip
    """Convolutions of bytes by quads of filters by NumPy, modulo 2^32: the sum over the taps."""
    images = x.astype(np.int64) + (128 if x.dtype == np.int8 else 0)
    images = np.pad(images, ((0, 0), (0, 0), *padding), constant_values=zero)
    images = images.reshape(len(x), groups, -1, *images.shape[2:])
    taps = bytes_of(w, 1, signed=True)[:, : images.shape[2]]
    taps = taps.reshape(groups, -1, *taps.shape[1:])
    sums = np.zeros((len(x), groups, taps.shape[1], *out.shape[2:]), np.int64)
    for at in np.ndindex(*taps.shape[3:]):
        begins = [i * step for i, step in zip(at, dilation, strict=True)]
        ends = zip(begins, out.shape[2:], stride, strict=True)
        seen: Any = (..., *(slice(b, b + (n - 1) * s + 1, s) for b, n, s in ends))
        sums += np.einsum("goc,ngcyx->ngoyx", taps[:, :, :, at[0], at[1]], images[seen])
    out[...] = sums.reshape(out.shape)


# --- Quads along one axis -------------------------------------------------------------------------


@kernel("ByteQuads", "cpu", "b->i", "B->i", provider="cc", total=True)
class Quads(NativeKernel):
    """Quads of four neighbours along an axis."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        (x,), axis = node.inputs, node.attrs["axis"] % len(node.inputs[0].shape)
        k = x.shape[axis]
        inner, flip = prod(x.shape[axis + 1 :]), flipped(x.dtype, node.attrs["signed"])
        names = {
            "OUTER": f"{prod(x.shape[:axis])}L", "K": f"{k}L", "INNER": f"{inner}L",
            "FULL": f"{k // 4}L", "REST": k % 4, "FLIP": f"{flip}u",
        }  # fmt: skip
        self.source = defined(names, _ALONG)


kernel("ByteMatMul", "cpu", "ii->i", provider="cc", total=True)(ProductKernel)


# --- Convolution ----------------------------------------------------------------------------------


@kernel("ByteConv2D", "cpu", "bi->i", "Bi->i", provider="cc", total=True)
class ByteConvolution(NativeKernel):
    """A convolution of bytes by quads of weights. It stores the sums, since what follows computes
    bytes, and a vector of these takes more neighbours than a tile has in one row."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        (x, w), attrs, self.scratch = node.inputs, node.attrs, 0
        if 0 in (*x.shape, *w.shape):
            self.source = Source(NOTHING % node.outputs[0].nbytes)
            return
        v, groups = Vectors("quad", register_bytes(node.masked)), attrs["groups"]
        images = ArraySpec((x.shape[0], groups * w.shape[1], *x.shape[2:]), w.dtype)
        known = f", {x.shape[1] // groups}L, {flipped(x.dtype, False)}u, {attrs['zero']}u"
        given = replace(node, inputs=(images, w), attrs={**attrs, "quads": known})
        text, self.scratch, room, packed = convolution(given, v)
        self.keep(1, 4 * packed)
        plus = f"#define quad_plus(sum, w, x) miniml_dot{v.size}(sum, x, (quad_vector){{0}} + (w))"
        shared = VECTORS, QUADS, f"{plus}\n", v.prelude, v.text("planes.c"), _SPREAD
        self.source = Source(text.replace("REAL", v.scalar), shared, room=4 * room)

    def workspace(self) -> tuple[ArraySpec, ...]:
        return (ArraySpec((self.scratch,), self.node.outputs[0].dtype),) if self.scratch else ()
