"""Kernels as users write them, each with its NumPy reference and the faults planted in it."""

from . import lists, sums, tiles
from .case import UserKernel

KERNELS: tuple[UserKernel, ...] = lists.KERNELS + sums.KERNELS + tiles.KERNELS
