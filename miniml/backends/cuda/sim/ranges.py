"""The device memory that a launch may access: ranges that neither overlap nor adjoin."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .arguments import KernelParameter, Pointer
from .memory import DeviceAllocation

# Overruns by less than this are found; ranges closer to a neighbour are moved for the launch.
APART = 64


@dataclass(slots=True)
class Range:
    """Bytes of an allocation that some arguments point into; const if all of them are."""

    allocation: DeviceAllocation
    start: int
    nbytes: int
    const: bool
    granule: int
    arguments: list[int] = field(default_factory=list)
    origin: tuple[DeviceAllocation, int] | None = None

    @property
    def end(self) -> int:
        """The offset past its last byte."""
        return self.start + self.nbytes

    def move_away(self, slots: Any) -> None:
        """Copies the range to memory of its own for one launch, and redirects its arguments."""
        own = DeviceAllocation(self.nbytes)
        own.bytes[:] = self.allocation.bytes[self.start : self.end]
        if self.allocation.initialised is None:
            own.initialised = None
        elif own.initialised is not None:
            own.initialised[:] = self.allocation.initialised[self.start : self.end]
        moved = own.address - self.allocation.address - self.start
        for i in self.arguments:
            ctypes.c_uint64.from_address(slots[i]).value += moved
        self.origin = (self.allocation, self.start)
        self.allocation, self.start = own, 0

    def give_back(self) -> None:
        """Copies the launch's writes back to the original memory."""
        if self.origin is None:
            return
        home, start = self.origin
        if not self.const:
            home.bytes[start : start + self.nbytes] = self.allocation.bytes
            if home.initialised is not None and self.allocation.initialised is not None:
                home.initialised[start : start + self.nbytes] = self.allocation.initialised


def merged(pointers: Sequence[tuple[int, Pointer, KernelParameter]]) -> list[Range]:
    """The arguments in the order of their addresses, those that overlap as one range."""
    ranges: list[Range] = []
    for i, pointer, parameter in sorted(pointers, key=lambda p: p[1].address):
        size = parameter.pointee_size
        granule = 4 if size % 4 == 0 else 2 if size % 2 == 0 else 1
        last = ranges[-1] if ranges else None
        if last and last.allocation is pointer.allocation and pointer.offset < last.end:
            last.nbytes = max(last.end, pointer.offset + pointer.nbytes) - last.start
            last.const = last.const and parameter.pointee_const
            last.granule = min(last.granule, granule)
            last.arguments.append(i)
            continue
        ranges.append(
            Range(
                pointer.allocation, pointer.offset, pointer.nbytes, parameter.pointee_const,
                granule, [i],
            )
        )  # fmt: skip
    return ranges


def separate(ranges: list[Range], slots: Any) -> list[Range]:
    """Moves ranges that are close behind another, so that none can be reached by running over."""
    before: tuple[DeviceAllocation, int] | None = None
    for part in ranges:
        near = (
            before is not None and before[0] is part.allocation and part.start - before[1] < APART
        )
        before = (part.allocation, part.end)
        if near:
            part.move_away(slots)
    return ranges
