"""Cases that are timed, for miniml and for every peer: names, shapes, and the least traffic."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

Array = np.ndarray
ROTATED = 256 << 20  # bytes of inputs that calls take turns with, more than any L2 holds


@dataclass(frozen=True)
class Case:
    """op: what each library computes. shapes: of its inputs. moved: bytes that must be read and
    written at least. flops: of products."""

    name: str
    op: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = "float32"
    moved: int = 0
    flops: int = 0

    def sets(self) -> int:
        """The number of sets of inputs that calls take turns with."""
        once = sum(map(prod, self.shapes)) * np.dtype(self.dtype).itemsize
        return int(min(max(-(-ROTATED // max(once, 1)), 2), 16))

    def arrays(self, seed: int) -> list[Array]:
        """A set of inputs: random numbers, other than zero, of which none is special."""
        rng = np.random.default_rng(seed)
        return [
            (rng.random(shape, np.float32) * 2 - 1).astype(self.dtype, copy=False)
            for shape in self.shapes
        ]


def elementwise(name: str, op: str, n: int, inputs: int) -> Case:
    """`inputs` arrays of n float32 in, one out."""
    return Case(name, op, ((n,),) * inputs, moved=4 * n * (inputs + 1))


def cases(device: str) -> tuple[Case, ...]:
    """256 MB an array on a GPU; in the simulator as little as runs through every line."""
    small = device == "cuda-sim"
    n = 512 if small else 1 << 26
    rows, columns = (8, 64) if small else (1 << 16, 1 << 10)
    side = 32 if small else 4096
    images = (2, 3, 8, 8) if small else (64, 64, 56, 56)
    filters = (4, 3, 3, 3) if small else (64, 64, 3, 3)
    matrix, size = (rows, columns), 4 * rows * columns
    pixels = prod((images[0], *images[2:]))
    return (
        elementwise("add", "add", n, 2),
        elementwise("chain of 4, one kernel", "fused", n, 1),
        elementwise("chain of 4, by operations", "chain", n, 1),
        Case("softmax", "softmax", (matrix,), moved=2 * size),
        Case("layer norm", "layer_norm", (matrix, (columns,), (columns,)), moved=2 * size),
        Case("sum of rows", "sum_rows", (matrix,), moved=size),
        Case("sum of columns", "sum_columns", (matrix,), moved=size),
        Case("sum of all", "sum_all", (matrix,), moved=size),
        Case("transpose", "transpose", (matrix,), moved=2 * size),
        Case("matmul float32", "matmul", ((side, side),) * 2, flops=2 * side**3),
        Case("matmul float16", "matmul", ((side, side),) * 2, "float16", flops=2 * side**3),
        Case(
            "conv 3x3", "conv", (images, filters), flops=2 * 9 * pixels * images[1] * filters[0]
        ),
    )  # fmt: skip
