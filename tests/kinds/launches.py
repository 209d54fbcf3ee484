"""A kernel of CUDA C and what it is launched on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from miniml.backends.cuda.sim.memory import using
from tests.device import emucupy as cp


@dataclass(frozen=True)
class Launched:
    """text: @ stands for the head of the kernel, which is given x and y, a number for each thread,
    and n, how many these are. kind: of the fault, "" where what its kind says holds.
    """

    text: str
    kind: str = ""
    block: tuple[int, ...] = (64,)
    grid: tuple[int, ...] = (2,)
    types: tuple[str, str] = ("float", "float")
    shared: int = 0
    fill: bool = False  # y is zeroed before
    seconds: float = 20.0  # after which it hangs

    def launch(self, seed: int) -> None:
        """The numbers and the order of threads are drawn by the seed."""
        count = int(np.prod(self.block) * np.prod(self.grid))
        of_x, of_y = (
            getattr(np, {"float": "float32", "double": "float64", "int": "int32"}[t])
            for t in self.types
        )
        head = f'extern "C" __global__ void k(const {self.types[0]}* x, {self.types[1]}* y, int n)'
        function = cp.RawModule(code=self.text.replace("@", head)).get_function("k")
        x = cp.asarray((8 * np.random.default_rng(seed).random(count)).astype(of_x))
        y = cp.zeros(count, of_y) if self.fill else cp.empty(count, of_y)
        with using(mode="check", schedule="shuffled", seed=seed, seconds=self.seconds):
            function(self.grid, self.block, (x, y, np.int32(count)), shared_mem=self.shared)
