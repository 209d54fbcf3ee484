"""How the outputs of a convolution are cut into tiles of registers: over images, over pixels of a
plane, or over channels in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, prod
from typing import NamedTuple

from ..signature import ArraySpec
from .planes import BATCH_INNERMOST, Planes, blocks, fills_lanes, planes
from .vectors import Vectors
from .windows import Windows

BLOCK = 16  # channels
CACHED = 1 << 16  # numbers of filters, or of sums: a quarter of a megabyte, in the second cache
PACKED = 1 << 14  # numbers of filters that are packed at a time, where there are more


class Tiling(NamedTuple):
    """x: the images in the order in which tiles read them. rows, vectors: of outputs and of
    neighbours or, in blocks, of pixels and of outputs. outputs: of a tile. padded: outputs with
    those that fill the last block. tiles: how many, about. slack: elements that tiles read behind
    the images. texts: the files that say what tiles do.
    """

    x: Planes
    vectors: int
    outputs: int
    padded: int
    tiles: int
    slack: int
    texts: tuple[str, ...]
    numbers: dict[str, int]


def tile(rows: int, columns: int, registers: int, exact: bool = False) -> tuple[int, int]:
    """Rows and columns of the tile of registers that covers a result in the fewest cycles.

    A step of a tile reads a column of it, one by one, and a row of vectors; it takes two operations
    or two reads in a cycle, and no less than the 4 cycles of latency of an operation. exact: the
    columns are a multiple of the tile's, and aligned; else each vector lies in two lines of the
    cache, which are two reads.
    """
    widths = (n for n in range(1, min(columns, registers) + 1) if not (exact and columns % n))
    return _cheapest(rows, columns, registers, widths, reads=1 if exact else 2)


def _cheapest(
    rows: int, columns: int, registers: int, widths: Iterator[int], reads: int = 1
) -> tuple[int, int]:
    """The same for these widths; reads: of a vector."""

    def cost(shape: tuple[int, int]) -> tuple[int, int]:
        m, n = shape
        steps = ceil(rows / m) * ceil(columns / n)
        return steps * max(m * n, m + reads * n, 8), steps * (m + n)

    heights = range(1, min(rows, registers) + 1)
    return min(((m, n) for n in widths for m in heights if m * n + n < registers), key=cost)


def tiling(
    x: ArraySpec,
    out: ArraySpec,
    windows: Windows,
    outputs: int,
    channels: int,
    taps: int,
    v: Vectors,
) -> Tiling:
    """That of `outputs` and `channels` of a group: over channels if they come in blocks, over
    images if the batch fills vectors, else over pixels."""
    if out.format not in (None, BATCH_INNERMOST):
        return _over_channels(x, windows, outputs, channels, taps, v)
    if fills_lanes(x, windows, v.width):
        return _over_images(x, out, windows, outputs, v)
    return _over_pixels(x, windows, outputs, v)


def _over_images(
    x: ArraySpec, out: ArraySpec, windows: Windows, outputs: int, v: Vectors
) -> Tiling:
    images, along = planes(x, windows, v.width, batch=True), out.format == BATCH_INNERMOST
    rows, vectors = tile(outputs, images.lanes // v.width, v.registers, exact=True)
    block, pixels = vectors * v.width, 4 if along else v.width
    count = prod(windows.output) * images.lanes // block // pixels
    plane = prod(windows.output) * (x.shape[0] if along else 1)
    numbers = {"BLOCK": block, "PIXELS": pixels, "ALONG": int(along), "PLANE": plane, "IN": 1}
    texts = "correlate_tile.c", "correlate_batch.c"
    return Tiling(images, vectors, rows, outputs, count, 0, texts, numbers)


def _over_pixels(x: ArraySpec, windows: Windows, outputs: int, v: Vectors) -> Tiling:
    images = planes(x, windows, v.width, batch=False)
    run = max((p.size[0] - 1) * images.pitch + p.size[1] for p in windows.phases)
    rows, vectors = tile(outputs, ceil(run / v.width), v.registers)
    block = vectors * v.width
    numbers = {"BLOCK": block, "PLANE": prod(windows.output), "IN": 1}
    count = x.shape[0] * run // block
    texts = "correlate_tile.c", "correlate_image.c"
    return Tiling(images, vectors, rows, outputs, count, block, texts, numbers)


def _over_channels(
    x: ArraySpec, windows: Windows, outputs: int, channels: int, taps: int, v: Vectors
) -> Tiling:
    """A tile is a few pixels of a row by whole blocks of outputs, or by a part of one."""
    images, columns = blocks(x, windows), min(p.size[1] for p in windows.phases)
    pixels, vectors, padded = tile_of_blocks(columns, outputs, v)
    width = vectors * v.width
    tiles = x.shape[0] * sum(p.size[0] * ceil(p.size[1] / pixels) for p in windows.phases)
    kept, piece = tiles * pixels * width, taps * width * BLOCK
    streamed = channels * taps * width > CACHED >= kept
    chunk = max(1, PACKED // piece) * BLOCK if streamed else channels
    numbers = {
        "PIXELS": pixels, "IN": BLOCK if x.format else 1, "OUT": min(width, BLOCK),
        "HEIGHT": windows.output[0], "PLANE": BLOCK, "CHUNK": chunk, "KEPT": kept * streamed,
    }  # fmt: skip
    if streamed:
        numbers |= {"SLICES": 1, "CUTS": padded // width}
    count, texts = x.shape[0] * sum(p.size[0] for p in windows.phases), ("correlate_block.c",)
    return Tiling(images, vectors, width, padded, count, 0, texts, numbers)


def tile_of_blocks(rows: int, outputs: int, v: Vectors) -> tuple[int, int, int]:
    """Rows, and vectors of outputs, of the tile that covers them in the fewest cycles; and the
    outputs with those that fill the last block."""
    padded = -(-outputs // BLOCK) * BLOCK
    every = range(1, padded // v.width + 1)
    widths = (n for n in every if padded % (n * v.width) == 0 and _blocks(n * v.width))
    return (*_cheapest(rows, padded // v.width, v.registers, widths), padded)


def _blocks(channels: int) -> bool:
    return channels % BLOCK == 0 or BLOCK % channels == 0
