"""Windows that move along the axes of an image: how many there are, and what lies in each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ...abstract import Shape
from ...errors import ShapeError

Array = np.ndarray[Any, Any]
Step = tuple[int, int, tuple[int, int]]  # size, stride, padding: what pooling takes of an axis
ONE: Step = (1, 1, (0, 0))  # which leaves it as it is


@dataclass(frozen=True)
class Axis:
    """The windows of one axis of `extent` elements: each of `size` elements, `dilation` apart, one
    beginning every `stride` elements, the first `before` elements ahead of the axis.

    after: the padding behind. ceil: whether a last window may reach beyond that; it begins in the
    axis or in the padding ahead of it.
    """

    extent: int
    size: int
    stride: int = 1
    dilation: int = 1
    before: int = 0
    after: int = 0
    ceil: bool = False

    @property
    def reach(self) -> int:
        """How many elements a window spans: dilation * (size - 1) + 1."""
        return self.dilation * (self.size - 1) + 1

    @cached_property
    def count(self) -> int:
        """The number of windows; 0 where the padded axis is shorter than one."""
        room = self.extent + self.before + self.after - self.reach
        count = (-(-room // self.stride) if self.ceil else room // self.stride) + 1
        if self.ceil and (count - 1) * self.stride >= self.extent + self.before:
            count -= 1
        return max(count, 0)

    @cached_property
    def behind(self) -> int:
        """The padding behind that the last window needs: with ceil it may be more than `after`."""
        return max((self.count - 1) * self.stride + self.reach - self.extent - self.before, 0)

    @property
    def overhangs(self) -> bool:
        """Whether the last window reaches beyond the padding, as it may with ceil."""
        return self.behind > self.after

    def places(self) -> Array:
        """(count, size): which element of the axis each of each window is; outside of 0 to
        extent - 1 it is padding."""
        first = np.arange(self.count)[:, None] * self.stride - self.before
        return np.asarray(first + np.arange(self.size) * self.dilation)

    def sizes(self, with_padding: bool) -> Array:
        """(count,): how many elements of each window lie in the axis, or in its padding."""
        low, high = (self.before, self.after) if with_padding else (0, 0)
        places = self.places()
        inside = (places >= -low) & (places < self.extent + high)
        return np.asarray(inside.sum(1))

    @cached_property
    def step(self) -> Step | None:
        """What pooling takes; None for windows that are not runs of elements, or lie in the
        padding alone, so that they have to be laid apart."""
        pads = self.before, self.behind
        runs = self.dilation == 1 and max(pads) < self.size and self.extent
        return (self.size, self.stride, pads) if runs else None


@dataclass(frozen=True)
class Shares:
    """An axis cut into `count` windows as equal as can be: window i has the elements from
    floor(i * extent / count) to ceil((i + 1) * extent / count), that one excluded."""

    extent: int
    count: int
    overhangs: ClassVar[bool] = False

    @cached_property
    def bounds(self) -> Array:
        """(count, 2): where each window begins and ends."""
        i = np.arange(self.count)
        return np.stack([i * self.extent // self.count, -(-(i + 1) * self.extent // self.count)], 1)

    @property
    def size(self) -> int:
        """Elements of the longest window."""
        return int(self.sizes().max(initial=1))

    def places(self) -> Array:
        """(count, size): as for Axis; shorter windows end in the padding."""
        places = self.bounds[:, :1] + np.arange(self.size)
        return np.where(places < self.bounds[:, 1:], places, self.extent)

    def sizes(self, with_padding: bool = False) -> Array:
        """(count,): how many elements each window has; the padding counts for none."""
        return np.asarray(self.bounds[:, 1] - self.bounds[:, 0])

    @cached_property
    def step(self) -> Step | None:
        """What pooling takes; None where not all windows are equal."""
        if not self.count or self.extent % self.count:
            return None
        return self.size, self.size, (0, 0)


def axes_of(
    name: str,
    extents: Shape,
    kernel: Shape,
    stride: Shape,
    padding: tuple[tuple[int, int], ...],
    dilation: Shape,
    ceil: bool = False,
) -> tuple[Axis, ...]:
    """The windows of each axis; ShapeError where none fits."""
    rows = zip(extents, kernel, stride, dilation, padding, strict=True)
    axes = tuple(Axis(n, k, s, d, *pads, ceil) for n, k, s, d, pads in rows)
    for axis in axes:
        whole = axis.extent + axis.before + axis.after
        if not axis.count:
            raise ShapeError(
                f"{name} cannot fit a window of {kernel} with dilation {dilation} into an image of "
                f"{extents} with padding {padding}; one axis has {axis.extent} + {axis.before} + "
                f"{axis.after} = {whole} pixels for a window of {axis.reach}; pad more"
            )
    return axes
