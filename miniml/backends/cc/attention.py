"""Attention and its gradients in C, in blocks that never hold all scores."""

from __future__ import annotations

from math import ceil, prod
from typing import ClassVar

import numpy as np

from ...core.dtype import bool_, float64
from ..kernel import Array, KernelNode
from ..product import broadcast_steps, merged, steps_of
from ..registry import kernel
from ..signature import ATTENTION, ATTENTION_GRAD, ATTENTION_MASK_GRAD, WIDE, ArraySpec, with_sums
from .convolution import LINE
from .native import NativeKernel
from .product import TILES, VECTORS, offset
from .units import Source, header, run_by, template

QUERIES = 64  # of a block, at most: 4 vectors of 512 bits, as wide as a tile
KEYS = 96  # of a block, at most: 24 KB of scores in float32
TALLEST = 6  # rows of a tile
SPLIT = 4_000_000  # multiplications and additions from which on threads share the work: 25 us
PARTS = 16  # that threads may compute, each with scratch memory of its own
SUMS = 8  # parts that may have dk and dv of their own, of the size of k and v of one matrix

_SHARED = dict.fromkeys((*header("exp"), *header("log"), *header("philox")))


class Sizes:
    """The sizes of a node's arrays: T queries, S keys, of E and F numbers, in so many batches."""

    def __init__(self, node: KernelNode):
        q, _, v = (x.shape for x in node.inputs[:3])
        self.dtype = node.inputs[0].dtype
        self.lead, (self.t, self.e), (self.s, self.f) = q[:-2], q[-2:], v[-2:]
        self.batches = prod(self.lead)
        self.blocks = max(-(-self.t // QUERIES), 1)
        self.lanes = self.padded(max(-(-self.t // self.blocks), 1))
        self.keys = max(min(KEYS, self.s), 1)
        self.masked = not node.constant(3, _hides_nothing)
        self.drops = bool(node.attrs["dropout"])
        self.causal = bool(node.attrs["causal"])

    def padded(self, count: int) -> int:
        """A number of elements rounded up to a multiple of those in a cache line."""
        lanes = LINE // self.dtype.itemsize
        return -(-count // lanes) * lanes

    def room(self, depth: int) -> int:
        """The scratch elements in which a block transposes its mask and draws, or its results of
        so many numbers."""
        transposed = 2 * self.keys if self.masked or self.drops else 0
        return self.lanes * max(self.padded(depth), transposed)

    @property
    def numbers(self) -> dict[str, int]:
        names = ("t", "s", "e", "f", "batches", "blocks", "lanes", "keys")
        heights = self.heights
        own = {"HEIGHTS": sum(1 << rows for rows in heights), "TALLEST": max(heights)}
        return {name.upper(): getattr(self, name) for name in names} | own

    @property
    def heights(self) -> set[int]:
        """The rows of the tiles of which products have E, F, or as many rows as a block of queries
        takes keys at a time."""
        last = ((block + 1) * self.t // self.blocks for block in range(self.blocks))
        seen = {min(end, self.s) for end in last} if self.causal else {self.s}
        rows = {self.e, self.f, *(end % self.keys for end in seen)}
        rows |= {self.keys} if max(seen) >= self.keys else set()
        tiles = {(count, -(-count // TALLEST)) for count in rows if count}
        return {end // n for count, n in tiles for end in (count, count + n - 1)} or {1}


class Attending(NativeKernel):
    """A kernel of attention of float32 or float64; text: the file that goes with `attention.c`."""

    strided = True
    text: ClassVar[str]

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        sizes = Sizes(node)
        numbers = sizes.numbers | self.divided(sizes, node)
        self.scratch = ArraySpec((numbers["PARTS"] * numbers["SCRATCH"],), sizes.dtype)
        self.own = (np.array(node.attrs["skip"], np.uint64),)
        real = "double" if sizes.dtype == float64 else "float"
        words = {name: f"{number}L" for name, number in numbers.items()}
        words |= _words(node, sizes, real) | _steps(node, sizes)
        defines = "".join(f"#define KERNEL_{name} {word}\n" for name, word in words.items())
        work = 2 * sizes.batches * sizes.t * sizes.s * (sizes.e + sizes.f)
        texts = defines, run_by(work > SPLIT), template("attention.c"), template(self.text)
        shared = VECTORS, TILES.replace("REAL", real), *_SHARED
        self.source = Source("".join(texts).replace("REAL", real), shared)

    def divided(self, sizes: Sizes, node: KernelNode) -> dict[str, int]:
        """The number of parts that threads may compute, the scratch memory of each, and the number
        of runs of blocks into which a batch is split."""
        raise NotImplementedError

    def workspace(self) -> tuple[ArraySpec, ...]:
        return (self.scratch,)


class Attention(Attending):
    """softmax(q k^T scale + mask) v, and the logarithms of the sums; a unit of work is a block."""

    text = "attention_forward.c"

    def divided(self, sizes: Sizes, node: KernelNode) -> dict[str, int]:
        scratch = sizes.lanes * (sizes.e + sizes.keys + sizes.f) + sizes.room(sizes.f)
        return {"PARTS": min(PARTS, sizes.batches * sizes.blocks), "SCRATCH": scratch}


class AttentionGrad(Attending):
    """dq, dk and dv; parts that share a batch have sums of dk and dv of their own."""

    text = "attention_grad.c"

    def divided(self, sizes: Sizes, node: KernelNode) -> dict[str, int]:
        splits = max(min(SUMS // max(sizes.batches, 1), sizes.blocks), 1)
        e, f = sizes.padded(sizes.e), sizes.padded(sizes.f)
        lines = 2 * sizes.e + e + sizes.f + f + 2 * sizes.keys
        scratch = sizes.s * (e + f) + sizes.lanes * lines + sizes.room(sizes.e)
        return {"PARTS": min(SUMS, sizes.batches * splits), "SPLITS": splits, "SCRATCH": scratch}


class AttentionMaskGrad(Attending):
    """dmask; parts have other rows of it, or other matrices along the first axis."""

    text = "attention_mask_grad.c"

    def divided(self, sizes: Sizes, node: KernelNode) -> dict[str, int]:
        (out,) = node.outputs
        *steps, row, _ = broadcast_steps(out.shape, (*sizes.lead, sizes.t, sizes.s))
        groups = sizes.lead[0] if steps and steps[0] else 1
        splits = sizes.blocks if row else 1
        scratch = sizes.lanes * (sizes.e + sizes.f + 2 * sizes.keys) + sizes.room(sizes.keys)
        return {
            "PARTS": min(PARTS, groups * splits), "SPLITS": splits, "SCRATCH": scratch,
            "GROUPS": groups, "SIZE": prod(out.shape),
        }  # fmt: skip


def _words(node: KernelNode, sizes: Sizes, real: str) -> dict[str, str]:
    """The macros of the types, the scale and the mask."""
    bits = str(8 * sizes.dtype.itemsize)
    words = {
        "CAUSAL": str(int(sizes.causal)),
        "SCALE": f"(({real}){float(node.attrs['scale']).hex()})",
        "EXP": f"miniml_exp_float{bits}",
        "WEIGHT": f"miniml_weight_float{bits}",
        "LOG": f"miniml_log_float{bits}",
        "PADDED(n)": f"(((n) * {sizes.dtype.itemsize}L + {LINE - 1}L) / {LINE}L"
        f" * {LINE // sizes.dtype.itemsize}L)",
    }
    if sizes.drops:
        kept = 1.0 - node.attrs["dropout"]
        words |= {
            "DROPS": "1",
            "SKIP": str(len(node.inputs) + len(node.outputs) + 1),  # after the scratch memory
            "THRESHOLD": f"{ceil(kept * 2.0**24)}u",
            "KEPT": f"(({real}){(1.0 / kept if kept else 0.0).hex()})",
        }
    if not sizes.masked:
        return words
    if node.inputs[3].dtype == bool_:
        return words | {"MASK": "uint8_t", "MASKED(x, m)": "((m) != 0 ? (x) : -INFINITY)"}
    return words | {"MASK": real, "MASKED(x, m)": "((x) + (m))"}


def _steps(node: KernelNode, sizes: Sizes) -> dict[str, str]:
    """The macros of the offset of `batch`'s matrices in each input, and of their strides."""
    count = len(sizes.lead)
    full = (*sizes.lead, sizes.t, sizes.s)
    steps = dict(zip(("Q", "K", "V", "M", "STATE", "LSE", "DELTA", "DOUT"), steps_of(node)))
    words = {"STATE_STEP": f"{steps.pop('STATE')[0]}L"}
    steps["M"] = broadcast_steps(node.inputs[3].shape, full, steps["M"])
    steps["OUT"] = broadcast_steps(node.inputs[3].shape, full)
    for name, own in steps.items():
        words[f"{name}_START"] = offset(merged(sizes.lead, [own[:count]]), 0)
        words |= {f"{name}_{a}": f"{s}L" for a, s in zip(("ROW", "COLUMN"), own[count:])}
    return words


def _hides_nothing(mask: Array) -> bool:
    return mask.dtype == bool_ and bool(mask.all())


_NAME = "ScaledDotProductAttention"
for _name, _class, _patterns in (
    (_NAME, Attention, ATTENTION),
    (f"{_NAME}Grad", AttentionGrad, ATTENTION_GRAD),
    (f"{_NAME}MaskGrad", AttentionMaskGrad, ATTENTION_MASK_GRAD),
):
    kernel(_name, "cpu", *with_sums(WIDE, *_patterns), provider="cc", total=True)(_class)
