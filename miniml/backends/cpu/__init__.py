"""NumPy kernels for the CPU, one module per family; importing the package registers all."""

from ...core import load

load(__name__, __path__)
from . import formats as formats  # noqa: E402  # wraps the kernels that are registered by now
