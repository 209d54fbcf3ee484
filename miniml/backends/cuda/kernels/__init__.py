"""The library's CUDA kernels, a module per family; registered with the first CUDA device."""

from ....core import load

load(__name__, __path__)
