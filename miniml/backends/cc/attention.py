"""Attention and its gradients in C, in blocks that never hold all scores."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np

from ...dtype import bool_, float64
from ..kernel import Array, KernelNode
from ..product import Axis, broadcast_steps, merged, steps_of
from ..registry import kernel
from ..signature import ArraySpec
from ..typecodes import ATTENTION, WIDE, with_sums
from .convolve import run_by
from .kernel import NativeKernel
from .product import TILES, VECTORS
from .scalars import literal
from .source import Source
from .text import header

QUERIES = 64  # of a block, at most
KEYS = 120  # of a block: 32 KB of scores in float32
PARTS = 16
SPLIT = 4_000_000  # multiplications and additions from which on threads share the work: 25 us

_HERE = Path(__file__).parent


class Attention(NativeKernel):
    """Attention of float32 or float64, by `attention.c`."""

    strided = True
    text = "attention_forward.c"

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        dtype = node.inputs[0].dtype
        (*lead, t, e), (*_, s, f) = node.inputs[0].shape, node.inputs[2].shape
        lanes, short = 64 // dtype.itemsize, "64" if dtype == float64 else "32"
        blocks = max(-(-t // QUERIES), 1)
        n = -(-(-(-t // blocks)) // lanes) * lanes
        batches = prod(lead)
        keys = max(min(KEYS, s), 1)
        parts = min(PARTS, batches * blocks)
        masked = not node.constant(3, _hides_nothing)
        room = n * max(-(-f // lanes) * lanes, 2 * keys * masked)
        self.scratch = ArraySpec((parts * (n * (e + keys + f) + room),), dtype)
        numbers = {
            "T": t, "S": s, "E": e, "F": f, "BATCHES": batches, "BLOCKS": blocks, "LANES": n,
            "KEYS": keys, "CAUSAL": int(node.attrs["causal"]), "PARTS": parts,
            "SCRATCH": self.scratch.shape[0] // max(parts, 1),
        }  # fmt: skip
        steps = steps_of(node)
        full = (*lead, t, s)
        mask = broadcast_steps(node.inputs[3].shape, full, steps[3])
        words = {}
        for name, own in zip("QKVM", (*steps[:3], mask), strict=True):
            numbers |= {f"{name}_ROW": own[-2], f"{name}_COLUMN": own[-1]}
            words[f"{name}_START"] = start(merged(tuple(lead), [tuple(own[:-2])]))
        real = "double" if short == "64" else "float"
        words |= {
            "SCALE": f"(({real}){float(node.attrs['scale']).hex()})",
            "EXP": f"miniml_exp_float{short}", "LOG": f"miniml_log_float{short}",
            "USES(width)": "KERNEL_HAS(KERNEL_LANES, width)",
            "PADDED(n)": f"(((n) + {lanes - 1}L) / {lanes}L * {lanes}L)",
        }
        if masked:
            of_bools = node.inputs[3].dtype == bool_
            words |= {
                "MASK": "_Bool" if of_bools else real,
                "BIAS(m)": "((m) ? 0 : -INFINITY)" if of_bools else "(m)",
                "BIASED(x, b)": "((b) < 0 ? (b) : (x))" if of_bools else "((x) + (b))",
            }
        words |= {name: f"{number}L" for name, number in numbers.items()}
        defines = "".join(f"#define KERNEL_{name} {value}\n" for name, value in words.items())
        text = defines + run_by(2 * batches * t * s * (e + f) > SPLIT)
        text += "".join((_HERE / name).read_text("utf-8") for name in ("attention.c", self.text))
        shared = VECTORS, TILES.replace("REAL", real), *dict.fromkeys(header("exp") + header("log"))
        self.source = Source(text.replace("REAL", real), shared)

    def workspace(self) -> tuple[ArraySpec, ...]:
        return (self.scratch,)


def start(axes: list[Axis]) -> str:
    """C for where the matrix of `batch` begins, in elements."""
    terms, inner = [], prod(extent for extent, _ in axes)
    for extent, (step,) in axes:
        inner //= max(extent, 1)
        if step:
            terms.append(f"batch / {inner}L % {extent}L * {step}L")
    return f"({' + '.join(terms) or '0'})"


def _hides_nothing(mask: Array) -> bool:
    return mask.dtype == np.bool_ and bool(mask.all())


_NAME = "ScaledDotProductAttention"
kernel(_NAME, "cpu", *with_sums(WIDE, *ATTENTION), provider="cc", total=True)(Attention)
