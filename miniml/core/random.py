"""Random streams: a key and an offset into the blocks of a counter-based generator."""

from __future__ import annotations

import os

import numpy as np

from .access import Access
from .options import integer
from .parameter import Parameter, before_write
from .tensor import Tensor


class Generator:
    """A stream of Philox 4x32-10 blocks: `state` holds (key, offset) as uint64.

    Drawing advances the offset by the number of blocks used, so equal seeds give equal numbers
    and a stream can be resumed from its state. A forked child continues the stream of its parent:
    reseed it if it is to draw other numbers.
    """

    def __init__(self, seed: int | None = None):
        # On the CPU, whatever the device of the draws: programs copy it there.
        self.state = Parameter(np.zeros(2, np.uint64), "random_state", False, "cpu")
        self.manual_seed(int.from_bytes(os.urandom(8), "little") if seed is None else seed)

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of `seed` (any int, taken modulo 2**64) at its beginning."""
        self.state.set_data(np.array([integer("manual_seed", "seed", seed) % 2**64, 0], np.uint64))
        return self

    def __repr__(self) -> str:
        key, offset = self.state.tolist()
        return f"Generator(key={key}, offset={offset})"

    def reserve(self, blocks: int) -> Tensor:
        """The state before a draw of `blocks` blocks, which are taken from the stream."""
        return Access("a random draw", (self.state,)).run(self._take, blocks)

    def _take(self, blocks: int) -> Tensor:
        before = Tensor(self.state.asnumpy())
        before_write(self.state)
        self.state._buffer[1] += np.uint64(blocks)
        return before


default_generator = Generator(0)
random_state = default_generator.state  # a Parameter: what an exact resume saves and loads


def manual_seed(seed: int) -> Generator:
    """Seed the default generator, from which `ops.uniform`, dropout and initializers draw.

    It starts with seed 0 in every process: unseeded runs are equal, unlike NumPy's and PyTorch's.
    """
    return default_generator.manual_seed(seed)
