"""Kernels that are right, and what breaks each of them: the faults the simulator must report."""

from . import barriers, bounds, matrices, memory, numbers, races, structures
from .case import Case

CASES: tuple[Case, ...] = (
    races.CASES
    + bounds.CASES
    + memory.CASES
    + barriers.CASES
    + numbers.CASES
    + matrices.CASES
    + structures.CASES
)
