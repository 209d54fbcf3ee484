"""NumPy kernels for the CPU, a module per family; importing the package registers them all."""

from ...families import load

load(__name__, __path__)
