"""Kernels that are right, and what breaks each of them: the faults the simulator must report."""

from . import bounds, matrices, meetings, memory, numbers, races, structures
from .case import Case

CASES: tuple[Case, ...] = (
    races.CASES
    + bounds.CASES
    + memory.CASES
    + meetings.CASES
    + numbers.CASES
    + matrices.CASES
    + structures.CASES
)
