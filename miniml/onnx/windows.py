"""Windows that move over the axes of an image behind the first two: extents, padding, positions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import OnnxError
from .known import Array, counted, table
from .operators import Ints


@dataclass(frozen=True)
class Axis:
    """The windows along one axis: `count` of them, each `size` elements `dilation` apart."""

    extent: int
    size: int
    stride: int
    dilation: int
    before: int
    after: int  # the padding declared
    count: int

    @property
    def reach(self) -> int:
        """How many elements of the axis a window spans."""
        return self.dilation * (self.size - 1) + 1

    @property
    def needed_after(self) -> int:
        """The padding behind that the last window needs: with ceil_mode more than is declared."""
        return max((self.count - 1) * self.stride + self.reach - self.extent - self.before, 0)

    def places(self) -> Array:
        """(count, size): which element of the padded axis each element of each window is."""
        table(self.count, self.size)
        first = counted(self.count)[:, None] * self.stride
        return np.asarray(first + counted(self.size) * self.dilation)

    def sizes(self, with_padding: bool) -> Array:
        """(count,): how many elements of each window lie in the axis, or in declared padding."""
        places = self.places() - self.before
        low, high = (self.before, self.after) if with_padding else (0, 0)
        inside: Array = (places >= -low) & (places < self.extent + high)
        return np.asarray(inside.sum(1))


def axes_of(
    extents: Ints,
    kernel: Ints,
    strides: Ints | None,
    dilations: Ints | None,
    pads: Ints | None,
    auto_pad: str,
    ceil_mode: int = 0,
) -> tuple[Axis, ...]:
    """The windows along each axis; OnnxError where the attributes differ in number or are not
    positive."""
    n = len(extents)
    sizes = kernel, strides or (1,) * n, dilations or (1,) * n
    around = pads or (0,) * 2 * n
    if n == 0 or [len(g) for g in (*sizes, around)] != [n, n, n, 2 * n]:
        raise OnnxError(
            f"got kernel {kernel}, strides {strides}, dilations {dilations} and pads {pads} for "
            f"{n} axes; expected one of each, and two pads, for an axis"
        )
    if min(map(min, sizes)) < 1 or min(around) < 0:
        raise OnnxError(
            f"kernel {kernel}, strides {strides} and dilations {dilations} are >= 1, pads >= 0"
        )
    rows: Iterator[Ints] = zip(extents, *sizes, around[:n], around[n:], [0] * n, strict=True)
    return tuple(_axis(Axis(*row), auto_pad, ceil_mode) for row in rows)


def _axis(a: Axis, auto_pad: str, ceil_mode: int) -> Axis:
    """The axis with the windows counted, and padded as `auto_pad` says."""
    if auto_pad.startswith("SAME"):
        count = -(-a.extent // a.stride)
        total = max((count - 1) * a.stride + a.reach - a.extent, 0)
        before = total // 2 if auto_pad == "SAME_UPPER" else -(-total // 2)
        return replace(a, before=before, after=total - before, count=count)
    if auto_pad not in ("NOTSET", "VALID"):
        raise OnnxError(f"auto_pad {auto_pad!r} is not NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    a = a if auto_pad == "NOTSET" else replace(a, before=0, after=0)
    room = a.extent + a.before + a.after - a.reach
    count = (-(-room // a.stride) if ceil_mode else room // a.stride) + 1
    if ceil_mode and (count - 1) * a.stride >= a.extent + a.before:
        count -= 1  # a window that begins in the padding behind
    return replace(a, count=max(count, 0))


def spatial(x: Any, at_least: int = 1) -> Ints:
    """The extents behind (N, C); OnnxError where there are none."""
    if len(x.shape) < 2 + at_least:
        raise OnnxError(f"got shape {tuple(x.shape)}; expected (N, C, ...) with axes behind")
    return tuple(int(n) for n in x.shape[2:])


def along(axis: int, ndim: int) -> Ints:
    """The shape of a vector that broadcasts along one axis."""
    return tuple(-1 if i == axis else 1 for i in range(ndim))
