"""Convolution and its gradients in C, by register tiling of outputs and neighbours in memory.

Neighbours are images where the batch fills vectors, else pixels of a plane, or channels in blocks.
Filters are packed once per call, in the order in which tiles read them. First the kernels and their
texts; then the tiling of the outputs, the layout of the input and the windows that taps read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, product
from math import ceil, prod
from typing import Any, NamedTuple

from ...core.abstract import PLAIN, ArraySpec, parse
from ..kernel import Formats, KernelNode
from ..product import Product
from ..registry import Spec, image_attr, image_formats, kernel
from .native import NativeKernel
from .product import product_text
from .scalars import SCALARS, Vectors, vectors
from .units import LINE, NUMBERS, Source, enumerators, run_by

BATCH_INNERMOST, BLOCKS = "CHWN", "NC16HW"  # memory formats
BLOCK = 16  # channels
PARTS = 16  # enough to keep a few threads equally busy
SPLIT = 4_000_000  # multiplications, about 50 us, from which on a kernel is split over threads
CACHED = 1 << 16  # elements read again and again: a quarter of a megabyte, or half of one
ALONG = 12  # tiles that read the same slopes one after the other
MOST_TILES = 64  # of partial sums, on the stack: 2 KB each for vectors of 64 bytes


# --- Kernels --------------------------------------------------------------------------------------


class Convolution(NativeKernel):
    """A convolution or one of its gradients; the workspace is one array."""

    def select_format(self, node: KernelNode) -> tuple[Formats, Formats]:
        """The format that the target ranks first, else the one that is quickest."""
        format = (*node.target.formats[:1], _quickest(node))[0]
        if format == BLOCKS and in_blocks(node):
            few = node.inputs[0].shape[1] < BLOCK and node.inputs[0].format != BLOCKS
            few = few and not by_channel(node)
            return image_formats(node.name, BLOCKS, PLAIN if few else BLOCKS)
        return image_formats(node.name, BATCH_INNERMOST if format == BATCH_INNERMOST else PLAIN)

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        result, self.scratch = node.outputs[0], 0
        if 0 in (*node.inputs[0].shape, *node.inputs[1].shape):
            self.source = Source(NOTHING % result.nbytes)
            return
        v = vectors(result.dtype, node.masked)
        made = pointwise(node)
        if made is None:
            written = TEXTS[node.name](node, v)
            self.source, self.scratch = source(written, v)
            if node.name != "Conv2DWeightGrad":
                self.keep(1, written[-1] * result.dtype.itemsize)
        else:
            self.source = product_text(made, result.dtype, operands=(1, 0))

    def workspace(self) -> tuple[ArraySpec, ...]:
        return (ArraySpec((self.scratch,), self.node.outputs[0].dtype),) if self.scratch else ()


def pointwise(node: KernelNode) -> Product | None:
    """A convolution of row-major images by single pixels, or its gradient in these, as a product of
    the filters and each image, whose lines are its channels; None for any other."""
    (x, w), (out,), attrs = node.inputs, node.outputs, node.attrs
    formats = {spec.format for spec in (x, w, out)}
    plain = formats == {None} and attrs["stride"] == (1, 1) and attrs["groups"] == 1
    if node.name == "Conv2DWeightGrad" or not plain or x.shape[2:] != out.shape[2:]:
        return None
    if prod(w.shape[2:]) > 1 or x.shape[2] * x.shape[3] < LINE:
        return None
    m, k, n = out.shape[1], x.shape[1], prod(x.shape[2:])
    by = (k, 1) if node.name == "Conv2D" else (1, m)
    return Product(m, n, k, by, (n, 1), (n, 1), [(x.shape[0], (0, k * n, m * n))])


def in_blocks(node: KernelNode) -> bool:
    """True where there is a kernel for channels in blocks."""
    if node.attrs["groups"] > 1 and not by_channel(node):
        return False
    pairs = zip(node.outputs[0].shape[2:], node.attrs["stride"], strict=True)
    return node.name != "Conv2DInputGrad" or all(n >= s for n, s in pairs)


def by_channel(node: KernelNode) -> bool:
    """True for a depthwise convolution, whose outputs are sums over one channel each, and whose
    windows are not too large for `correlate_edges.c`."""
    filters, attrs = filters_of(node), node.attrs
    spans = zip(filters.shape[2:], attrs["dilation"], strict=True)
    rows, columns = ((n - 1) * dilation + 1 for n, dilation in spans)
    reads = rows * (columns + MOST_PIXELS * attrs["stride"][1])
    return attrs["groups"] > 1 and filters.shape[:2] == (attrs["groups"], 1) and reads <= MOST_READ


def filters_of(node: KernelNode) -> ArraySpec:
    """The array of filters, which the gradient in the filters writes."""
    return node.outputs[0] if node.name == "Conv2DWeightGrad" else node.inputs[1]


MOST = 4096  # images, since kernels of pooling keep one number of each on the stack
NEAR = 3600  # numbers of a pixel of all images, with the batch innermost
NARROW = 32  # pixels, which leave lanes of vectors of pixels idle
WORTH = 128  # products in a sum, from which on conversions take less than blocks of channels save


def _quickest(node: KernelNode) -> str:
    """The format of the images where it will do, so that a network has one; else that which is
    quicker: the batch innermost where a pixel of all images fills whole cache lines and channels
    are few or a window of all images stays near, else channels in blocks where they fill these."""
    images, channels, *_ = node.inputs[0].shape
    made = node.inputs[1] if node.name == "Conv2DWeightGrad" else node.outputs[0]
    other, narrow = made.shape[1], prod(made.shape[2:]) <= NARROW
    given = node.inputs[0].format
    batch = images <= MOST and images * node.outputs[0].dtype.itemsize % LINE == 0
    wide = max(channels, other)
    near = wide < 4 * BLOCK or images * wide <= NEAR
    if batch and given != BLOCKS and (near or given):
        return BATCH_INNERMOST
    if given == BLOCKS:  # three quarters of the blocks of the result are worth it
        worth = 4 * other >= 3 * rounded(other)
    else:  # conversions pay, or the batch innermost needs them, too; few channels are read as given
        enough = batch or by_channel(node)
        enough = enough or channels * prod(filters_of(node).shape[2:]) >= WORTH
        worth = other % BLOCK == 0 and (channels < BLOCK or (channels % BLOCK == 0 and enough))
        if node.name == "Conv2DWeightGrad":  # sums are many, of few pixels each
            full = 4 * channels * other >= 3 * rounded(channels) * rounded(other)
            narrow = narrow or full or images * prod(made.shape[2:]) <= 8 * NARROW
        worth = worth or (narrow and enough and other >= BLOCK)
    if worth and in_blocks(node):
        return BLOCKS
    return BATCH_INNERMOST if batch else PLAIN


# --- Their texts ----------------------------------------------------------------------------------


# The text, the elements of its workspace, those of its room, and those of its packed filters.
Written = tuple[str, int, int, int]
Slots = tuple[int, int, int]  # in `at`: of the images, the filters, the workspace
SLOTS = (0, 1, 3)

# The epilogue of a kernel with no elementwise work fused into it: it stores `count` results of
# row i.
STORE = """\
static inline void KERNEL_epilogue(char *const *at, long batch, long i, long j, long count,
                                   const REAL *restrict acc) {
  REAL *to = (REAL *)at[2] + (batch * KERNEL_ALL_OUTPUTS + i) * KERNEL_PLANE + j;
  for (long k = 0; k < count; ++k) to[k] = acc[k];
}
"""
# Where filters are packed: for one call, or for more, as the words of a Keeping say.
FILTERS = """\
#define KERNEL_HELD ((REAL *)at[KERNEL_SCRATCH] + %dL)
#define KERNEL_KEPT(i) (((const int64_t *)at[KERNEL_SCRATCH + 1])[i])
#define KERNEL_KEPT_AT ((REAL *)(intptr_t)KERNEL_KEPT(1))
"""
# A channel's number of a pixel, or a vector of channels.
READS = (
    "#define KERNEL_READ(at, v) *(at)\n",
    "#define KERNEL_READ(at, v) REAL_load((at) + (v) * REAL_width)\n",
)
NOTHING = "void KERNEL(char *const *at) { memset(at[2], 0, %d); }\n"  # a sum of no terms


def convolution(
    node: KernelNode, v: Vectors, epilogue: str = STORE, slots: Slots = SLOTS
) -> Written:
    """The text of Conv2D; epilogue: the C function that receives the results."""
    node = lying(node)
    w, output = node.inputs[1].shape, plane(node.outputs[0].shape)
    windows = forward(plane(node.inputs[0].shape), plane(w), output, node.attrs)
    strides = {"W_OUTPUT": prod(w[1:]), "W_CHANNEL": prod(w[2:])}
    outputs = w[0] // apart(node)
    return correlated(node, windows, outputs, w[1], strides, v, epilogue, slots)


def input_grad(node: KernelNode, v: Vectors) -> Written:
    """The text of Conv2DInputGrad, a convolution whose inputs and outputs have changed roles."""
    node = lying(node)
    w, image = node.inputs[1].shape, plane(node.outputs[0].shape)
    slopes = plane(node.inputs[0].shape)
    windows = transposed(slopes, plane(w), image, node.attrs, trimmed=False)
    strides = {"W_OUTPUT": prod(w[2:]), "W_CHANNEL": prod(w[1:])}
    if node.outputs[0].format != BLOCKS and fills_lanes(node.inputs[0], windows, v.width):
        windows = transposed(slopes, plane(w), image, node.attrs, trimmed=True)
    groups = node.attrs["groups"]
    outputs, channels = w[1] * groups // apart(node), w[0] // groups
    return correlated(node, windows, outputs, channels, strides, v, STORE, SLOTS)


def lying(node: KernelNode) -> KernelNode:
    """The same with one row for one column, which lies so in memory, too: tiles go along rows."""
    arrays, attrs = (*node.inputs, *node.outputs), dict(node.attrs)
    if any(spec.shape[-1] != 1 for spec in arrays) or attrs["padding"][1] != (0, 0):
        return node
    attrs |= {name: attrs[name][::-1] for name in ("stride", "padding", "dilation")}
    turned = [spec._replace(shape=(*spec.shape[:2], 1, spec.shape[2])) for spec in arrays]
    return replace(node, inputs=tuple(turned[:2]), outputs=tuple(turned[2:]), attrs=attrs)


def apart(node: KernelNode) -> int:
    """Groups whose outputs lie in different tiles: in blocks, channels of a depthwise convolution
    are neighbours in one."""
    return 1 if in_each(node) else int(node.attrs["groups"])


def in_each(node: KernelNode) -> bool:
    """True where a vector of channels gives one of outputs."""
    blocks = any(spec.format == BLOCKS for spec in (*node.inputs, *node.outputs))
    return blocks and node.attrs["groups"] > 1


def correlated(
    node: KernelNode,
    windows: Windows,
    outputs: int,
    channels: int,
    filters: Mapping[str, int],
    v: Vectors,
    epilogue: str,
    slots: Slots,
) -> Written:
    """correlate.c for groups of `outputs` and `channels`; filters: strides of the filters."""
    images, groups, each = node.inputs[0].shape[0], apart(node), in_each(node)
    taps = prod(node.inputs[1].shape[2:])
    tiles = tiling(node.inputs[0], node.outputs[0], windows, outputs, channels, taps, v, each)
    x, rows, bands = tiles.x, tiles.outputs, ceil(tiles.padded / tiles.outputs)
    work = sum(prod(p.size) * len(p.taps) for p in windows.phases) * outputs * channels * groups
    split = work * images > SPLIT
    slices = max(1, min(tiles.tiles, PARTS)) if split else 1
    numbers = {
        "FILTER": slots[1], "SCRATCH": slots[2],
        "IMAGES": images, "GROUPS": groups, "OUTPUTS": outputs,
        "ALL_OUTPUTS": groups * outputs, "CHANNELS": channels, "CHANNEL": x.channel,
        "EACH": int(each),
        "IMAGE": x.image, "PITCH": x.pitch, "LANES": x.lanes, "WIDTH": windows.output[1],
        "ROWS": rows, "VECTORS": tiles.vectors, "BLOCKS": bands,
        "ROW_STEP": x.offset(windows.step[0], 0), "COLUMN_STEP": x.offset(0, windows.step[1]),
        "ROW_SPREAD": windows.spread[0], "COLUMN_SPREAD": windows.spread[1],
        "W_GROUP": prod(node.inputs[1].shape) // groups, **filters,
        "TAPS": taps, "CHUNK": channels, "SUMS": 0, "PHASES": len(windows.phases),
        "WHOLE": int(len(windows.phases) == 1), "ENTRIES": x.entries, "SLICES": slices,
        "CUTS": min(groups * bands, ceil(PARTS / slices)) if split else 1, **tiles.numbers,
    }  # fmt: skip
    start = rounded(x.size + tiles.slack)  # tiles read the slack, but do not store its results
    found, copied = edges(windows.phases, x, rows) if each else (tables(windows.phases, x, rows), 0)
    images_of = x.text("X", slots[0], 0, node.attrs.get("quads", ""))
    parts = {
        "TABLES": "".join([found, images_of, READS[each], FILTERS % start, epilogue]),
        "UNITS": "".join(map(v.text, tiles.texts)),
        "WORK": "KERNEL_streamed" if numbers["CHUNK"] < channels else "KERNEL_part",
    }
    body = re.sub("|".join(parts), lambda found: parts[found[0]], v.text("correlate.c"))
    varying = "IMAGES", "ENTRIES", "SLICES", "CUTS", "SUMS"
    text = enumerators(numbers, *varying) + run_by(split) + body
    packed = groups * bands * taps * rows  # of each channel
    held = packed * numbers["CHUNK"] + groups * bands * numbers["SUMS"]
    return text, start + held, copied, packed * channels


def tables(phases: Iterable[Phase], x: Planes, rows: int) -> str:
    """The tables of phases and of their taps, which are `rows` numbers apart in packed filters."""
    found: list[tuple[int, ...]] = []
    taps: list[tuple[int, int]] = []
    for (height, width), (row, column), own in phases:
        found.append((height, width, row, column, len(taps), len(own)))
        taps += [(x.offset(r, q), t * rows) for r, q, t in own]
    return table("KERNEL_phase KERNEL_phases", found) + table("KERNEL_tap KERNEL_taps", taps)


def edges(phases: Sequence[Phase], x: Planes, rows: int) -> tuple[str, int]:
    """The tables, with the rectangle of padded pixels that the taps of each phase span, from which
    their offsets count, in the images and in a copy of what a tile at an edge reads; its size."""
    spans = [_span(p) for p in phases]
    wide = max(columns for *_, columns in spans) + (MOST_PIXELS - 1) * x.windows.step[1]
    moved = [
        p._replace(taps=tuple((r - row, q - column, t) for r, q, t in p.taps))
        for p, (row, column, *_) in zip(phases, spans, strict=True)
    ]
    copied = [((r * wide + q) * BLOCK, t * rows) for p in moved for r, q, t in p.taps]
    size = max(1, *(n for *_, n, _ in spans)) * wide * BLOCK
    numbers = {
        "TOP": x.windows.before[0], "LEFT": x.windows.before[1], "X_HEIGHT": x.windows.image[0],
        "X_WIDTH": x.windows.image[1], "X_ROWS": x.windows.step[0],
        "X_COLUMNS": x.windows.step[1], "ACROSS": wide, "COPIED": size,
    }  # fmt: skip
    text = "".join([
        enumerators(numbers), tables(moved, x, rows), table("KERNEL_tap KERNEL_copied", copied),
        "typedef struct { long row, column, rows, columns; } KERNEL_span;\n",
        table("KERNEL_span KERNEL_spans", spans),
    ])  # fmt: skip
    return text, size


def _span(phase: Phase) -> tuple[int, int, int, int]:
    """First row and column, rows and columns of the pixels that its taps read."""
    rows, columns = [r for r, *_ in phase.taps] or [0], [q for _, q, _ in phase.taps] or [0]
    top, left = min(rows), min(columns)
    return top, left, max(rows) - top + 1, max(columns) - left + 1


def weight_grad(node: KernelNode, v: Vectors) -> Written:
    """The text of Conv2DWeightGrad."""
    node = lying(node)
    (images, _, *_), (_, count, *_) = node.inputs[0].shape, node.inputs[1].shape
    size, output = plane(node.outputs[0].shape), plane(node.inputs[1].shape)
    groups, inner, taps = node.attrs["groups"], node.outputs[0].shape[1], prod(size)
    windows = forward(plane(node.inputs[0].shape), size, output, node.attrs)
    plain = Windows(output, output, (0, 0), output, (1, 1), (1, 1), windows.phases)
    if node.inputs[1].format == BLOCKS:
        return weight_grad_in_blocks(node, windows, v)
    batch = fills_lanes(node.inputs[0], windows, v.width)
    x = planes(node.inputs[0], windows, v.width, batch)
    d = planes(node.inputs[1], plain, v.width, batch, v.width)
    outputs = count // groups
    rows, pairs = tile(outputs, inner * taps, v.registers)
    split = prod(output) * images * count * inner * taps > SPLIT
    if batch:
        outer, inside = output
        steps = {
            "X_OUTER": x.offset(windows.step[0], 0), "X_INNER": x.offset(0, windows.step[1]),
            "D_OUTER": d.offset(1, 0), "D_INNER": d.offset(0, 1),
        }  # fmt: skip
    else:
        outer, inside = images, output[0]
        steps = {
            "X_OUTER": x.image, "X_INNER": x.pitch, "D_OUTER": d.image, "D_INNER": d.pitch,
        }  # fmt: skip
    bands, columns = ceil(outputs / rows), ceil(inner * taps / pairs)
    most = MOST_TILES if v.size > 16 else MOST_TILES // 4
    most = min(most, max(1, groups * bands * columns // PARTS))
    sizes = [p.channel * n if batch else p.image for p, n in ((x, inner), (d, outputs))]
    near, tiles = fewest_reads(bands, columns, most, *sizes)
    reads = near * rows * (d.offset(1, 0) if batch else d.channel)
    reads += ceil(tiles * pairs / taps) * (x.offset(windows.step[0], 0) if batch else x.channel)
    lanes = x.lanes or d.pitch
    if batch and steps["X_INNER"] == lanes:  # a row is one run of memory
        inside, lanes = 1, inside * lanes
    numbers = {
        "SCRATCH": 3, "ROWS": rows, "COUNT": pairs, "OUTPUTS": outputs, "CHANNELS": inner,
        "TAPS": taps, "PAIRS": inner * taps, "GROUPS": groups, "CHANNEL": x.channel,
        "BLOCKS": bands, "NEAR": near, "BANDS": ceil(bands / near), "COLUMNS": columns,
        "TILES": tiles, "CHUNKS": ceil(columns / tiles),
        "STEP": max(1, CACHED // reads),
        "OUTER": outer, "INNER": inside, "LANES": lanes, "VALID": output[1], **steps,
        "RAGGED": int(not batch and d.pitch > output[1]), "D_CHANNEL": d.channel,
        "X_ENTRIES": x.entries, "D_ENTRIES": d.entries,
    }  # fmt: skip
    valid = (-(k < (output[1] - 1) % v.width + 1) for k in range(v.width))
    start = rounded(x.size + v.width)
    text = "".join([
        enumerators(numbers, "OUTER", "X_ENTRIES", "D_ENTRIES"), run_by(split),
        x.text("X", 0, 0), d.text("D", 1, start),
        table("long KERNEL_offset", [(x.offset(r, q),) for r, q, _ in windows.phases[0].taps]),
        f"static const REAL_mask KERNEL_last = {{{', '.join(map(str, valid))}}};\n",
        v.text("weight_grad.c"),
    ])  # fmt: skip
    return text, start + d.size, 0, 0


def fewest_reads(rows: int, columns: int, most: int, x: int, d: int) -> tuple[int, int]:
    """Rows and columns of at most `most` tiles, a part, such that all parts of `rows` by `columns`
    tiles read least: those of a row read all of x, those of a column all of d."""

    def read(part: tuple[int, int]) -> int:
        return ceil(rows / part[0]) * x + ceil(columns / part[1]) * d

    heights = range(1, max(1, min(rows, most // ALONG)) + 1)
    return min(((m, min(columns, most // m)) for m in heights), key=read)


def weight_grad_in_blocks(node: KernelNode, windows: Windows, v: Vectors) -> Written:
    """The text of Conv2DWeightGrad for channels in blocks."""
    x, d, each = blocks(node.inputs[0], windows), node.inputs[1], in_each(node)
    count, channels, taps = *node.outputs[0].shape[:2], prod(node.outputs[0].shape[2:])
    pairs, vectors, padded = tile_of_blocks(channels * taps, count, v, each)
    rows, columns = vectors * v.width, ceil(channels * taps / pairs)
    groups = padded // rows
    tiles = min(MOST_TILES // (4 if v.size > 16 else 8), max(1, groups * columns // PARTS))
    split = prod(d.shape) * channels * taps > SPLIT
    numbers = {
        "SCRATCH": 3, "IMAGES": x.spec.shape[0], "HEIGHT": windows.output[0],
        "COLUMNS": windows.output[1], "OUTPUTS": count, "CHANNELS": channels, "TAPS": taps,
        "PAIRS": channels * taps, "COUNT": pairs, "VECTORS": vectors, "ROWS": rows,
        "BLOCKS": groups, "TILES": tiles, "CHUNKS": ceil(columns / tiles), "LANES": BLOCK,
        "IN": BLOCK if node.inputs[0].format else 1, "CHANNEL": x.channel, "IMAGE": x.image,
        "ROW_STEP": x.offset(windows.step[0], 0), "COLUMN_STEP": x.offset(0, windows.step[1]),
        "D_CHANNEL": prod(windows.output) * BLOCK, "D_IMAGE": prod(d.stored[1:]),
        "ENTRIES": x.entries, "EACH": int(each),
    }  # fmt: skip
    offsets = [(x.offset(r, q),) for r, q, _ in windows.phases[0].taps]
    text = "".join([
        enumerators(numbers, "IMAGES", "ENTRIES"), run_by(split), x.text("X", 0, 0), READS[each],
        table("long KERNEL_offset", offsets), v.text("weight_grad_block.c"),
    ])  # fmt: skip
    return text, x.size, 0, 0


def table(declared: str, rows: Sequence[Sequence[int]]) -> str:
    """A constant array of C, with an element even where there are no rows."""
    words = [", ".join(map(str, row)) for row in rows or [(0,)]]
    elements = ", ".join(f"{{{word}}}" if ", " in word else word for word in words)
    return f"static const {declared}[] = {{{elements}}};\n"


def rounded(elements: int) -> int:
    """A number of elements rounded up to a multiple of 16, to keep what follows aligned."""
    return -(-elements // 16) * 16


TEXTS: dict[str, Callable[[KernelNode, Vectors], Written]] = {
    "Conv2D": convolution, "Conv2DInputGrad": input_grad, "Conv2DWeightGrad": weight_grad,
}  # fmt: skip


def source(written: Written, v: Vectors, shared: tuple[str, ...] = ()) -> tuple[Source, int]:
    """The kernel of a text, which needs those of `shared` too, and its workspace in elements."""
    (text, scratch, room, _), texts = written, (v.prelude, v.text("planes.c"), *shared)
    room = room * v.size // v.width
    return Source(text.replace("REAL", v.scalar), texts, room=room), scratch


for _name in TEXTS:
    _plain = [parse(f"{c}{c}->{c}") for c in SCALARS]
    _every: list[Spec] = [*_plain, *(image_attr(_name, s, BATCH_INNERMOST) for s in _plain)]
    _every += [image_attr(_name, s, BLOCKS, first) for s in _plain for first in (PLAIN, BLOCKS)]
    kernel(_name, "cpu", *_every, provider="cc", total=True)(Convolution)


# --- Tilings: the outputs cut into tiles of registers ---------------------------------------------


class Tiling(NamedTuple):
    """The division of the outputs of a convolution into tiles of registers.

    x: the images in the order in which tiles read them. vectors: of a tile, of neighbours or, in
    blocks, of outputs. outputs: of a tile. padded: outputs with those that fill the last block.
    tiles: about how many there are. slack: elements that tiles read behind the images. texts: the
    C files of tiles. numbers: further constants of the text.
    """

    x: Planes
    vectors: int
    outputs: int
    padded: int
    tiles: int
    slack: int
    texts: tuple[str, ...]
    numbers: dict[str, int]


def tiling(
    x: ArraySpec,
    out: ArraySpec,
    windows: Windows,
    outputs: int,
    channels: int,
    taps: int,
    v: Vectors,
    each: bool = False,
) -> Tiling:
    """The tiling of `outputs` and `channels` of a group: over channels if they are in blocks, over
    images if the batch fills vectors, else over pixels; each: of outputs that read one channel."""
    if each:
        return _in_each(x, windows, outputs, v)
    if out.format not in (None, BATCH_INNERMOST):
        return _over_channels(x, windows, outputs, channels, taps, v)
    if x.dtype.kind == "f" and fills_lanes(x, windows, v.width):
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


PACKED = 1 << 14  # numbers of filters that are packed at a time, where there are more


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
        "HEIGHT": windows.output[0], "PLANE": BLOCK, "CHUNK": chunk, "SUMS": kept * streamed,
    }  # fmt: skip
    if streamed:
        numbers |= {"SLICES": 1, "CUTS": padded // width}
    count = x.shape[0] * sum(p.size[0] for p in windows.phases)
    texts = "correlate_block.c", "correlate_whole.c", "correlate_rows.c"
    return Tiling(images, vectors, width, padded, count, 0, texts, numbers)


MOST_PIXELS = 16  # of a tile by channels: longer ones reach over an edge more often
MOST_READ = 512  # pixels of a tile at an edge, on the stack: 32 or 64 KB


def _in_each(x: ArraySpec, windows: Windows, outputs: int, v: Vectors) -> Tiling:
    """A tile is a few pixels of a row by a block of channels, or a part of one. It reads the images
    where they lie; at the edges it copies what it reads, with the zeros around."""
    images = blocks(x, windows._replace(padded=windows.image))
    columns = min(p.size[1] for p in windows.phases)
    pixels, vectors, padded = tile_of_blocks(columns, outputs, v, each=True)
    numbers = {
        "PIXELS": pixels, "IN": BLOCK, "OUT": vectors * v.width, "HEIGHT": windows.output[0],
        "PLANE": BLOCK,
    }  # fmt: skip
    count = x.shape[0] * sum(p.size[0] for p in windows.phases)
    texts = "correlate_block.c", "correlate_edges.c", "correlate_rows.c"
    return Tiling(images, vectors, vectors * v.width, padded, count, 0, texts, numbers)


def tile_of_blocks(rows: int, outputs: int, v: Vectors, each: bool = False) -> tuple[int, int, int]:
    """Rows, and vectors of outputs, of the tile that covers them in the fewest cycles; and the
    outputs with those that fill the last block. each: of outputs that read one channel."""
    padded = -(-outputs // BLOCK) * BLOCK
    every = range(1, padded // v.width + 1)
    widths = (n for n in every if padded % (n * v.width) == 0)
    widths = (n for n in widths if 0 in (n * v.width % BLOCK, BLOCK % (n * v.width)))
    if each:
        rows, widths = min(rows, MOST_PIXELS), (n for n in widths if n * v.width <= BLOCK)
    return (*_cheapest(rows, padded // v.width, v.registers, widths), padded)


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
    """Rows and columns of the cheapest tile of one of these widths; reads: of a vector."""

    def cost(shape: tuple[int, int]) -> tuple[int, int]:
        m, n = shape
        steps = ceil(rows / m) * ceil(columns / n)
        return steps * max(m * n, m + reads * n, 8), steps * (m + n)

    heights = range(1, min(rows, registers) + 1)
    return min(((m, n) for n in widths for m in heights if m * n + n < registers), key=cost)


# --- Planes: the input's images in the order in which tiles read them -----------------------------


class Planes(NamedTuple):
    """An input's images, surrounded by zeros, in the order in which tiles read them: copied to the
    workspace, or used in place if the input has this order already.

    lanes: numbers that stand for a pixel, one for each image and zeros; 0 where the images follow
    one another. pitch: from row to row, in pixels. plane, channel, image: in elements, as in
    planes.c.
    """

    spec: ArraySpec
    windows: Windows
    lanes: int
    pitch: int
    plane: int
    channel: int
    image: int

    @property
    def in_order(self) -> bool:
        """True if the input has this order already."""
        spec = self.spec
        given = spec.format is not None and spec.stored[-1] == self.lanes
        return given and self.windows.padded == self.windows.image

    @property
    def size(self) -> int:
        """Elements of the workspace."""
        return self.entries * self.channel

    @property
    def entries(self) -> int:
        """The number of parts in which the input is reordered."""
        images, channels = self.spec.shape[:2]
        if self.lanes and self.spec.format != BLOCKS:
            return 0 if self.in_order else channels
        return 0 if self.in_order else images * prod(self.spec.stored[1:2])

    def offset(self, row: int, column: int) -> int:
        """The offset of a padded pixel from the first."""
        if self.lanes:
            return (row * self.pitch + column) * self.lanes
        sh, sw = self.windows.step
        return (row % sh * sw + column % sw) * self.plane + row // sh * self.pitch + column // sw

    def text(self, name: str, slot: int, start: int, quads: str = "") -> str:
        """The macro KERNEL_name, the address of the images, and the function KERNEL_enter_name,
        which copies one part of input `slot` to the workspace from element `start` on. quads: what
        the copy needs to know besides, where it makes quads of the bytes of channels."""
        if self.in_order:
            return (
                f"#define KERNEL_{name} ((const REAL *)at[{slot}])\n"
                f"static void KERNEL_enter_{name}(void *data, long part) {{}}\n"
            )
        given = self.spec.format is not None
        side, *shape = self.spec.shape
        enter = ("surround" if given else "turn") if self.lanes else "spread"
        enter += "_bytes" if quads else ""
        images = self.spec.stored[-1] if given else side
        numbers = (
            *shape, *self.windows.before, self.pitch,
            self.lanes, self.image, self.channel, self.plane, *self.windows.step,
        )  # fmt: skip
        return (
            f"#define KERNEL_{name} ((REAL *)at[KERNEL_SCRATCH] + {start}L)\n"
            f"static void KERNEL_enter_{name}(void *data, long part) {{\n"
            f"  char *const *at = data;\n{NUMBERS}\n"
            f"  const REAL_planes g = {{{images}L, {', '.join(map(str, numbers))}}};\n"
            f"  REAL_{enter}(&g, (const REAL *)at[{slot}], KERNEL_{name}, part{quads});\n}}\n"
        )


def planes(spec: ArraySpec, windows: Windows, width: int, batch: bool, aligned: int = 1) -> Planes:
    """The layout with the batch innermost, rounded up to `width`, or else of planes, whose rows are
    rounded up to `aligned`."""
    images, channels = spec.shape[:2]
    rows, columns = windows.padded
    if batch:
        lanes = -(-images // width) * width
        return Planes(spec, windows, lanes, columns, 0, rows * columns * lanes, 0)
    sh, sw = windows.step
    pitch = -(-columns // (sw * aligned)) * aligned
    plane = -(-rows // sh) * pitch
    return Planes(spec, windows, 0, pitch, plane, sh * sw * plane, channels * sh * sw * plane)


def blocks(spec: ArraySpec, windows: Windows) -> Planes:
    """The layout with channels in blocks; of a few channels that are not, each is a plane."""
    plain = windows._replace(step=(1, 1))
    if spec.format != BLOCKS:
        return planes(spec, plain, 1, batch=False)
    lanes, (rows, columns) = spec.stored[-1], windows.padded
    plane = rows * columns * lanes
    return Planes(spec, windows, lanes, columns, 0, plane, spec.stored[1] * plane)


def fills_lanes(spec: ArraySpec, windows: Windows, width: int) -> bool:
    """True for a batch that is innermost, or where it pays to move it there: if vectors of pixels
    would take a quarter more lanes."""
    if spec.format == BATCH_INNERMOST:
        return True
    images, pixels = spec.shape[0], prod(windows.phases[0].size)
    pitch = planes(spec, windows, width, batch=False).pitch
    rows, columns = windows.phases[0].size
    run = -(-((rows - 1) * pitch + columns) // width) * width
    lanes = -(-images // width) * width
    return 4 * images * run >= 5 * pixels * lanes


# --- Windows: the pixels that the taps of a filter read -------------------------------------------


Pair = tuple[int, int]
Tap = tuple[int, int, int]  # its row and column in the padded image, its index in the filter


def plane(shape: tuple[int, ...]) -> Pair:
    """Rows and columns: the last two extents."""
    return shape[-2], shape[-1]


class Phase(NamedTuple):
    """A grid of output pixels that have the same taps: `size` of them from `first` on."""

    size: Pair
    first: Pair
    taps: tuple[Tap, ...]


class Windows(NamedTuple):
    """The pixels that outputs read of an image: out[spread * p + first] = sum of filter[t] *
    padded[step * p + tap t], for every p of every phase.

    image, output: (rows, columns). before: rows and columns of zeros above and to the left. padded:
    rows and columns of the image with its zeros.
    """

    image: Pair
    output: Pair
    before: Pair
    padded: Pair
    step: Pair
    spread: Pair
    phases: tuple[Phase, ...]


def forward(image: Pair, kernel: Pair, output: Pair, attrs: Mapping[str, Any]) -> Windows:
    """The windows of a convolution, and of its gradient in the filters."""
    (top, bottom), (left, right) = attrs["padding"]
    dh, dw = attrs["dilation"]
    taps = tuple((i * dh, j * dw, i * kernel[1] + j) for i, j in product(*map(range, kernel)))
    padded = image[0] + top + bottom, image[1] + left + right
    phase = Phase(output, (0, 0), taps)
    return Windows(image, output, (top, left), padded, attrs["stride"], (1, 1), (phase,))


def transposed(
    slopes: Pair, kernel: Pair, image: Pair, attrs: Mapping[str, Any], trimmed: bool
) -> Windows:
    """The windows of the gradient in the image, a convolution of `slopes`: pixels whose row and
    column leave the same remainders by the stride meet the same taps.

    trimmed: pixels near the edges form phases of their own, without the taps that would read
    outside of the slopes, so that these need no zeros around them.
    """
    names = "stride", "dilation", "padding"
    sides = [
        [*_runs(kernel[k], image[k], slopes[k] * trimmed, *(attrs[name][k] for name in names))]
        for k in (0, 1)
    ]
    before, padded = [0, 0], [*slopes]
    for k in (0, 1) if not trimmed else ():
        reads = [at + p for _, size, taps in sides[k] for at, _ in taps for p in (0, size - 1)]
        before[k] = max(0, -min(reads, default=0))
        padded[k] = before[k] + max(slopes[k], max(reads, default=0) + 1)
    phases = [
        Phase(
            (row[1], column[1]), (row[0], column[0]),
            tuple(
                (r + before[0], q + before[1], i * kernel[1] + j)
                for (r, i), (q, j) in product(row[2], column[2])
            ),
        )
        for row, column in product(*sides)
    ]  # fmt: skip
    pads, extent = (before[0], before[1]), (padded[0], padded[1])
    return Windows(slopes, image, pads, extent, (1, 1), attrs["stride"], tuple(phases))


Run = tuple[int, int, tuple[Pair, ...]]  # first pixel, count, (index that the first reads, tap)


def _runs(
    taps: int, pixels: int, limit: int, stride: int, dilation: int, padding: Pair
) -> Iterator[Run]:
    """The runs of pixels of one axis, `stride` apart, that have the same taps."""
    for start in range(min(stride, pixels)):
        met = ((start + padding[0] - i * dilation, i) for i in range(taps))
        reads = [(at // stride, i) for at, i in met if at % stride == 0]
        size = -(-(pixels - start) // stride)

        def inside(p: int, reads: list[Pair] = reads) -> tuple[Pair, ...]:
            return tuple((at, i) for at, i in reads if not limit or 0 <= at + p < limit)

        for found, run in groupby(range(size), inside):
            indices = [*run]
            moved = tuple((at + indices[0], i) for at, i in found)
            yield start + indices[0] * stride, len(indices), moved
