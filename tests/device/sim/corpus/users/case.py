"""A kernel as users write it, with its NumPy reference and the faults planted in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.device import emucupy as cp

Array = Any


@dataclass(frozen=True)
class UserKernel:
    """A kernel `text` (@ stands for its head) on NumPy arrays, the last of which it fills.

    plants: (kind of fault, what is replaced, by what); a fault is on a line that bears //!, or on
    any line where none does.
    """

    name: str
    text: str
    arrays: Callable[[], tuple[Array, ...]]
    reference: Callable[..., Array]
    plants: tuple[tuple[str, str, str], ...]
    scalars: tuple[Any, ...] = ()
    grid: tuple[int, ...] = (1,)
    block: tuple[int, ...] = (64,)
    shared_mem: int = 0
    zeroed: bool = False

    def source(self, plant: int = -1) -> str:
        text, name = self.text.strip("\n"), self.name
        if plant >= 0:
            _, old, new = self.plants[plant]
            assert old in text, f"{self.name}: {old}"
            text, name = text.replace(old, new, 1), f"{name}_{plant}"
        head = f'extern "C" __global__ void {name}'
        for helper in ("Pair", "helper"):
            text = text.replace(f"{helper}_", f"{helper}_{name}_")
        return text.replace("@", head, 1) + "\n"

    def launch(self, unit: Any, plant: int = -1) -> Array:
        """What it leaves in its last array."""
        arrays = [cp.asarray(a) for a in self.arrays()]
        if not self.zeroed:
            arrays[-1] = cp.empty(arrays[-1].shape, arrays[-1].dtype)
        name = self.name if plant < 0 else f"{self.name}_{plant}"
        args = (*arrays, *self.scalars)
        unit.get_function(name)(self.grid, self.block, args, shared_mem=self.shared_mem)
        return arrays[-1].get()

    def expected(self) -> Array:
        return self.reference(*self.arrays()[:-1])


def f(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def k(high: int, *shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).integers(0, high, shape).astype(np.int32)


def o(*shape: int, dtype: Any = np.float32) -> Array:
    return np.zeros(shape, dtype)


i32 = np.int32
SYNC = "__syncthreads();"
