"""The arithmetic of 2-d convolution: which pixels its taps read, for the kernels in C."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby, product
from typing import Any, NamedTuple

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
    """How outputs are computed from an image: out[spread * p + first] = sum of filter[t] *
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
    """Of a convolution, and of its gradient in the filters."""
    (top, bottom), (left, right) = attrs["padding"]
    dh, dw = attrs["dilation"]
    taps = tuple((i * dh, j * dw, i * kernel[1] + j) for i, j in product(*map(range, kernel)))
    padded = image[0] + top + bottom, image[1] + left + right
    phase = Phase(output, (0, 0), taps)
    return Windows(image, output, (top, left), padded, attrs["stride"], (1, 1), (phase,))


def transposed(
    slopes: Pair, kernel: Pair, image: Pair, attrs: Mapping[str, Any], trimmed: bool
) -> Windows:
    """Of the gradient in the image, a convolution of `slopes`: pixels whose row and column leave
    the same remainders by the stride meet the same taps.

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


Run = tuple[int, int, tuple[Pair, ...]]  # the first pixel, how many, (what the first reads, tap)


def _runs(
    taps: int, pixels: int, limit: int, stride: int, dilation: int, padding: Pair
) -> Iterator[Run]:
    """Of one axis: runs of pixels, `stride` apart, that have the same taps."""
    for start in range(min(stride, pixels)):
        met = ((start + padding[0] - i * dilation, i) for i in range(taps))
        reads = [(at // stride, i) for at, i in met if at % stride == 0]
        size = -(-(pixels - start) // stride)

        def inside(p: int, reads: list[Pair] = reads) -> tuple[Pair, ...]:
            return tuple((at, i) for at, i in reads if not limit or 0 <= at + p < limit)

        for found, run in groupby(range(size), inside):
            places = [*run]
            moved = tuple((at + places[0], i) for at, i in found)
            yield start + places[0] * stride, len(places), moved
