"""Settings of the simulator: mode, schedule, seed; one value per context."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

MODES = ("check", "fast")
SCHEDULES = ("forward", "reverse", "shuffled")


@dataclass(frozen=True, slots=True)
class SimSettings:
    """mode: "check" checks every memory access, "fast" none.
    schedule: the order of blocks, and of the threads of a block.
    seed: of the "shuffled" schedule, which may also change threads at any checked access.
    deferred: launches wait in their stream until it is synchronised, as on a GPU.
    seconds: of the machine's work, after which a launch counts as hung; in fast mode ten times
    as many.
    """

    mode: str = "check"
    schedule: str = "forward"
    seed: int = 0
    deferred: bool = False
    seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode {self.mode!r} of the CUDA simulator; one of {MODES}")
        if self.schedule not in SCHEDULES:
            raise ValueError(
                f"schedule {self.schedule!r} of the CUDA simulator; one of {SCHEDULES}"
            )


def _initial() -> SimSettings:
    """MINIML_SIM is a mode; MINIML_SIM_SCHEDULE a schedule, with a seed as in shuffled:3;
    MINIML_SIM_SECONDS the time of a launch."""
    schedule, _, seed = os.environ.get("MINIML_SIM_SCHEDULE", "forward").partition(":")
    seconds = float(os.environ.get("MINIML_SIM_SECONDS", "60"))
    mode = os.environ.get("MINIML_SIM", "check")
    return SimSettings(mode, schedule, int(seed or 0), seconds=seconds)


_default = _initial()
_here: ContextVar[SimSettings | None] = ContextVar("miniml_cuda_sim", default=None)


def current() -> SimSettings:
    """The settings of this context."""
    return _here.get() or _default


@contextmanager
def using(**changes: Any) -> Iterator[SimSettings]:
    """Other settings inside a `with`, in this context only."""
    settings = replace(current(), **changes)
    token = _here.set(settings)
    try:
        yield settings
    finally:
        _here.reset(token)
