"""Convolution and its gradients in C: register tiles of outputs by neighbours in memory.

Neighbours are images where the batch fills vectors, else pixels of a plane. Filters are packed once
per call, in the order in which tiles read them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, prod

from ...formats import PLAIN
from ..images import arranged, declared
from ..kernel import Formats, KernelNode
from ..registry import Spec, kernel
from ..signature import ArraySpec, parse
from .kernel import NativeKernel
from .planes import BATCH_INNERMOST, BLOCKS, Planes, blocks, fills_lanes, planes
from .source import Source
from .tilings import BLOCK, tile, tile_of_blocks, tiling
from .vectors import SCALARS, Vectors, vectors
from .windows import Phase, Windows, forward, plane, transposed

SPLIT = 4_000_000  # multiplications, about 50 us, from which on a kernel is split over threads
CACHED = 1 << 16  # elements read again and again: a quarter of a megabyte, or half of one
MOST_TILES = 32  # of partial sums, on the stack: 2 KB each
LINE = 64  # bytes of a cache line
MOST = 4096  # images, since kernels of pooling keep one number of each on the stack
WORTH = 128  # products in a sum, from which on conversions take less than blocks of channels save
PARTS = 16  # enough to keep a few threads equally busy

# What a kernel does with `count` results of row i where no elementwise work is fused into it.
STORE = """\
static inline void KERNEL_epilogue(char *const *at, long batch, long i, long j, long count,
                                   const REAL *restrict acc) {
  REAL *to = (REAL *)at[2] + (batch * KERNEL_ALL_OUTPUTS + i) * KERNEL_PLANE + j;
  for (long k = 0; k < count; ++k) to[k] = acc[k];
}
"""
FILTERS = "#define KERNEL_FILTERS ((REAL *)at[KERNEL_SCRATCH] + %d)\n"
NOTHING = "void KERNEL(char *const *at) { memset(at[2], 0, %d); }\n"  # a sum of no terms


Written = tuple[str, int]  # the text, and the elements of workspace that it needs
Slots = tuple[int, int, int]  # in `at`: of the images, the filters, the workspace
SLOTS = (0, 1, 3)


def convolution(
    node: KernelNode, v: Vectors, epilogue: str = STORE, slots: Slots = SLOTS
) -> Written:
    """The text of Conv2D; epilogue: what is done with the results."""
    w, output = node.inputs[1].shape, plane(node.outputs[0].shape)
    windows = forward(plane(node.inputs[0].shape), plane(w), output, node.attrs)
    strides = {"W_OUTPUT": prod(w[1:]), "W_CHANNEL": prod(w[2:])}
    outputs = w[0] // node.attrs["groups"]
    return correlated(node, windows, outputs, w[1], strides, v, epilogue, slots)


def input_grad(node: KernelNode, v: Vectors) -> Written:
    """The text of Conv2DInputGrad, a convolution whose inputs and outputs have changed roles."""
    w, image = node.inputs[1].shape, plane(node.outputs[0].shape)
    slopes = plane(node.inputs[0].shape)
    windows = transposed(slopes, plane(w), image, node.attrs, trimmed=False)
    strides = {"W_OUTPUT": prod(w[2:]), "W_CHANNEL": prod(w[1:])}
    if node.outputs[0].format != BLOCKS and fills_lanes(node.inputs[0], windows, v.width):
        windows = transposed(slopes, plane(w), image, node.attrs, trimmed=True)
    channels = w[0] // node.attrs["groups"]
    return correlated(node, windows, w[1], channels, strides, v, STORE, SLOTS)


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
    images, groups = node.inputs[0].shape[0], node.attrs["groups"]
    taps = prod(node.inputs[1].shape[2:])
    tiles = tiling(node.inputs[0], node.outputs[0], windows, outputs, channels, taps, v)
    x, rows, bands = tiles.x, tiles.outputs, ceil(tiles.padded / tiles.outputs)
    work = sum(prod(p.size) * len(p.taps) for p in windows.phases) * outputs * channels * groups
    split = work * images > SPLIT
    slices = max(1, min(tiles.tiles, PARTS)) if split else 1
    numbers = {
        "FILTER": slots[1], "SCRATCH": slots[2],
        "IMAGES": images, "GROUPS": groups, "OUTPUTS": outputs,
        "ALL_OUTPUTS": groups * outputs, "CHANNELS": channels, "CHANNEL": x.channel,
        "IMAGE": x.image, "PITCH": x.pitch, "LANES": x.lanes, "WIDTH": windows.output[1],
        "ROWS": rows, "VECTORS": tiles.vectors, "BLOCKS": bands,
        "ROW_STEP": x.offset(windows.step[0], 0), "COLUMN_STEP": x.offset(0, windows.step[1]),
        "ROW_SPREAD": windows.spread[0], "COLUMN_SPREAD": windows.spread[1],
        "W_GROUP": prod(node.inputs[1].shape) // groups, **filters,
        "TAPS": taps, "CHUNK": channels, "KEPT": 0, "PHASES": len(windows.phases),
        "WHOLE": int(len(windows.phases) == 1), "ENTRIES": x.entries, "SLICES": slices,
        "CUTS": min(groups * bands, ceil(PARTS / slices)) if split else 1, **tiles.numbers,
    }  # fmt: skip
    start = rounded(x.size + tiles.slack)  # what tiles make of what lies behind is not stored
    found = tables(windows.phases, x, rows)
    parts = {
        "TABLES": "".join([found, x.text("X", slots[0], 0), FILTERS % start, epilogue]),
        "UNITS": "".join(map(v.text, tiles.texts)),
        "WORK": "KERNEL_streamed" if numbers["CHUNK"] < channels else "KERNEL_part",
    }
    body = re.sub("|".join(parts), lambda found: parts[found[0]], v.text("correlate.c"))
    text = enumerators(numbers) + run_by(split) + body
    packed = numbers["CHUNK"] * taps * rows + numbers["KEPT"]
    return text, start + groups * bands * packed


def weight_grad(node: KernelNode, v: Vectors) -> Written:
    """The text of Conv2DWeightGrad."""
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
    tiles = min(MOST_TILES, max(1, groups * bands * columns // PARTS))
    reads = rows * (d.offset(1, 0) if batch else d.channel)
    reads += ceil(tiles * pairs / taps) * (x.offset(windows.step[0], 0) if batch else x.channel)
    lanes = x.lanes or d.pitch
    if batch and steps["X_INNER"] == lanes:  # a row is one run of memory
        inside, lanes = 1, inside * lanes
    numbers = {
        "SCRATCH": 3, "ROWS": rows, "COUNT": pairs, "OUTPUTS": outputs, "CHANNELS": inner,
        "TAPS": taps, "PAIRS": inner * taps, "GROUPS": groups, "CHANNEL": x.channel,
        "BLOCKS": bands, "COLUMNS": columns, "TILES": tiles, "CHUNKS": ceil(columns / tiles),
        "STEP": max(1, CACHED // reads),
        "OUTER": outer, "INNER": inside, "LANES": lanes, "VALID": output[1], **steps,
        "RAGGED": int(not batch and d.pitch > output[1]), "D_CHANNEL": d.channel,
        "X_ENTRIES": x.entries, "D_ENTRIES": d.entries,
    }  # fmt: skip
    valid = (-(k < (output[1] - 1) % v.width + 1) for k in range(v.width))
    start = rounded(x.size + v.width)
    text = "".join([
        enumerators(numbers), run_by(split), x.text("X", 0, 0), d.text("D", 1, start),
        table("long KERNEL_offset", [(x.offset(r, q),) for r, q, _ in windows.phases[0].taps]),
        f"static const REAL_mask KERNEL_last = {{{', '.join(map(str, valid))}}};\n",
        v.text("weight_grad.c"),
    ])  # fmt: skip
    return text, start + d.size


def weight_grad_in_blocks(node: KernelNode, windows: Windows, v: Vectors) -> Written:
    """The same for channels in blocks."""
    x, d = blocks(node.inputs[0], windows), node.inputs[1]
    count, channels, taps = *node.outputs[0].shape[:2], prod(node.outputs[0].shape[2:])
    pairs, vectors, padded = tile_of_blocks(channels * taps, count, v)
    rows, columns = vectors * v.width, ceil(channels * taps / pairs)
    groups = padded // rows
    tiles = min(MOST_TILES // 2, max(1, groups * columns // PARTS))
    split = prod(d.shape) * channels * taps > SPLIT
    numbers = {
        "SCRATCH": 3, "IMAGES": x.spec.shape[0], "HEIGHT": windows.output[0],
        "COLUMNS": windows.output[1], "OUTPUTS": count, "CHANNELS": channels, "TAPS": taps,
        "PAIRS": channels * taps, "COUNT": pairs, "VECTORS": vectors, "ROWS": rows,
        "BLOCKS": groups, "TILES": tiles, "CHUNKS": ceil(columns / tiles), "LANES": BLOCK,
        "IN": BLOCK if node.inputs[0].format else 1, "CHANNEL": x.channel, "IMAGE": x.image,
        "ROW_STEP": x.offset(windows.step[0], 0), "COLUMN_STEP": x.offset(0, windows.step[1]),
        "D_CHANNEL": prod(windows.output) * BLOCK, "D_IMAGE": prod(d.stored[1:]),
        "ENTRIES": x.entries,
    }  # fmt: skip
    offsets = [(x.offset(r, q),) for r, q, _ in windows.phases[0].taps]
    text = "".join([
        enumerators(numbers), run_by(split), x.text("X", 0, 0),
        table("long KERNEL_offset", offsets), v.text("weight_grad_block.c"),
    ])  # fmt: skip
    return text, x.size


def tables(phases: Iterable[Phase], x: Planes, rows: int) -> str:
    """The tables of phases and of their taps, which are `rows` numbers apart in packed filters."""
    found: list[tuple[int, ...]] = []
    taps: list[tuple[int, int]] = []
    for (height, width), (row, column), own in phases:
        found.append((height, width, row, column, len(taps), len(own)))
        taps += [(x.offset(r, q), t * rows) for r, q, t in own]
    return table("KERNEL_phase KERNEL_phases", found) + table("KERNEL_tap KERNEL_taps", taps)


def table(declared: str, rows: Sequence[Sequence[int]]) -> str:
    """A constant array of C, which knows none without elements."""
    elements = ", ".join("{" + ", ".join(map(str, row)) + "}" for row in rows or [(0,)])
    return f"static const {declared}[] = {{{elements}}};\n"


def enumerators(numbers: Mapping[str, int]) -> str:
    """The numbers as constants of C."""
    return f"enum {{ {', '.join(f'KERNEL_{k} = {n}' for k, n in numbers.items())} }};\n"


def run_by(split: bool) -> str:
    """Who runs the parts: all threads, or this one."""
    return f"#define KERNEL_RUN {'miniml.parallel' if split else 'miniml_serial'}\n"


def rounded(elements: int) -> int:
    """Up to a multiple of 16, which keeps what follows aligned."""
    return -(-elements // 16) * 16


TEXTS: dict[str, Callable[[KernelNode, Vectors], Written]] = {
    "Conv2D": convolution, "Conv2DInputGrad": input_grad, "Conv2DWeightGrad": weight_grad,
}  # fmt: skip


def source(written: Written, v: Vectors, shared: tuple[str, ...] = ()) -> tuple[Source, int]:
    """The kernel of such a text, which needs what is `shared` too, and its workspace."""
    text, scratch = written
    return Source(text.replace("REAL", v.scalar), (v.prelude, v.text("planes.c"), *shared)), scratch


class Convolution(NativeKernel):
    """A convolution or one of its gradients; the workspace is one array."""

    def select_format(self, node: KernelNode) -> tuple[Formats, Formats]:
        """The format that the target ranks first, else the one that is quickest."""
        format = (*node.target.formats[:1], _quickest(node))[0]
        if format == BLOCKS and in_blocks(node):
            few = node.inputs[0].shape[1] < BLOCK and node.inputs[0].format != BLOCKS
            return arranged(node.name, BLOCKS, PLAIN if few else BLOCKS)
        return arranged(node.name, BATCH_INNERMOST if format == BATCH_INNERMOST else PLAIN)

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        result, self.scratch = node.outputs[0], 0
        if 0 in (*node.inputs[0].shape, *node.inputs[1].shape):
            self.source = Source(NOTHING % result.nbytes)
            return
        v = vectors(result.dtype, node.masked)
        self.source, self.scratch = source(TEXTS[node.name](node, v), v)

    def workspace(self) -> tuple[ArraySpec, ...]:
        return (ArraySpec((self.scratch,), self.node.outputs[0].dtype),) if self.scratch else ()


def in_blocks(node: KernelNode) -> bool:
    """True where there is a kernel for channels in blocks."""
    if node.name != "Conv2DInputGrad":
        return bool(node.attrs["groups"] == 1)
    pairs = zip(node.outputs[0].shape[2:], node.attrs["stride"], strict=True)
    return node.attrs["groups"] == 1 and all(n >= s for n, s in pairs)


def _quickest(node: KernelNode) -> str:
    """The batch innermost where a pixel of all images fills whole cache lines; else channels in
    blocks, if they fill them and are enough to pay for conversions, or so few that only the results
    are converted."""
    (images, channels, *_), item = node.inputs[0].shape, node.outputs[0].dtype.itemsize
    if images <= MOST and images * item % LINE == 0:
        return BATCH_INNERMOST
    other = node.inputs[1] if node.name == "Conv2DWeightGrad" else node.outputs[0]
    filters = node.outputs[0] if node.name == "Conv2DWeightGrad" else node.inputs[1]
    enough = channels % BLOCK == 0 and channels * prod(filters.shape[2:]) >= WORTH
    full = other.shape[1] % BLOCK == 0 and (enough or channels < BLOCK)
    return BLOCKS if full and in_blocks(node) else PLAIN


for _name in TEXTS:
    _plain = [parse(f"{c}{c}->{c}") for c in SCALARS]
    _every: list[Spec] = [*_plain, *(declared(_name, s, BATCH_INNERMOST) for s in _plain)]
    _every += [declared(_name, s, BLOCKS, first) for s in _plain for first in (PLAIN, BLOCKS)]
    kernel(_name, "cpu", *_every, provider="cc", total=True)(Convolution)
