"""The images of a convolution's input in the order in which its tiles read them."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from ..signature import ArraySpec
from .windows import Windows

BATCH_INNERMOST, BLOCKS = "CHWN", "NC16HW"


class Planes(NamedTuple):
    """An input's images, surrounded by zeros, in the workspace or, where it has this order already,
    where they are.

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
    def there(self) -> bool:
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
        """The parts in which the input is brought into order."""
        images, channels = self.spec.shape[:2]
        if self.lanes and self.spec.format != BLOCKS:
            return 0 if self.there else channels
        return 0 if self.there else images * prod(self.spec.stored[1:2])

    def offset(self, row: int, column: int) -> int:
        """Of a padded pixel from the first."""
        if self.lanes:
            return (row * self.pitch + column) * self.lanes
        sh, sw = self.windows.step
        return (row % sh * sw + column % sw) * self.plane + row // sh * self.pitch + column // sw

    def text(self, name: str, slot: int, start: int) -> str:
        """The macro KERNEL_name, where the images are, and the function KERNEL_enter_name, which
        brings one part of input `slot` to element `start` of the workspace."""
        if self.there:
            return (
                f"#define KERNEL_{name} ((const REAL *)at[{slot}])\n"
                f"static void KERNEL_enter_{name}(void *data, long part) {{}}\n"
            )
        given = self.spec.format is not None
        side, *shape = self.spec.shape
        enter = ("surround" if given else "turn") if self.lanes else "spread"
        numbers = (
            self.spec.stored[-1] if given else side, *shape, *self.windows.before, self.pitch,
            self.lanes, self.image, self.channel, self.plane, *self.windows.step,
        )  # fmt: skip
        return (
            f"#define KERNEL_{name} ((REAL *)at[KERNEL_SCRATCH] + {start})\n"
            f"static const REAL_planes KERNEL_{name}_planes = {{{', '.join(map(str, numbers))}}};\n"
            f"static void KERNEL_enter_{name}(void *data, long part) {{\n"
            "  char *const *at = data;\n"
            f"  REAL_{enter}(&KERNEL_{name}_planes, (const REAL *)at[{slot}], KERNEL_{name}, part);"
            "\n}\n"
        )


def blocks(spec: ArraySpec, windows: Windows) -> Planes:
    """Channels in blocks; a few channels that are not are one plane each."""
    plain = windows._replace(step=(1, 1))
    if spec.format != BLOCKS:
        return planes(spec, plain, 1, batch=False)
    lanes, (rows, columns) = spec.stored[-1], windows.padded
    plane = rows * columns * lanes
    return Planes(spec, windows, lanes, columns, 0, plane, spec.stored[1] * plane)


def planes(spec: ArraySpec, windows: Windows, width: int, batch: bool, aligned: int = 1) -> Planes:
    """batch: innermost, rounded up to `width`; else rows are rounded up to `aligned`."""
    images, channels = spec.shape[:2]
    rows, columns = windows.padded
    if batch:
        lanes = -(-images // width) * width
        return Planes(spec, windows, lanes, columns, 0, rows * columns * lanes, 0)
    sh, sw = windows.step
    pitch = -(-columns // (sw * aligned)) * aligned
    plane = -(-rows // sh) * pitch
    return Planes(spec, windows, 0, pitch, plane, sh * sw * plane, channels * sh * sw * plane)


def fills_lanes(spec: ArraySpec, windows: Windows, width: int) -> bool:
    """True for a batch that is innermost, or where it pays to bring it there: if with pixels in
    its place a quarter more lanes would be idle."""
    if spec.format == BATCH_INNERMOST:
        return True
    images, pixels = spec.shape[0], prod(windows.phases[0].size)
    pitch = planes(spec, windows, width, batch=False).pitch
    rows, columns = windows.phases[0].size
    run = -(-((rows - 1) * pitch + columns) // width) * width
    lanes = -(-images // width) * width
    return 4 * images * run >= 5 * pixels * lanes
