"""The library's CUDA kernels, a module per family; registered with the first CUDA device.

Beside the families are the scalar expressions, and algorithms long enough for a file: for one
primitive each (`einsum`), or for several.
"""

from ....families import load
from . import einsum as einsum
from . import expressions as expressions

load(__name__, __path__)
