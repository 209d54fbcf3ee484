"""The library's CUDA kernels, a module per family; registered with the first CUDA device."""

from ....families import load
from . import expressions as expressions

load(__name__, __path__)
