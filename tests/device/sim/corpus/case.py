"""A kernel that is right, and what breaks it.

Every kernel is written once. `broken` replaces a part of its text; the fault must then be reported
with its kind, on a line that bears the mark //!.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.device import emucupy as cp


@dataclass(frozen=True)
class Case:
    """A kernel `text` (@ stands for its head), its launch, and the replacement that breaks it."""

    name: str
    kind: str
    text: str
    broken: tuple[str, str]
    args: Callable[[], tuple[Any, ...]]
    grid: tuple[int, ...] = (1,)
    block: tuple[int, ...] = (64,)
    shared_mem: int = 0
    broken_args: Callable[[], tuple[Any, ...]] | None = None
    broken_shared_mem: int | None = None

    def source(self, breaks: bool) -> str:
        text = self.text.strip("\n")
        if breaks:
            old, new = self.broken
            assert old in text or not old, self.name
            text = text.replace(old, new, 1) if old else text
        return text.replace("@", f'extern "C" __global__ void {self.name}', 1) + "\n"


def f(n: int) -> Any:
    """0, 1, 2, ... in device memory."""
    return cp.asarray(np.arange(n, dtype=np.float32))


def z(n: int, dtype: Any = np.float32) -> Any:
    return cp.zeros(n, dtype)


def e(n: int, dtype: Any = np.float32) -> Any:
    return cp.empty(n, dtype)


def i(*values: int) -> Any:
    return cp.asarray(np.array(values, np.int32))


n32 = np.int32
