"""What one process gives native kernels: threads, a BLAS on one thread, and the player's C."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..device import cpu_threads
from ..openblas import openblas
from . import units
from .source import Source

_FOLDER = Path(__file__).parent / "text"
_PYTHON = ("PyEval_SaveThread", "PyEval_RestoreThread", "PyLong_FromLong")


class _Services(ctypes.Structure):
    """`miniml_services` of source.py."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("parallel", "sgemm", "dgemm")]


class Player(NamedTuple):
    """Addresses in player.c: the definitions of two methods, and two kernels."""

    unusable: int
    run: int
    copy: int
    loop: int


@cache
def source() -> Source:
    """The C of the services and the player."""
    texts = [(_FOLDER / name).read_text("utf-8") for name in ("services.c", "player.c")]
    return Source("\n".join(texts))


@cache
def player() -> Player:
    """Compile and begin the services, which all units get from now on. Errors: as `units.load`."""
    blas = openblas()
    given = np.array(
        [
            *(_address(getattr(ctypes.pythonapi, name)) for name in _PYTHON),
            id(np.ndarray),
            object.__basicsize__,
            *((0, 0, 0, 0) if blas is None else blas.addresses()),
            cpu_threads(),
        ],
        np.int64,
    )
    made = np.zeros(7, np.int64)
    units.run(source(), (given, made))
    units.provide(_Services(*made[:3].tolist()))
    return Player(*made[3:].tolist())


def load(sources: Sequence[Source]) -> None:
    """Compile what the cache lacks of these kernels, and give them the services. Errors: as
    `units.load`."""
    units.load([source(), *sources])
    player()


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0
