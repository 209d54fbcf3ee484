"""NumPy kernels for the CPU, one module per family; importing the package registers all."""

from ...families import load

load(__name__, __path__)
from . import formats as formats  # noqa: E402  # of the kernels that are registered by now
